package redlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// What callers see: arguments that cannot work, calls after the end, re-entry, hand-off, errors, events.

func TestArgumentsThatCannotWorkAreNamed(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		evals := p.Links[0].Call(redistest.Named("EVALSHA"), -1, func([]string) {})
		ctx := t.Context()
		for _, tc := range []struct {
			name    string
			opts    []redlock.LockOption
			ctx     context.Context
			problem string
		}{
			{"k", nil, nil, "nil context"},
			{"", nil, ctx, "empty"},
			{strings.Repeat("x", 1<<17+1), nil, ctx, "131073 bytes"},
			{"redquorum:tokens", nil, ctx, "library's own"},
			{"k", []redlock.LockOption{redlock.TTL(0)}, ctx, "not positive"},
			{"k", []redlock.LockOption{redlock.TTL(-time.Second)}, ctx, "not positive"},
			{"k", []redlock.LockOption{redlock.TTL(time.Nanosecond)}, ctx, "no validity"},
			{"k", []redlock.LockOption{redlock.TTL(2 * time.Millisecond)}, ctx, "no validity"},
			{"k", []redlock.LockOption{redlock.TTL(31 * time.Second)}, ctx, "MaxTTL"},
			{"k", []redlock.LockOption{redlock.AutoRenew(0)}, ctx, "not positive"},
		} {
			m := p.Mutex(tc.name, tc.opts...)
			for op, call := range map[string]func() error{
				"Lock":    func() error { _, err := m.Lock(tc.ctx); return err },
				"TryLock": func() error { _, err := m.TryLock(tc.ctx); return err },
				"Do": func() error {
					return m.Do(tc.ctx, func(context.Context, *redlock.Lease) error { t.Error("called"); return nil })
				},
			} {
				err := call()
				rt.Says(t, err, redlock.ErrInput, tc.problem, op)
				require.ErrorIs(t, err, redlock.ErrInput)
			}
		}
		require.Zero(t, evals.Hits(), "no member was asked")

		l := p.Lock(t, "k")
		var none context.Context
		require.ErrorIs(t, l.Unlock(none), redlock.ErrInput)
		require.ErrorIs(t, l.Extend(none, time.Second), redlock.ErrInput)
		rt.Says(t, l.Extend(ctx, 0), redlock.ErrInput, fmt.Sprintf("redlock: extend %q: TTL", l.Key()))
		require.ErrorIs(t, l.Extend(ctx, time.Minute), redlock.ErrInput)
		require.ErrorIs(t, rt.Err(p.Adopt(none, redlock.Handoff{})), redlock.ErrInput)
		require.ErrorIs(t, rt.Err(p.Adopt(ctx, redlock.Handoff{})), redlock.ErrInput)
		require.NoError(t, l.Err(), "a mistake ends no lease")
		require.NoError(t, l.Unlock(ctx))
	})
}

// What a call returns beside an error is a lease, a set or a client that has ended, and no trap for a deferred call.
func TestNilLeaseHasEnded(t *testing.T) {
	ctx := t.Context()
	for name, l := range map[string]*redlock.Lease{"nil": nil, "zero": new(redlock.Lease)} {
		require.ErrorIs(t, l.Err(), redlock.ErrNotHeld, name)
		require.ErrorIs(t, l.Unlock(ctx), redlock.ErrNotHeld, name)
		require.EqualError(t, l.Extend(ctx, time.Second), "redlock: extend: nil lease: lease is not held", name)
		require.ErrorIs(t, rt.Err(l.Downgrade(ctx)), redlock.ErrNotHeld, name)
		require.ErrorIs(t, rt.Err(l.Handoff()), redlock.ErrNotHeld, name)
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrNotHeld, name)
		<-l.Done()
		require.Zero(t, l.Key(), name)
		require.Zero(t, l.Token(), name)
		require.Zero(t, l.ValidUntil(), name)
		require.Zero(t, l.Votes()+l.Slot()+1+len(l.Slots()), name)
		require.False(t, l.Shared(), name)
		require.Zero(t, l.Owner(), name)
	}
	for name, l := range map[string]*redlock.Leases{"nil": nil, "zero": new(redlock.Leases)} {
		require.ErrorIs(t, l.Err(), redlock.ErrNotHeld, name)
		require.ErrorIs(t, l.Unlock(ctx), redlock.ErrNotHeld, name)
		require.ErrorIs(t, l.Extend(ctx, time.Second), redlock.ErrNotHeld, name)
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrNotHeld, name)
		<-l.Done()
		require.Zero(t, l.ValidUntil(), name)
		require.Zero(t, l.Token("k"), name)
		require.Zero(t, l.Votes()+len(l.All()), name)
		require.Nil(t, l.Of("k"), name)
	}
	var c *redlock.Client
	require.NoError(t, c.Close())
}

// A lock that no client has made, and a member that is none, are mistakes of arguments like others.
func TestLockOfNoClientIsBadInput(t *testing.T) {
	ctx := t.Context()
	for name, call := range map[string]func() error{
		"Mutex.Lock":    func() error { _, err := new(redlock.Mutex).Lock(ctx); return err },
		"Mutex.TryLock": func() error { _, err := new(redlock.Mutex).TryLock(ctx); return err },
		"Mutex.Do": func() error {
			return new(redlock.Mutex).Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
		},
		"RWMutex.Lock":         func() error { _, err := new(redlock.RWMutex).Lock(ctx); return err },
		"RWMutex.RLock":        func() error { _, err := new(redlock.RWMutex).RLock(ctx); return err },
		"RWMutex.TryRLock":     func() error { _, err := new(redlock.RWMutex).TryRLock(ctx); return err },
		"Semaphore.Acquire":    func() error { _, err := new(redlock.Semaphore).Acquire(ctx); return err },
		"Semaphore.TryAcquire": func() error { _, err := new(redlock.Semaphore).TryAcquire(ctx); return err },
		"Semaphore.SetLimit":   func() error { return new(redlock.Semaphore).SetLimit(ctx, 1) },
		"Semaphore.Limit":      func() error { _, err := new(redlock.Semaphore).Limit(ctx); return err },
		"Election.Campaign":    func() error { _, err := new(redlock.Election).Campaign(ctx, nil); return err },
		"Election.Leader":      func() error { _, err := new(redlock.Election).Leader(ctx); return err },
		"Latch.CountDown":      func() error { return new(redlock.Latch).CountDown(ctx) },
		"Latch.Await":          func() error { return new(redlock.Latch).Await(ctx) },
		"Latch.Remaining":      func() error { _, err := new(redlock.Latch).Remaining(ctx); return err },
		"Barrier.Wait":         func() error { _, err := new(redlock.Barrier).Wait(ctx); return err },
		"Multi.Lock":           func() error { _, err := new(redlock.Multi).Lock(ctx); return err },
		"Join.Lock":            func() error { _, err := redlock.Join(new(redlock.Mutex)).Lock(ctx); return err },
	} {
		require.ErrorIs(t, call(), redlock.ErrInput, name)
	}
}

