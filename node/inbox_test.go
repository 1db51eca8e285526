package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
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
	l.mu.Lock()
	defer l.mu.Unlock()
	l.pushes = append(l.pushes, string(msg))
}

func (l *pushLog) Changed(st member.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.states = append(l.states, st)
}

func (l *pushLog) messages() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.pushes)
}

func (l *pushLog) changes() []member.State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.states)
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

// On the commands' connection, and at a server that does not do that.
func TestInboxDeliversAndComesBack(t *testing.T) {
	t.Run("shared", func(t *testing.T) { inboxComesBack(t, startRedis(t), "UI -- U- UI -- U- UI -- U- UI", 4) })
	t.Run("apart", func(t *testing.T) {
		inboxComesBack(t, startRedis(t, "--rename-command", "HELLO", ""), "UI U- UI U- UI U- UI", 1)
	})
}

func inboxComesBack(t *testing.T, s *redisServer, picture string, epoch uint64) {
	n := start(t, Config{Addr: s.Addr(), ClientName: "inbox", PingInterval: 5 * time.Millisecond, backoffMin: time.Millisecond})
	var l pushLog
	n.Listen("ch", &l)
	for round := range 3 {
		until(t, "subscribed", func() bool { return n.State().Inbox })
		want := fmt.Sprint("message ", round)
		require.Equal(t, "1", s.cli("PUBLISH", "ch", want), "receivers after Inbox was true")
		until(t, "delivered", func() bool { return slices.Contains(l.messages(), want) })
		until(t, "pinged", func() bool { return strings.Contains(s.cli("INFO", "commandstats"), "cmdstat_ping:calls=") })
		s.cli("CONFIG", "RESETSTAT")
		before := len(l.changes())
		require.Equal(t, "1", s.cli("CLIENT", "KILL", "TYPE", "pubsub"), "inbox connections")
		until(t, "changed twice", func() bool { return len(l.changes()) >= before+2 })
	}
	until(t, "subscribed", func() bool { return n.State().Inbox })
	require.Equal(t, picture, strings.TrimPrefix(l.picture(), "U- "), "changes")
	require.Equal(t, epoch, n.State().Epoch, "the command connection")
}

func TestInboxFollowsTheCommandConnection(t *testing.T) {
	faked(t, nil, Config{jitter: longest, backoffMin: time.Second, backoffMax: time.Second}, func(t *testing.T, f *fake, n *Node) {
		var l pushLog
		n.Listen("ch", &l)
		synctest.Wait()
		drop := func() { // the connection that is not subscribed
			f.mu.Lock()
			defer f.mu.Unlock()
			for id, c := range f.conns {
				if !slices.Contains(f.subscribed, id) {
					_ = c.Close()
					delete(f.conns, id)
				}
			}
		}
		drop()
		time.Sleep(1500 * time.Millisecond)
		got := l.picture()
		require.True(t, got == "U- UI -- UI" || got == "UI -- UI", "same process: %s", got)
		// Another process behind the commands: what the old inbox says counts for nothing, and it is left.
		f.set(func() { f.runID = "run-2" })
		drop()
		time.Sleep(1001 * time.Millisecond)
		assert.True(t, n.State().Up && !n.State().Inbox && n.State().Gen == 2, "just restarted: %+v", n.State())
		time.Sleep(time.Second)
		assert.True(t, n.State().Inbox && n.State().Gen == 2, "later: %+v", n.State())
		all := l.changes()
		first := slices.IndexFunc(all, func(st member.State) bool { return st.Gen == 2 })
		require.False(t, all[first].Inbox, "the old inbox counted for a moment")
	})
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
	standing, err := n.seat.Admit(marked("run 5"), guard.Process{RunID: "run"})
	require.NoError(t, err)
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

func TestInboxIsNotConfirmedBeforeTheServerSaysSo(t *testing.T) {
	for name, answer := range map[string]string{
		"silence": "",
		"refusal": "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n",
	} {
		t.Run(name, faketime.In(func(t *testing.T) {
			f := newFake(says("SUBSCRIBE", answer))
			n := start(t, Config{Dialer: f})
			n.Listen("ch", &pushLog{})
			time.Sleep(20 * time.Second)
			require.True(t, !n.State().Inbox && n.State().Up, "%+v", n.State())
			if name == "refusal" {
				require.Len(t, f.dialled(), 2, "a refused channel must not be asked for all the time")
			}
		}))
	}
}

func TestListenerMaySubmit(t *testing.T) {
	s := startRedis(t)
	n := start(t, Config{Addr: s.Addr()})
	l := &submitter{n: n, echoed: make(chan *result, 10)}
	n.Listen("ch", l)
	until(t, "subscribed", func() bool { return n.State().Inbox })
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
