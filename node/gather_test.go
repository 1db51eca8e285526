package node

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/member"
)

// stopped starts a node at a server that answers nothing more, and is taken for a near one, or not.
func stopped(t *testing.T, near bool) (*Node, *session, *redisServer) {
	t.Helper()
	server := startRedis(t)
	n := up(t, Config{Addr: server.addr(), Scripts: []string{itemScript, itemsScript}, PingInterval: time.Hour, StallTimeout: time.Hour})
	n.setTag("id")
	do(t, n, "PING")
	s := n.published.Load().session
	until(t, "at rest", func() bool {
		calls, _ := s.inFlight()
		s.mu.Lock()
		defer s.mu.Unlock()
		return calls == 0 && s.probe.Load() == 0 && !s.flushing
	})
	s.probe.Store(math.MaxUint64) // it learns no more
	s.near.Store(near)
	server.signal(stopSignal)
	return n, s, server
}

// unwritten is how many calls wait in line to be written.
func (s *session) unwritten() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(s.queued - s.sent)
}

// While a near server has as many writes to answer as keep it busy, calls gather, and are one command when the first of
// these is answered. Elsewhere each is written at once.
func TestCallsGatherAtAServerThatIsNear(t *testing.T) {
	const more = 5
	for _, near := range []bool{true, false} {
		n, s, server := stopped(t, near)
		var calls []*result
		for i := range deep + more {
			c := item('a', fmt.Sprint("k", i), "x")
			calls = append(calls, c)
			n.Submit(&c.Call)
			want := 0
			if near && i >= deep {
				want = i + 1 - deep
			}
			if got := s.unwritten(); got != want {
				t.Errorf("near %v: %d of %d calls are not written, want %d", near, got, i+1, want)
			}
		}
		server.signal(contSignal)
		for i, c := range calls {
			c.wait(t)
			joined := strings.HasPrefix(string(c.Reply.Str), "a ")
			if c.Outcome != member.Answered || joined != (near && i >= deep) {
				t.Errorf("near %v: call %d: %v, %q, %v", near, i, c.Outcome, c.Reply.Str, c.Err)
			}
		}
	}
}

// Behind a large write to a near server, calls gather until they are as many, or it is answered.
func TestCallsGatherBehindALargeWrite(t *testing.T) {
	const large = enough + 4
	for _, c := range []struct {
		near  bool
		first int
		holds bool
	}{{true, large, true}, {true, enough - 1, false}, {false, large, false}} {
		n, s, server := stopped(t, c.near)
		var calls []*result
		for i := range c.first {
			calls = append(calls, item('a', fmt.Sprint("first", i), "x"))
		}
		together(n, calls...)
		until(t, "written", func() bool { return s.unwritten() == 0 })
		for i := range large {
			call := item('a', fmt.Sprint("k", i), "x")
			calls = append(calls, call)
			n.Submit(&call.Call)
			want := 0
			if c.holds && i < large-1 {
				want = i + 1
			} else if c.near && !c.holds && i >= deep-1 {
				want = i + 2 - deep
			}
			if got := s.unwritten(); got != want {
				t.Errorf("%+v: %d of %d calls are not written, want %d", c, got, i+1, want)
			}
		}
		server.signal(contSignal)
		for i, call := range calls {
			if call.wait(t); call.Outcome != member.Answered {
				t.Errorf("%+v: call %d: %v, %v", c, i, call.Outcome, call.Err)
			}
		}
	}
	// Answered, it holds nothing back.
	n, s, server := stopped(t, true)
	server.signal(contSignal)
	var calls []*result
	for i := range large {
		calls = append(calls, item('a', fmt.Sprint("first", i), "x"))
	}
	together(n, calls...)
	next := item('a', "next", "x")
	n.Submit(&next.Call)
	for _, call := range append(calls, next) {
		if call.wait(t); call.Outcome != member.Answered {
			t.Errorf("%v, %v", call.Outcome, call.Err)
		}
	}
	if got := s.unwritten(); got != 0 {
		t.Errorf("%d calls are not written", got)
	}
}

// What is large enough for a write of its own does not wait, nor does what stands before it.
func TestLargeCallsDoNotGather(t *testing.T) {
	n, s, server := stopped(t, true)
	var calls []*result
	submit := func(arg string) {
		c := newCall("ECHO", arg)
		calls = append(calls, c)
		n.Submit(&c.Call)
	}
	for range deep + 1 {
		submit("small")
	}
	if got := s.unwritten(); got != 1 {
		t.Errorf("%d calls are not written, want 1", got)
	}
	submit(strings.Repeat("x", inlineBytes))
	until(t, "written", func() bool { return s.unwritten() == 0 })
	server.signal(contSignal)
	for _, c := range calls {
		if c.wait(t); c.Outcome != member.Answered {
			t.Error(c.Outcome, c.Err)
		}
	}
}

// A server is near if a write was answered soon. What is not answered yet says nothing.
func TestNearIsLearntFromAnswers(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		took           time.Duration
		answered       uint64
		before, nearby bool
	}{
		{took: faraway - 1, answered: 7, nearby: true},
		{took: faraway, answered: 7, before: true},
		{took: faraway, answered: 7},
		{took: faraway - 1, answered: 6},
		{took: faraway, answered: 6, before: true, nearby: true},
	} {
		s := &session{now: now, probed: now.Add(-c.took)}
		s.near.Store(c.before)
		s.answered.Store(c.answered)
		s.probe.Store(7)
		s.letGo()
		if s.near.Load() != c.nearby || (s.probe.Load() == 0) != (c.answered == 7) {
			t.Errorf("%+v: near %v, probe %d", c, s.near.Load(), s.probe.Load())
		}
	}
}
