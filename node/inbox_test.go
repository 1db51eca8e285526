package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/guard"
)

type mini struct{ m *miniredis.Miniredis }

// DialContext puts a buffered pipe in front of miniredis's unbuffered one.
func (d mini) DialContext(context.Context, string, string) (net.Conn, error) {
	far, err := d.m.Dial()
	if err != nil {
		return nil, err
	}
	client, near := pipe()
	go shovel(near, far)
	go shovel(far, near)
	return client, nil
}

func shovel(from, to net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := from.Read(b)
		if n > 0 {
			if _, err := to.Write(b[:n]); err != nil {
				break
			}
		}
		if err != nil {
			break
		}
	}
	_ = from.Close()
	_ = to.Close()
}

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
	n := start(t, Config{Addr: s.addr(), ClientName: "inbox", PingInterval: 5 * time.Millisecond, BackoffMin: time.Millisecond})
	var l pushLog
	n.Listen("ch", &l)
	for round := range 3 {
		until(t, "subscribed", func() bool { return n.State().Inbox })
		want := fmt.Sprint("message ", round)
		if got := s.cli("PUBLISH", "ch", want); got != "1" {
			t.Fatalf("%s receivers after Inbox was true", got)
		}
		until(t, "delivered", func() bool { return slices.Contains(l.messages(), want) })
		until(t, "pinged", func() bool { return strings.Contains(s.cli("INFO", "commandstats"), "cmdstat_ping:calls=") })
		s.cli("CONFIG", "RESETSTAT")
		before := len(l.changes())
		if got := s.cli("CLIENT", "KILL", "TYPE", "pubsub"); got != "1" {
			t.Errorf("%s inbox connections", got)
		}
		until(t, "changed twice", func() bool { return len(l.changes()) >= before+2 })
	}
	until(t, "subscribed", func() bool { return n.State().Inbox })
	if got := strings.TrimPrefix(l.picture(), "U- "); got != picture {
		t.Errorf("changes %s", got)
	}
	if st := n.State(); st.Epoch != epoch {
		t.Errorf("the command connection: %+v", st)
	}
}

func TestInboxFollowsTheCommandConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(nil)
		n := start(t, Config{Dialer: f, jitter: longest, BackoffMin: time.Second, BackoffMax: time.Second})
		var l pushLog
		n.Listen("ch", &l)
		synctest.Wait()
		command := func() int64 { // the connection that is not subscribed
			f.mu.Lock()
			defer f.mu.Unlock()
			for id := range f.conns {
				if !slices.Contains(f.subscribed, id) {
					return id
				}
			}
			return 0
		}
		drop := func(id int64) {
			f.mu.Lock()
			defer f.mu.Unlock()
			_ = f.conns[id].Close()
			delete(f.conns, id)
		}
		drop(command())
		time.Sleep(1500 * time.Millisecond)
		if got := l.picture(); got != "U- UI -- UI" && got != "UI -- UI" {
			t.Errorf("same process: %s", got)
		}
		// Another process behind the commands: what the old inbox says counts for nothing, and it is left.
		f.set(func() { f.runID = "run-2" })
		drop(command())
		time.Sleep(1001 * time.Millisecond)
		if st := n.State(); !st.Up || st.Inbox || st.Gen != 2 {
			t.Errorf("just restarted: %+v", st)
		}
		time.Sleep(time.Second)
		if st := n.State(); !st.Inbox || st.Gen != 2 {
			t.Errorf("later: %+v", st)
		}
		for _, st := range l.changes() {
			if st.Gen == 2 {
				if st.Inbox {
					t.Errorf("the old inbox counted for a moment: %+v", st)
				}
				break
			}
		}
	})
}

func TestPushOfAnotherProcessIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, Config{Dialer: newFake(nil)})
		synctest.Wait()
		var l pushLog
		for _, runID := range []string{"run-1", "run-0", ""} {
			in := &inbox{node: n, listener: &l, runID: runID, gen: 1}
			in.push([]byte("from "+runID), time.Now())
		}
		if got := l.messages(); !slices.Equal(got, []string{"from run-1"}) {
			t.Errorf("delivered %q", got)
		}
	})
}

// marked is a session with a member whose marker has this id.
type marked string

func (m marked) Ask(context.Context, [][]byte) ([]member.Call, error) {
	str := func(s string) member.Reply { return member.Reply{Kind: '$', Str: []byte(s)} }
	num := func(n int64) member.Reply { return member.Reply{Kind: ':', Int: n} }
	look := []member.Reply{str(string(m)), str("n"), str("1000"), num(-2), str(""), num(10), str(""), str("")}
	return []member.Call{{Result: member.Result{Outcome: member.Answered, Reply: member.Reply{Kind: '*', Elems: look}}}}, nil
}
func (marked) Queue(*member.Call) error                   { return nil }
func (marked) Hold(*member.Call) error                    { return nil }
func (marked) Replace(*member.Call) bool                  { return false }
func (marked) Heard() time.Time                           { return time.Time{} }
func (marked) Pause(<-chan struct{}, time.Duration) error { return nil }

