package node

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

// A bubble of synctest ends only when every goroutine in it has: these tests check for leaks as well.

func TestCloseWaitsForWhatIsInFlight(t *testing.T) {
	faked(t, slow("SLOW", 500*time.Millisecond), Config{}, func(t *testing.T, _ *fake, n *Node) {
		var l pushLog
		n.Listen("ch", &l)
		synctest.Wait()
		calls := []*result{submit(n, "SLOW"), submit(n, "SLOW")}
		var wg sync.WaitGroup
		for range 3 { // concurrently, and again
			wg.Go(func() { assert.NoError(t, n.Close(context.Background())) })
		}
		synctest.Wait()
		submit(n, "LATE").isAtOnce(t, member.NotSent, member.ErrClosed)
		began := time.Now()
		wg.Wait()
		require.Equal(t, time.Second, time.Since(began), "closed")
		all(t, calls, member.Answered)
		st := n.State()
		require.True(t, !st.Up && !st.Inbox && !st.Votes && errors.Is(st.Err, member.ErrClosed), "%+v", st)
		changes := l.changes()
		require.Equal(t, st, changes[len(changes)-1])
		require.NoError(t, n.Close(context.Background()))
	})
}

func TestCloseEndsWithItsContext(t *testing.T) {
	faked(t, nil, Config{StallTimeout: time.Minute}, func(t *testing.T, f *fake, n *Node) {
		defer f.hold("BLOCK")()
		n.Listen("ch", &pushLog{})
		synctest.Wait()
		c := submit(n, "BLOCK")
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		require.ErrorIs(t, n.Close(ctx), context.DeadlineExceeded)
		require.Equal(t, 300*time.Millisecond, time.Since(began), "closed")
		c.is(t, member.Unknown, member.ErrBroken)
	})
}

func TestCloseOfADeadMemberIsImmediate(t *testing.T) {
	refusing := newFake(nil)
	refusing.refuse = errors.New("refused")
	for name, c := range map[string]Config{"refusing": {Dialer: refusing}, "hanging": {Dialer: hanging{}}} {
		c.DialTimeout = time.Minute
		t.Run(name, faketime.In(func(t *testing.T) {
			n := start(t, c)
			n.Listen("ch", &pushLog{})
			time.Sleep(3 * time.Second)
			began := time.Now()
			require.NoError(t, n.Close(context.Background()))
			require.Zero(t, time.Since(began), "closed")
		}))
	}
}

type hanging struct{}

func (hanging) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// Close goes on connecting for what is owed while the server is there: one that is loading its data, or that ends each
// connection for a while.
func TestClosePaysDebtsHoweverOftenTheConnectionEnds(t *testing.T) {
	for name, refuse := range map[string]func(f *fake, id int64, args []string) string{
		"it ends each connection at the release": func(f *fake, id int64, args []string) string {
			if args[0] == "RELEASE" && id < 5 {
				f.cut()
				return ""
			}
			return "default"
		},
		"it is loading": func(_ *fake, id int64, args []string) string {
			if args[0] == "PING" && id > 1 && id < 5 {
				return "-LOADING Redis is loading the dataset in memory\r\n"
			}
			return "default"
		},
	} {
		t.Run(name, faketime.In(func(t *testing.T) {
			var f *fake
			f = newFake(func(id int64, args []string) string { return refuse(f, id, args) })
			n := start(t, Config{Dialer: f, backoffMin: 10 * time.Millisecond, jitter: longest})
			synctest.Wait()
			f.cut()
			synctest.Wait()
			n.Submit(&release("a", time.Hour).Call)
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
			defer cancel()
			require.NoError(t, n.Close(ctx))
			require.Len(t, f.commands(), 1, "executed once")
		}))
	}
}

// closer closes a node as soon as it is told that the member is down, and lets nothing go on before.
type closer struct {
	pushLog
	n    *Node
	done chan error
}

