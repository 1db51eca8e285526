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

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// A thousand clients in this process contend for one name at three members that share its processors. Whether the rate
// of a few of them stays depends on what else the machine does, so it is logged. An unlock may be in doubt,
// because an answer takes longer than MemberTimeout. What must hold is that no call fails in another way, and that all
// have the same share.
func TestLongCrowdSharesOneName(t *testing.T) {
	redlock.Long(t)
	few := throngs(t, 50, time.Second, 5*time.Second)
	many := throngs(t, 1000, 15*time.Second, 20*time.Second)
	t.Logf("1000 clients have %.0f %% of the rate of 50", 100*many/few)
}

// A crowd whose members are all stopped for a minute is back by itself: each of its clients locks again soon after they go on.
// Until then Lock may fail, because no majority answers.
func TestLongCrowdIsBackAfterAllMembersWereStopped(t *testing.T) {
	redlock.Long(t)
	const n, stopped = 5000, time.Minute
	c := assemble(t, n)
	time.Sleep(15 * time.Second)
	c.stopped.Store(true)
	c.members.Pause()
	time.Sleep(stopped)
	before, _ := c.have()
	c.members.Resume()
	resumed := time.Now()
	back := func() (clients int) {
		now, _ := c.have()
		for i := range now {
			if now[i] > before[i] {
				clients++
			}
		}
		return clients
	}
	for back() < n && time.Since(resumed) < time.Minute {
		time.Sleep(10 * time.Millisecond)
	}
	took := time.Since(resumed)
	c.disperse()
	t.Logf("%d of %d clients have locked %.1f s after the members went on", back(), n, took.Seconds())
	require.Less(t, took, time.Minute)
}

type queueing struct {
	members  *redistest.Cluster
	counts   []atomic.Int64
	doubts   atomic.Int64
	stopped  atomic.Bool // members are or were stopped: calls may fail
	disperse func()
}

func (c *queueing) have() (each []int, sum int) {
	for i := range c.counts {
		each = append(each, int(c.counts[i].Load()))
		sum += each[i]
	}
	return each, sum
}

func assemble(t *testing.T, n int) *queueing {
	cluster := rt.Real(t, 3)
	all := make([]*redlock.Client, n)
	all[0] = opened(t, urls(cluster), redlock.WithFreshMembers())
	for i := range all[1:] {
		all[i+1] = opened(t, urls(cluster))
	}
	crowd := &queueing{members: cluster, counts: make([]atomic.Int64, n)}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	crowd.disperse = func() { cancel(); wg.Wait() }
	for i, c := range all {
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := c.Mutex("k").Lock(ctx)
				if err == nil {
					crowd.counts[i].Add(1)
					err = l.Unlock(ctx)
				}
				if err != nil && ctx.Err() == nil {
					crowd.doubts.Add(1)
					if !errors.Is(err, redlock.ErrInDoubt) && !crowd.stopped.Load() {
						t.Error(err)
					}
					time.Sleep(100 * time.Millisecond) // as any caller should
				}
			}
		})
	}
	return crowd
}

// throngs returns how often a second n clients have the lock in a span that begins after a while.
func throngs(t *testing.T, n int, after, span time.Duration) (rate float64) {
	c := assemble(t, n)
	time.Sleep(after)
	_, before := c.have()
	time.Sleep(span)
	each, sum := c.have()
	c.disperse()
	rate = float64(sum-before) / span.Seconds()
	t.Logf("%d clients: %.0f locks a second, Jain %.4f, %d unlocks in doubt", n, rate, jain(each), c.doubts.Load())
	require.GreaterOrEqual(t, jain(each), 0.99)
	return rate
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has everything.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, x := range counts {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}