func TestOptionThatIsNilChangesNothing(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		ctx := t.Context()
		for _, m := range []interface {
			TryLock(context.Context) (*redlock.Lease, error)
		}{p.Mutex("k", nil), p.RWMutex("k", nil, nil), p.Mutex("k", nil, redlock.TTL(time.Second), nil)} {
			l := rt.Must(m.TryLock(ctx))(t)
			unlock(t, l)
		}
		require.NoError(t, rt.Must(p.Multi([]string{"k", "j"}, nil).TryLock(ctx))(t).Unlock(ctx))
		l := rt.Must(p.Election("k", nil).Campaign(ctx, nil))(t)
		unlock(t, l)
		l = rt.Must(p.Semaphore("k", 2, nil, redlock.Permits(2)).TryAcquire(ctx))(t)
		require.Len(t, l.Slots(), 2)
		unlock(t, l)
		require.NoError(t, p.Latch("k", 1, nil, redlock.Round(2)).Arrive(ctx, "part"))
		require.NoError(t, rt.Err(p.Barrier("b", 1, "me", nil).Wait(ctx)))
	}, redlock.Quiet, nil)
}

func TestCallThatCloseInterruptsSaysThatTheClientIsClosed(t *testing.T) {
	for _, how := range []struct {
		name string
		then func(p *caller)
	}{
		{"members hang", func(*caller) {}}, {"members are gone", func(p *caller) { p.Away() }},
	} {
		for op, call := range map[string]func(ctx context.Context, p *caller) error{
			"leader":          func(ctx context.Context, p *caller) error { _, err := p.Election("k").Leader(ctx); return err },
			"count down":      func(ctx context.Context, p *caller) error { return p.Latch("k", 2).CountDown(ctx) },
			"await":           func(ctx context.Context, p *caller) error { return p.Latch("k", 2).Await(ctx) },
			"remaining":       func(ctx context.Context, p *caller) error { _, err := p.Latch("k", 2).Remaining(ctx); return err },
			"delete latch":    func(ctx context.Context, p *caller) error { return p.Latch("k", 2).Delete(ctx) },
			"wait at barrier": func(ctx context.Context, p *caller) error { _, err := p.Barrier("k", 2, "me").Wait(ctx); return err },
			"limit":           func(ctx context.Context, p *caller) error { _, err := p.Semaphore("k", 2).Limit(ctx); return err },
			"set limit":       func(ctx context.Context, p *caller) error { return p.Semaphore("k", 2).SetLimit(ctx, 1) },
			"force unlock":    func(ctx context.Context, p *caller) error { _, err := p.ForceUnlock(ctx, "k"); return err },
		} {
			t.Run(op+", "+how.name, inOne(3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
				d.Pause()
				ends := rt.Go(func() error { return call(t.Context(), p) })
				synctest.Wait()
				time.Sleep(100 * time.Millisecond)
				start, closed := time.Now(), make(chan struct{})
				go func() { _ = p.Close(); close(closed) }()
				synctest.Wait() // it is being closed
				how.then(p)
				err := <-ends
				took := time.Since(start)
				<-closed
				require.ErrorIs(t, err, redlock.ErrClosed)
				require.NotErrorIs(t, err, redlock.ErrNoQuorum)
				require.ErrorContains(t, err, op+" \"k\"")
				require.Less(t, took, 200*time.Millisecond)
			}, redlock.Quiet))
		}
	}
}

func TestErrorNamesTheCallThatTheOperatorMade(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		ctx := t.Context()
		l := permit(t, p, "k", 2)
		seen := rt.Must(p.InspectSemaphore(ctx, "k"))(t)
		unlock(t, l)
		p.Away(0, 1)
		time.Sleep(time.Second)
		for op, call := range map[string]func(name string) error{
			"inspect":           func(name string) error { _, err := p.Inspect(ctx, name); return err },
			"inspect semaphore": func(name string) error { _, err := p.InspectSemaphore(ctx, name); return err },
			"inspect latch":     func(name string) error { _, err := p.InspectLatch(ctx, name); return err },
			"force unlock":      func(name string) error { _, err := p.ForceUnlock(ctx, name); return err },
			"set limit":         func(name string) error { return p.Semaphore(name, 1).SetLimit(ctx, 1) },
			"clear limit":       func(name string) error { return p.Semaphore(name, 1).ClearLimit(ctx) },
		} {
			rt.Says(t, call(""), redlock.ErrInput, op+": ")
			if err := call("k"); err != nil {
				var q *redlock.QuorumError
				require.ErrorAs(t, err, &q, op)
				require.Equal(t, op, q.Op)
			}
		}
		require.NoError(t, p.Close())
		rt.Says(t, rt.Err(p.ForceUnlockSeen(ctx, seen)), redlock.ErrClosed, "force unlock")
	}, redlock.Quiet)
}

