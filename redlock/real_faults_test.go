package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Real servers that die, stop, forget their scripts or throw their clients out, under traffic.

// traffic is clients at work until it is stopped: each takes one key of its own and one that all want,
// over and over.
type traffic struct {
	*history
	workers int
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu      sync.Mutex
	errs    []error
	longest time.Duration // from asking for a lock to having given it back
}

// drive starts the traffic of these clients.
func drive(t testing.TB, clients []*redlock.Client, opts ...redlock.LockOption) *traffic {
	ctx, stop := context.WithCancel(context.Background())
	tr := &traffic{history: newHistory(), workers: 2 * len(clients), stop: stop}
	for i, c := range clients {
		for j, key := range []string{"own:" + strconv.Itoa(i), "shared"} {
			tr.done.Go(func() { tr.work(ctx, c, 2*i+j, key, opts) })
		}
	}
	t.Cleanup(func() { tr.stop(); tr.done.Wait() })
	return tr
}

func (tr *traffic) work(ctx context.Context, c *redlock.Client, who int, key string, opts []redlock.LockOption) {
	for ctx.Err() == nil {
		start := time.Now()
		err := tr.tenure(ctx, c, who, key, func(*redlock.Lease) { time.Sleep(time.Millisecond) }, opts...)
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			return
		}
		tr.mu.Lock()
		tr.longest = max(tr.longest, time.Since(start))
		if err != nil {
			tr.errs = append(tr.errs, err)
		}
		tr.mu.Unlock()
		if err != nil {
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// advance waits until every worker has had n more tenures.
func (tr *traffic) advance(t testing.TB, n int) {
	t.Helper()
	before := tr.counts(tr.workers)
	require.Eventually(t, func() bool {
		for i, now := range tr.counts(tr.workers) {
			if now < before[i]+n {
				return false
			}
		}
		return true
	}, 40*time.Second, 5*time.Millisecond, "no progress since %v: %v", before, &tr.errs)
}

// end stops the traffic, and checks exclusion and the order of tokens.
func (tr *traffic) end(t testing.TB) {
	t.Helper()
	tr.stop()
	tr.done.Wait()
	tr.verify(t)
	t.Logf("%d tenures, longest cycle %v, %d errors", tr.len(), tr.longest, len(tr.errs))
}

// several makes n clients, as of n processes.
func several(t testing.TB, cluster *redistest.Cluster, n int, opts ...redlock.Option) (out []*redlock.Client) {
	for range n {
		out = append(out, dialed(t, cluster, opts...))
	}
	return out
}

// full waits until a lease of a fresh name has the votes of all members.
func full(t testing.TB, c *redlock.Client, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		lease, err := c.Mutex(name).Lock(ending(t))
		if err != nil {
			return false
		}
		defer func() { require.NoError(t, lease.Unlock(t.Context())) }()
		for range 100 { // the last votes come after the decision
			if lease.Votes() == len(c.Members()) {
				return true
			}
			time.Sleep(time.Millisecond)
		}
		return false
	}, 30*time.Second, 10*time.Millisecond)
}

func TestWorkGoesOnWhileTwoOfFiveAreDeadAndTheyVoteAgainAfterwards(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	clients := several(t, cluster, 4, patient)
	tr := drive(t, clients)
	tr.advance(t, 20)
	cluster.Kill(3, 4)
	tr.advance(t, 50)
	require.NoError(t, cluster.Restart(true, 3, 4))
	settle(t, 5, clients...)
	tr.advance(t, 20)
	full(t, clients[0], "fresh")
	// The two that died were behind, and are needed now.
	cluster.Kill(0, 1)
	tr.advance(t, 50)
	require.NoError(t, cluster.Restart(true, 0, 1))
	settle(t, 5, clients...)
	tr.end(t)
	require.Empty(t, tr.errs)
	require.Less(t, tr.longest, 10*time.Second, "nobody waits for a lease to end")
	clean(t, cluster)
}

