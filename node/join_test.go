package node

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/member"
	hashslot "github.com/redquorum/redquorum/slot"
)

// A batch of these returns for each item what it is, and the argument behind its bucket.
const (
	itemScript  = `return ARGV[3]`
	itemsScript = `local out, arg = {}, 2
for i = 1, #ARGV[1] do
  if string.byte(ARGV[1], i) < 52 then arg = arg + 1 end -- its bucket
end
for i = 1, #ARGV[1] do
  local kind = string.byte(ARGV[1], i)
  out[i] = (kind < 56 and 'a ' or 'r ') .. ARGV[arg]
  arg = arg + 1
  if kind == 56 or kind < 56 and kind % 2 == 0 then arg = arg + 1 end -- it has its last argument
end
return out`
)

// item is a call that may travel with others: an acquire (a) has one key, a release (r) has three; and its bucket and two
// more arguments.
func item(letter byte, name, arg string) *result { return itemWith(letter, name, arg, "more") }

func itemWith(letter byte, name, arg, last string) *result {
	n := map[byte]int{'a': 1, 'r': 3}[letter]
	args := []string{"EVALSHA", scriptSHA(itemScript), fmt.Sprint(2 + n), name, member.TokensKey, member.MarkerKey}
	for i := 1; i < n; i++ {
		args = append(args, fmt.Sprint(name, ":", i))
	}
	r := newCall(append(args, strconv.Itoa(int(hashslot.Of(name))), arg, last, "tag")...)
	r.Cmd, r.Tagged = r.Cmd[:len(r.Cmd)-len("$3\r\ntag\r\n")], true
	r.Marks = marks(r.Cmd, 2)
	r.Slot = hashslot.Of(name)
	r.Item = &member.Item{Batch: scriptSHA(itemsScript), Kind: map[byte]byte{'a': member.AcquireItem, 'r': member.ReleaseItem}[letter]}
	return r
}

// joinedItem is one item as a server finds it in a command. what: a = acquire, c = a chained one, r = release.
type joinedItem struct{ what, name, arg, last string }

// unjoin takes a command for several items apart, as the text of the protocol says.
func unjoin(t *testing.T, args []string) (items []joinedItem, tag string) {
	t.Helper()
	n, err := strconv.Atoi(args[2])
	if err != nil {
		t.Fatal(err)
	}
	keys, args := args[3:3+n], args[3+n:]
	kinds, args, sharded := args[0], args[1:], n == 0
	if sharded {
		owners, err := strconv.Atoi(args[0])
		if err != nil {
			t.Fatal(err)
		}
		keys, args = args[1:owners-2], args[owners-2:]
	} else {
		if keys[0] != member.TokensKey || keys[1] != member.MarkerKey {
			t.Errorf("shared keys %q", keys[:2])
		}
		keys = keys[2:]
	}
	take := func(list *[]string) string {
		first := (*list)[0]
		*list = (*list)[1:]
		return first
	}
	var locks, queues, buckets []string
	for _, kind := range kinds {
		if kind < '4' {
			locks = append(locks, take(&keys))
			buckets = append(buckets, take(&args))
		}
	}
	for _, kind := range kinds {
		if kind >= '8' {
			queues = append(queues, take(&keys))
		}
	}
	listed, tag := args[len(args)-2], args[len(args)-1]
	args = args[:len(args)-2]
	ttl := ""
	for _, kind := range kinds {
		i := joinedItem{arg: take(&args)}
		bucket := ""
		if kind < '4' {
			i.name, bucket = take(&locks), take(&buckets)
		} else {
			i.name, bucket, listed = take(&keys), strings.TrimSpace(listed[:member.SlotWidth]), listed[member.SlotWidth:]
			if sharded {
				if got, want := take(&keys), member.TokensKey+":{"+hashslot.TagOf(hashslot.Of(i.name))+"}"; got != want {
					t.Errorf("counters of %q: %q", i.name, got)
				}
			}
		}
		if want := strconv.Itoa(int(hashslot.Of(i.name))); bucket != want {
			t.Errorf("bucket of %q: %q", i.name, bucket)
		}
		switch {
		case kind >= '8':
			i.what = "r"
			if got := take(&queues); got != i.name+":1" {
				t.Errorf("queue of %q: %q", i.name, got)
			}
			if kind == '8' {
				i.last = take(&args)
				if got := take(&keys); got != i.name+":2" {
					t.Errorf("waiters of %q: %q", i.name, got)
				}
			}
		case kind%2 == 0:
			ttl = take(&args)
			fallthrough
		default:
			i.what, i.last = string("ac"[kind>>1&1]), ttl
		}
		items = append(items, i)
	}
	if len(keys) > 0 || len(args) > 0 || listed != "" {
		t.Errorf("left over: %q %q %q", keys, args, listed)
	}
	return items, tag
}

