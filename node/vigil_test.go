package node

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/member"
)

func TestVerdict(t *testing.T) {
	const limit = 2 * time.Second
	ms := time.Millisecond
	since := time.Now()
	for name, tc := range map[string]struct {
		due, now time.Duration // after since
		unread   bool
		granted  int
		stalled  bool
		grace    bool
		wait     time.Duration
	}{
		"before the end":           {1000 * ms, 1000 * ms, false, 0, false, false, 1000 * ms},
		"late before the end":      {500 * ms, 1999 * ms, true, 0, false, false, ms},
		"exactly at the end":       {limit, limit, false, 0, true, false, 0},
		"a little late":            {limit, limit + 250*ms, false, 0, true, false, 0},
		"late":                     {limit, limit + 251*ms, false, 0, false, true, 500 * ms},
		"a minute late":            {limit, time.Minute, false, 3, false, true, 500 * ms},
		"on time and unread":       {limit, limit, true, 0, false, true, 500 * ms},
		"unread, the last grace":   {3500 * ms, 3500 * ms, true, 3, false, true, 500 * ms},
		"unread, and no grace":     {4 * time.Second, 4 * time.Second, true, 4, true, false, 0},
		"late, and no grace":       {4 * time.Second, time.Minute, true, 4, true, false, 0},
		"in time behind one grace": {2500 * ms, 2500 * ms, false, 1, true, false, 0},
	} {
		stalled, grace, wait := verdict(limit, since, since.Add(tc.due), since.Add(tc.now), func() bool { return tc.unread }, tc.granted)
		if stalled != tc.stalled || grace != tc.grace || wait != tc.wait {
			t.Errorf("%s: stalled %v, grace %v, wait %v", name, stalled, grace, wait)
		}
	}
}

// A look that comes early, because something else woke the supervisor, spends no grace. Another call first in line has
// graces of its own.
func TestVigilSpendsAGraceOnce(t *testing.T) {
	t0 := time.Now()
	v := &vigil{limit: 2 * time.Second, unread: func() bool { return true }}
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	for range 10 {
		if stalled, wait := v.stalled(at(0), at(2100*time.Millisecond)); stalled || wait != 500*time.Millisecond {
			t.Fatalf("%v, %v", stalled, wait)
		}
	}
	for i, want := range []bool{false, false, false, true} {
		if stalled, _ := v.stalled(at(0), at(2600*time.Millisecond+time.Duration(i)*500*time.Millisecond)); stalled != want {
			t.Errorf("look %d: %v", i, stalled)
		}
	}
	if stalled, _ := v.stalled(at(time.Second), at(5*time.Second)); stalled {
		t.Error("the graces of another call are spent")
	}
}

// muted makes f silent from the moment on silent is set.
func muted(silent *atomic.Bool, f *fake) *fake { f.handle = mute(silent); return f }

func TestUnreadBytesPutOffTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		var waiting atomic.Bool
		waiting.Store(true)
		f := muted(&silent, newFake(nil))
		n := start(t, Config{Dialer: f, StallTimeout: 2 * time.Second, unread: func(net.Conn) bool { return waiting.Load() }})
		synctest.Wait()
		silent.Store(true)
		began := time.Now()
		c := submit(n, "A")
		if <-c.done; time.Since(began) != 4*time.Second || !errors.Is(c.Err, member.ErrStalled) {
			t.Errorf("a peer whose answer never comes: %v after %v", c.Err, time.Since(began))
		}
		silent.Store(false)
		time.Sleep(2 * time.Second)
		silent.Store(true)
		began = time.Now()
		c = submit(n, "A")
		time.Sleep(2100 * time.Millisecond)
		waiting.Store(false)
		if <-c.done; time.Since(began) != 2500*time.Millisecond {
			t.Errorf("nothing is unread any more: %v after %v", c.Err, time.Since(began))
		}
	})
}

