package node

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redquorum/redquorum/member"
)

const (
	setScript = `redis.call('SET', KEYS[1], ARGV[1], 'PX', 30000) return ARGV[2] or 'no tag'`
	delScript = `return redis.call('DEL', KEYS[1])`
)

func scriptCall(source string, args ...string) *result {
	r := newCall(append([]string{"EVALSHA", scriptSHA(source), "1"}, args...)...)
	r.Marks = marks(r.Cmd, 0)
	return r
}

// marks reads a script call as a server does. Some keys behind the first one are those that all locks share.
func marks(cmd []byte, shared int) member.Marks {
	at := bytes.IndexByte(cmd, '\n') + 1
	next := func() (text string) {
		head := bytes.IndexByte(cmd[at:], '\n') + 1
		size, _ := strconv.Atoi(string(cmd[at+1 : at+head-2]))
		text = string(cmd[at+head : at+head+size])
		at += head + size + 2
		return text
	}
	next()
	next()
	m := member.Marks{Count: uint8(at), Sharing: uint8(shared)}
	keys, _ := strconv.Atoi(next())
	m.Own = uint8(at)
	for i := range keys {
		if next(); i == 0 {
			m.Shared = int32(at)
		}
		if i == shared {
			m.More = int32(at)
		}
		if i == keys-2 {
			m.Lean = int32(at)
		}
	}
	m.Args = int32(at)
	if shared > 0 { // bucket, and two more
		next()
		m.Owner = int32(at)
		next()
		m.Last = int32(at)
	}
	return m
}

// tagged appends the tag to the call's command, as one more argument that its header counts already.
func tagged(source string, args ...string) *result {
	r := scriptCall(source, append(args, "tag")...)
	r.Cmd, r.Tagged = r.Cmd[:len(r.Cmd)-len("$3\r\ntag\r\n")], true
	return r
}

// setTag is for nodes without a guard, which have no tag. It lasts until the node's state changes.
func (n *Node) setTag(tag string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p := *n.published.Load()
	p.tag = tag
	n.published.Store(&p)
}

func TestScriptsAreLoadedAndRepaired(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), Scripts: []string{setScript, delScript}})
	for _, step := range []string{"loaded", "flushed"} {
		if step == "flushed" {
			s.cli("SCRIPT", "FLUSH")
		}
		c := tagged(setScript, "k", "v")
		n.Submit(&c.Call)
		if c.wait(t); c.Outcome != member.Answered || string(c.Reply.Str) != "" || c.Reply.Kind != '$' {
			t.Errorf("%s: %v, %+v, %v", step, c.Outcome, c.Reply, c.Err)
		}
		n.setTag("marker 7")
		c = tagged(setScript, "k", "v")
		n.Submit(&c.Call)
		if c.wait(t); string(c.Reply.Str) != "marker 7" {
			t.Errorf("%s: tag %q, %v", step, c.Reply.Str, c.Err)
		}
		n.setTag("")
	}
	c := scriptCall(delScript, "k") // was loaded again with the other
	n.Submit(&c.Call)
	if c.wait(t); c.Reply.Int != 1 {
		t.Errorf("%v, %v", c.Reply.Int, c.Err)
	}
	if got := s.cli("SCRIPT", "EXISTS", scriptSHA(setScript), scriptSHA(delScript)); got != "[1 1]" {
		t.Errorf("scripts at the server: %s", got)
	}
}

func TestTagIsReadWhenTheCallIsRepaired(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), Scripts: []string{setScript}})
	s.cli("SCRIPT", "FLUSH")
	s.signal(stopSignal)
	c := tagged(setScript, "k", "v")
	n.Submit(&c.Call)
	n.setTag("younger")
	s.signal(contSignal)
	if c.wait(t); string(c.Reply.Str) != "younger" {
		t.Errorf("tag %q, %v", c.Reply.Str, c.Err)
	}
}