func TestAnyBytesAreAName(t *testing.T) {
	all := string(func() (b []byte) {
		for i := range 256 {
			b = append(b, byte(i))
		}
		return b
	}())
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		two := moreOf(t, d, 2, redlock.Quiet)
		for _, name := range []string{"\x00", " ", "\r\n", "{", "}", "{}", "{}x", "a{b}c", "}{", "{{x}}", all, strings.Repeat("ü", 512)} {
			l := two[0].Hold(t, name)
			require.Equal(t, name, l.Key())
			waiting := two[1].LockLater(t.Context(), name)
			synctest.Wait()
			require.True(t, waiting.Pending(), "%q", name)
			require.NoError(t, l.Unlock(t.Context()))
			next := waiting.Get(t)
			require.Greater(t, next.Token(), l.Token())
			require.NoError(t, next.Unlock(t.Context()))
			noKeysAtRest(t, d)
		}
	})
}

func TestLeaseIsUnlockedOnce(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		l := p.Lock(t, "k")
		ctx := l.Context()
		require.NoError(t, l.Unlock(t.Context()))
		require.ErrorIs(t, l.Err(), redlock.ErrReleased)
		require.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
		for _, by := range []*caller{p, other} {
			synctest.Wait() // all three are free
			next := by.Hold(t, "k")
			require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrNotHeld)
			require.ErrorIs(t, l.Extend(t.Context(), time.Second), redlock.ErrNotHeld)
			require.ErrorIs(t, rt.Err(l.Handoff()), redlock.ErrNotHeld)
			synctest.Wait()
			require.NoError(t, next.Err())
			require.Equal(t, 3, votesSeen(t, other, next), "the next lease is not touched by that")
			require.NoError(t, next.Unlock(t.Context()))
		}
	})
}

func TestUnlockOfALeaseThatAMajorityNoLongerHasSaysSo(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Hold(t, "k")
		steal(t, cluster, "k", time.Minute, 0, 1)
		require.NoError(t, l.Unlock(t.Context()), "a majority had it")
		l = p.Hold(t, "j")
		steal(t, cluster, "j", time.Minute, 0, 1, 2)
		require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrLost)
		synctest.Wait()
		for i, left := range []int64{1, 1, 1, 0, 0} {
			require.Equal(t, left, redlock.Admin(t, cluster.Servers[i], "EXISTS", "j"), "only our own was deleted")
		}
		for forgot := 2; forgot <= 5; forgot++ { // whoever has it now, and if nobody has
			l = p.Hold(t, "f")
			for _, s := range cluster.Servers[:forgot] {
				redlock.Admin(t, s, "DEL", "f")
			}
			if err := l.Unlock(t.Context()); forgot == 2 {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, redlock.ErrLost)
			}
		}
		// Others kept it from two members, and one hangs: that nothing of it is left at a majority is known all the same.
		steal(t, cluster, "b", time.Minute, 0, 1)
		l = p.Hold(t, "b")
		cluster.Pause(4)
		start := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		require.Zero(t, time.Since(start))
		cluster.Resume(4)
	})
}

// With a member that is down, the first "not yours" leaves no majority that could confirm the
// release. The members that have not answered yet tell whether the lease was lost.
func TestUnlockOfALostLeaseSaysSoWhileAMemberIsDown(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		lost := func(members ...int) error {
			t.Helper()
			p.Slow(2*time.Millisecond, 4*time.Millisecond, 20*time.Millisecond)
			p.Settle(t, 3)
			l := p.Hold(t, "k")
			time.Sleep(time.Second) // all three have voted
			p.Away(0)
			p.Settle(t, 2)
			if len(members) > 0 {
				d.Evict("k", members...)
			}
			began := time.Now()
			err := l.Unlock(t.Context())
			require.LessOrEqual(t, time.Since(began), 20*time.Millisecond)
			d.Evict("k", 0)
			p.Back(0)
			return err
		}
		require.ErrorIs(t, lost(1, 2), redlock.ErrLost)
		err := lost(1)
		require.ErrorIs(t, err, redlock.ErrInDoubt, "one of two that answered had it")
		require.NotErrorIs(t, err, redlock.ErrLost)
		require.NoError(t, lost())
	}, redlock.Quiet)
}

func TestHandedOffLeaseGoesOnElsewhere(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		l := p.Hold(t, "k", redlock.AutoRenew(9*time.Second))
		h := handoff(t, l)
		require.ErrorIs(t, l.Err(), redlock.ErrHandedOff)
		require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrNotHeld)
		for _, shown := range []string{fmt.Sprint(h), fmt.Sprintf("%v %+v %#v %s", h, h, h, &h)} {
			require.NotContains(t, shown, redlock.UUID(p.Client))
		}
		back := rt.Must(redlock.ParseHandoff(h.Secret()))(t)
		require.Equal(t, h, back)

		time.Sleep(5 * time.Second)
		start := time.Now()
		adopted := adopt(t, other, back)
		require.Equal(t, l.Token(), adopted.Token())
		require.Equal(t, start.Add(redlock.Validity(9*time.Second)), adopted.ValidUntil())
		time.Sleep(time.Minute)
		require.NoError(t, adopted.Err(), "renewed by its new holder")
		require.ErrorIs(t, p.Try(t, "k"), redlock.ErrHeld)

		require.ErrorIs(t, rt.Err(p.Adopt(t.Context(), back)), redlock.ErrNotHeld) // a mistake, and found out
		require.NoError(t, adopted.Err())
		require.NoError(t, adopted.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
		require.ErrorIs(t, rt.Err(other.Adopt(t.Context(), back)), redlock.ErrNotHeld)
	})
}

// Whoever adopts a lease that is over has lost nothing: an operator who releases twice is told so, and no log warns.
func TestAdoptOfALeaseThatIsOverIsNoLoss(t *testing.T) {
	var log bytes.Buffer
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		h := handoff(t, p.Hold(t, "k", redlock.TTL(20*time.Second)))
		l := rt.Must(p.Adopt(t.Context(), h))(t)
		unlock(t, l)
		require.ErrorIs(t, rt.Err(p.Adopt(t.Context(), h)), redlock.ErrNotHeld)
		require.NoError(t, p.Close())
		require.NotContains(t, log.String(), "lost")
		noKeysAtRest(t, d)
	}, redlock.WithConfig(redlock.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}))
}