// together has calls wait in line until all of them do.
func together(n *Node, calls ...*result) {
	s := n.published.Load().session
	s.mu.Lock()
	for s.flushing || s.turn { // whoever wrote before has answers already, and is about to say that it is done
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
	}
	s.flushing = true
	s.mu.Unlock()
	for _, c := range calls {
		n.Submit(&c.Call)
	}
	s.wake()
}

// wake has the flusher write what waits in line.
func (s *session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wakeLocked()
}

// joining starts a node at a server that answers as handle says.
func joining(t *testing.T, handle func(id int64, args []string) string, edit ...func(*Config)) (*Node, *fake) {
	t.Helper()
	f := newFake(handle)
	c := Config{Dialer: f, Scripts: []string{itemScript, itemsScript}, PingInterval: time.Hour, StallTimeout: time.Hour, BackoffMin: time.Millisecond}
	for _, e := range edit {
		e(&c)
	}
	n := up(t, c)
	n.setTag("id")
	return n, f
}

// isBatch tells the command that carries items.
func isBatch(args []string) bool { return args[0] == "EVALSHA" && args[1] == scriptSHA(itemsScript) }

func TestCallsThatWaitTravelTogether(t *testing.T) {
	var mu sync.Mutex
	var sent []string
	n, _ := joining(t, func(_ int64, args []string) string {
		if !isBatch(args) {
			return "default"
		}
		mu.Lock()
		defer mu.Unlock()
		sent = append(sent, strings.Join(args, " "))
		return "*3\r\n:7\r\n-WRONGTYPE no lock\r\n*2\r\n:1\r\n" + bulk("next")
	})
	calls := []*result{item('a', "one", "x"), item('r', "two", "y"), item('a', "three", "z")}
	together(n, calls...)
	for _, c := range calls {
		c.wait(t)
	}
	want := strings.Join([]string{"EVALSHA", scriptSHA(itemsScript), "7", member.TokensKey, member.MarkerKey, "one", "three", "two:1", "two", "two:2",
		"081", fmt.Sprint(hashslot.Of("one")), fmt.Sprint(hashslot.Of("three")), "x", "more", "y", "more", "z", fmt.Sprintf("%-6d", hashslot.Of("two")), "id"}, " ")
	mu.Lock()
	if len(sent) != 1 || sent[0] != want {
		t.Errorf("sent %q\nwant %q", sent, want)
	}
	mu.Unlock()
	if c := calls[0]; c.Outcome != member.Answered || c.Reply.Int != 7 {
		t.Errorf("first: %v %+v", c.Outcome, c.Reply)
	}
	var refused *member.ReplyError
	if c := calls[1]; c.Outcome != member.Refused || !errors.As(c.Err, &refused) || refused.Kind != member.KindForeign {
		t.Errorf("second: %v %v", c.Outcome, c.Err)
	}
	if c := calls[2]; c.Outcome != member.Answered || show(c.Reply) != "[1 next]" {
		t.Errorf("third: %v %+v", c.Outcome, c.Reply)
	}
	if calls, size := n.published.Load().session.inFlight(); calls != 0 || size != 0 {
		t.Errorf("%d calls and %d bytes are still in line", calls, size)
	}
}

// sentHere is the Hop of a call that another server sent here.
type sentHere struct{ member.Sink }

func (sentHere) Asking() bool { return true }