func TestManyCallsAreRepairedAtOnce(t *testing.T) {
	s := startRedis(t)
	long := "-- " + strings.Repeat("x", 5000) + "\n" + delScript
	n := up(t, Config{Addr: s.addr(), Scripts: []string{long, setScript}})
	for range 3 {
		s.cli("SCRIPT", "FLUSH")
		s.signal(stopSignal)
		var calls []*result
		for i := range 3000 {
			c := scriptCall(long, fmt.Sprint("k", i))
			c.Late = i%2 == 0
			n.Submit(&c.Call)
			calls = append(calls, c)
		}
		s.signal(contSignal)
		for i, c := range calls {
			if c.wait(t); c.Outcome != member.Answered {
				t.Fatalf("call %d: %v, %v", i, c.Outcome, c.Err)
			}
		}
	}
}

func TestRepairSendsTheSourceOnlyAsOftenAsThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		long := "-- " + strings.Repeat("x", 5000)
		var loaded bool
		var sources, calls int
		hold := make(chan struct{})
		f := newFake(nil)
		f.handle = func(_ int64, args []string) string {
			<-hold
			f.mu.Lock()
			defer f.mu.Unlock()
			switch {
			case args[0] == "EVALSHA" && !loaded:
				return "-NOSCRIPT No matching script.\r\n"
			case args[0] == "EVAL":
				sources++
				loaded = true
			}
			if strings.HasPrefix(args[0], "EVAL") {
				calls++
				return ":1\r\n"
			}
			f.mu.Unlock()
			defer f.mu.Lock()
			return "default"
		}
		close(hold)
		n := start(t, Config{Dialer: f, MaxBytes: 64 << 10, Scripts: []string{long}})
		synctest.Wait()
		hold = make(chan struct{})
		var all []*result
		for range 200 {
			c := scriptCall(long, "k")
			n.Submit(&c.Call)
			all = append(all, c)
		}
		synctest.Wait()
		close(hold)
		for _, c := range all {
			if <-c.done; c.Outcome != member.Answered {
				t.Fatalf("%v, %v", c.Outcome, c.Err)
			}
		}
		if sources == 0 || sources > 13 || calls != 200 {
			t.Errorf("%d of %d calls sent the source", sources, calls)
		}
	})
}

func TestScriptOfSomebodyElseIsRefused(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), Scripts: []string{setScript}})
	c := scriptCall("return 'not ours'", "k")
	n.Submit(&c.Call)
	var refused *member.ReplyError
	if c.wait(t); c.Outcome != member.Refused || !errors.As(c.Err, &refused) || refused.Kind != member.KindNoScript {
		t.Errorf("%v, %v", c.Outcome, c.Err)
	}
}

func TestRepairHappensOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		f := newFake(h.record(func(_ int64, args []string) string {
			if strings.HasPrefix(args[0], "EVAL") {
				return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
			}
			return "default"
		}))
		n := start(t, Config{Dialer: f, Scripts: []string{delScript}})
		synctest.Wait()
		h.take()
		c := scriptCall(delScript, "k")
		n.Submit(&c.Call)
		var refused *member.ReplyError
		if <-c.done; c.Outcome != member.Refused || !errors.As(c.Err, &refused) || refused.Kind != member.KindNoScript {
			t.Errorf("%v, %v", c.Outcome, c.Err)
		}
		h.expect(t, "repair", "EVALSHA "+scriptSHA(delScript)+" 1 k", "EVAL "+delScript+" 1 k")
	})
}

// The acquire must not be executed behind its own release, where it would leave a key to nobody.
func TestEndedAttemptIsNotRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		answer := make(chan struct{})
		f := newFake(h.record(func(_ int64, args []string) string {
			if args[0] == "EVALSHA" {
				<-answer
				return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
			}
			return "default"
		}))
		n := start(t, Config{Dialer: f, Scripts: []string{setScript}})
		synctest.Wait()
		h.take()
		var ended atomic.Bool
		acquire := scriptCall(setScript, "k", "v")
		acquire.Ended, acquire.OweUntil = &ended, time.Time{}
		n.Submit(&acquire.Call)
		ended.Store(true)
		release := submit(n, "DEL", "k")
		close(answer)
		if <-acquire.done; acquire.Outcome != member.NotSent || !errors.Is(acquire.Err, member.ErrEnded) {
			t.Errorf("%v, %v", acquire.Outcome, acquire.Err)
		}
		<-release.done
		synctest.Wait()
		h.expect(t, "order", "EVALSHA "+scriptSHA(setScript)+" 1 k v", "DEL k")
	})
}