// Cost: 3 s, of twenty outages that end.
func TestErrorOfDoTellsWhetherTheFunctionHasRunAndTryDoSaysIt(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		type run = func(fn func() error) (ran bool, err error)
		boom, ctx := fmt.Errorf("boom: %w", redlock.ErrHeld), t.Context() // of another lock
		do := func(do func(context.Context, func(context.Context, *redlock.Lease) error) error) run {
			return func(fn func() error) (bool, error) {
				return false, do(ctx, func(context.Context, *redlock.Lease) error { return fn() })
			}
		}
		try := func(try func(context.Context, func(context.Context, *redlock.Lease) error) (bool, error)) run {
			return func(fn func() error) (bool, error) {
				return try(ctx, func(context.Context, *redlock.Lease) error { return fn() })
			}
		}
		all := func(m *redlock.Multi) run {
			return func(fn func() error) (bool, error) {
				return m.TryDo(ctx, func(context.Context, *redlock.Leases) error { return fn() })
			}
		}
		for name, c := range map[string][3]run{
			"Mutex":     {do(p.Client.Mutex("k").Do), try(p.Mutex("k").TryDo), try(q.Mutex("k").TryDo)},
			"read":      {do(p.RWMutex("k").RDo), try(p.RWMutex("k").TryRDo), try(q.RWMutex("k").TryDo)},
			"write":     {do(p.RWMutex("k").Do), try(p.RWMutex("k").TryDo), try(q.RWMutex("k").TryRDo)},
			"Semaphore": {do(p.Semaphore("k", 1).Do), try(p.Semaphore("k", 1).TryDo), try(q.Semaphore("k", 1).TryDo)},
			"Multi": {func(fn func() error) (bool, error) {
				return false, p.Multi([]string{"j", "k"}).Do(ctx, func(context.Context, *redlock.Leases) error { return fn() })
			}, all(p.Multi([]string{"j", "k"})), all(q.Multi([]string{"k", "l"}))},
		} {
			for i, run := range c[:2] {
				for _, said := range []error{nil, boom} {
					ran, err := run(func() error { d.Cut(0, 1); return said })
					require.Equal(t, i == 1, ran, name)
					require.ErrorIs(t, err, redlock.ErrInDoubt, name)
					require.ErrorIs(t, err, redlock.ErrRan, name)
					require.Equal(t, said != nil, errors.Is(err, boom), name)
					ran, err = run(func() error { t.Error("no quorum"); return nil })
					require.False(t, ran, name)
					require.ErrorIs(t, err, redlock.ErrNoQuorum, name)
					require.NotErrorIs(t, err, redlock.ErrRan, name)
					d.Heal(0, 1)
					p.Settle(t, 3)
					q.Settle(t, 3)
				}
				_, err := run(func() error {
					ran, err := c[2](func() error { return boom })
					require.Equal(t, []any{false, nil}, []any{ran, err}, name)
					return boom
				})
				require.ErrorIs(t, err, boom, name)
				require.ErrorIs(t, err, redlock.ErrRan, name)
				require.EqualError(t, err, boom.Error(), name)
			}
		}
	}, redlock.Quiet)
}

func TestSplitIsHeldWhateverElseIsWrong(t *testing.T) {
	for name, third := range map[string]func(d *redlocktest.Deployment){
		"down":        func(d *redlocktest.Deployment) { d.Cut(2) },
		"quarantined": func(d *redlocktest.Deployment) { d.Forget(2) },
		"silent":      func(d *redlocktest.Deployment) { d.Pause(2) },
	} {
		t.Run(name, inTwo(3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
			third(d)
			p.Slow(0, 20*time.Millisecond)
			q.Slow(20*time.Millisecond, 0)
			time.Sleep(time.Second)
			tries := []*redlock.Locking{later(t.Context(), p.Client.Mutex("k").TryLock), later(t.Context(), q.Client.Mutex("k").TryLock)}
			for _, w := range tries {
				require.ErrorIs(t, endOf(w), redlock.ErrHeld)
			}
			d.Resume(2)
		}, redlock.Quiet))
	}
}

// Data of another kind under the name: tolerated at a minority, reported at a majority, never waited for.
func TestKeyThatIsNoLockIsReported(t *testing.T) {
	for kind, cmd := range map[string][]string{
		"string":   {"SET", "k", "x"},
		"with TTL": {"SET", "k", "x", "PX", "60000"},
		"list":     {"RPUSH", "k", "x"},
		"no TTL":   {"HSET", "k", "somebody:1", "1"},
	} {
		t.Run(kind, inAlone(5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			for i := range 3 {
				if i == 2 {
					l := p.Hold(t, "k")
					require.Equal(t, 3, l.Votes(), "a minority is tolerated")
					require.NoError(t, l.Unlock(t.Context()))
					synctest.Wait()
				}
				redlock.Admin(t, cluster.Servers[i], cmd...)
			}
			start := time.Now()
			_, err := p.Mutex("k").TryLock(t.Context())
			require.ErrorIs(t, err, redlock.ErrForeignKey)
			require.NotErrorIs(t, err, redlock.ErrHeld)
			require.ErrorIs(t, rt.Err(p.Mutex("k").Lock(t.Context())), redlock.ErrForeignKey)
			require.Less(t, time.Since(start), 10*time.Millisecond)

			// It comes up while somebody waits.
			held := p.Hold(t, "j")
			waiting := p.LockLater(t.Context(), "j")
			other := redlock.JoinAll(t, cluster)
			theirs := other.LockLater(t.Context(), "j")
			time.Sleep(100 * time.Millisecond)
			for i := range 3 {
				redlock.Admin(t, cluster.Servers[i], "DEL", "j")
				redlock.Admin(t, cluster.Servers[i], slices.Concat(cmd[:1], []string{"j"}, cmd[2:])...)
			}
			require.ErrorIs(t, theirs.End(), redlock.ErrForeignKey)
			require.Error(t, held.Unlock(t.Context()))
			require.ErrorIs(t, waiting.End(), redlock.ErrForeignKey)
		}))
	}
}

