package node

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
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
	r.Item = &resp.Item{Batch: scriptSHA(itemsScript), Kind: map[byte]byte{'a': resp.AcquireItem, 'r': resp.ReleaseItem}[letter]}
	return r
}

// joinedItem is one item as a server finds it in a command. what: a = acquire, c = a chained one, r = release.
type joinedItem struct{ what, name, arg, last string }

// unjoin takes a command for several items apart, as the text of the protocol says.
func unjoin(t *testing.T, args []string) (items []joinedItem, tag string) {
	t.Helper()
	n := rt.Must(strconv.Atoi(args[2]))(t)
	keys, args := args[3:3+n], args[3+n:]
	kinds, args, sharded := args[0], args[1:], n == 0
	if sharded {
		owners := rt.Must(strconv.Atoi(args[0]))(t)
		keys, args = args[1:owners-2], args[owners-2:]
	} else {
		require.True(t, keys[0] == member.TokensKey && keys[1] == member.MarkerKey, "shared keys %q", keys[:2])
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
			i.name, bucket, listed = take(&keys), strings.TrimSpace(listed[:resp.SlotWidth]), listed[resp.SlotWidth:]
			if sharded {
				if got, want := take(&keys), member.TokensKey+":{"+hashslot.TagOf(hashslot.Of(i.name))+"}"; got != want {
					t.Errorf("counters of %q: %q", i.name, got)
				}
			}
		}
		require.Equal(t, strconv.Itoa(int(hashslot.Of(i.name))), bucket, "bucket of %q: %q", i.name, bucket)
		switch {
		case kind >= '8':
			i.what = "r"
			require.Equal(t, i.name+":1", take(&queues), "queue of %q", i.name)
			if kind == '8' {
				i.last = take(&args)
				require.Equal(t, i.name+":2", take(&keys), "waiters of %q", i.name)
			}
		case kind%2 == 0:
			ttl = take(&args)
			fallthrough
		default:
			i.what, i.last = string("ac"[kind>>1&1]), ttl
		}
		items = append(items, i)
	}
	require.True(t, len(keys) == 0 && len(args) == 0 && listed == "", "left over: %q %q %q", keys, args, listed)
	return items, tag
}

// together has calls wait in line until all of them do.
func together(n *Node, calls ...*result) {
	s := n.published.Load().session
	s.line.Lock()
	for s.flushing || s.turn { // whoever wrote before has answers already, and is about to say that it is done
		s.line.Unlock()
		runtime.Gosched()
		s.line.Lock()
	}
	s.flushing = true
	s.line.Unlock()
	submitAll(n, calls...)
	s.wake()
}

// wake has the flusher write what waits in line.
func (s *session) wake() {
	s.line.Lock()
	defer s.line.Unlock()
	s.wakeLocked()
}

// occupied is the line of a node of which somebody else says that he writes. Nobody does before wake.
func occupied(n *Node) *session {
	s := n.published.Load().session
	s.line.Lock()
	defer s.line.Unlock()
	for s.flushing { // the last write of the handshake may not have returned
		s.line.Unlock()
		runtime.Gosched()
		s.line.Lock()
	}
	s.flushing = true
	return s
}

const trio = "a:one a:two a:three"

// items are calls that may travel together, by their letters and names.
func items(what string) (calls []*result) {
	for word := range strings.FieldsSeq(what) {
		calls = append(calls, item(word[0], word[2:], "x"))
	}
	return calls
}

// numbered are n items, acquires and releases in turn, of which each has an argument of its own.
func numbered(n int) (calls []*result) {
	for i := range n {
		calls = append(calls, item("ar"[i%2], fmt.Sprint("k", i), fmt.Sprint("v", i)))
	}
	return calls
}

// joiningAt is a node at a real server.
func joiningAt(t *testing.T, s *redisServer) *Node {
	t.Helper()
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{itemScript, itemsScript}, PingInterval: time.Hour})
	n.setTag("id")
	return n
}

// batching answers each batch with a text.
func batching(text string) func(int64, []string) string {
	return func(_ int64, args []string) string {
		if isBatch(args) {
			return text
		}
		return "default"
	}
}

// drained makes sure that nothing is left in line.
func drained(t *testing.T, n *Node) {
	t.Helper()
	calls, size := n.published.Load().session.inFlight()
	require.True(t, calls == 0 && size == 0, "%d calls and %d bytes are still in line", calls, size)
}

