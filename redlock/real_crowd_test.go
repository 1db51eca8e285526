//go:build !race

package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/redlock"
)

// Thousands of clients in this process contend for one name at three members that share its processors. Whether the rate
// of a few of them stays depends on what else the machine does, so it is logged. An unlock may be in doubt,
// because an answer takes longer than MemberTimeout. What must hold is that no call fails in another way, and that all
// have the same share.
func TestLongCrowdSharesOneName(t *testing.T) {
	redlock.Long(t)
	few := throngs(t, 50, time.Second, 5*time.Second)
	many := throngs(t, 5000, 15*time.Second, 20*time.Second)
	t.Logf("5000 clients have %.0f %% of the rate of 50", 100*many/few)
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
	require.Less(t, took, 15*time.Second)
}

// queueing is clients that lock and unlock one name.
type queueing struct {
	members  *redistest.Cluster
	counts   []atomic.Int64
	doubts   atomic.Int64
	stopped  atomic.Bool // members are or were stopped: calls may fail
	disperse func()
}

// have returns how often each has had the lock, and the sum.
func (c *queueing) have() (each []int, sum int) {
	for i := range c.counts {
		each = append(each, int(c.counts[i].Load()))
		sum += each[i]
	}
	return each, sum
}

// assemble has n clients lock and unlock one name until they disperse.
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

// A member that has forgotten is restored while a crowd looks on. One of 300 clients copies 16,384 counters, and a million
// are copied as well: the members that remember serve all others meanwhile.
func TestLongCrowdSeesAMemberRestoredAndLosesNoTry(t *testing.T) {
	redlock.Long(t)
	for _, c := range []struct {
		clients, counters int
		limit             time.Duration
	}{{300, 16_384, 10 * time.Second}, {1, 1_000_000, time.Minute}} {
		t.Run(fmt.Sprint(c.counters, " counters, ", c.clients, " clients"), func(t *testing.T) {
			cluster := rt.Real(t, 3)
			cfg := redlock.WithConfig(redlock.Config{FreshMembers: true, TTL: 2 * time.Second, MaxTTL: 3 * time.Second})
			clients := make([]*redlock.Client, c.clients)
			for i := range clients {
				clients[i] = opened(t, urls(cluster), cfg)
			}
			for _, s := range cluster.Servers {
				for from := 0; from < c.counters; from += 50_000 {
					redlock.Admin(t, s, "EVAL", `for i = ARGV[1], ARGV[2] - 1 do
						redis.call('HSET', 'redquorum:tokens', i % 16384 .. (i < 16384 and '' or '.' .. math.floor(i / 16384)), '4000000000000000') end`,
						"0", fmt.Sprint(from), fmt.Sprint(min(from+50_000, c.counters)))
				}
				redlock.Admin(t, s, "CONFIG", "SET", "slowlog-log-slower-than", "5000")
				redlock.Admin(t, s, "SLOWLOG", "RESET")
				redlock.Admin(t, s, "CONFIG", "RESETSTAT")
			}
			down := time.Now()
			require.NoError(t, cluster.Restart(false, 2))
			tries, slowest, votes := 0, time.Duration(0), time.Duration(0)
			for ; votes == 0 && time.Since(down) < c.limit; tries++ {
				began := time.Now()
				l, err := clients[0].Mutex("probe").TryLock(t.Context())
				if slowest = max(slowest, time.Since(began)); err == nil {
					_ = l.Unlock(t.Context())
				} else {
					t.Errorf("after %v: %v", time.Since(down), err)
				}
				for _, m := range clients[0].Members()[:2] {
					require.Equal(t, redlock.MemberVoting, m.State, m.Name)
				}
				if m := clients[0].Members()[2]; m.State == redlock.MemberVoting && m.Since.After(down) {
					votes = time.Since(down)
				}
				time.Sleep(2 * time.Millisecond)
			}
			require.NotZero(t, votes, "it does not vote")
			for i, s := range cluster.Servers[:2] {
				slow := redlock.Admin(t, s, "SLOWLOG", "LEN")
				stats := redlock.Admin(t, s, "INFO", "stats").(string)
				sent, err := strconv.Atoi(strings.TrimSpace(resp.Field([]byte(stats), "total_net_output_bytes:")))
				require.NoError(t, err)
				t.Logf("member %d: %v commands took longer than 5 ms, %d bytes sent", i, slow, sent)
				require.Less(t, sent, 60*c.counters+2_000_000+tries*1000, "the counters went out once")
			}
			require.EqualValues(t, c.counters, redlock.Admin(t, cluster.Servers[2], "EVAL",
				`local n, at = 0, '0' repeat local p = redis.call('HSCAN', 'redquorum:tokens', at, 'COUNT', 10000) at = p[1]
				for i = 1, #p[2], 2 do if p[2][i] ~= 'base' and p[2][i + 1] + 0 >= 4000000000000000 then n = n + 1 end end until at == '0' return n`, "0"))
			t.Logf("it votes after %v (MaxTTL is 3 s); of %d tries none failed, the slowest took %v", votes, tries, slowest)
		})
	}
}