// A member that forgot meanwhile must not execute what was asked of it before. A release it must.
func TestCallOfAnEndedGenerationIsNotRepaired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		answer := make(chan struct{})
		f := newFake(h.record(func(_ int64, args []string) string {
			if args[0] == "EVALSHA" {
				<-answer
				return "-NOSCRIPT No matching script. Please use EVAL.\r\n"
			}
			return "default"
		}))
		n := start(t, Config{Dialer: f, Scripts: []string{setScript, delScript}})
		synctest.Wait()
		h.take()
		acquire, release := tagged(setScript, "k", "v"), tagged(delScript, "k")
		release.Always = true
		n.Submit(&acquire.Call)
		n.Submit(&release.Call)
		n.change(func(p *published) { p.state.Gen++ })
		close(answer)
		if <-acquire.done; acquire.Outcome != member.NotSent || !errors.Is(acquire.Err, member.ErrEnded) {
			t.Errorf("%v, %v", acquire.Outcome, acquire.Err)
		}
		if <-release.done; release.Outcome != member.Answered {
			t.Errorf("release: %v, %v", release.Outcome, release.Err)
		}
		for _, line := range h.take() {
			if strings.HasPrefix(line, "EVAL "+setScript) {
				t.Errorf("sent %q", line)
			}
		}
	})
}

func TestRepairNeverOvertakesTheRelease(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), Scripts: []string{setScript, delScript}})
	flush := up(t, Config{Addr: s.addr()})
	var repaired, ended int
	for i := range 2000 {
		key := fmt.Sprint("k", i)
		f := submit(flush, "SCRIPT", "FLUSH")
		var over atomic.Bool
		acquire := scriptCall(setScript, key, "v")
		acquire.Ended = &over
		n.Submit(&acquire.Call)
		var wg sync.WaitGroup
		wg.Go(func() {
			for range i % 40 {
				runtime.Gosched()
			}
			over.Store(true)
			release := submit(n, "DEL", key) // needs no repair, which would put it behind the acquire again
			<-release.done
			if release.Outcome != member.Answered {
				t.Errorf("release: %v, %v", release.Outcome, release.Err)
			}
		})
		acquire.wait(t)
		wg.Wait()
		f.wait(t)
		switch {
		case acquire.Outcome == member.Answered:
			repaired++
		case errors.Is(acquire.Err, member.ErrEnded):
			ended++
		default:
			t.Fatalf("%v, %v", acquire.Outcome, acquire.Err)
		}
	}
	t.Logf("executed %d, not repeated %d", repaired, ended)
	if got := s.cli("DBSIZE"); got != "0" {
		t.Errorf("%s keys were left behind their release", got)
	}
}

func TestWrongScriptKeepsTheMemberDown(t *testing.T) {
	s := startRedis(t)
	n := start(t, Config{Addr: s.addr(), Scripts: []string{"return )"}})
	until(t, "refused", func() bool { return !errors.Is(n.State().Err, errConnecting) })
	if st := n.State(); st.Up || !strings.Contains(st.Err.Error(), "SCRIPT LOAD") {
		t.Errorf("state %+v", st)
	}
}

// The first scripts are there from the handshake on, and each of the others from its first call.
func TestPreloadedScriptsAreThereAndOthersComeWithTheirFirstCall(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), Scripts: []string{setScript, delScript}, Preload: 1})
	exist := func() string { return s.cli("SCRIPT", "EXISTS", scriptSHA(setScript), scriptSHA(delScript)) }
	if got := exist(); got != "[1 0]" {
		t.Errorf("after the handshake: %s", got)
	}
	c := scriptCall(delScript, "k")
	n.Submit(&c.Call)
	if c.wait(t); c.Outcome != member.Answered {
		t.Errorf("%v, %v", c.Outcome, c.Err)
	}
	if got := exist(); got != "[1 1]" {
		t.Errorf("after the call: %s", got)
	}
	if _, err := New(Config{Addr: s.addr(), Preload: -1}); err == nil {
		t.Error("a negative Preload was taken")
	}
}