func TestSilenceIsNotReportedAsHeld(t *testing.T) {
	for _, tc := range []struct {
		name    string
		refused []int
		dead    []int
		want    error
	}{
		{"all refuse", []int{0, 1, 2, 3, 4}, nil, redlock.ErrHeld},
		{"a majority refuses, the rest is dead", []int{0, 1, 2}, []int{3, 4}, redlock.ErrHeld},
		{"a majority is dead, the rest refuses", []int{0, 1}, []int{2, 3, 4}, redlock.ErrNoQuorum},
		{"all dead", nil, []int{0, 1, 2, 3, 4}, redlock.ErrNoQuorum},
	} {
		t.Run(tc.name, inAlone(5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			steal(t, cluster, "k", time.Hour, tc.refused...)
			if len(tc.dead) > 0 {
				cluster.Kill(tc.dead...)
			}
			synctest.Wait()
			ctx := rt.Within(t, 5*time.Second)
			_, try := p.Mutex("k").TryLock(ctx)
			_, lock := p.Mutex("k").Lock(ctx)
			for _, err := range []error{try, lock} {
				for _, kind := range []error{redlock.ErrHeld, redlock.ErrNoQuorum, redlock.ErrForeignKey, redlock.ErrTooSlow} {
					require.Equal(t, kind == tc.want, errors.Is(err, kind), "%v: %v", kind, err)
				}
				q := rt.As[*redlock.QuorumError](t, err)
				require.Len(t, q.Votes, 5)
				require.Equal(t, 3, q.Need)
				require.Equal(t, "k", q.Key)
			}
			require.Equal(t, tc.want == redlock.ErrHeld, errors.Is(lock, context.DeadlineExceeded))
			if len(tc.dead) == 0 {
				require.NotContains(t, try.Error(), "no answer", "who was not waited for is not blamed")
			}
			if len(tc.dead) > 0 {
				require.ErrorIs(t, try, member.ErrDown, "each member's cause can be asked for")
			}
		}))
	}
}

func TestNoErrorOrLogTellsAnOwner(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		log := &transcript{}
		tr := &tracer{}
		p, other := redlock.JoinAll(t, cluster, redlock.WithLogger(log.logger()), redlock.WithTracer(tr)), redlock.JoinAll(t, cluster)
		var said []string
		note := func(err error) {
			require.Error(t, err)
			said = append(said, err.Error(), fmt.Sprintf("%+v %#v", err, err))
			for u := errors.Unwrap(err); u != nil; u = errors.Unwrap(u) {
				said = append(said, u.Error())
			}
		}
		try := func(name string, opts ...redlock.LockOption) error {
			_, err := p.Mutex(name, opts...).TryLock(t.Context())
			return err
		}
		other.Hold(t, "held")
		note(try("held"))
		redlock.Admin(t, cluster.Servers[0], "SET", "foreign", "x")
		redlock.Admin(t, cluster.Servers[1], "SET", "foreign", "x")
		note(try("foreign"))
		_, err := p.Mutex("foreign").Lock(t.Context())
		note(err)
		redlock.Skew(t, cluster, "raise", 5, 7, 9)
		p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
		p.EveryLink(func(l *redistest.Link) {
			l.Fail(redistest.WithArg(script.Raise.SHA), 1, "ERR "+redlock.UUID(p.Client)[:3])
		})
		note(try("raise"))
		note(try("slow", redlock.TTL(3*time.Millisecond)))
		p.EveryLink(func(l *redistest.Link) { l.Fail(redistest.WithArg(script.Acquire.SHA), 1, "LOADING loading") })
		note(try("loading"))
		l := p.Hold(t, "stolen", redlock.AutoRenew(3*time.Second))
		steal(t, cluster, "stolen", time.Minute, 0, 1, 2)
		<-l.Done()
		note(l.Err())
		note(l.Unlock(t.Context()))
		l = p.Hold(t, "doubt")
		h := p.Hold(t, "handed")
		cluster.Pause()
		note(l.Extend(t.Context(), 30*time.Second))
		note(l.Unlock(t.Context()))
		note(l.Unlock(t.Context()))
		note(try("silent"))
		handed := handoff(t, h)
		said = append(said, fmt.Sprintf("%v %+v %#v", handed, handed, handed))
		_, err = p.Adopt(t.Context(), handed)
		note(err)
		cluster.Kill()
		synctest.Wait()
		note(try("down"))
		_, err = p.Mutex("down").Lock(t.Context())
		note(err)
		_ = p.Close()
		note(try("closed"))
		said = append(said, log.String())
		tr.mu.Lock()
		said = append(said, fmt.Sprintf("%+v %+v %+v %v %v", tr.starts, tr.ends, tr.lost, tr.released, tr.members))
		tr.mu.Unlock()
		require.NotEmpty(t, log.String())
		for _, s := range said {
			require.NotContains(t, strings.ReplaceAll(s, `c:(*redlock.Client)`, ""), redlock.UUID(p.Client))
			require.NotContains(t, s, redlock.UUID(other.Client))
		}
	})
}

type writer func(b []byte) (int, error)

func (w writer) Write(b []byte) (int, error) { return w(b) }

func TestSameOwnerEntersAgain(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		m := p.Mutex("k", redlock.As("job 7"))
		first := rt.Must(m.Lock(t.Context()))(t)
		synctest.Wait()
		evals := p.Count(script.Acquire)
		require.Same(t, first, rt.Must(p.Mutex("k", redlock.As("job 7")).TryLock(t.Context()))(t))
		require.Same(t, first, rt.Must(m.Lock(t.Context()))(t))
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(evals), "the members see one hold")
		beside := rt.Must(p.Mutex("j", redlock.As("job 7")).TryLock(t.Context()))(t)
		require.NotSame(t, first, beside)
		require.NoError(t, beside.Unlock(t.Context()))

		for _, m := range []*redlock.Mutex{p.Mutex("k"), p.Mutex("k", redlock.As("job 8")), other.Mutex("k", redlock.As("job 7"))} {
			require.ErrorIs(t, rt.Err(m.TryLock(t.Context())), redlock.ErrHeld, "only the same owner of the same client")
		}
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, first.Unlock(t.Context()))
		require.NoError(t, first.Err())
		require.Equal(t, 3, votesAt(cluster, first), "as many unlocks as locks")
		require.NoError(t, first.Unlock(t.Context()))
		require.ErrorIs(t, first.Unlock(t.Context()), redlock.ErrNotHeld)
		redlock.NothingLeft(t, cluster)

		next := rt.Must(m.Lock(t.Context()))(t)
		require.NotSame(t, first, next)
		synctest.Wait()
		steal(t, cluster, "k", 15*time.Second, 0, 1, 2)
		<-next.Done()
		require.ErrorIs(t, rt.Err(m.TryLock(t.Context())), redlock.ErrHeld, "a lost lease is not entered again")
	})
}

