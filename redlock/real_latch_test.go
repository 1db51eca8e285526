package redlock_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// Parties of a barrier on real servers, one of which after the other is killed and comes back empty, or is emptied
// while it runs. Nobody goes on before all have arrived, and everybody goes on then.
func TestBarrierWhileMembersAreKilledAndEmptied(t *testing.T) {
	t.Parallel()
	const parties = 4
	cluster := rt.Real(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	clients := several(t, cluster, parties, func(c *redlock.Config) {
		c.MaxTTL, c.TTL, c.FreshMembers, c.StallTimeout = time.Second, time.Second, true, 5*time.Second
	})
	over, stop := context.WithTimeout(t.Context(), 7*time.Second)
	defer stop()
	const most = 1 << 16
	var invoked [most]atomic.Int32
	var last atomic.Uint64 // the round after which all stop; 0: not decided
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() {
			b := c.Barrier("phase", parties, fmt.Sprint("party-", i))
			for round := uint64(1); round < most; round++ {
				if i == 0 && over.Err() != nil && round > 20 { // the first party decides before it arrives
					last.CompareAndSwap(0, round)
				}
				invoked[round].Add(1)
				at, err := b.Wait(ctx)
				if n := invoked[round].Load(); err != nil || at != round || n != parties {
					t.Errorf("round %d (%d) opened after %d of %d: %v", round, at, n, parties, err)
					cancel()
					return
				}
				if last.Load() == round {
					return
				}
			}
		})
	}
	empties := 0
	for i := 0; over.Err() == nil; i = (i + 1) % 3 {
		if empties%2 == 0 {
			cluster.Kill(i)
			time.Sleep(100 * time.Millisecond)
			require.NoError(t, cluster.Restart(false, i))
		} else {
			require.NoError(t, cluster.Servers[i].Flush())
		}
		empties++
		began := time.Now()
		for _, c := range clients { // the member votes again: the next one may forget
			for over.Err() == nil && time.Since(began) < 8*time.Second && (time.Since(began) < 300*time.Millisecond || !redlock.MemberAt(c, i).State().Votes) {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	wg.Wait()
	t.Logf("%d rounds, members emptied %d times", last.Load(), empties)
	require.Greater(t, last.Load(), uint64(20))
	for _, s := range cluster.Servers {
		require.Eventually(t, func() bool { // before it would end by itself
			return admin(t, s, "EXISTS", slot.Sibling("redquorum:lo", "phase")) == int64(0)
		}, 3*time.Second, 5*time.Millisecond, "nobody waits any more")
	}
}
