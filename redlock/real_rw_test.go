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

// Readers, writers, downgrades and clients of the mutex on real servers, of which one after the
// other is killed and comes back empty: no writer beside anybody, no reader's token that is not
// between those of the writers around it, and nothing left in the end.
func TestReadersAndWritersWhileMembersAreKilled(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	court, served := &courtroom{}, &atomic.Int64{}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	clients := several(t, cluster, 4, func(c *redlock.Config) {
		c.MaxTTL, c.TTL, c.FreshMembers, c.StallTimeout = 2*time.Second, 2*time.Second, true, 5*time.Second
	})
	for i, c := range clients {
		for j := range 4 {
			rng := rand.New(rand.NewPCG(uint64(10*i+j), 1))
			wg.Go(func() {
				for ctx.Err() == nil {
					readOrWrite(ctx, t, c, rng, court, served)
				}
			})
		}
	}
	for began, i := time.Now(), 0; ctx.Err() == nil; i = (i + 1) % 3 {
		if time.Since(began) > 7*time.Second && court.heard(50, 20) {
			cancel()
			break
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			continue
		}
		cluster.Kill(i)
		select {
		case <-time.After(300 * time.Millisecond):
		case <-ctx.Done():
		}
		require.NoError(t, cluster.Restart(false, i))
		for _, c := range clients { // the member votes again: the next one may be killed
			for start := time.Now(); ctx.Err() == nil && time.Since(start) < 8*time.Second && !redlock.MemberAt(c, i).State().Votes; {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	wg.Wait()
	require.Empty(t, court.wrong)
	t.Logf("%d reads, %d writes", court.reads, court.writes)
	require.Greater(t, court.reads, 50)
	require.Greater(t, court.writes, 20)
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
	require.Eventually(t, func() bool {
		left, err := cluster.Leftovers(context.Background(), lasting...)
		return err == nil && len(left) == 0
	}, 10*time.Second, 50*time.Millisecond, "keys left behind")
}

// readOrWrite takes the lock once, as one or the other.
func readOrWrite(ctx context.Context, t *testing.T, c *redlock.Client, rng *rand.Rand, court *courtroom, served *atomic.Int64) {
	rw, m := c.RWMutex("k"), c.Mutex("k")
	patience, cancel := context.WithTimeout(ctx, time.Duration(1+rng.IntN(2000))*time.Millisecond)
	defer cancel()
	way := rng.IntN(8)
	get := [](func(context.Context) (*redlock.Lease, error)){m.TryLock, rw.Lock, rw.Lock, rw.TryLock, rw.RLock, rw.RLock, rw.RLock, rw.TryRLock}[way]
	l, err := get(patience)
	if err != nil {
		time.Sleep(time.Millisecond)
		return
	}
	served.Add(1)
	court.enters(l)
	time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
	if !l.Shared() && way > 0 && rng.IntN(3) == 0 {
		if down, err := l.Downgrade(t.Context()); err == nil {
			court.swap(l, down)
			l = down
			time.Sleep(time.Duration(rng.IntN(4000)) * time.Microsecond)
		}
	}
	court.leaves(l)
	_ = l.Unlock(context.WithoutCancel(ctx))
}