// What may not be joined, and where a batch ends. Each line is what is sent; a batch is its letters and names.
func TestCallsThatTravelApart(t *testing.T) {
	echo := func() *result { return newCall("ECHO", "between") }
	for _, c := range []struct {
		name  string
		calls func(n *Node) []*result
		edit  func(*Config)
		want  []string
	}{
		{name: "two are too few", calls: func(*Node) []*result {
			return []*result{item('a', "one", "x"), item('a', "two", "x")}
		}, want: []string{"one", "two"}},
		{name: "in order with others", calls: func(*Node) []*result {
			return []*result{item('a', "1", "x"), item('a', "2", "x"), item('r', "3", "x"), echo(),
				item('r', "4", "x"), item('a', "5", "x"), item('a', "6", "x"), item('a', "7", "x"), echo(), item('a', "8", "x")}
		}, want: []string{"aar 1 2 3", "between", "raaa 4 5 6 7", "between", "8"}},
		{name: "with another script", calls: func(*Node) []*result {
			other := item('a', "4", "x")
			other.Item.Batch = scriptSHA("another")
			return []*result{item('a', "1", "x"), item('a', "2", "x"), item('a', "3", "x"), other}
		}, want: []string{"aaa 1 2 3", "4"}},
		{name: "replicas must acknowledge", edit: func(c *Config) { c.MinReplicasAck = 1 }, calls: func(*Node) []*result {
			return []*result{item('a', "1", "x"), item('a', "2", "x"), item('a', "3", "x")}
		}, want: []string{"1", "WAIT", "2", "WAIT", "3", "WAIT"}},
		{name: "one that is asked for another master", calls: func(*Node) []*result {
			odd := item('a', "4", "x")
			odd.Hop = sentHere{odd.Sink}
			return []*result{item('a', "1", "x"), item('a', "2", "x"), item('a', "3", "x"), odd, item('a', "5", "x")}
		}, want: []string{"aaa 1 2 3", "ASKING", "4", "5"}},
		{name: "as many as a batch takes", calls: func(*Node) (out []*result) {
			for range joinMost + 3 {
				out = append(out, item('a', "n", "x"))
			}
			return out
		}, want: []string{strings.Repeat("a", joinMost) + strings.Repeat(" n", joinMost), "aaa n n n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, func(cfg *Config) {
				if c.edit != nil {
					c.edit(cfg)
				}
			})
			calls := c.calls(n)
			together(n, calls...)
			for _, c := range calls {
				if c.wait(t); c.Outcome != member.Answered {
					t.Errorf("%v: %v", c.Outcome, c.Err)
				}
			}
			if got, want := sent(), strings.Join(c.want, "\n"); got != want {
				t.Errorf("sent\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// recording starts a node at a server that answers every call with a number. sent tells what came: of a batch its letters
// and names.
func recording(t *testing.T, edit func(*Config)) (n *Node, sent func() string) {
	t.Helper()
	var mu sync.Mutex
	var all []string
	n, _ = joining(t, func(_ int64, args []string) string {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case isBatch(args):
			letters, line, answer := "", "", ""
			items, _ := unjoin(t, args)
			for _, i := range items {
				letters += i.what
				line += " " + i.name
				answer += ":1\r\n"
			}
			all = append(all, letters+line)
			return fmt.Sprintf("*%d\r\n%s", len(letters), answer)
		case args[0] == "EVALSHA":
			all = append(all, args[3])
			return ":1\r\n"
		case args[0] == "WAIT" || args[0] == "ASKING":
			all = append(all, args[0])
			return ":1\r\n"
		case args[0] == "ECHO":
			all = append(all, args[1])
		}
		return "default"
	}, edit)
	return n, func() string {
		mu.Lock()
		defer mu.Unlock()
		return strings.Join(all, "\n")
	}
}

// A batch carries one tag: calls that were submitted under different ones are not in one.
func TestBatchHasTheTagOfItsCalls(t *testing.T) {
	var mu sync.Mutex
	tags := map[string]int{}
	n, _ := joining(t, func(_ int64, args []string) string {
		if !isBatch(args) {
			return "default"
		}
		mu.Lock()
		tags[args[len(args)-1]]++
		mu.Unlock()
		return "*3\r\n:1\r\n:1\r\n:1\r\n"
	})
	s := n.published.Load().session
	s.mu.Lock()
	s.flushing = true
	s.mu.Unlock()
	var calls []*result
	for _, tag := range []string{"first", "second"} {
		n.setTag(tag)
		for range 3 {
			c := item('r', "name", "x")
			calls = append(calls, c)
			n.Submit(&c.Call)
		}
	}
	s.wake()
	for _, c := range calls {
		c.wait(t)
	}
	mu.Lock()
	defer mu.Unlock()
	if tags["first"] != 1 || tags["second"] != 1 || len(tags) != 2 {
		t.Errorf("tags %v", tags)
	}
}

// A server that has lost the script did nothing: each call is repeated by itself, once.
func TestBatchWithoutItsScriptIsRepairedCallByCall(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), Scripts: []string{itemScript, itemsScript}, PingInterval: time.Hour})
	n.setTag("id")
	for _, step := range []string{"loaded", "flushed", "loaded again"} {
		if step == "flushed" {
			s.cli("SCRIPT", "FLUSH")
		}
		var calls []*result
		for i := range 5 {
			calls = append(calls, item("ar"[i%2], fmt.Sprint("k", i), fmt.Sprint("v", i)))
		}
		together(n, calls...)
		for i, c := range calls {
			want := fmt.Sprintf("%c v%d", "ar"[i%2], i)
			if step == "flushed" {
				want = "more" // of the script for one: its last argument
			}
			if c.wait(t); c.Outcome != member.Answered || string(c.Reply.Str) != want {
				t.Errorf("%s: call %d: %v, %q, %v; want %q", step, i, c.Outcome, c.Reply.Str, c.Err, want)
			}
		}
	}
}

