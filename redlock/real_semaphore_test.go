package redlock_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Four clients take one to three of four slots on real servers, of which one after the other is killed and comes back
// empty: no slot has two holders, the tokens of each rise, callers are served throughout, and nothing is left.
func TestPermitsWhileMembersAreKilled(t *testing.T) {
	t.Parallel()
	const limit = 4
	cluster := rt.Real(t, 3)
	clients := several(t, cluster, 4, func(c *redlock.Config) {
		c.MaxTTL, c.TTL, c.FreshMembers, c.StallTimeout = time.Second, time.Second, true, 5*time.Second
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	judge, served, several := newPermitJudge(limit), &atomic.Int64{}, &atomic.Int64{}
	var wg sync.WaitGroup
	for i, c := range clients {
		for j := range 3 {
			rng := rand.New(rand.NewPCG(uint64(10*i+j), 1))
			wg.Go(func() {
				for ctx.Err() == nil {
					n := max(1, rng.IntN(5)-1)
					sem := c.Semaphore("k", limit, redlock.Permits(n))
					patience, cancel := context.WithTimeout(ctx, time.Duration(1+rng.IntN(2000))*time.Millisecond)
					get := sem.Acquire
					if rng.IntN(8) == 0 {
						get = sem.TryAcquire
					}
					l, err := get(patience)
					cancel()
					if err != nil {
						time.Sleep(time.Millisecond)
						continue
					}
					judge.granted(l)
					served.Add(1)
					if n > 1 {
						several.Add(1)
					}
					time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
					_ = l.Unlock(context.WithoutCancel(ctx))
				}
			})
		}
	}
	advance := func(n int64) {
		t.Helper()
		goal := served.Load() + n
		require.Eventually(t, func() bool { return served.Load() >= goal }, 20*time.Second, time.Millisecond)
	}
	advance(50)
	for i := range 3 {
		cluster.Kill(i)
		advance(50) // two of three are enough
		require.NoError(t, cluster.Restart(false, i))
		for _, c := range clients { // the member votes again: the next one may be killed
			require.Eventually(t, func() bool { return redlock.MemberAt(c, i).State().Votes }, 15*time.Second, 10*time.Millisecond)
		}
		advance(50)
	}
	cancel()
	wg.Wait()
	require.Empty(t, judge.wrong)
	require.Positive(t, several.Load())
	t.Logf("%d leases, %d of several slots", served.Load(), several.Load())
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool {
		left, err := cluster.Leftovers(context.Background(), lasting...)
		return err == nil && len(left) == 0
	}, 10*time.Second, 50*time.Millisecond, "keys left behind")
}
