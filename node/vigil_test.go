package node

import (
	"context"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
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
		require.True(t, stalled == tc.stalled && grace == tc.grace && wait == tc.wait,
			"%s: stalled %v, grace %v, wait %v", name, stalled, grace, wait)
	}
}

// A look that comes early, because something else woke the supervisor, spends no grace. Another call first in line has
// graces of its own.
func TestVigilSpendsAGraceOnce(t *testing.T) {
	t0 := time.Now()
	v := &vigil{limit: 2 * time.Second, unread: func() bool { return true }}
	at := func(d time.Duration) time.Time { return t0.Add(d) }
	for range 10 {
		stalled, wait := v.stalled(at(0), at(2100*time.Millisecond))
		require.True(t, !stalled && wait == 500*time.Millisecond, "%v, %v", stalled, wait)
	}
	for i, want := range []bool{false, false, false, true} {
		stalled, _ := v.stalled(at(0), at(2600*time.Millisecond+time.Duration(i)*500*time.Millisecond))
		require.Equal(t, want, stalled, "look %d: %v", i, stalled)
	}
	stalled, _ := v.stalled(at(time.Second), at(5*time.Second))
	require.False(t, stalled, "the graces of another call are spent")
}

func TestUnreadBytesPutOffTheEnd(t *testing.T) {
	var waiting atomic.Bool
	waiting.Store(true)
	c := Config{StallTimeout: 2 * time.Second, unread: func(net.Conn) bool { return waiting.Load() }}
	faked(t, nil, c, func(t *testing.T, f *fake, n *Node) {
		f.silence(true)
		began := time.Now()
		submit(n, "A").is(t, member.Unknown, member.ErrStalled)
		require.Equal(t, 4*time.Second, time.Since(began), "a peer whose answer never comes")
		f.silence(false)
		time.Sleep(2 * time.Second)
		f.silence(true)
		began = time.Now()
		c := submit(n, "A")
		time.Sleep(2100 * time.Millisecond)
		waiting.Store(false)
		<-c.done
		require.Equal(t, 2500*time.Millisecond, time.Since(began), "nothing is unread any more")
	})
}

func TestSilentSentinelIsLeft(t *testing.T) {
	for waiting, want := range map[bool]time.Duration{false: 6 * time.Second, true: 8 * time.Second} {
		faketime.Test(t, func(t *testing.T) {
			f := newFake(nil)
			n := &Node{seek: make(chan struct{}, 1), dialer: dialer{cfg: Config{
				Dialer: f, StallTimeout: 2 * time.Second, unread: func(net.Conn) bool { return waiting },
				Sentinels: &Sentinels{Master: "m", Addrs: []string{"s:1"}},
			}.withDefaults()}}
			n.accepting = t.Context()
			time.AfterFunc(3*time.Second, func() { f.silence(true) }) // behind the PING of 2 s, before that of 4 s
			began := time.Now()
			heard, err := n.hear("s:1")
			require.True(t, heard)
			require.ErrorIs(t, err, member.ErrStalled)
			require.Equal(t, want, time.Since(began), "unread: %v", waiting)
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
		c := Config{StallTimeout: 2 * time.Second, Logger: slog.New(slowLog{slog.DiscardHandler, 3 * time.Second})}
		t.Run(name, playing(nil, c, func(t *testing.T, f *fake, n *Node) {
			release := f.hold("SLOW")
			n.dropped.Store(true)
			began := time.Now()
			time.Sleep(500 * time.Millisecond)
			c := submit(n, "SLOW")
			if answers {
				time.AfterFunc(3700*time.Millisecond, release)
				c.is(t, member.Answered)
				require.EqualValues(t, 1, n.State().Epoch)
				return
			}
			defer release()
			c.is(t, member.Unknown, member.ErrStalled)
			// The look of 1 s is held up until 4 s. Then there is one grace, of 500 ms.
			require.Equal(t, 4500*time.Millisecond, time.Since(began))
		}))
	}
}

func TestUnreadSeesWhatWaitsInASocket(t *testing.T) {
	l := rt.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer l.Close()
	ours := rt.Must(net.Dial("tcp", l.Addr().String()))(t)
	defer ours.Close()
	theirs := rt.Must(l.Accept())(t)
	require.False(t, unread(ours), "nothing was sent")
	require.NoError(t, rt.Err(theirs.Write([]byte("+"))))
	if runtime.GOOS == "linux" {
		rt.Until(t, "unread", func() bool { return unread(ours) })
	}
	var b [2]byte
	n := rt.Must(ours.Read(b[:]))(t)
	require.Equal(t, 1, n, "the look took it")
	_ = theirs.Close()
	n, _ = ours.Read(b[:])
	require.True(t, n == 0 && !unread(ours), "the end of the stream is unread")
	_ = ours.Close()
	require.True(t, !unread(ours) && !unread(&pipeConn{}), "no socket has something unread")
}
