//go:build !race

package redlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Thousands of clients in this process contend for one name at three members that share its processors. Whether the rate
// of a few of them stays depends on what else the machine does, so it is logged. An unlock may be in doubt,
// because an answer takes longer than MemberTimeout. What must hold is that no call fails in another way, and that all
// have the same share.
func TestLongCrowdSharesOneName(t *testing.T) {
	long(t)
	few := throngs(t, 50, time.Second, 5*time.Second)
	many := throngs(t, 2000, 10*time.Second, 20*time.Second)
	t.Logf("2000 clients have %.0f %% of the rate of 50", 100*many/few)
}

// throngs has n clients lock and unlock one name, and returns how often a second they do in a span that begins after a while.
func throngs(t *testing.T, n int, after, span time.Duration) (rate float64) {
	cluster := rt.Real(t, 3)
	all := make([]*redlock.Client, n)
	all[0] = opened(t, urls(cluster), redlock.WithFreshMembers())
	for i := range all[1:] {
		all[i+1] = opened(t, urls(cluster))
	}
	ctx, cancel := context.WithCancel(t.Context())
	counts := make([]atomic.Int64, n)
	var doubts atomic.Int64
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Mutex("k").Lock(ctx)
				if err == nil {
					counts[i].Add(1)
					err = l.Unlock(ctx)
				}
				if err != nil && ctx.Err() == nil {
					doubts.Add(1)
					if !errors.Is(err, redlock.ErrInDoubt) {
						t.Error(err)
					}
					time.Sleep(100 * time.Millisecond) // as any caller should
				}
			}
		})
	}
	have := func() (each []int, sum int) {
		for i := range counts {
			each = append(each, int(counts[i].Load()))
			sum += each[i]
		}
		return each, sum
	}
	time.Sleep(after)
	_, before := have()
	time.Sleep(span)
	each, sum := have()
	cancel()
	wg.Wait()
	rate = float64(sum-before) / span.Seconds()
	t.Logf("%d clients: %.0f locks a second, Jain %.4f, %d unlocks in doubt", n, rate, jain(each), doubts.Load())
	require.GreaterOrEqual(t, jain(each), 0.99)
	return rate
}