// Of a batch that was sent and not answered nothing is known: each call is Unknown, and each release is owed.
func TestBatchThatIsNotAnsweredIsUnknown(t *testing.T) {
	var mu sync.Mutex
	var alone []string
	cut := make(chan struct{}, 1)
	n, f := joining(t, func(_ int64, args []string) string {
		switch {
		case isBatch(args):
			cut <- struct{}{}
			return ""
		case args[0] == "EVALSHA":
			mu.Lock()
			alone = append(alone, args[3])
			mu.Unlock()
		}
		return "default"
	})
	calls := []*result{item('a', "one", "x"), item('r', "two", "x"), item('r', "three", "x")}
	calls[1].OweUntil = time.Now().Add(time.Hour)
	together(n, calls...)
	<-cut
	f.cut()
	for i, c := range calls {
		if c.wait(t); c.Outcome != member.Unknown || !errors.Is(c.Err, member.ErrBroken) {
			t.Errorf("call %d: %v, %v", i, c.Outcome, c.Err)
		}
	}
	until(t, "paid", func() bool { mu.Lock(); defer mu.Unlock(); return len(alone) > 0 })
	if mu.Lock(); len(alone) != 1 || alone[0] != "two" {
		t.Errorf("sent again: %v", alone)
	}
	mu.Unlock()
}

// Calls that were never written are NotSent, also those that were to be a batch.
func TestBatchThatWasNotWrittenIsNotSent(t *testing.T) {
	n, f := joining(t, nil)
	s := n.published.Load().session
	s.mu.Lock()
	s.flushing = true // and nobody is woken to write
	s.mu.Unlock()
	calls := []*result{item('a', "one", "x"), item('a', "two", "x"), item('a', "three", "x")}
	for _, c := range calls {
		n.Submit(&c.Call)
	}
	f.cut()
	for i, c := range calls {
		if c.wait(t); c.Outcome != member.NotSent {
			t.Errorf("call %d: %v, %v", i, c.Outcome, c.Err)
		}
	}
}

// A reply of another shape ends the connection: whose answer is whose is not known any more.
func TestBatchAnsweredInAnotherNumberBreaksTheConnection(t *testing.T) {
	for _, answer := range []string{"*2\r\n:1\r\n:1\r\n", ":1\r\n", "*-1\r\n", "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n"} {
		n, _ := joining(t, func(_ int64, args []string) string {
			if isBatch(args) {
				return answer
			}
			return "default"
		})
		calls := []*result{item('a', "one", "x"), item('a', "two", "x"), item('a', "three", "x")}
		together(n, calls...)
		for i, c := range calls {
			if c.wait(t); c.Outcome != member.Unknown || !strings.Contains(c.Err.Error(), "not as many answers as calls") {
				t.Errorf("%q: call %d: %v, %v", answer, i, c.Outcome, c.Err)
			}
		}
	}
}

// Where a server refuses batches, or does not say what in them it does not permit, calls travel alone from then on. Those
// that were refused as a whole at once: nothing of them was executed.
func TestServerThatRefusesABatchGetsNoMore(t *testing.T) {
	for _, c := range []struct {
		answer string
		kind   member.Kind // of the last one's refusal; KindOther: it was answered, alone
		text   string
	}{
		{"-CROSSSLOT Keys in request don't hash to the same slot\r\n", member.KindOther, ""},
		{"-NOPERM this user has no permissions to access one of the keys used as arguments\r\n", member.KindOther, ""},
		{"*3\r\n:1\r\n:1\r\n-TRYAGAIN alone\r\n", member.KindCluster, "TRYAGAIN alone"},
		{"*3\r\n:1\r\n:1\r\n-ERR The user executing the script can't run this command or subcommand\r\n", member.KindAuth, "can't run this command"},
	} {
		var mu sync.Mutex
		batches, singles := 0, 0
		n, _ := joining(t, func(_ int64, args []string) string {
			mu.Lock()
			defer mu.Unlock()
			if isBatch(args) {
				batches++
				return c.answer
			}
			if args[0] == "EVALSHA" {
				singles++
			}
			return "default"
		})
		want := 0
		for round := range 2 {
			calls := []*result{item('a', "one", "x"), item('a', "two", "x"), item('a', "three", "x")}
			together(n, calls...)
			for i, call := range calls {
				call.wait(t)
				var refused *member.ReplyError
				switch {
				case round > 0 || i < 2 || c.text == "":
					if call.Outcome != member.Answered {
						t.Errorf("%q: %d of round %d: %v, %v", c.answer, i, round, call.Outcome, call.Err)
					}
				case call.Outcome != member.Refused || !errors.As(call.Err, &refused) || refused.Kind != c.kind || !strings.Contains(refused.Text, c.text):
					t.Errorf("%q: %v, %v", c.answer, call.Outcome, call.Err)
				}
			}
			if round > 0 || c.text == "" {
				want += len(calls)
			}
		}
		mu.Lock()
		if batches != 1 || singles != want {
			t.Errorf("%q: %d batches and %d alone, want 1 and %d", c.answer, batches, singles, want)
		}
		mu.Unlock()
		if calls, size := n.published.Load().session.inFlight(); calls != 0 || size != 0 {
			t.Errorf("%d calls and %d bytes are still in line", calls, size)
		}
	}
}

