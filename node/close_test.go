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

	"github.com/redquorum/redquorum/member"
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
		if late.Outcome != member.NotSent || !errors.Is(late.Err, member.ErrClosed) {
			t.Errorf("while closing: %v, %v", late.Outcome, late.Err)
		}
		began := time.Now()
		wg.Wait()
		if took := time.Since(began); took != time.Second {
			t.Errorf("closed after %v", took)
		}
		for _, c := range calls {
			if c.Outcome != member.Answered {
				t.Errorf("%v, %v", c.Outcome, c.Err)
			}
		}
		st := n.State()
		if st.Up || st.Inbox || st.Votes || !errors.Is(st.Err, member.ErrClosed) {
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
		if <-c.done; c.Outcome != member.Unknown || !errors.Is(c.Err, member.ErrBroken) {
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
					h.expect(t, "closing", "CLIENT ID", "INFO server", "CLIENT LIST ID 1", "RELEASE a")
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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *fake
				f = newFake(func(id int64, args []string) string { return refuse(f, id, args) })
				n := start(t, Config{Dialer: f, BackoffMin: 10 * time.Millisecond, jitter: longest})
				synctest.Wait()
				f.cut()
				synctest.Wait()
				n.Submit(&release("a", time.Hour).Call)
				ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
				defer cancel()
				if err := n.Close(ctx); err != nil {
					t.Error(err)
				}
				if got := f.commands(); len(got) != 1 {
					t.Errorf("the server executed %q", got)
				}
			})
		})
	}
}

// A release that is refused while Close goes on is repeated before the connection ends.
func TestReleaseThatIsRefusedDuringCloseIsRepeatedBeforeItsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
		closed := make(chan error)
		go func() { closed <- n.Close(context.Background()) }()
		synctest.Wait()
		close(hold)
		if err := <-closed; err != nil || r.Outcome != member.Refused || len(f.commands()) != 1 {
			t.Errorf("%v, %v, executed %q", err, r.Outcome, f.commands())
		}
	})
}

// A member that has no marker, and must wait for others to be looked at, gets what is owed all the same.
func TestClosePaysAMemberWithoutAStanding(t *testing.T) {
	s := startRedis(t)
	guard := NewGuard(GuardConfig{Members: 3, MaxTTL: time.Minute})
	n := start(t, Config{Addr: s.addr(), DialTimeout: time.Minute, Guard: guard})
	r := newCall("SADD", "released", "a")
	r.OweUntil = time.Now().Add(time.Minute)
	n.Submit(&r.Call)
	until(t, "looked at", func() bool { return strings.Contains(s.cli("INFO", "commandstats"), "cmdstat_eval:") })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
	if got := s.cli("SCARD", "released"); r.Outcome != member.NotSent || got != "1" {
		t.Errorf("%v; %s of 1 release was executed", r.Outcome, got)
	}
}

// Nobody can find a subscriber any more when Close has returned: the server has ended the inbox, behind all that it was
// asked for there. A server that does not answer does not hold Close up for longer than its context.
func TestServerHasEndedTheInboxWhenCloseReturns(t *testing.T) {
	for name, hangs := range map[string]bool{"it answers": false, "it hangs": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
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
				switch took := time.Since(began); {
				case hangs && took > time.Second:
					t.Errorf("closed after %v", took)
				case !hangs && took != 100*time.Millisecond:
					t.Errorf("closed after %v", took)
				}
				f.set(func() {
					if !hangs && (len(f.subscribed) != 1 || ended.Load() != f.subscribed[0]) {
						t.Errorf("connection %d was ended, %v have subscribed", ended.Load(), f.subscribed)
					}
				})
			})
		})
	}
}

func TestNoSubscriptionIsLeftWhenCloseReturns(t *testing.T) {
	s := startRedis(t)
	for i := range 20 {
		n := up(t, Config{Addr: s.addr()})
		n.Listen("inbox", &pushLog{})
		if i%2 == 0 { // otherwise it may be about to subscribe
			until(t, "listening", func() bool { return n.State().Inbox })
		}
		if err := n.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if got := s.cli("PUBSUB", "CHANNELS"); got != "[]" {
			t.Fatalf("round %d: %s", i, got)
		}
	}
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
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		if err := n.Close(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		wg.Wait()
	}
}
