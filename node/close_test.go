package node

import (
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/quorum"
)

// A bubble of synctest ends only when every goroutine in it has: these tests check for leaks as well.

func TestCloseWaitsForWhatIsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "SLOW" {
				time.Sleep(500 * time.Millisecond)
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		var l pushLog
		n.Listen("ch", &l)
		synctest.Wait()
		calls := []*result{submit(n, "SLOW"), submit(n, "SLOW")}
		var wg sync.WaitGroup
		for range 3 { // concurrently, and again
			wg.Go(func() {
				if err := n.Close(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		late := submit(n, "LATE")
		if late.Outcome != quorum.NotSent || !errors.Is(late.Err, quorum.ErrClosed) {
			t.Errorf("while closing: %v, %v", late.Outcome, late.Err)
		}
		began := time.Now()
		wg.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("closed after %v", took)
		}
		for _, c := range calls {
			if c.Outcome != quorum.Answered {
				t.Errorf("%v, %v", c.Outcome, c.Err)
			}
		}
		st := n.State()
		if st.Up || st.Inbox || st.Votes || !errors.Is(st.Err, quorum.ErrClosed) {
			t.Errorf("%+v", st)
		}
		if changes := l.changes(); changes[len(changes)-1] != st {
			t.Errorf("last change %+v", changes[len(changes)-1])
		}
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		defer close(block)
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "BLOCK" {
				<-block
			}
			return "default"
		})
		n := start(t, Config{Dialer: f, StallTimeout: time.Minute})
		n.Listen("ch", &pushLog{})
		synctest.Wait()
		c := submit(n, "BLOCK")
		ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if err := n.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 300*time.Millisecond {
			t.Errorf("closed after %v", took)
		}
		if <-c.done; c.Outcome != quorum.Unknown || !errors.Is(c.Err, quorum.ErrBroken) {
			t.Errorf("%v, %v", c.Outcome, c.Err)
		}
	})
}

func TestCloseOfADeadMemberIsImmediate(t *testing.T) {
	for name, dialer := range map[string]Dialer{
		"refusing": func() Dialer { f := newFake(nil); f.refuse = errors.New("refused"); return f }(),
		"hanging":  hanging{},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := start(t, Config{Dialer: dialer, DialTimeout: time.Minute})
				n.Listen("ch", &pushLog{})
				time.Sleep(3 * time.Second)
				began := time.Now()
				if err := n.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != 0 {
					t.Errorf("closed after %v", took)
				}
			})
		})
	}
}

type hanging struct{}

func (hanging) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestClosePaysDebts(t *testing.T) {
	for name, tc := range map[string]struct {
		prepare func(f *fake, n *Node)
		paid    bool
		takes   time.Duration
	}{
		"down but reachable": {func(f *fake, n *Node) {}, true, 0},
		"unreachable":        {func(f *fake, n *Node) { f.set(func() { f.refuse = errors.New("no route") }) }, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var h history
				f := newFake(h.record(nil))
				n := start(t, Config{Dialer: f, BackoffMin: time.Hour, BackoffMax: time.Hour, jitter: longest})
				synctest.Wait()
				f.cut()
				synctest.Wait()
				r := release("a", time.Hour)
				n.Submit(&r.Call)
				h.take()
				tc.prepare(f, n)
				began := time.Now()
				if err := n.Close(context.Background()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != tc.takes {
					t.Errorf("closed after %v", took)
				}
				if tc.paid {
					h.expect(t, "closing", "CLIENT ID", "INFO server", "CLIENT KILL ID 1", "RELEASE a")
				} else {
					h.expect(t, "closing")
				}
				f.set(func() {
					if len(f.dials) != 2 {
						t.Errorf("%d attempts to connect, want the first and one for the debt", len(f.dials))
					}
				})
			})
		})
	}
}

func TestCloseWaitsForADebtThatIsRefusedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "RELEASE" && time.Since(began) < 3500*time.Millisecond {
				return "-BUSY Redis is busy\r\n"
			}
			return "default"
		})
		f.refuse = errors.New("not yet")
		n := start(t, Config{Dialer: f, PingInterval: time.Second})
		synctest.Wait()
		r := release("a", time.Minute)
		n.Submit(&r.Call)
		f.set(func() { f.refuse = nil })
		time.Sleep(time.Second)
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < 3500*time.Millisecond || took > 5*time.Second || len(f.commands()) != 1 {
			t.Errorf("closed after %v, sent %v", took, f.commands())
		}
	})
}

func TestListenAfterCloseDoesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := start(t, Config{Dialer: newFake(nil)})
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
		n.Listen("ch", &pushLog{})
	})
}

// Closing while everything else goes on, many times: for the race detector and for leaks.
func TestCloseAtAnyMoment(t *testing.T) {
	s := startRedis(t)
	for i := range 60 {
		n := start(t, Config{Addr: s.addr(), Scripts: []string{setScript}})
		n.Listen("ch", &pushLog{})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					c := newCall("SADD", "s", "m")
					c.OweUntil = time.Now().Add(time.Second)
					n.Submit(&c.Call)
					<-c.done
					if errors.Is(c.Err, quorum.ErrClosed) {
						return
					}
					if c.Outcome != quorum.Answered {
						time.Sleep(100 * time.Microsecond)
					}
				}
			})
		}
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		wg.Wait()
	}
}