// A call that was refused together with others is not repeated behind its own release.
func TestRefusedBatchIsNotRepeatedBehindItsRelease(t *testing.T) {
	var ended atomic.Bool
	n, _ := joining(t, func(_ int64, args []string) string {
		if isBatch(args) {
			ended.Store(true)
			return "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
		}
		return "default"
	})
	calls := []*result{item('a', "one", "x"), item('a', "two", "x"), item('a', "three", "x")}
	calls[1].Ended = &ended
	together(n, calls...)
	for i, c := range calls {
		want := member.Answered
		if i == 1 {
			want = member.NotSent
		}
		if c.wait(t); c.Outcome != want || i == 1 && !errors.Is(c.Err, member.ErrEnded) {
			t.Errorf("%d: %v, %v", i, c.Outcome, c.Err)
		}
	}
}

// One key that the user may not touch is one call's misfortune.
func TestKeyThatIsNotPermittedFailsAlone(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "default", "resetkeys", "~a*", "~redquorum*")
	n := up(t, Config{Addr: s.addr(), Scripts: []string{itemScript, itemsScript}, PingInterval: time.Hour})
	n.setTag("id")
	calls := []*result{item('a', "a1", "x"), item('a', "a2", "x"), item('a', "b", "x"), item('a', "a3", "x")}
	together(n, calls...)
	for i, c := range calls {
		c.wait(t)
		if (c.Outcome == member.Answered) != (i != 2) {
			t.Errorf("call %d: %v %v", i, c.Outcome, c.Err)
		}
	}
}

// Calls that wait while the scripts are loaded again are written before that, as they stand in line.
func TestRepairGoesBehindWhatWaits(t *testing.T) {
	for _, waiting := range []int{1, 2, 3, 5} {
		hold, held := make(chan struct{}), make(chan struct{}, 1)
		var mu sync.Mutex
		first := true
		n, _ := joining(t, func(_ int64, args []string) string {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case isBatch(args):
				return fmt.Sprintf("*%d\r\n%s", waiting, strings.Repeat(":7\r\n", waiting))
			case args[0] == "EVALSHA" && first && args[3] == "lost":
				first = false
				held <- struct{}{}
				<-hold
				return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
			case args[0] == "EVALSHA", args[0] == "EVAL":
				return ":7\r\n"
			}
			return "default"
		})
		lost := item('a', "lost", "x")
		n.Submit(&lost.Call)
		<-held
		s := n.published.Load().session
		s.mu.Lock()
		s.flushing = true // somebody writes
		s.mu.Unlock()
		var calls []*result
		for i := range waiting {
			c := item('a', fmt.Sprint("k", i), "x")
			calls = append(calls, c)
			n.Submit(&c.Call)
		}
		close(hold)
		until(t, "repair", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.reloading > 0 || s.broke != nil })
		s.wake()
		for i, c := range append(calls, lost) {
			if c.wait(t); c.Outcome != member.Answered || c.Reply.Kind != ':' || c.Reply.Int != 7 {
				t.Errorf("%d waiting: call %d: %v %c %q %v", waiting, i, c.Outcome, c.Reply.Kind, c.Reply.Str, c.Err)
			}
		}
	}
}