func TestThreeOfFiveDeadIsNoQuorumWithThreeCausesAndHealsByItself(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	c := dialed(t, cluster, func(c *redlock.Config) { c.NoQuorumAfter = 300 * time.Millisecond })
	held := locked(t, c, "held")
	cluster.Kill(1, 2, 4)

	noQuorum := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrHeld)
		var q *redlock.QuorumError
		require.ErrorAs(t, err, &q)
		for i, v := range q.Votes {
			dead := slices.Contains([]int{1, 2, 4}, i)
			require.Equal(t, dead, v.Err != nil, "%v", err)
			if dead {
				require.ErrorContains(t, err, cluster.Servers[i].Addr()+": ")
			}
		}
	}
	start := time.Now()
	_, err := c.Mutex("k").TryLock(t.Context())
	noQuorum(err)
	t.Logf("TryLock after %v: %v", time.Since(start), err)
	require.Less(t, time.Since(start), 5*time.Second)

	start = time.Now()
	_, err = c.Mutex("k").Lock(ending(t))
	noQuorum(err)
	t.Logf("Lock after %v", time.Since(start))
	require.GreaterOrEqual(t, time.Since(start), 300*time.Millisecond)
	require.Less(t, time.Since(start), 10*time.Second)

	require.ErrorIs(t, held.Unlock(t.Context()), redlock.ErrInDoubt)

	require.NoError(t, cluster.Restart(true, 1, 2, 4))
	(&peer{Client: c}).Settle(t, 5)
	full(t, c, "k")
	clean(t, cluster) // the release in doubt, too, reached those that came back
}

// beside does something at every server again and again, until it is stopped or fails.
func beside(t testing.TB, cluster *redistest.Cluster, pause time.Duration, what func(i int, do func(args ...string) error) error) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i, s := range cluster.Servers {
		all.Go(func() {
			c, err := redistest.DialClient(ctx, s.Dialer(), s.Addr())
			for ; err == nil && ctx.Err() == nil; time.Sleep(pause) {
				err = what(i, func(args ...string) error { _, err := c.Do(ctx, args...); return err })
			}
		})
	}
	return func() { cancel(); all.Wait() }
}

// The other names of a slot count on in the same counter, at each member for itself.
func TestTokensRiseHoweverFarTheCountersAreApart(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	tr := drive(t, several(t, cluster, 4, patient))
	bucket := strconv.FormatInt(script.Exclusive("shared").Bucket, 10)
	var rngs []*rand.Rand
	for i := range cluster.Servers {
		rngs = append(rngs, rand.New(rand.NewPCG(uint64(i), 3)))
	}
	stop := beside(t, cluster, time.Millisecond, func(i int, do func(args ...string) error) error {
		return do("HINCRBY", member.TokensKey, bucket, strconv.Itoa(rngs[i].IntN(1000)))
	})
	tr.advance(t, 100)
	stop()
	tr.end(t)
	require.Empty(t, tr.errs)
	clean(t, cluster)
}

func TestScriptsThatServersForgetComeBackWithoutAnError(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	clients := several(t, cluster, 4, patient)
	tr := drive(t, clients)
	var flushes atomic.Int64
	stop := beside(t, cluster, 3*time.Millisecond, func(_ int, do func(args ...string) error) error {
		err := do("SCRIPT", "FLUSH")
		if err == nil {
			flushes.Add(1)
		}
		return err
	})
	tr.advance(t, 30)
	stop()
	tr.end(t)
	require.Empty(t, tr.errs)
	require.Greater(t, flushes.Load(), int64(50))
	clean(t, cluster)
}

func TestClientsThatAreThrownOutComeBackAndStayApart(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"normal", "pubsub"} {
		t.Run(kind, func(t *testing.T) {
			cluster := rt.Real(t, 5)
			clients := several(t, cluster, 4)
			tr := drive(t, clients)
			tr.advance(t, 5)
			for round := range 15 {
				members := []int{round % 5, (round + 1) % 5}
				if round%5 == 0 {
					members = []int{0, 1, 2, 3, 4}
				}
				killConnections(t.Context(), cluster, members, kind)
				tr.advance(t, 2)
			}
			tr.end(t)
			for _, err := range tr.errs {
				// All members at once: who asked in that moment had nobody to ask.
				if !errors.Is(err, redlock.ErrNoQuorum) && !errors.Is(err, redlock.ErrInDoubt) && !errors.Is(err, redlock.ErrLost) {
					t.Error(err)
				}
			}
			clean(t, cluster)
		})
	}
}

// killConnections ends the connections of a kind at some members.
func killConnections(ctx context.Context, cluster *redistest.Cluster, members []int, kind string) {
	for _, i := range members {
		_, _ = cluster.Servers[i].Do(ctx, "CLIENT", "KILL", "TYPE", kind)
	}
}