// The rule is the same for an inbox on a connection of its own and for a Sentinel.
func TestUnreadBytesPutOffTheEndOfAnInbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var silent atomic.Bool
		f := newFake(nil)
		f.handle = func(id int64, args []string) string {
			f.mu.Lock()
			defer f.mu.Unlock()
			if args[0] == "PING" && slices.Contains(f.subscribed, id) {
				if silent.Load() {
					return ""
				}
				return "*2\r\n$4\r\npong\r\n$0\r\n\r\n"
			}
			return "default"
		}
		n := start(t, Config{Dialer: f, PingInterval: time.Second, StallTimeout: 2 * time.Second, unread: func(net.Conn) bool { return true }})
		var l pushLog
		n.Listen("ch", &l)
		time.Sleep(10500 * time.Millisecond)
		silent.Store(true) // PING at 11 s
		time.Sleep(4500*time.Millisecond - 1)
		synctest.Wait()
		if st := n.State(); !st.Inbox {
			t.Errorf("too early: %+v", st)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if st := n.State(); st.Inbox || !st.Up {
			t.Errorf("too late: %+v", st)
		}
	})
}

func TestSilentSentinelIsLeft(t *testing.T) {
	for waiting, want := range map[bool]time.Duration{false: 6 * time.Second, true: 8 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var silent atomic.Bool
			f := muted(&silent, newFake(nil))
			n := &Node{seek: make(chan struct{}, 1), cfg: Config{
				Dialer: f, StallTimeout: 2 * time.Second, unread: func(net.Conn) bool { return waiting },
				Sentinels: &Sentinels{Master: "m", Addrs: []string{"s:1"}},
			}.withDefaults()}
			n.accepting = t.Context()
			time.AfterFunc(3*time.Second, func() { silent.Store(true) }) // behind the PING of 2 s, before that of 4 s
			began := time.Now()
			heard, err := n.hear("s:1")
			if took := time.Since(began); !heard || took != want || !errors.Is(err, member.ErrStalled) {
				t.Errorf("unread %v: heard %v, %v after %v", waiting, heard, err, took)
			}
		})
	}
}

// slowLog blocks for a while when it is told that releases were dropped.
type slowLog struct {
	slog.Handler
	pause time.Duration
}

func (s slowLog) Enabled(context.Context, slog.Level) bool { return true }
func (s slowLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "releases are owed") {
		time.Sleep(s.pause)
	}
	return nil
}

// The supervisor was held up: the member answers while it is. What is asked of it meanwhile is not its fault.
func TestLateSupervisorBlamesNobody(t *testing.T) {
	for name, answers := range map[string]bool{"answers soon": true, "is dead": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				f := newFake(func(_ int64, args []string) string {
					if args[0] == "SLOW" {
						<-release
					}
					return "default"
				})
				n := start(t, Config{Dialer: f, StallTimeout: 2 * time.Second, Logger: slog.New(slowLog{slog.DiscardHandler, 3 * time.Second})})
				synctest.Wait()
				n.dropped.Store(true)
				began := time.Now()
				time.Sleep(500 * time.Millisecond)
				c := submit(n, "SLOW")
				if answers {
					time.AfterFunc(3700*time.Millisecond, func() { close(release) })
				} else {
					defer close(release)
				}
				<-c.done
				// The look of 1 s is held up until 4 s. Then there is one grace, of 500 ms.
				switch took := time.Since(began); {
				case answers && (c.Outcome != member.Answered || n.State().Epoch != 1):
					t.Errorf("%v, %v after %v", c.Outcome, c.Err, took)
				case !answers && (took != 4500*time.Millisecond || !errors.Is(c.Err, member.ErrStalled)):
					t.Errorf("%v after %v", c.Err, took)
				}
			})
		})
	}
}

func TestUnreadSeesWhatWaitsInASocket(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ours, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if unread(ours) {
		t.Error("nothing was sent")
	}
	if _, err := theirs.Write([]byte("+")); err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS == "linux" {
		until(t, "unread", func() bool { return unread(ours) })
	}
	var b [2]byte
	if n, err := ours.Read(b[:]); n != 1 || err != nil {
		t.Fatalf("the look took it: %d, %v", n, err)
	}
	_ = theirs.Close()
	if n, _ := ours.Read(b[:]); n != 0 || unread(ours) {
		t.Error("the end of the stream is unread")
	}
	_ = ours.Close()
	if unread(ours) || unread(&pipeConn{}) {
		t.Error("no socket has something unread")
	}
}