// joining starts a node at a server that answers as handle says.
func joining(t *testing.T, handle func(id int64, args []string) string, edit ...func(*Config)) (*Node, *fake) {
	t.Helper()
	f := newFake(handle)
	c := Config{Dialer: f, Scripts: []string{itemScript, itemsScript}, PingInterval: time.Hour, StallTimeout: time.Hour, backoffMin: time.Millisecond}
	for _, e := range edit {
		e(&c)
	}
	n := up(t, c)
	n.setTag("id")
	return n, f
}

// isBatch tells the command that carries items.
func isBatch(args []string) bool { return args[0] == "EVALSHA" && args[1] == scriptSHA(itemsScript) }

// batches are the batches that the server was sent.
func (f *fake) batches() (sent []string) {
	for _, line := range f.take() {
		if strings.HasPrefix(line, "EVALSHA "+scriptSHA(itemsScript)) {
			sent = append(sent, line)
		}
	}
	return sent
}

func TestCallsThatWaitTravelTogether(t *testing.T) {
	n, f := joining(t, batching("*3\r\n:7\r\n-WRONGTYPE no lock\r\n*2\r\n:1\r\n"+bulk("next")))
	calls := []*result{item('a', "one", "x"), item('r', "two", "y"), item('a', "three", "z")}
	together(n, calls...)
	calls[0].is(t, member.Answered)
	require.EqualValues(t, 7, calls[0].Reply.Int)
	calls[1].isRefused(t, member.KindForeign)
	calls[2].is(t, member.Answered)
	require.Equal(t, "[1 next]", show(calls[2].Reply))
	want := strings.Join([]string{"EVALSHA", scriptSHA(itemsScript), "7", member.TokensKey, member.MarkerKey, "one", "three", "two:1", "two", "two:2",
		"081", fmt.Sprint(hashslot.Of("one")), fmt.Sprint(hashslot.Of("three")), "x", "more", "y", "more", "z", fmt.Sprintf("%-6d", hashslot.Of("two")), "id"}, " ")
	require.Equal(t, []string{want}, f.batches())
	drained(t, n)
}

// sentHere is the Hop of a call that another server sent here.
type sentHere struct{ member.Sink }

func (sentHere) Asking() bool { return true }

