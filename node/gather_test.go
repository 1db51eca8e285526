package node

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// stopped starts a node at a server that answers nothing more, and is taken for a near one, or not.
func stopped(t *testing.T, near bool) (*Node, *session, *redisServer) {
	t.Helper()
	server := startRedis(t)
	n := joiningAt(t, server)
	do(t, n, "PING")
	s := n.published.Load().session
	rt.Until(t, "at rest", func() bool {
		calls, _ := s.inFlight()
		s.line.Lock()
		defer s.line.Unlock()
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
	s.line.Lock()
	defer s.line.Unlock()
	return int(s.unsentLocked())
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
		rt.Until(t, "written", func() bool { return s.unwritten() == 0 })
		for i := range large {
			calls = append(calls, item('a', fmt.Sprint("k", i), "x").sent(n))
			want := 0
			if c.holds && i < large-1 {
				want = i + 1
			} else if c.near && !c.holds && i >= deep-1 {
				want = i + 2 - deep
			}
			rt.Until(t, fmt.Sprintf("%+v: %d of %d calls wait", c, want, i+1), func() bool { return s.unwritten() == want })
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
	rt.Until(t, "written", func() bool { return s.unwritten() == 0 })
	server.Resume()
	all(t, calls, member.Answered)
}

// What is written waits for an answer of a near server.
func TestWhatAWriteWaitsFor(t *testing.T) {
	near := backlog{trip: faraway - 1, oldest: 10, before: 20, last: 25, waiting: 1}
	for _, c := range []struct {
		what string
		edit func(l *backlog)
		want uint64
	}{
		{"near", func(*backlog) {}, 10},
		{"behind a large write", func(l *backlog) { l.last = l.before + enough }, 20 + enough},
		{"behind a large write, one less than that", func(l *backlog) { l.last, l.waiting = l.before+enough, enough-1 }, 20 + enough},
		{"behind a large write, as many", func(l *backlog) { l.last, l.waiting = l.before+enough, enough }, 10},
		{"behind one less than a large write", func(l *backlog) { l.last = l.before + enough - 1 }, 10},
		{"many bytes", func(l *backlog) { l.bytes = inlineBytes }, 0},
		{"nothing known", func(l *backlog) { l.trip = 0 }, 0},
		{"far", func(l *backlog) { l.trip = faraway }, 0},
	} {
		l := near
		c.edit(&l)
		require.Equal(t, c.want, l.until(), c.what)
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
		s := &session{reading: reading{now: now}, writing: writing{probed: now.Add(-c.took)}}
		if c.before {
			s.trip.Store(int64(faraway - 1))
		}
		for range c.answered {
			s.line.Add(line.Entry{Call: new(member.Call)}, member.Brief{}, "", false)
			s.line.First()
			s.line.Pop()
		}
		s.probe.Store(7)
		s.letGo()
		near := s.trip.Load() > 0 && s.trip.Load() < int64(faraway)
		require.True(t, near == c.nearby && (s.probe.Load() == 0) == (c.answered == 7), "%+v: near %v, probe %d", c, near, s.probe.Load())
	}
}

func groupOf(calls ...*result) (out []*member.Call) {
	for _, c := range calls {
		out = append(out, &c.Call)
	}
	return out
}

// A group is one command however few they are, and no call of others is in it. Each line is what is sent.
func TestGroupIsOneCommandOfItsOwn(t *testing.T) {
	odd := item('a', "2", "x")
	odd.Item = nil
	for _, c := range []struct {
		name                 string
		before, group, after []*result
		apart                bool
		acks                 int
		want                 []string
	}{
		{name: "two are enough", group: items("a:1 a:2"), want: []string{"ac 1 2"}},
		{name: "others stand before and behind", before: items("a:1 a:2 r:3"), group: items("a:4 a:5 a:6"), after: items("a:7 a:8 a:9"),
			want: []string{"aar 1 2 3", "acc 4 5 6", "aaa 7 8 9"}},
		{name: "of calls that are never chained", group: items("r:1 r:2"), want: []string{"rr 1 2"}},
		{name: "one", group: items("a:1"), want: []string{"1"}},
		{name: "as many as a command takes", group: items(strings.Repeat("a:n ", line.Most)),
			want: []string{"a" + strings.Repeat("c", line.Most-1) + strings.Repeat(" n", line.Most)}},
		{name: "more than a command takes", group: items(strings.Repeat("a:n ", line.Most+3)),
			want: []string{strings.Repeat("a", line.Most) + strings.Repeat(" n", line.Most), "aaa n n n"}},
		{name: "one of them takes no part in batches", group: []*result{item('a', "1", "x"), odd, item('a', "3", "x")},
			want: []string{"1", "2", "3"}},
		{name: "the server takes no batches", apart: true, group: items("a:1 a:2 a:3"), want: []string{"1", "2", "3"}},
		{name: "replicas must acknowledge", acks: 1, group: items("a:1 a:2"), want: []string{"1", "WAIT", "2", "WAIT"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, func(cfg *Config) { cfg.MinReplicasAck = c.acks })
			if c.apart {
				n.published.Load().session.travelApart()
			}
			s := occupied(n)
			submitAll(n, c.before...)
			n.SubmitGroup(groupOf(c.group...))
			submitAll(n, c.after...)
			s.wake()
			all(t, slices.Concat(c.before, c.group, c.after), member.Answered)
			require.Equal(t, strings.Join(c.want, "\n"), sent())
			drained(t, n)
		})
	}
}

func TestGroupIsWrittenAtOnce(t *testing.T) {
	n, sent := recording(t, func(*Config) {})
	group := items("a:1 a:2")
	n.SubmitGroup(groupOf(group...))
	all(t, group, member.Answered)
	require.Equal(t, "ac 1 2", sent())
}

func TestGroupIsRefusedAsAWhole(t *testing.T) {
	for _, c := range []struct {
		name string
		edit func(*Config)
		bar  func(n *Node)
		want error
	}{
		{"the line is full", func(c *Config) { c.maxCalls = 2 }, func(*Node) {}, member.ErrOverflow},
		{"too many bytes", func(c *Config) { c.MaxBytes = 400 }, func(*Node) {}, member.ErrOverflow},
		{"the member may not vote", func(*Config) {}, func(n *Node) {
			n.mu.Lock()
			defer n.mu.Unlock()
			p := *n.published.Load()
			p.barred = member.ErrQuarantined
			n.published.Store(&p)
		}, member.ErrQuarantined},
		{"the member is down", func(*Config) {}, func(n *Node) {
			if s := n.published.Load().session; s != nil { // else its own goroutine was first
				n.fell(s)
			}
		}, member.ErrDown},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, sent := recording(t, c.edit)
			s := n.published.Load().session
			if c.want == member.ErrDown {
				s.fail(member.ErrBroken, errors.New("test"))
			}
			c.bar(n)
			group := items("a:1 a:2 a:3")
			n.SubmitGroup(groupOf(group...))
			all(t, group, member.NotSent, c.want)
			require.Empty(t, sent(), "sent")
		})
	}
}

func TestGroupThatIsRefusedTravelsApart(t *testing.T) {
	n, _ := joining(t, batching("-CROSSSLOT Keys in request don't hash to the same slot\r\n"))
	for range 2 {
		group := items("a:1 a:2 a:3")
		n.SubmitGroup(groupOf(group...))
		all(t, group, member.Answered)
	}
}
