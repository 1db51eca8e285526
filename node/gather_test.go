package node

import (
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

// stopped starts a node at a server that answers nothing more, and is taken for a near one, or not.
func stopped(t *testing.T, near bool) (*Node, *session, *redisServer) {
	t.Helper()
	server := startRedis(t)
	n := joiningAt(t, server)
	do(t, n, "PING")
	s := n.published.Load().session
	until(t, "at rest", func() bool {
		calls, _ := s.inFlight()
		s.mu.Lock()
		defer s.mu.Unlock()
		return calls == 0 && s.probe.Load() == 0 && !s.flushing
	})
	s.probe.Store(math.MaxUint64) // it learns no more
	trip := faraway
	if near {
		trip--
	}
	s.trip.Store(int64(trip))
	server.Pause()
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
			calls = append(calls, item('a', fmt.Sprint("k", i), "x").sent(n))
			want := 0
			if near && i >= deep {
				want = i + 1 - deep
			}
			require.Equal(t, want, s.unwritten(), "near %v: of %d calls", near, i+1)
		}
		server.Resume()
		for i, c := range calls {
			c.is(t, member.Answered)
			require.Equal(t, near && i >= deep, strings.HasPrefix(string(c.Reply.Str), "a "), "near %v: call %d: %q", near, i, c.Reply.Str)
		}
	}
}

func TestCallsGatherBehindALargeWrite(t *testing.T) {
	const large = enough + 4
	for _, c := range []struct {
		near  bool
		first int
		holds bool
	}{{true, large, true}, {true, enough - 1, false}, {false, large, false}} {
		n, s, server := stopped(t, c.near)
		calls := items(strings.Repeat("a:first ", c.first))
		together(n, calls...)
		until(t, "written", func() bool { return s.unwritten() == 0 })
		for i := range large {
			calls = append(calls, item('a', fmt.Sprint("k", i), "x").sent(n))
			want := 0
			if c.holds && i < large-1 {
				want = i + 1
			} else if c.near && !c.holds && i >= deep-1 {
				want = i + 2 - deep
			}
			require.Equal(t, want, s.unwritten(), "%+v: of %d calls", c, i+1)
		}
		server.Resume()
		all(t, calls, member.Answered)
	}
	// Answered, it holds nothing back.
	n, s, server := stopped(t, true)
	server.Resume()
	calls := items(strings.Repeat("a:first ", large))
	together(n, calls...)
	all(t, append(calls, item('a', "next", "x").sent(n)), member.Answered)
	require.Zero(t, s.unwritten())
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
	require.Equal(t, 1, s.unwritten(), "calls are not written, want 1")
	submit(strings.Repeat("x", inlineBytes))
	until(t, "written", func() bool { return s.unwritten() == 0 })
	server.Resume()
	all(t, calls, member.Answered)
}

// What is written waits for an answer of a near server, and for a moment if nobody waits for those of a far one.
func TestWhatAWriteWaitsFor(t *testing.T) {
	near := line{trip: faraway - 1, oldest: 10, before: 20, last: 25, waiting: 1, inFlight: 25}
	far := line{trip: 40 * longestPause, spared: enough, waiting: joinMost - 1, inFlight: 40 * several, oldest: 10, last: 25}
	for _, c := range []struct {
		what  string
		line  line
		edit  func(l *line)
		until uint64
		pause time.Duration
	}{
		{what: "near", line: near, until: 10},
		{what: "behind a large write", line: near, edit: func(l *line) { l.last = l.before + enough }, until: 20 + enough},
		{what: "behind a large write, one less than that", line: near,
			edit: func(l *line) { l.last = l.before + enough; l.waiting = enough - 1 }, until: 20 + enough},
		{what: "behind a large write, as many", line: near,
			edit: func(l *line) { l.last = l.before + enough; l.waiting = enough }, until: 10},
		{what: "behind one less than a large write", line: near, edit: func(l *line) { l.last = l.before + enough - 1 }, until: 10},
		{what: "near, and nobody waits for it", line: near, edit: func(l *line) { l.spared, l.inFlight = enough, 1000 }, until: 10},
		{what: "many bytes", line: near, edit: func(l *line) { l.bytes = inlineBytes }},
		{what: "nothing known", line: near, edit: func(l *line) { l.trip, l.spared = 0, enough }},
		{what: "far", line: far, pause: longestPause},
		{what: "just far", line: far, edit: func(l *line) { l.trip = faraway }, pause: faraway / perTrip},
		{what: "one answer less that nobody waited for", line: far, edit: func(l *line) { l.spared-- }},
		{what: "enough calls", line: far, edit: func(l *line) { l.waiting++ }},
		{what: "too few in flight", line: far, edit: func(l *line) { l.inFlight-- }},
		{what: "just far, and enough in flight", line: far,
			edit: func(l *line) { l.trip, l.inFlight = faraway, perTrip*several }, pause: faraway / perTrip},
		{what: "just far, and too few in flight", line: far,
			edit: func(l *line) { l.trip, l.inFlight = faraway, perTrip*several-1 }},
		{what: "far, many bytes", line: far, edit: func(l *line) { l.bytes = inlineBytes }},
	} {
		l := c.line
		if c.edit != nil {
			c.edit(&l)
		}
		if until, pause := l.until(), l.pause(); until != c.until || pause != c.pause {
			t.Errorf("%s: until %d, pause %v, want %d, %v", c.what, until, pause, c.until, c.pause)
		}
	}
}