// Where scripts cannot be loaded, the batches' never is there, and nobody goes on asking for it.
func TestServerThatMayNotLoadScriptsGetsNoBatches(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "default", "-script")
	n := up(t, Config{Addr: s.addr(), Scripts: []string{itemScript, itemsScript}, PingInterval: time.Hour})
	n.setTag("id")
	const rounds, each = 4, 5
	for range rounds {
		var calls []*result
		for i := range each {
			calls = append(calls, item("ar"[i%2], fmt.Sprint("k", i), fmt.Sprint("v", i)))
		}
		together(n, calls...)
		for i, c := range calls {
			if c.wait(t); c.Outcome != member.Answered {
				t.Errorf("call %d: %v, %v", i, c.Outcome, c.Err)
			}
		}
		do(t, n, "PING") // behind the loads
	}
	if got := s.cli("INFO", "commandstats"); !strings.Contains(got, fmt.Sprintf("cmdstat_eval:calls=%d,", each)) {
		t.Errorf("want %d scripts in full: %s", each, got)
	}
}

// gated is a connection whose writes wait.
type gated struct {
	net.Conn
	began, open chan struct{}
}

func (g *gated) Write(b []byte) (int, error) {
	g.began <- struct{}{}
	<-g.open
	return g.Conn.Write(b)
}

// A call that comes while another is written is written behind it, though nobody comes after.
func TestItemThatComesDuringAWriteIsWritten(t *testing.T) {
	n, _ := joining(t, func(_ int64, args []string) string {
		if args[0] == "EVALSHA" {
			return ":1\r\n"
		}
		return "default"
	})
	s := n.published.Load().session
	g := &gated{s.link.wire, make(chan struct{}, 9), make(chan struct{})}
	s.link.wire = g
	one, two := item('a', "one", "x"), item('a', "two", "x")
	var wg sync.WaitGroup
	wg.Go(func() { n.Submit(&one.Call) })
	<-g.began
	n.Submit(&two.Call)
	close(g.open)
	wg.Wait()
	for _, c := range []*result{one, two} {
		if c.wait(t); c.Outcome != member.Answered {
			t.Error(c.Outcome, c.Err)
		}
	}
}

// A flusher that is dismissed while a caller writes leaves the line to that caller: two writers would mix it up.
func TestFlusherThatIsDismissedDuringAWriteWritesNothing(t *testing.T) {
	n, _ := joining(t, func(_ int64, args []string) string {
		if args[0] == "EVALSHA" {
			return ":1\r\n"
		}
		return "default"
	})
	s := n.published.Load().session
	calls := []*result{item('a', "zero", "x"), item('a', "one", "x"), item('a', "two", "x")}
	together(n, calls[0])
	calls[0].wait(t)
	up := func() (flusher, busy bool) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.flusherUp, s.flushing
	}
	until(t, "at rest", func() bool {
		flusher, busy := up()
		if !flusher && !busy { // the supervisor may have dismissed the first one
			together(n)
		}
		return flusher && !busy
	})
	g := &gated{s.link.wire, make(chan struct{}, 9), make(chan struct{})}
	s.link.wire = g
	var wg sync.WaitGroup
	wg.Go(func() { n.Submit(&calls[1].Call) })
	<-g.began
	n.Submit(&calls[2].Call)
	s.shrink()
	until(t, "dismissed", func() bool { flusher, _ := up(); return !flusher })
	close(g.open)
	wg.Wait()
	for _, c := range calls {
		if c.wait(t); c.Outcome != member.Answered {
			t.Error(c.Outcome, c.Err)
		}
	}
}

// The reader takes over the line before it is known which of its last calls are one command.
func TestItemsThatAreNotWrittenYetStillTravelTogether(t *testing.T) {
	answer := make(chan struct{})
	n, _ := joining(t, func(_ int64, args []string) string {
		switch {
		case args[0] == "ECHO":
			<-answer
			return bulk("first")
		case isBatch(args):
			return "*3\r\n:1\r\n:2\r\n:3\r\n"
		}
		return "default"
	})
	first := newCall("ECHO", "first")
	n.Submit(&first.Call)
	s := n.published.Load().session
	s.mu.Lock()
	s.flushing = true
	s.mu.Unlock()
	calls := []*result{item('a', "one", "x"), item('r', "two", "x"), item('a', "three", "x")}
	for _, c := range calls {
		n.Submit(&c.Call)
	}
	close(answer)
	if first.wait(t); first.Outcome != member.Answered {
		t.Fatal(first.Outcome, first.Err)
	}
	s.wake()
	for i, c := range calls {
		if c.wait(t); c.Outcome != member.Answered || c.Reply.Int != int64(i)+1 {
			t.Errorf("call %d: %v %v %+v", i, c.Outcome, c.Err, c.Reply)
		}
	}
}