func TestSameOwnerInLineEntersWithTheFirst(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		held := other.Hold(t, "k")
		one, two := p.LockLater(t.Context(), "k", redlock.As("me")), p.LockLater(t.Context(), "k", redlock.As("me"))
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, held.Unlock(t.Context()))
		require.Same(t, one.Get(t), two.Get(t))
		require.NoError(t, one.Value.Unlock(t.Context()))
		require.NoError(t, one.Value.Err())
		require.NoError(t, two.Value.Unlock(t.Context()))
		noKeysAtRest(t, d)
	})
}

func TestDoRunsWhileTheLockIsHeld(t *testing.T) {
	type key struct{}
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		ctx := context.WithValue(t.Context(), key{}, "value")
		boom := errors.New("boom")

		var inside context.Context
		err := p.Mutex("k").Do(ctx, func(ctx context.Context, l *redlock.Lease) error {
			inside = ctx
			require.NoError(t, ctx.Err())
			require.Equal(t, "value", ctx.Value(key{}))
			require.Equal(t, "value", l.Context().Value(key{}))
			require.Positive(t, l.Token())
			require.NoError(t, l.Err())
			return boom
		})
		require.ErrorIs(t, err, boom)
		require.ErrorIs(t, inside.Err(), context.Canceled)
		noKeysAtRest(t, d)

		// The caller's context ends: the work does, and the lock is freed all the same.
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		err = p.Mutex("k").Do(short, func(ctx context.Context, l *redlock.Lease) error {
			<-ctx.Done()
			require.NoError(t, l.Err())
			return ctx.Err()
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		noKeysAtRest(t, d)

		require.PanicsWithValue(t, "oh", func() {
			_ = p.Mutex("k").Do(ctx, func(context.Context, *redlock.Lease) error { panic("oh") })
		})
		noKeysAtRest(t, d)

		other := another(t, d)
		other.Hold(t, "k")
		require.ErrorIs(t, p.Mutex("k").Do(short, func(context.Context, *redlock.Lease) error { t.Error("called"); return nil }), context.DeadlineExceeded)
	})
}

func TestDoSaysOnceHowItsLeaseEnded(t *testing.T) {
	type work = func(ctx context.Context) error
	cause := func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) }
	short := redlock.TTL(time.Second)
	for name, do := range map[string]func(ctx context.Context, p *redlock.Peer, w work) error{
		"mutex": func(ctx context.Context, p *redlock.Peer, w work) error {
			return p.Mutex("k", short).Do(ctx, func(ctx context.Context, _ *redlock.Lease) error { return w(ctx) })
		},
		"owner": func(ctx context.Context, p *redlock.Peer, w work) error {
			return p.Mutex("k", short, redlock.As("me")).Do(ctx, func(ctx context.Context, _ *redlock.Lease) error { return w(ctx) })
		},
		"nested": func(ctx context.Context, p *redlock.Peer, w work) error {
			return p.Mutex("k", short).Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
				return p.Mutex("inner").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error { return w(ctx) })
			})
		},
		"read": func(ctx context.Context, p *redlock.Peer, w work) error {
			return p.RWMutex("k", short).RDo(ctx, func(ctx context.Context, _ *redlock.Lease) error { return w(ctx) })
		},
		"shared read": func(ctx context.Context, p *redlock.Peer, w work) error {
			return p.RWMutex("k", redlock.MaxHold(time.Second)).RDo(ctx, func(ctx context.Context, _ *redlock.Lease) error { return w(ctx) })
		},
		"semaphore": func(ctx context.Context, p *redlock.Peer, w work) error {
			return p.Semaphore("k", 1, short).Do(ctx, func(ctx context.Context, _ *redlock.Lease) error { return w(ctx) })
		},
		"several": func(ctx context.Context, p *redlock.Peer, w work) error {
			return redlock.Join(p.Mutex("k", short), p.Mutex("l")).Do(ctx, func(ctx context.Context, _ *redlock.Leases) error { return w(ctx) })
		},
	} {
		t.Run(name, inAlone(3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
			err := do(t.Context(), p, cause)
			require.ErrorAs(t, err, new(*redlock.LostError))
			require.Equal(t, 1, strings.Count(err.Error(), "lost"), "%v", err)

			err = do(t.Context(), p, func(ctx context.Context) error { return fmt.Errorf("job: %w", cause(ctx)) })
			require.ErrorIs(t, err, redlock.ErrLost)
			require.Equal(t, 1, strings.Count(err.Error(), "lost"), "%v", err)

			err = do(t.Context(), p, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			require.ErrorIs(t, err, context.Canceled)
			require.ErrorIs(t, err, redlock.ErrLost, "which the function has not said")

			boom := errors.New("boom")
			err = do(t.Context(), p, func(context.Context) error { return boom })
			require.ErrorIs(t, err, boom)
			require.EqualError(t, err, "boom", "as it is")
		}))
	}
	redlock.Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		ctx, cancel := context.WithCancel(t.Context())
		err := p.Election("k").Run(ctx, nil, func(ctx context.Context, _ *redlock.Lease) error { cancel(); return ctx.Err() })
		require.EqualError(t, err, `redlock: run election "k": context canceled`)
	})
}