// What may not be joined, and where a batch ends. Each line is what is sent; a batch is its letters and names.
func TestCallsThatTravelApart(t *testing.T) {
	elsewhere, odd := item('a', "4", "x"), item('a', "4", "x")
	elsewhere.Item.Batch = scriptSHA("another")
	odd.Hop = sentHere{odd.Sink}
	for _, c := range []struct {
		name  string
		calls []*result
		acks  int
		want  []string
	}{
		{name: "two are too few", calls: items("a:one a:two"), want: []string{"one", "two"}},
		{name: "in order with others",
			calls: slices.Concat(items("a:1 a:2 r:3"), []*result{newCall("ECHO", "between")},
				items("r:4 a:5 a:6 a:7"), []*result{newCall("ECHO", "between")}, items("a:8")),
			want: []string{"aar 1 2 3", "between", "raaa 4 5 6 7", "between", "8"}},
		{name: "with another script", calls: append(items("a:1 a:2 a:3"), elsewhere), want: []string{"aaa 1 2 3", "4"}},
		{name: "replicas must acknowledge", acks: 1, calls: items("a:1 a:2 a:3"), want: []string{"1", "WAIT", "2", "WAIT", "3", "WAIT"}},
		{name: "one that is asked for another master", calls: append(items("a:1 a:2 a:3"), odd, item('a', "5", "x")),
			want: []string{"aaa 1 2 3", "ASKING", "4", "5"}},
		{name: "as many as a batch takes", calls: items(strings.Repeat("a:n ", line.Most+3)),
			want: []string{strings.Repeat("a", line.Most) + strings.Repeat(" n", line.Most), "aaa n n n"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, func(cfg *Config) { cfg.MinReplicasAck = c.acks })
			together(n, c.calls...)
			all(t, c.calls, member.Answered)
			require.Equal(t, strings.Join(c.want, "\n"), sent())
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
	n, f := joining(t, batching("*3\r\n:1\r\n:1\r\n:1\r\n"))
	s := occupied(n)
	var calls []*result
	for _, tag := range []string{"first", "second"} {
		n.setTag(tag)
		more := items("r:name r:name r:name")
		submitAll(n, more...)
		calls = append(calls, more...)
	}
	s.wake()
	all(t, calls, member.Answered)
	batches := f.batches()
	require.Len(t, batches, 2)
	require.Regexp(t, " first$", batches[0])
	require.Regexp(t, " second$", batches[1])
}

func TestBatchWithoutItsScriptIsRepairedCallByCall(t *testing.T) {
	s := startRedis(t)
	n := joiningAt(t, s)
	for _, step := range []string{"loaded", "flushed", "loaded again"} {
		if step == "flushed" {
			s.cli("SCRIPT", "FLUSH")
		}
		calls := numbered(5)
		together(n, calls...)
		for i, c := range calls {
			want := fmt.Sprintf("%c v%d", "ar"[i%2], i)
			if step == "flushed" {
				want = "more" // of the script for one: its last argument
			}
			c.is(t, member.Answered)
			require.Equal(t, want, string(c.Reply.Str), step)
		}
	}
}

func TestBatchThatIsNotAnsweredIsUnknown(t *testing.T) {
	n, f := joining(t, batching(""))
	calls := items("a:one r:two r:three")
	calls[1].OweUntil = time.Now().Add(time.Hour)
	together(n, calls...)
	rt.Until(t, "sent", func() bool { return len(f.batches()) > 0 })
	f.cut()
	all(t, calls, member.Unknown, member.ErrBroken)
	rt.Until(t, "paid", func() bool { return len(f.commands()) > 0 })
	require.Len(t, f.commands(), 1)
	require.Contains(t, f.commands()[0], " two ", "sent again")
}

func TestBatchThatWasNotWrittenIsNotSent(t *testing.T) {
	n, f := joining(t, nil)
	occupied(n)
	calls := items(trio)
	submitAll(n, calls...)
	f.cut()
	all(t, calls, member.NotSent)
}

// A reply of another shape ends the connection: whose answer is whose is not known any more.
func TestBatchAnsweredInAnotherNumberBreaksTheConnection(t *testing.T) {
	for _, answer := range []string{"*2\r\n:1\r\n:1\r\n", ":1\r\n", "*-1\r\n", "*4\r\n:1\r\n:1\r\n:1\r\n:1\r\n"} {
		n, _ := joining(t, batching(answer))
		calls := items(trio)
		together(n, calls...)
		for _, c := range calls {
			c.is(t, member.Unknown)
			require.ErrorContains(t, c.Err, "not as many answers as calls", answer)
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
		n, f := joining(t, batching(c.answer))
		want := 0
		for round := range 2 {
			calls := items(trio)
			together(n, calls...)
			all(t, calls[:2], member.Answered)
			if round > 0 || c.text == "" {
				calls[2].is(t, member.Answered)
				want += len(calls)
			} else {
				require.Contains(t, calls[2].isRefused(t, c.kind).Text, c.text)
			}
		}
		require.Len(t, f.batches(), 1, c.answer)
		require.Len(t, f.commands(), want, c.answer)
		drained(t, n)
	}
}

func TestRefusedBatchIsNotRepeatedBehindItsRelease(t *testing.T) {
	var ended atomic.Bool
	n, _ := joining(t, func(_ int64, args []string) string {
		if isBatch(args) {
			ended.Store(true)
			return "-CROSSSLOT Keys in request don't hash to the same slot\r\n"
		}
		return "default"
	})
	calls := items(trio)
	calls[1].Ended = &ended
	together(n, calls...)
	calls[0].is(t, member.Answered)
	calls[1].is(t, member.NotSent, ability.ErrEnded)
	calls[2].is(t, member.Answered)
}

func TestKeyThatIsNotPermittedFailsAlone(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "default", "resetkeys", "~a*", "~redquorum*")
	n := joiningAt(t, s)
	calls := items("a:a1 a:a2 a:b a:a3")
	together(n, calls...)
	for i, c := range calls {
		c.wait(t)
		require.Equal(t, (i != 2), (c.Outcome == member.Answered), "call %d: %v %v", i, c.Outcome, c.Err)
	}
}

func TestRepairGoesBehindWhatWaits(t *testing.T) {
	for _, waiting := range []int{1, 2, 3, 5} {
		hold, held, seen := make(chan struct{}), make(chan struct{}, 1), make(chan struct{})
		var mu sync.Mutex
		first := true
		n, _ := joining(t, func(_ int64, args []string) string {
			mu.Lock()
			defer mu.Unlock()
			switch {
			case args[0] == "SCRIPT" && !first: // a flusher that was woken before may write it
				<-seen
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
		s := occupied(n)
		calls := items(strings.Repeat("a:k ", waiting))
		submitAll(n, calls...)
		close(hold)
		rt.Until(t, "repair", func() bool { s.line.Lock(); defer s.line.Unlock(); return s.reloading > 0 || s.broke != nil })
		close(seen)
		s.wake()
		for _, c := range append(calls, lost) {
			c.is(t, member.Answered)
			require.True(t, c.Reply.Kind == ':' && c.Reply.Int == 7, "%d waiting: %c %q", waiting, c.Reply.Kind, c.Reply.Str)
		}
	}
}

// Where scripts cannot be loaded, the batches' never is there, and nobody goes on asking for it.
func TestServerThatMayNotLoadScriptsGetsNoBatches(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "default", "-script")
	n := joiningAt(t, s)
	const rounds, each = 4, 5
	for range rounds {
		calls := numbered(each)
		together(n, calls...)
		all(t, calls, member.Answered)
		do(t, n, "PING") // behind the loads
	}
	require.Contains(t, s.cli("INFO", "commandstats"), fmt.Sprintf("cmdstat_eval:calls=%d,", each), "want %d scripts in full", each)
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

// gateOf has writes of a node wait from now on.
func gateOf(n *Node) *gated {
	s := n.published.Load().session
	g := &gated{s.link.wire, make(chan struct{}, 9), make(chan struct{})}
	s.link.wire = g
	return g
}

func TestItemThatComesDuringAWriteIsWritten(t *testing.T) {
	n, _ := joining(t, says("EVALSHA", ":1\r\n"))
	g := gateOf(n)
	one, two := item('a', "one", "x"), item('a', "two", "x")
	var wg sync.WaitGroup
	wg.Go(func() { n.Submit(&one.Call) })
	<-g.began
	n.Submit(&two.Call)
	close(g.open)
	wg.Wait()
	all(t, []*result{one, two}, member.Answered)
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
	s := occupied(n)
	calls := items("a:one r:two a:three")
	submitAll(n, calls...)
	close(answer)
	first.is(t, member.Answered)
	s.wake()
	for i, c := range calls {
		c.is(t, member.Answered)
		require.EqualValues(t, i+1, c.Reply.Int)
	}
}

// Somebody gathers and does not get to run. Whoever brings enough calls writes them, and has the right to write.
func TestCallThatMakesEnoughIsWrittenForOneWhoGathers(t *testing.T) {
	n, _ := joining(t, nil)
	s := n.published.Load().session
	s.line.Lock()
	s.flushing, s.gathering = true, true
	s.line.Unlock()
	var calls []*result
	for range enough {
		calls = append(calls, submit(n, "ECHO", "x"))
	}
	all(t, calls, member.Answered)
	s.line.Lock()
	defer s.line.Unlock()
	require.False(t, s.gathering, "who gathered writes, too")
}

func TestCallsThatWereRefusedTogetherShareNothing(t *testing.T) {
	n, f := joining(t, batching("-LOADING Redis is loading the dataset in memory\r\n"))
	calls := items(trio)
	together(n, calls...)
	for _, c := range calls {
		c.isRefused(t, member.KindLoading)
		c.done = make(chan struct{})
	}
	// Their texts are kept for the next answers, which are written into the same memory one after the other.
	for i, c := range calls {
		c.Reply.Str = append(c.Reply.Str[:0], fmt.Sprint("own ", i)...)
	}
	for i, c := range calls {
		require.Equal(t, fmt.Sprint("own ", i), string(c.Reply.Str))
	}
	f.set(func() { f.handle = batching("*3\r\n" + bulk("first") + bulk("other") + bulk("third")) })
	together(n, calls...)
	for i, want := range []string{"first", "other", "third"} {
		calls[i].is(t, member.Answered) // a refusal that passes is no reason to give batches up
		require.Equal(t, want, string(calls[i].Reply.Str))
	}
}

func TestEveryCallHasItsOwnAnswerUnderKills(t *testing.T) { underKills(t, 50, 40) }

func TestLongEveryCallHasItsOwnAnswerUnderKills(t *testing.T) {
	rt.Long(t, "takes minutes")
	underKills(t, 200, 400)
}

func underKills(t *testing.T, callers, each int) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{itemScript, itemsScript}, backoffMin: time.Millisecond, backoffMax: 5 * time.Millisecond})
	stop := killing(s)
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[string]int{}
	for g := range callers {
		wg.Go(func() {
			for i := range each {
				letter := "ar"[i%2]
				arg := fmt.Sprintf("%d-%d", g, i)
				c, alone := item(letter, arg, arg), "more"
				if i%3 == 0 {
					c, alone = newCall("ECHO", arg), arg
				}
				c.Late = g%8 == 0
				n.Submit(&c.Call)
				c.wait(t)
				how := c.Outcome.String()
				switch got := string(c.Reply.Str); {
				case c.Outcome != member.Answered:
					time.Sleep(time.Millisecond)
				case got == fmt.Sprintf("%c %s", letter, arg):
					how = "together"
				default:
					assert.Equal(t, alone, got)
				}
				rt.Locked(&mu, func() { outcomes[how]++ })
			}
		})
	}
	wg.Wait()
	stop()
	t.Log(outcomes)
	require.NotZero(t, outcomes["together"])
	require.Zero(t, outcomes[member.Unanswered.String()]+outcomes[member.Refused.String()])
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
			words := wordsOf(t, encoded(calls, tag, form.sharded, form.chained))
			for i := range want {
				if form.chained && i > 0 && want[i].what == "a" {
					want[i].what = "c"
				} else if !form.chained && want[i].what == "c" {
					want[i].what = "a"
				}
			}
			got, sentTag := unjoin(t, words)
			require.Equal(t, want, got, "%+v", form)
			require.Equal(t, []string{tag, scriptSHA(itemsScript)}, []string{sentTag, words[1]})
		}
	})
}