// The same process with another memory: flushed, or marked, between the connections.
func TestPushOfAnotherMemoryIsDropped(t *testing.T) {
	n := &Node{ctx: t.Context(), accepting: t.Context()}
	n.published.Store(&published{state: member.State{Up: true, RunID: "run", Gen: 2}})
	n.seat = guard.NewSeat(NewGuard(GuardConfig{Members: 1, MaxTTL: time.Second}), (*host)(n), guard.Terms{Patience: time.Second})
	n.seat.Join()
	standing, err := n.seat.Admit(marked("run 5"), guard.Process{RunID: "run"})
	if err != nil || standing.Marker() != "run 5" {
		t.Fatal(standing.Marker(), err)
	}
	n.published.Store(&published{state: n.State(), standing: standing})
	var l pushLog
	for name, in := range map[string]*inbox{
		"this one":            {runID: "run", gen: 2, id: "run 5"},
		"an ended generation": {runID: "run", gen: 1, id: "run 5"},
		"another marking":     {runID: "run", gen: 2, id: "run 4"},
		"no marker":           {runID: "run", gen: 2},
	} {
		in.node, in.listener = n, &l
		in.push([]byte(name), time.Now())
	}
	if got := l.messages(); !slices.Equal(got, []string{"this one"}) {
		t.Errorf("delivered %q", got)
	}
}

func TestSilentInboxIsReplacedExactlyOnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		var pings int
		f := newFake(nil)
		f.handle = func(id int64, args []string) string {
			f.mu.Lock()
			subscribed := slices.Contains(f.subscribed, id)
			if args[0] == "PING" && subscribed {
				pings++
			}
			f.mu.Unlock()
			switch {
			case args[0] == "PING" && subscribed && silent.Load():
				return ""
			case args[0] == "PING" && subscribed:
				return "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
			}
			return "default"
		}
		n := start(t, Config{Dialer: f, PingInterval: time.Second, StallTimeout: 2 * time.Second})
		var l pushLog
		n.Listen("ch", &l)
		time.Sleep(10500 * time.Millisecond)
		f.set(func() {
			if pings != 10 {
				t.Errorf("%d pings in 10.5 s", pings)
			}
		})
		if st := n.State(); !st.Inbox || len(f.subscribed) != 1 {
			t.Fatalf("%+v, subscribed by %v", st, f.subscribed)
		}
		silent.Store(true) // PING at 11 s
		time.Sleep(2500*time.Millisecond - 1)
		synctest.Wait()
		if st := n.State(); !st.Inbox {
			t.Errorf("too early: %+v", st)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if st := n.State(); st.Inbox || !st.Up {
			t.Errorf("too late: %+v", st)
		}
		silent.Store(false)
		time.Sleep(time.Second)
		if st := n.State(); !st.Inbox {
			t.Errorf("not back: %+v", st)
		}
	})
}

func TestInboxIsNotConfirmedBeforeTheServerSaysSo(t *testing.T) {
	for name, answer := range map[string]string{
		"silence": "",
		"refusal": "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(func(_ int64, args []string) string {
					if args[0] == "SUBSCRIBE" {
						return answer
					}
					return "default"
				})
				n := start(t, Config{Dialer: f})
				var l pushLog
				n.Listen("ch", &l)
				time.Sleep(20 * time.Second)
				if st := n.State(); st.Inbox || !st.Up {
					t.Errorf("%+v", st)
				}
				f.set(func() {
					if name == "refusal" && len(f.dials) != 2 {
						t.Errorf("%d dials: a refused channel must not be asked for all the time", len(f.dials))
					}
				})
			})
		})
	}
}

func TestListenerMaySubmit(t *testing.T) {
	s := startRedis(t)
	n := start(t, Config{Addr: s.addr()})
	l := &submitter{n: n, echoed: make(chan *result, 10)}
	n.Listen("ch", l)
	until(t, "subscribed", func() bool { return n.State().Inbox })
	s.cli("PUBLISH", "ch", "x")
	seen := 0
	for seen < 2 {
		c := (<-l.echoed).wait(t)
		if c.Outcome == member.Answered {
			seen++
		} else if !errors.Is(c.Err, member.ErrDown) {
			t.Errorf("%v", c.Err)
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
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	n.Listen("b", &pushLog{})
}