func TestFromContextIsTheInnermostLease(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		type key struct{}
		_, ok := redlock.FromContext(t.Context())
		require.False(t, ok)
		var none context.Context
		_, ok = redlock.FromContext(none)
		require.False(t, ok)

		outer := p.Lock(t, "outer")
		l, ok := redlock.FromContext(context.WithValue(outer.Context(), key{}, 1))
		require.True(t, ok)
		require.Same(t, outer, l)
		require.NoError(t, p.Client.Mutex("inner").Do(outer.Context(), func(ctx context.Context, lease *redlock.Lease) error {
			l, ok := redlock.FromContext(ctx)
			require.True(t, ok)
			require.Equal(t, lease.Token(), l.Token())
			require.Equal(t, "inner", l.Key())
			return nil
		}))
		require.NoError(t, p.Client.RWMutex("read").RDo(outer.Context(), func(ctx context.Context, lease *redlock.Lease) error {
			l, ok := redlock.FromContext(ctx)
			require.True(t, ok)
			require.Equal(t, "read", l.Key())
			require.Equal(t, lease.Token(), l.Token())
			return nil
		}))
		require.NoError(t, p.Client.Multi([]string{"a", "b"}).Do(outer.Context(), func(ctx context.Context, leases *redlock.Leases) error {
			_, ok := redlock.FromContext(ctx)
			require.False(t, ok, "neither a, nor b, nor the lease around them")
			return nil
		}))
		require.NoError(t, outer.Unlock(t.Context()))
		l, ok = redlock.FromContext(outer.Context())
		require.True(t, ok, "the storage judges it")
		require.Same(t, outer, l)
	})
}

func TestTheLeaseOutlivesTheContextThatAskedForIt(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		ctx, cancel := context.WithCancel(t.Context())
		l := rt.Must(p.Mutex("k").Lock(ctx))(t)
		cancel()
		time.Sleep(2 * time.Minute)
		require.NoError(t, l.Err())
		require.NoError(t, l.Context().Err())
		require.NoError(t, l.Unlock(context.WithoutCancel(ctx)))
	})
}

func TestCallWithAContextThatHasEndedAsksNobody(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		var evals []*redistest.Rule
		p.EveryLink(func(l *redistest.Link) {
			evals = append(evals, l.Call(redistest.Named("EVALSHA"), -1, func([]string) {}))
		})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, get := range []func(context.Context) (*redlock.Lease, error){p.Mutex("k").Lock, p.Mutex("k").TryLock} {
			require.ErrorIs(t, rt.Err(get(ctx)), context.Canceled)
		}
		synctest.Wait()
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(evals))
		redlock.Leftovers(t, cluster)
	})
}

// Whatever members do, a holder is back before one has answered, and the waiter gets the lock. How the release ended is
// heard once.
func TestReleaseIsNotWaitedForAndItsEndIsTold(t *testing.T) {
	const rtt = 10 * time.Millisecond
	stalled := redlock.DefaultConfig().StallTimeout
	lost := func(t *testing.T, cluster *redistest.Cluster, _ *redlock.Peer) {
		for _, s := range cluster.Servers {
			redlock.Admin(t, s, "DEL", "k")
		}
	}
	for name, test := range map[string]struct {
		before func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer)
		after  func(t *testing.T, p, q *redlock.Peer)
		told   string
	}{
		"handed on": {
			func(_ *testing.T, _ *redistest.Cluster, p *redlock.Peer) { p.Away(2) },
			func(t *testing.T, _, _ *redlock.Peer) { time.Sleep(10 * rtt) }, "0 [mutex k <nil>]",
		},
		"in doubt until it is repeated": {
			func(_ *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
				p.EveryLink(func(l *redistest.Link) { l.Pause() }, 1, 2)
			},
			func(t *testing.T, p, q *redlock.Peer) {
				time.Sleep(2 * stalled)
				p.EveryLink(func(l *redistest.Link) { l.Cut(); l.Heal() }, 1, 2)
			}, "0 [mutex k redlock: release in doubt",
		},
		"lost": {lost, func(t *testing.T, _, _ *redlock.Peer) { time.Sleep(10 * rtt) }, "1 [mutex k redlock: lease"},
		"lost, and closed": {
			lost, func(t *testing.T, p, _ *redlock.Peer) { require.NoError(t, p.Close()) }, "1 [mutex k redlock: lease",
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tracer{}
			told := func() string {
				tr.mu.Lock()
				defer tr.mu.Unlock()
				return fmt.Sprint(len(tr.lost), tr.released)
			}
			redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
				p.Slow(rtt, 5*rtt, rtt)
				l := p.Lock(t, "k", redlock.TTL(20*time.Second))
				next := q.LockLater(t.Context(), "k")
				time.Sleep(time.Second)
				test.before(t, cluster, p)
				began := time.Now()
				require.NoError(t, l.Release())
				require.Zero(t, time.Since(began))
				require.Equal(t, "0 []", told())
				require.ErrorIs(t, l.Err(), redlock.ErrReleased)
				require.ErrorIs(t, l.Release(), redlock.ErrNotHeld)
				test.after(t, p, q)
				require.Contains(t, told(), test.told)
				require.NoError(t, next.End())
				require.Less(t, time.Since(began), 3*stalled)
			}, redlock.WithTracer(tr))
		})
	}
}

