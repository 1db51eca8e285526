package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// The promises of a lock, on five real servers.

// ending is the context of a call that is to succeed: one that cannot fails, and holds up no other test.
func ending(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// locked takes a lock that is expected to be had.
func locked(t testing.TB, c interface {
	Mutex(name string, opts ...redlock.LockOption) *redlock.Mutex
}, name string, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	lease, err := c.Mutex(name, opts...).Lock(ending(t))
	require.NoError(t, err)
	return lease
}

func TestTenThousandLocksLeaveNothingButCountersAndNeedOneRound(t *testing.T) {
	t.Parallel()
	const total, workers = 10_000, 32
	cluster := rt.Real(t, 5)
	heard := &tracer{}
	a := dialed(t, cluster, patient, redlock.WithTracer(heard))
	start := time.Now()
	together(t, workers, func(w int) error {
		for i := w; i < total; i += workers {
			lease, err := a.Mutex("order:" + strconv.Itoa(i)).Lock(ending(t))
			if err != nil {
				return err
			}
			if lease.Token() == 0 {
				return fmt.Errorf("no token")
			}
			if err := lease.Unlock(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%.0f lock and unlock per second", total/time.Since(start).Seconds())
	second := 0
	for _, e := range heard.ends {
		if e.SecondRound {
			second++
		}
	}
	require.Less(t, second, total/100, "the members are new: all begin each bucket at one base")
	clean(t, cluster)
}

func TestWaiterHasTheLockWhenItIsUnlockedAndNotBefore(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	a, b := join(t, cluster, patient), join(t, cluster, patient)
	held := locked(t, a, "k")
	w := b.LockLater(ending(t), "k")
	require.NoError(t, inLine(t.Context(), cluster.Servers, "k", 1))
	// Longer than any hand-over takes, so that B would have had time to get it.
	time.Sleep(200 * time.Millisecond)
	require.True(t, w.Pending(), "before the unlock")
	before := time.Now()
	require.NoError(t, held.Unlock(t.Context()))
	next := w.Get(t)
	t.Logf("handed over after %v", time.Since(before))
	require.Less(t, time.Since(before), 10*time.Second, "long before the lease would have ended")
	require.Greater(t, next.Token(), held.Token())
	require.NoError(t, next.Err())
	require.NoError(t, next.Unlock(t.Context()))
	clean(t, cluster)
}

func TestTwoThatRaceForAFreedLockBothGetItOneAtATime(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	a, b, c := join(t, cluster, patient), join(t, cluster, patient), join(t, cluster, patient)
	h := newHistory()
	for round := range 20 {
		key := "k" + strconv.Itoa(round)
		held := locked(t, a, key)
		unlocked := make(chan error, 1)
		go func() {
			err := inLine(t.Context(), cluster.Servers, key, 2)
			unlocked <- errors.Join(err, held.Unlock(t.Context()))
		}()
		var inside atomic.Int32
		together(t, 2, func(i int) error {
			return h.tenure(t.Context(), []*peer{b, c}[i].Client, i, key, func(*redlock.Lease) {
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d inside", n)
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
			})
		})
		require.NoError(t, <-unlocked)
	}
	require.Equal(t, []int{20, 20}, h.counts(2))
	h.verify(t)
	clean(t, cluster)
}

func TestWaitEndsWithItsContextAndNotWithTheLease(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	a, b := join(t, cluster, patient), join(t, cluster, patient)
	held := locked(t, a, "k", redlock.TTL(2*time.Second))
	start := time.Now()
	err := b.LockFor(t, "k", time.Second)
	took := time.Since(start)
	require.NoError(t, held.Err(), "the wait outlived the lease")
	require.ErrorIs(t, err, redlock.ErrHeld)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, redlock.ErrNoQuorum)
	require.GreaterOrEqual(t, took, time.Second)
	t.Logf("waited %v", took)
	require.NoError(t, held.Unlock(t.Context()))
	clean(t, cluster)
}

func TestOfAThousandThatTryExactlyOneWins(t *testing.T) {
	t.Parallel()
	const clients, callers = 4, 1000
	cluster := rt.Real(t, 5)
	all := peers(t, cluster, clients, patient)
	var won atomic.Pointer[redlock.Lease]
	var wins atomic.Int32
	together(t, callers, func(i int) error {
		// On a busy machine 10ms may be over for all of them before anybody had an answer: then again.
		for tries := 0; tries == 0 || wins.Load() == 0; tries++ {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			lease, err := all[i%clients].Mutex("k", redlock.TTL(10*time.Second)).Lock(ctx)
			early := ctx.Err() == nil
			cancel()
			switch {
			case err == nil:
				wins.Add(1)
				won.Store(lease)
			case early:
				return fmt.Errorf("gave up before its time: %w", err)
			}
		}
		return nil
	})
	require.EqualValues(t, 1, wins.Load())
	require.NoError(t, won.Load().Err())
	require.NoError(t, won.Load().Unlock(t.Context()))
	clean(t, cluster)
}

func TestOfManyClientsThatTryAtMostOneWins(t *testing.T) {
	t.Parallel()
	const clients, callers = 8, 25
	cluster := rt.Real(t, 5)
	all := peers(t, cluster, clients, patient)
	for round := range 10 {
		key := "k" + strconv.Itoa(round)
		var wins atomic.Int32
		together(t, clients*callers, func(i int) error {
			_, err := all[i%clients].Mutex(key, redlock.TTL(10*time.Second)).TryLock(t.Context())
			if err == nil {
				wins.Add(1)
			}
			return nil
		})
		require.LessOrEqual(t, wins.Load(), int32(1))
	}
}

func TestAHundredThatWaitAllGetIt(t *testing.T) {
	t.Parallel()
	const clients, callers = 4, 25
	cluster := rt.Real(t, 5)
	all := peers(t, cluster, clients, patient)
	h := newHistory()
	start := time.Now()
	together(t, clients*callers, func(i int) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return h.tenure(ctx, all[i%clients].Client, i, "k", func(*redlock.Lease) { time.Sleep(5 * time.Millisecond) })
	})
	t.Logf("all after %v, of which held 500ms", time.Since(start))
	require.Equal(t, clients*callers, h.len())
	h.verify(t)
	clean(t, cluster)
}

// Requests that reach the members in different orders split the votes, so that nobody has a majority.
func TestSplitVotesAreGatheredAtOnce(t *testing.T) {
	t.Parallel()
	const clients, rounds = 5, 20
	cluster := rt.Real(t, 5)
	all := peers(t, cluster, clients, patient)
	for i := range all {
		for m, link := range all[i].Links {
			link.Seed(uint64(10*i + m))
			link.SetDelay(redistest.Delay{Jitter: 5 * time.Millisecond}, redistest.Delay{})
		}
	}
	h := newHistory()
	var longest time.Duration
	for round := range rounds {
		start := time.Now()
		together(t, clients, func(i int) error {
			return h.tenure(t.Context(), all[i].Client, i, "k"+strconv.Itoa(round), func(*redlock.Lease) {})
		})
		longest = max(longest, time.Since(start))
	}
	t.Logf("longest round %v", longest)
	require.Less(t, longest, 2*time.Second, "long before what was granted to a waiter ends")
	h.verify(t)
	clean(t, cluster)
}
