//go:build !race

package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"strings"
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

// What clients cost that do nothing: goroutines, memory (HeapInuse and StackInuse of this process), and
// what the members are sent. The race detector has memory of its own, so make test-long runs this without it.
func TestLongIdleClientsAreLight(t *testing.T) {
	if testing.Short() {
		t.Skip("SHORT: what a thousand idle clients cost is not measured; without -short it is")
	}
	const (
		clients = 1000
		span    = 20 * time.Second // two looks of each client
	)
	cluster := rt.Real(t, 3)
	urls := cluster.URLs()
	idle := func() (goroutines int, bytes uint64) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return runtime.NumGoroutine(), m.HeapInuse + m.StackInuse
	}
	opened(t, urls, redlock.WithFreshMembers()) // marks the members
	goroutines, bytes := idle()
	for range clients {
		opened(t, urls, redlock.WithFreshMembers())
	}
	time.Sleep(2 * time.Second) // they settle; what follows is counted and not awaited
	g, b := idle()
	perGoroutine, perByte := float64(g-goroutines)/clients, (float64(b)-float64(bytes))/clients
	commands, cpu := load(t, cluster.Servers[0])
	time.Sleep(span)
	c, u := load(t, cluster.Servers[0])
	rate, core := float64(c-commands)/span.Seconds()/clients, (u-cpu)/span.Seconds()
	subscribed := redlock.Admin(t, cluster.Servers[0], "INFO", "clients")
	t.Logf("a client has %.1f goroutines and %.0f bytes, and sends a member %.2f commands a second; %d of them take %.2f %% of a core of it\n%s",
		perGoroutine, perByte, rate, clients, 100*core, subscribed)
	require.LessOrEqual(t, perGoroutine, 10.0) // two for each member, three of the client
	require.LessOrEqual(t, perByte, 160_000.0)
	require.LessOrEqual(t, rate, 0.65) // 0.1 for its looks, which are scripts of five commands
}

// load is what a server has executed and the seconds of a core that it took.
func load(t *testing.T, s redistest.Server) (commands int64, cpu float64) {
	for _, line := range strings.Split(fmt.Sprint(redlock.Admin(t, s, "INFO", "everything")), "\r\n") {
		key, value, _ := strings.Cut(line, ":")
		switch key {
		case "total_commands_processed":
			commands, _ = strconv.ParseInt(value, 10, 64)
		case "used_cpu_sys", "used_cpu_user":
			x, _ := strconv.ParseFloat(value, 64)
			cpu += x
		}
	}
	return commands, cpu
}