func TestTracerHearsWhatHappens(t *testing.T) {
	tr := &tracer{}
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		synctest.Wait()
		require.Len(t, tr.members, 3, "each came up once")
		p.Slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		redlock.Skew(t, cluster, "k", 5, 5, 5)
		l := p.Hold(t, "k", redlock.AutoRenew(3*time.Second))
		require.Equal(t, []redlock.CallStart{{LockName: redlock.LockName{Key: "k", Kind: redlock.KindMutex}, Op: "lock", TTL: 3 * time.Second}}, tr.starts)
		end := tr.last()
		require.GreaterOrEqual(t, end.Votes, 2)
		end.Votes = 0
		require.Equal(t, redlock.CallEnd{CallStart: tr.starts[0], Token: 6, Elapsed: 10 * time.Millisecond, Validity: redlock.Validity(3*time.Second) - 10*time.Millisecond}, end)
		time.Sleep(2500 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, 2, tr.renewals())
		err := p.Try(t, "k")
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.Equal(t, err, tr.last().Err)
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, []string{"mutex k <nil>"}, tr.released)
		l = p.Hold(t, "k", redlock.TTL(time.Second))
		<-l.Done()
		synctest.Wait()
		require.Len(t, tr.losses(), 1)
		require.Equal(t, "k", tr.losses()[0].Key)
		require.Equal(t, redlock.KindMutex, tr.losses()[0].Kind)
		require.Equal(t, l.Token(), tr.losses()[0].Token)
		require.Equal(t, l.ValidUntil(), tr.losses()[0].Until)
		cluster.Kill(1)
		time.Sleep(10 * time.Millisecond)
		synctest.Wait()
		require.Equal(t, cluster.Servers[1].Addr()+" false", tr.members[3])
		_, _ = p.Mutex("").Lock(t.Context())
		require.Len(t, tr.starts, 3, "a mistake in the arguments is no acquisition")
		require.Len(t, tr.ends, 3)
	}, redlock.WithTracer(tr))
}

func TestMemberThatIsListedTwiceVotesOnce(t *testing.T) {
	redlock.Bubble(t, 2, func(t *testing.T, cluster *redistest.Cluster) {
		var members []member.Member
		for i, s := range []redistest.Server{cluster.Servers[0], cluster.Servers[1], cluster.Servers[1]} {
			n := rt.Must(node.New(node.Config{Network: "tcp", Addr: fmt.Sprintf("member%d:1", i), Dialer: s.Path(), Scripts: redlock.Scripts()}))(t)
			members = append(members, n)
		}
		c := rt.Must(redlock.New(members))(t)
		defer c.Close()
		p := &redlock.Peer{Client: c}
		time.Sleep(time.Second)
		l := p.Hold(t, "k")
		require.Equal(t, 2, l.Votes())
		require.NoError(t, l.Unlock(t.Context()))
		cluster.Kill(0)
		synctest.Wait()
		require.ErrorIs(t, p.Try(t, "k"), redlock.ErrNoQuorum, "one server is no majority of three")
	})
}

// Tokens are numbers of scripts, which are exact below 2^53: the last ones are given out one by one, and then none, with
// an error that says so, to who asks once and to who waits.
func TestTokensAreNeverEqualAtTheEndOfTheirRange(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		redlock.Skew(t, cluster, "k", 1<<53-3, 1<<53-3, 1<<53-3)
		for want := uint64(1<<53 - 2); want < 1<<53; want++ {
			l := p.Hold(t, "k")
			require.Equal(t, want, l.Token())
			if want == 1<<53-1 {
				waiting := other.LockLater(t.Context(), "k")
				synctest.Wait()
				require.NoError(t, l.Unlock(t.Context()))
				require.ErrorIs(t, waiting.End(), redlock.ErrTokensExhausted)
				require.NotErrorIs(t, waiting.Err, redlock.ErrHeld)
				break
			}
			require.NoError(t, l.Unlock(t.Context()))
		}
		for _, get := range []func(context.Context) (*redlock.Lease, error){p.Mutex("k").TryLock, p.Mutex("k").Lock} {
			start := time.Now()
			_, err := get(t.Context())
			require.ErrorIs(t, err, redlock.ErrTokensExhausted)
			require.Less(t, time.Since(start), time.Second)
			require.ErrorContains(t, err, "2255")
		}
		redlock.Skew(t, cluster, "k", 7, 7, 1<<53) // a minority is no harm
		require.NoError(t, p.Hold(t, "k").Unlock(t.Context()))
	})
}

func TestMistakesInAConfigAreAllReportedAtOnce(t *testing.T) {
	_, err := redlock.New(nil, redlock.WithConfig(redlock.Config{
		TTL: -time.Second, Drift: 0.6, MemberTimeout: time.Nanosecond, Entry: time.Millisecond, StallTimeout: -1,
	}))
	require.ErrorIs(t, err, redlock.ErrInput)
	for _, field := range []string{"no members", "TTL", "Drift", "MemberTimeout", "Entry", "StallTimeout"} {
		require.ErrorContains(t, err, field)
	}
	rt.Says(t, redlock.Config{Drift: 0.6}.Validate(), redlock.ErrInput, "Drift")
	require.NoError(t, errors.Join(redlock.Config{}.Validate(), redlock.LAN().Validate(), redlock.WAN().Validate()))
	rt.Says(t, rt.Err(redlock.Open(t.Context(), []string{"redis://h"}, redlock.LAN(), redlock.WAN())), redlock.ErrInput, "2 Configs")
	require.ErrorContains(t, rt.Err(redlock.New(make([]member.Member, quorum.MaxMembers+1))), "at most")
}

func TestWANWaitsForMembersThatAreFarAway(t *testing.T) {
	for name, preset := range map[string]func() redlock.Config{"LAN": redlock.LAN, "WAN": redlock.WAN} {
		t.Run(name, inDeployment(3, func(t *testing.T, d *redlocktest.Deployment) {
			d.Delay(d.Client, 500*time.Millisecond)
			err := rt.Err(d.Client.Mutex("k").TryLock(t.Context()))
			require.Equal(t, name == "WAN", err == nil, "%v", err)
		}, redlock.WithConfig(preset())))
	}
}

func TestHandoffIsDecodedOrRefused(t *testing.T) {
	for _, text := range []string{"", "redquorum1.", "redquorum1.!!!", "redquorum1.e30", "redquorum2.e30", "{}", "redquorum1." + strings.Repeat("A", 1000)} {
		h, err := redlock.ParseHandoff(text)
		require.ErrorIs(t, err, redlock.ErrInput, "%q", text)
		require.Equal(t, redlock.Handoff{}, h)
	}
	shown := rt.Must(json.Marshal(redlock.Handoff{}))(t)
	for _, text := range []string{string(shown), fmt.Sprint(redlock.Handoff{})} {
		require.ErrorContains(t, rt.Err(redlock.ParseHandoff(text)), "send what Handoff.Secret returns", text)
	}
}