// What an item behind another one can leave out is left out, and what is in a slot again is not fresh.
func TestKindsOfItems(t *testing.T) {
	for _, c := range []struct {
		calls            string // each a letter, a name and a last argument
		sharded, chained bool
		want             string
	}{
		{calls: "a one 9, a two 9, a three 8, a four 8", want: "0101"},
		{calls: "a one 9, r two , a three 9, r four hint", want: "0918"},
		{calls: "a one 9, a {one} 9, a two 9", want: "051"},  // a slot again
		{calls: "a one 9, a one261 8, a two 9", want: "040"}, // another slot, of the same bit
		{calls: "r one , a one 9, a two 9", want: "941"},     // the lock is freed before
		{calls: "a one 9, a two 9, r one ", want: "019"},     // not behind it
		{calls: "r one hint, r one , a two 9", want: "890"},  // releases are no matter
		{calls: "a one , r two , a three ", want: "091"},     // an empty TTL is one, too
		{calls: "a one 9, a two 9, a three 8", chained: true, want: "032"},
		{calls: "a one 9, r two , a one 9", chained: true, want: "097"},
		{calls: "a one 9, a two 8, r three , a four 8", sharded: true, want: "4495"},
		{calls: "a one 9, a two 9", sharded: true, chained: true, want: "47"},
	} {
		var calls []*member.Call
		var want []joinedItem
		for call := range strings.SplitSeq(c.calls, ", ") {
			letter, rest, _ := strings.Cut(call, " ")
			name, last, _ := strings.Cut(rest, " ")
			calls = append(calls, &itemWith(letter[0], name, "x", last).Call)
			if c.chained && letter == "a" && len(want) > 0 {
				letter = "c"
			}
			want = append(want, joinedItem{letter, name, "x", last})
		}
		words := wordsOf(t, encoded(calls, "tag", c.sharded, c.chained))
		require.Equal(t, c.want, words[3+rt.Must(strconv.Atoi(words[2]))(t)], c.calls)
		// As many keys and words as the command says, each where the script reads it.
		got, tag := unjoin(t, words)
		require.Equal(t, want, got, c.calls)
		require.Equal(t, "tag", tag, c.calls)
	}
}

// encoded is what is written for calls that stand one behind the other.
func encoded(calls []*member.Call, tag string, sharded, chained bool) []byte {
	l := line.Line{Sharded: sharded}
	if chained {
		l.AddGroup(calls, member.Brief{}, tag)
		return l.Take()
	}
	for _, c := range calls {
		l.Add(line.Entry{Call: c}, member.Brief{}, tag, true)
	}
	return l.Take()
}

// wordsOf reads a command as a server does, to its end.
func wordsOf(t *testing.T, cmd []byte) (words []string) {
	t.Helper()
	var r member.Reply
	br := bufio.NewReader(bytes.NewReader(cmd))
	require.NoError(t, readReply(br, &r, 0), "%q", cmd)
	require.Zero(t, br.Buffered(), "%q", cmd)
	for _, e := range r.Elems {
		words = append(words, string(e.Str))
	}
	return words
}