// Somebody gathers and does not get to run. Whoever brings enough calls writes them, and has the right to write.
func TestCallThatMakesEnoughIsWrittenForOneWhoGathers(t *testing.T) {
	n, _ := joining(t, nil)
	s := n.published.Load().session
	s.mu.Lock()
	s.flushing, s.gathering = true, true
	s.mu.Unlock()
	var calls []*result
	for range enough {
		c := newCall("ECHO", "x")
		n.Submit(&c.Call)
		calls = append(calls, c)
	}
	for i, c := range calls {
		if c.wait(t); c.Outcome != member.Answered {
			t.Errorf("call %d: %v %v", i, c.Outcome, c.Err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gathering {
		t.Error("who gathered writes, too")
	}
}

// Calls that were refused together share no memory: each has its own answer when it is used again.
func TestCallsThatWereRefusedTogetherShareNothing(t *testing.T) {
	var mu sync.Mutex
	busy := true
	n, _ := joining(t, func(_ int64, args []string) string {
		mu.Lock()
		defer mu.Unlock()
		switch {
		case isBatch(args) && busy:
			busy = false
			return "-LOADING Redis is loading the dataset in memory\r\n"
		case isBatch(args):
			return "*3\r\n" + bulk("first") + bulk("other") + bulk("third")
		}
		return "default"
	})
	calls := []*result{item('a', "one", "x"), item('a', "two", "x"), item('a', "three", "x")}
	together(n, calls...)
	for _, c := range calls {
		c.wait(t)
		c.done = make(chan struct{})
	}
	// Their texts are kept for the next answers, which are written into the same memory one after the other.
	for i, c := range calls {
		c.Reply.Str = append(c.Reply.Str[:0], fmt.Sprint("own ", i)...)
	}
	for i, c := range calls {
		if string(c.Reply.Str) != fmt.Sprint("own ", i) {
			t.Errorf("call %d has %q", i, c.Reply.Str)
		}
	}
	together(n, calls...)
	for i, want := range []string{"first", "other", "third"} {
		if c := calls[i].wait(t); string(c.Reply.Str) != want {
			t.Errorf("call %d: %q", i, c.Reply.Str)
		}
	}
}

// A transient refusal of the whole is one of each, and no reason to give batches up.
func TestBatchThatABusyServerRefuses(t *testing.T) {
	var mu sync.Mutex
	batches := 0
	n, _ := joining(t, func(_ int64, args []string) string {
		mu.Lock()
		defer mu.Unlock()
		if !isBatch(args) {
			return "default"
		}
		if batches++; batches == 1 {
			return "-LOADING Redis is loading the dataset in memory\r\n"
		}
		return "*3\r\n:1\r\n:1\r\n:1\r\n"
	})
	for round := range 2 {
		calls := []*result{item('a', "one", "x"), item('a', "two", "x"), item('a', "three", "x")}
		together(n, calls...)
		for i, c := range calls {
			c.wait(t)
			var refused *member.ReplyError
			if round == 0 && (!errors.As(c.Err, &refused) || refused.Kind != member.KindLoading) || round == 1 && c.Outcome != member.Answered {
				t.Errorf("round %d, call %d: %v, %v", round, i, c.Outcome, c.Err)
			}
		}
	}
}

// Many callers and a server that is cut off now and then: each call is done once, and with its own answer.
func TestEveryItemHasItsOwnAnswerUnderKills(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), Scripts: []string{itemScript, itemsScript}, BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond})
	stop := killing(s)
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for g := range 200 {
		wg.Go(func() {
			for i := range 200 {
				letter := "ar"[i%2]
				arg := fmt.Sprintf("%d-%d", g, i)
				c := item(letter, arg, arg)
				c.Late = g%8 == 0
				n.Submit(&c.Call)
				c.wait(t)
				how := c.Outcome.String()
				switch got := string(c.Reply.Str); {
				case c.Outcome != member.Answered:
					time.Sleep(time.Millisecond)
				case got == fmt.Sprintf("%c %s", letter, arg):
					how = "together"
				case got != "more":
					t.Errorf("got %q for %c %s", got, letter, arg)
				}
				mu.Lock()
				outcomes[how]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	stop()
	t.Log(outcomes)
	if outcomes["together"] == 0 || outcomes[member.Unanswered.String()]+outcomes[member.Refused.String()] > 0 {
		t.Errorf("outcomes %v", outcomes)
	}
}

// The two encodings, of names of every shape: a server reads from them what it would read from each call.
func FuzzBatch(f *testing.F) {
	f.Add("one", "two", "three", "", "9000", "tag", byte(0), byte(0))
	f.Add("one", "{one}", "one", "9000", "9000", "tag", byte(0), byte(1))
	f.Add("", "{a}\r\n$3\r\n", strings.Repeat("long", 99), "", "x", "id/tag", byte(7), byte(2))
	f.Fuzz(func(t *testing.T, a, b, c, last, other, tag string, kinds, lasts byte) {
		var calls []*member.Call
		var want []joinedItem
		for i, name := range []string{a, b, c, a} {
			letter := "ar"[kinds>>i&1]
			w := joinedItem{what: string(letter), name: name, arg: name + "!", last: last}
			if lasts>>i&1 != 0 {
				w.last = other
			}
			calls = append(calls, &itemWith(letter, name, w.arg, w.last).Call)
			want = append(want, w)
		}
		for _, form := range []struct{ sharded, chained bool }{{}, {true, false}, {false, true}, {true, true}} {
			var r member.Reply
			br := bufio.NewReader(bytes.NewReader(appendJoined(nil, calls, tag, form.sharded, form.chained)))
			if err := readReply(br, &r, 0); err != nil || br.Buffered() > 0 {
				t.Fatalf("%v, %d bytes behind", err, br.Buffered())
			}
			var words []string
			for _, e := range r.Elems {
				words = append(words, string(e.Str))
			}
			for i := range want {
				if form.chained && i > 0 && want[i].what == "a" {
					want[i].what = "c"
				} else if !form.chained && want[i].what == "c" {
					want[i].what = "a"
				}
			}
			if got, sentTag := unjoin(t, words); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) || sentTag != tag || words[1] != scriptSHA(itemsScript) {
				t.Errorf("%+v: got %q %q, want %q", form, got, sentTag, want)
			}
		}
	})
}

// What an item behind another one can leave out is left out, and what may not be drawn with others is not fresh.
func TestKindsOfItems(t *testing.T) {
	for _, c := range []struct {
		calls            string // each a letter, a name and a last argument
		sharded, chained bool
		want             string
	}{
		{calls: "a one 9, a two 9, a three 8, a four 8", want: "0101"},
		{calls: "a one 9, a two 8, a three 9", want: "000"},
		{calls: "a one 9, r two , a three 9, r four hint", want: "0918"},
		{calls: "a one 9, a {one} 9, a two 9", want: "051"}, // a slot again
		{calls: "r one , a one 9, a two 9", want: "941"},    // the lock is freed before
		{calls: "a one 9, a two 9, r one ", want: "019"},    // not behind it
		{calls: "r one hint, r one , a two 9", want: "890"}, // releases are no matter
		{calls: "a one , r two , a three ", want: "091"},    // an empty TTL is one, too
		{calls: "a one 9, a two 9, a three 8", chained: true, want: "032"},
		{calls: "a one 9, r two , a one 9", chained: true, want: "097"},
		{calls: "a one 9, a two 8, r three , a four 8", sharded: true, want: "4495"},
		{calls: "a one 9, a two 9", sharded: true, chained: true, want: "47"},
	} {
		var calls []*member.Call
		for call := range strings.SplitSeq(c.calls, ", ") {
			letter, rest, _ := strings.Cut(call, " ")
			name, last, _ := strings.Cut(rest, " ")
			calls = append(calls, &itemWith(letter[0], name, "x", last).Call)
		}
		kinds := make([]byte, len(calls))
		if kindsOf(kinds, calls, c.sharded, c.chained); string(kinds) != c.want {
			t.Errorf("%s: %s, want %s", c.calls, kinds, c.want)
		}
		// As many keys and words as the command says, each where the script reads it.
		cmd := appendJoined(nil, calls, "tag", c.sharded, c.chained)
		var r member.Reply
		var args []string
		if err := readReply(bufio.NewReader(bytes.NewReader(cmd)), &r, 0); err != nil {
			t.Fatalf("%s: %v: %q", c.calls, err, cmd)
		}
		for _, e := range r.Elems {
			args = append(args, string(e.Str))
		}
		items, tag := unjoin(t, args)
		for i, call := range strings.Split(c.calls, ", ") {
			letter, rest, _ := strings.Cut(call, " ")
			name, last, _ := strings.Cut(rest, " ")
			if got := items[i]; got.name != name || got.arg != "x" || got.last != last || (letter == "r") != (got.what == "r") {
				t.Errorf("%s: item %d is %+v", c.calls, i, got)
			}
		}
		if len(items) != len(calls) || tag != "tag" || !bytes.HasSuffix(cmd, []byte("$3\r\ntag\r\n")) {
			t.Errorf("%s: %d items, tag %q, %q", c.calls, len(items), tag, cmd)
		}
	}
}