func TestLeaseIsRenewedWhileMinoritiesAreStopped(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	cluster := rt.Real(t, 5)
	c := dialed(t, cluster, func(c *redlock.Config) { c.TTL = ttl })
	lease := locked(t, c, "k")
	lowest := ttl
	for _, stopped := range [][]int{{0, 1}, {2, 3}} {
		require.Eventually(t, func() bool { return lease.Votes() == 5 }, 20*time.Second, time.Millisecond,
			"members that were stopped take the lease again")
		cluster.Pause(stopped...)
		for end := time.Now().Add(2 * ttl); time.Now().Before(end); {
			for i, s := range cluster.Servers {
				if slices.Contains(stopped, i) {
					continue
				}
				left := admin(t, s, "PTTL", "k")
				require.Positive(t, left, "member %d lost the lock", i)
				lowest = min(lowest, time.Duration(left.(int64))*time.Millisecond)
			}
			time.Sleep(5 * time.Millisecond)
		}
		require.NoError(t, lease.Err())
		cluster.Resume(stopped...)
	}
	t.Logf("never less than %v of %v left", lowest, ttl)
	require.NoError(t, lease.Unlock(t.Context()))
	clean(t, cluster)
}

func TestAThousandLeasesLiveOnOneClient(t *testing.T) {
	manyLeases(t, 1000, 2*time.Second)
}

func TestLongTenThousandLeasesLiveOnOneClient(t *testing.T) {
	long(t)
	manyLeases(t, 10_000, 20*time.Second)
}

// manyLeases holds so many leases for three TTLs after the last of them was taken.
func manyLeases(t *testing.T, total int, ttl time.Duration) {
	const workers = 64
	cluster := rt.Real(t, 5)
	c := dialed(t, cluster, patient, func(c *redlock.Config) { c.TTL = ttl })
	before := runtime.NumGoroutine()
	leases := make([]*redlock.Lease, total)
	ctx := ending(t) // one for all: each one that ends runs a goroutine for a moment
	together(t, workers, func(w int) error {
		for i := w; i < total; i += workers {
			var err error
			if leases[i], err = c.Mutex("lease:" + strconv.Itoa(i)).Lock(ctx); err != nil {
				return err
			}
		}
		return nil
	})
	held := time.Now()
	most := 0
	for time.Since(held) < 3*ttl {
		most = max(most, runtime.NumGoroutine())
		for i := 0; i < total; i += 97 {
			require.NoError(t, leases[i].Err())
		}
		time.Sleep(20 * time.Millisecond)
	}
	require.Less(t, most, before+20, "no goroutine per lease")
	for i, l := range leases {
		require.NoError(t, l.Err(), i)
	}
	for i, s := range cluster.Servers {
		n := admin(t, s, "DBSIZE")
		require.EqualValues(t, total+2, n, "member %d has every lock, the counters and the marker", i)
	}
	together(t, workers, func(w int) error {
		for i := w; i < total; i += workers {
			if err := leases[i].Unlock(t.Context()); err != nil {
				return fmt.Errorf("lease %d: %w", i, err)
			}
		}
		return nil
	})
	t.Logf("%d leases over %v with %d goroutines more", total, time.Since(held), most-before)
	clean(t, cluster)
}

// A lease that other owners kept from some members is held by a bare majority. That nothing of it is left
// at a majority is known also when one of the others hangs.
func TestReleaseOfABareMajorityIsNotInDoubtWhileAMemberHangs(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	c := dialed(t, cluster, func(c *redlock.Config) { c.MemberTimeout = 10 * time.Second })
	for round := range 10 {
		key := "k" + strconv.Itoa(round)
		for _, s := range cluster.Servers[:2] {
			admin(t, s, "HSET", key, "another:1", "1")
			admin(t, s, "PEXPIRE", key, "60000")
		}
		lease := locked(t, c, key)
		cluster.Pause(4)
		start := time.Now()
		require.NoError(t, lease.Unlock(t.Context()))
		require.Less(t, time.Since(start), 5*time.Second, "waited for the member that hangs")
		cluster.Resume(4)
	}
}

func TestReleaseOfALeaseThatAMajorityForgotIsALoss(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	c := dialed(t, cluster, patient)
	for round := range 10 {
		key := "k" + strconv.Itoa(round)
		lease := locked(t, c, key)
		require.Eventually(t, func() bool { return lease.Votes() == 5 }, 20*time.Second, time.Millisecond)
		for _, s := range cluster.Servers[:2+round%4] {
			admin(t, s, "DEL", key)
		}
		if err := lease.Unlock(t.Context()); round%4 == 0 {
			require.NoError(t, err, "a majority had it to the end")
		} else {
			require.ErrorIs(t, err, redlock.ErrLost)
		}
	}
}

// A round that refusals and dead members decide is not waited out; what it says must not depend on which
// of the others answered first.
func TestHeldLockIsSaidToBeHeldWhileAMinorityIsDead(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 5)
	a, b := dialed(t, cluster, patient), dialed(t, cluster, patient)
	cluster.Kill(1, 3)
	lease := locked(t, a, "k")
	for range 200 {
		_, err := b.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
	}
	require.NoError(t, lease.Unlock(t.Context()))
}
