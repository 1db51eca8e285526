package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// pushLog is a Listener that remembers.
type pushLog struct {
	mu     sync.Mutex
	pushes []string
	states []member.State
}

func (l *pushLog) Push(msg []byte, st member.State, _ time.Time) {
	rt.Locked(&l.mu, func() { l.pushes = append(l.pushes, string(msg)) })
}

func (l *pushLog) Changed(st member.State) {
	rt.Locked(&l.mu, func() { l.states = append(l.states, st) })
}

func (l *pushLog) messages() []string {
	return rt.Under(&l.mu, func() []string { return slices.Clone(l.pushes) })
}

func (l *pushLog) changes() []member.State {
	return rt.Under(&l.mu, func() []member.State { return slices.Clone(l.states) })
}

// picture shows the changes as "UI" for Up and Inbox, "U-" and so on.
func (l *pushLog) picture() (p string) {
	for i, st := range l.changes() {
		if i > 0 {
			p += " "
		}
		p += map[bool]string{true: "U", false: "-"}[st.Up] + map[bool]string{true: "I", false: "-"}[st.Inbox]
	}
	return p
}

func TestInboxDeliversAndComesBack(t *testing.T) {
	s := startRedis(t)
	n := start(t, Config{Addr: s.Addr(), ClientName: "inbox", PingInterval: 5 * time.Millisecond, backoffMin: time.Millisecond})
	var l pushLog
	n.Listen("ch", &l)
	for round := range 3 {
		rt.Until(t, "subscribed", func() bool { return n.State().Inbox })
		want := fmt.Sprint("message ", round)
		require.Equal(t, "1", s.cli("PUBLISH", "ch", want), "receivers after Inbox was true")
		rt.Until(t, "delivered", func() bool { return slices.Contains(l.messages(), want) })
		rt.Until(t, "pinged", func() bool { return strings.Contains(s.cli("INFO", "commandstats"), "cmdstat_ping:calls=") })
		s.cli("CONFIG", "RESETSTAT")
		before := len(l.changes())
		require.Equal(t, "1", s.cli("CLIENT", "KILL", "TYPE", "pubsub"), "inbox connections")
		rt.Until(t, "changed twice", func() bool { return len(l.changes()) >= before+2 })
	}
	rt.Until(t, "subscribed", func() bool { return n.State().Inbox })
	require.Equal(t, "UI -- U- UI -- U- UI -- U- UI", strings.TrimPrefix(l.picture(), "U- "), "changes")
	require.EqualValues(t, 4, n.State().Epoch)
}

// marked is a session with a member whose marker has this id.
type marked string

func (m marked) Ask(context.Context, [][]byte) ([]member.Call, error) {
	str := func(s string) member.Reply { return member.Reply{Kind: '$', Str: []byte(s)} }
	num := func(n int64) member.Reply { return member.Reply{Kind: ':', Int: n} }
	look := []member.Reply{str(string(m)), str("n"), str("1000"), num(-2), str(""), num(10), str(""), str("a"), str("role:master\r\nmaster_replid:a\r\n"), str("")}
	return []member.Call{{Result: member.Result{Outcome: member.Answered, Reply: member.Reply{Kind: '*', Elems: look}}}}, nil
}
func (marked) Queue(*member.Call) error                   { return nil }
func (marked) Pause(<-chan struct{}, time.Duration) error { return nil }

// The same process with another memory: flushed, or marked, between the connections.
func TestPushOfAnotherMemoryIsDropped(t *testing.T) {
	n := &Node{life: life{ctx: t.Context(), accepting: t.Context()}}
	n.published.Store(&published{state: member.State{Brief: member.Brief{Gen: 2}, Up: true, RunID: "run"}})
	n.seat = guard.NewSeat(NewGuard(GuardConfig{Members: 1, MaxTTL: time.Second}), (*host)(n), guard.Terms{Patience: time.Second})
	n.seat.Join()
	standing := rt.Must(n.seat.Admit(marked("run 5"), guard.Process{RunID: "run"}))(t)
	require.Equal(t, "run 5", standing.Marker())
	n.published.Store(&published{state: n.State(), standing: standing})
	var l pushLog
	for name, in := range map[string]*inbox{
		"this one":            {memory: memory{runID: "run", gen: 2, id: "run 5"}},
		"an ended generation": {memory: memory{runID: "run", gen: 1, id: "run 5"}},
		"another process":     {memory: memory{runID: "run-0", gen: 2, id: "run 5"}},
		"a process unnamed":   {memory: memory{gen: 2, id: "run 5"}},
		"another marking":     {memory: memory{runID: "run", gen: 2, id: "run 4"}},
		"no marker":           {memory: memory{runID: "run", gen: 2}},
	} {
		in.node, in.listener = n, &l
		in.push([]byte(name), time.Now())
	}
	require.Equal(t, []string{"this one"}, l.messages(), "delivered")
}

func TestRefusedInboxIsAskedForAgainLater(t *testing.T) {
	refusal := says("SUBSCRIBE", "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n")
	faked(t, refusal, Config{jitter: longest}, func(t *testing.T, f *fake, n *Node) {
		n.Listen("ch", &pushLog{})
		time.Sleep(authBackoff - time.Second)
		require.True(t, n.State().Up && !n.State().Inbox, "%+v", n.State())
		require.ErrorContains(t, n.State().Deaf, "inbox: SUBSCRIBE: NOPERM")
		require.Equal(t, 1, strings.Count(strings.Join(f.take(), "\n"), "SUBSCRIBE"), "it must not be asked for all the time")
		f.set(func() { f.handle = nil })
		time.Sleep(2 * time.Second)
		require.True(t, n.State().Inbox && n.State().Deaf == nil, "%+v", n.State())
		require.Len(t, f.dialled(), 1)
	})
}

func TestServerWithoutRESP3IsNoMember(t *testing.T) {
	faked(t, says("HELLO", "-NOPROTO unsupported protocol version\r\n"), Config{}, func(t *testing.T, _ *fake, n *Node) {
		require.ErrorContains(t, n.State().Err, "RESP3")
	})
}

func TestListenerMaySubmit(t *testing.T) {
	s := startRedis(t)
	n := start(t, Config{Addr: s.Addr()})
	l := &submitter{n: n, echoed: make(chan *result, 10)}
	n.Listen("ch", l)
	rt.Until(t, "subscribed", func() bool { return n.State().Inbox })
	s.cli("PUBLISH", "ch", "x")
	for seen := 0; seen < 2; {
		if c := (<-l.echoed).wait(t); c.Outcome == member.Answered {
			seen++
		} else {
			require.ErrorIs(t, c.Err, member.ErrDown)
		}
	}
}

type submitter struct {
	n      *Node
	echoed chan *result
}

func (l *submitter) submit() {
	c := newCall("ECHO", "x")
	c.Late = true
	l.n.Submit(&c.Call)
	select {
	case l.echoed <- c:
	default:
	}
}
func (l *submitter) Push([]byte, member.State, time.Time) { l.submit() }
func (l *submitter) Changed(member.State)                 { l.submit() }

func TestListenTwicePanics(t *testing.T) {
	n := start(t, Config{Dialer: newFake(nil)})
	n.Listen("a", &pushLog{})
	require.Panics(t, func() { n.Listen("b", &pushLog{}) })
}