// Calls gather for a far server until they are many or have waited for the pause. A dismissed flusher writes them, too. As
// soon as somebody waits for answers of the server, no call gathers.
func TestCallsGatherForAFarServerThatNobodyWaitsFor(t *testing.T) {
	faked(t, nil, Config{PingInterval: time.Hour, StallTimeout: time.Hour}, func(t *testing.T, f *fake, n *Node) {
		answer := f.hold("ECHO")
		s := n.published.Load().session
		s.probe.Store(math.MaxUint64) // it learns no more
		s.trip.Store(int64(40 * longestPause))
		expect := func(when string, submitted, want int) {
			t.Helper()
			for range submitted {
				submit(n, "ECHO", "x")
			}
			synctest.Wait()
			got := s.unwritten()
			require.Equal(t, want, got, "%s: %d calls are not written, want %d", when, got, want)
		}
		pass := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		expect("somebody waits for its answers", 40*several, 0)
		s.spared.Store(enough)
		expect("first", 1, 1)
		pass(longestPause / 2)
		expect("more", 2, 3)
		pass(longestPause/2 - 1)
		expect("before the pause is over", 0, 3)
		pass(1)
		expect("the pause is over", 0, 0)
		expect("again", 1, 1)
		pass(longestPause - 1)
		expect("one less than many", joinMost-2, joinMost-1)
		expect("many", 1, 0)
		expect("behind many", 1, 1)
		pass(longestPause - 1)
		expect("a pause of its own", 0, 1)
		pass(1)
		expect("a pause of its own is over", 0, 0)
		expect("dismissed", 1, 1)
		s.shrink()
		s.shrink()
		pass(longestPause)
		expect("dismissed, and the pause is over", 0, 0)
		expect("at last", 1, 1)
		s.spared.Store(0)
		expect("somebody waits again", 1, 0)
		answer()
		synctest.Wait()
		calls, _ := s.inFlight()
		require.Zero(t, calls, "%d calls are not answered", calls)
	})
}

func TestWhoWaitsIsLearntFromAnswers(t *testing.T) {
	faked(t, nil, Config{}, func(t *testing.T, f *fake, n *Node) {
		s := n.published.Load().session
		var over, open atomic.Bool
		over.Store(true)
		for i, c := range []struct {
			ended *atomic.Bool
			want  int64
		}{{&over, 1}, {&over, 2}, {nil, 2}, {&over, 3}, {&open, 0}, {nil, 0}, {&over, 1}} {
			call := newCall("PING")
			call.Ended = c.ended
			n.Submit(&call.Call)
			synctest.Wait()
			got := s.spared.Load()
			require.True(t, call.Outcome == member.Answered && got == c.want, "call %d: %v, spared %d, want %d", i, call.Outcome, got, c.want)
		}
	})
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
		if c.before {
			s.trip.Store(int64(faraway - 1))
		}
		s.answered.Store(c.answered)
		s.probe.Store(7)
		s.letGo()
		near := s.trip.Load() > 0 && s.trip.Load() < int64(faraway)
		require.True(t, near == c.nearby && (s.probe.Load() == 0) == (c.answered == 7), "%+v: near %v, probe %d", c, near, s.probe.Load())
	}
}