func TestForbiddenScriptLoadIsDoneWithout(t *testing.T) {
	s := startRedis(t)
	s.cli("ACL", "SETUSER", "default", "-script")
	var log logBuffer
	n := up(t, Config{Addr: s.addr(), Scripts: []string{delScript}, Logger: log.logger()})
	for range 2 {
		c := scriptCall(delScript, "k")
		n.Submit(&c.Call)
		if c.wait(t); c.Outcome != member.Answered {
			t.Errorf("%v, %v", c.Outcome, c.Err)
		}
	}
	if !strings.Contains(log.String(), "SCRIPT LOAD") {
		t.Errorf("log:\n%s", log.String())
	}
}

// miniDialer connects to a miniredis over in-memory pipes.
func miniDialer(m *miniredis.Miniredis) Dialer { return mini{m} }

func TestMiniredisInFakeTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		defer m.Close()
		n := start(t, Config{Dialer: miniDialer(m), Scripts: []string{setScript, `return redis.call('HGET', KEYS[1], 'f')`}})
		var pushes pushLog
		n.Listen("inbox", &pushes)
		synctest.Wait()
		if st := n.State(); !st.Up || !st.Inbox {
			t.Fatalf("state %+v", st)
		}
		time.Sleep(time.Minute) // pings on both connections
		if st := n.State(); st.Epoch != 1 || !st.Inbox {
			t.Errorf("state %+v", st)
		}
		if got := pushes.picture(); got != "UI" && got != "U- UI" {
			t.Errorf("changes %s", got)
		}
		do(t, n, "SCRIPT", "FLUSH")
		c := tagged(setScript, "k", "v")
		n.Submit(&c.Call)
		if <-c.done; c.Outcome != member.Answered || string(c.Reply.Str) != "" {
			t.Errorf("%v, %v", c.Outcome, c.Err)
		}
		w := scriptCall(`return redis.call('HGET', KEYS[1], 'f')`, "k")
		n.Submit(&w.Call)
		var refused *member.ReplyError
		if <-w.done; !errors.As(w.Err, &refused) || refused.Kind != member.KindForeign || !strings.HasPrefix(refused.Text, "WRONGTYPE ") {
			t.Errorf("%v", w.Err)
		}
		do(t, n, "PUBLISH", "inbox", "hello")
		synctest.Wait()
		if got := pushes.messages(); len(got) != 1 || got[0] != "hello" {
			t.Errorf("messages %q", got)
		}
	})
}

func BenchmarkScriptLookup(b *testing.B) {
	n := &Node{scripts: map[string]string{scriptSHA(delScript): delScript}}
	c := scriptCall(delScript, "k")
	b.ReportAllocs()
	for b.Loop() {
		if _, _, ok := n.script(&c.Call); !ok {
			b.Fatal("not found")
		}
	}
}

// A server that has the scripts is not sent them again: at thousands of connections they are what costs most.
func TestScriptsAreSentToAServerThatLacksThem(t *testing.T) {
	for name, tc := range map[string]struct {
		exists string // answer to SCRIPT EXISTS
		want   []int  // LOADs of the first connection, of another one, and of one behind SCRIPT FLUSH
	}{
		"asked":         {"default", []int{2, 0, 2}},
		"not permitted": {"-NOPERM this user has no permissions to run the 'script|exists' command\r\n", []int{2, 2, 2}},
		"no array":      {"+OK\r\n", []int{2, 2, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				loads := 0 // under f.mu
				var f *fake
				f = newFake(func(_ int64, args []string) string {
					switch {
					case args[0] == "SCRIPT" && args[1] == "EXISTS":
						return tc.exists
					case args[0] == "SCRIPT":
						f.set(func() { loads++ })
					}
					return "default"
				})
				n := start(t, Config{Dialer: f, Scripts: []string{setScript, delScript}})
				for i, want := range tc.want {
					time.Sleep(time.Second)
					f.set(func() {
						if st := n.State(); !st.Up || st.Epoch != uint64(i+1) || loads != want {
							t.Errorf("connection %d: %d loads, want %d; state %+v", i+1, loads, want, st)
						}
						if loads = 0; i == 1 {
							f.loaded = ""
						}
					})
					f.cut()
				}
			})
		})
	}
}