func (l *closer) Changed(st member.State) {
	if st.Up {
		return
	}
	go func() { l.done <- l.n.Close(context.Background()) }()
	<-l.n.accepting.Done()
	l.n.mu.Lock() // Close has begun
	defer l.n.mu.Unlock()
}

func TestClosePaysWhatWasUnderWayOnAConnectionThatBreaksAtThatMoment(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		f := newFake(nil)
		f.handle = func(id int64, args []string) string {
			if args[0] == "RELEASE" && id == 1 {
				f.cut()
				return ""
			}
			return "default"
		}
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		l := &closer{n: n, done: make(chan error, 1)}
		n.Listen("ch", l)
		synctest.Wait()
		n.Submit(&release("a", time.Hour).Call)
		require.NoError(t, <-l.done)
		require.Contains(t, f.commands(), "RELEASE a")
	})
}

func TestReleaseThatIsRefusedDuringCloseIsRepeatedBeforeItsEnd(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var tries atomic.Int64
		hold := make(chan struct{})
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "RELEASE" && tries.Add(1) == 1 {
				<-hold
				return "-NOREPLICAS Not enough good replicas to write.\r\n"
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		r := release("a", time.Hour)
		n.Submit(&r.Call)
		closed := rt.Go(func() error { return n.Close(context.Background()) })
		synctest.Wait()
		close(hold)
		require.NoError(t, <-closed)
		r.is(t, member.Refused)
		require.Len(t, f.commands(), 1)
	})
}

func TestClosePaysAMemberWithoutAStanding(t *testing.T) {
	s := startRedis(t)
	guard := NewGuard(GuardConfig{Members: 3, MaxTTL: time.Minute})
	n := start(t, Config{Addr: s.Addr(), DialTimeout: time.Minute, Guard: guard})
	r := newCall("SADD", "released", "a")
	r.OweUntil = time.Now().Add(time.Minute)
	n.Submit(&r.Call)
	rt.Until(t, "looked at", func() bool { return strings.Contains(s.cli("INFO", "commandstats"), "cmdstat_eval:") })
	require.NoError(t, n.Close(patient(t)))
	r.is(t, member.NotSent)
	require.Equal(t, "1", s.cli("SCARD", "released"))
}

// Nobody can find a subscriber any more when Close has returned: the server has ended the inbox, behind all that it was
// asked for there. A server that does not answer does not hold Close up for longer than its context.
func TestServerHasEndedTheInboxWhenCloseReturns(t *testing.T) {
	for name, hangs := range map[string]bool{"it answers": false, "it hangs": true} {
		t.Run(name, faketime.In(func(t *testing.T) {
			var ended atomic.Int64
			f := newFake(nil)
			f.handle = func(id int64, args []string) string {
				if args[0] != "QUIT" {
					return "default"
				}
				if !hangs {
					time.Sleep(100 * time.Millisecond)
					ended.Store(id)
					f.set(func() { _ = f.conns[id].Close() })
				}
				return ""
			}
			n := start(t, Config{Dialer: f})
			n.Listen("ch", &pushLog{})
			synctest.Wait()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			_ = n.Close(ctx)
			if hangs {
				require.LessOrEqual(t, time.Since(began), time.Second)
			} else {
				require.Equal(t, 100*time.Millisecond, time.Since(began))
				require.Equal(t, []int64{ended.Load()}, f.subscribers())
			}
		}))
	}
}

// Closing while everything else goes on, many times: for the race detector and for leaks.
func TestCloseAtAnyMoment(t *testing.T) {
	s := startRedis(t)
	for i := range 60 {
		n := start(t, Config{Addr: s.Addr(), Scripts: []string{setScript}})
		n.Listen("ch", &pushLog{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					c := newCall("SADD", "s", "m")
					c.OweUntil = time.Now().Add(time.Second)
					n.Submit(&c.Call)
					<-c.done
					if errors.Is(c.Err, member.ErrClosed) {
						return
					}
					if c.Outcome != member.Answered {
						time.Sleep(100 * time.Microsecond)
					}
				}
			})
		}
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		require.NoError(t, n.Close(patient(t)))
		wg.Wait()
	}
}
