package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

func startGroup(t *testing.T, c redistest.GroupConfig) *redistest.Group {
	t.Helper()
	rt.Needs(t)
	ctx := rt.Within(t, 2*time.Minute)
	g := rt.Must(redistest.StartGroup(ctx, c))(t)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// groupURL has no failover lag: where a test stops the former master it is known that it grants nothing.
func groupURL(g *redistest.Group) string {
	return "redis-sentinel://" + strings.Join(g.Addrs(), ",") + "/" + g.Name + "?failover_lag=0s"
}

// nameOf is what a client calls the group.
func nameOf(g *redistest.Group) string { return g.Name + "@" + strings.Join(g.Addrs(), ",") }

func awaitFailover(t *testing.T, g *redistest.Group, former string) *redistest.Real {
	t.Helper()
	var now string
	becomes(t, "another master", func() bool { now = g.Master(t.Context()); return now != "" && now != former })
	return g.Server(now)
}

// The master dies, or is replaced by command. Its replica has forgotten, for all that anybody knows.
func TestMasterThatSentinelsReplaceDoesNotVoteUntilTheLongestLeaseHasEnded(t *testing.T) {
	t.Parallel()
	replaced(t, "the master hangs")
}

func TestLongMasterThatSentinelsReplaceDoesNotVoteUntilTheLongestLeaseHasEnded(t *testing.T) {
	long(t)
	replaced(t, "the master is killed", "SENTINEL FAILOVER")
}

func replaced(t *testing.T, ways ...string) {
	for _, way := range ways {
		t.Run(way, func(t *testing.T) {
			g := startGroup(t, redistest.GroupConfig{})
			url := []string{groupURL(g)}
			if way == "the master hangs" {
				url[0] += "&stall_timeout=1h" // nothing ends the connection but what the Sentinels say
			}
			var said told
			a, b := openAll(t, url, short, traced(redlock.Tracer{Guard: said.guard})), openAll(t, url, short, traced(redlock.Tracer{Guard: said.guard}))
			lease := lock(t, a, "k", redlock.TTL(2*time.Second))
			former := g.Master(t.Context())
			switch way {
			case "the master is killed":
				g.Server(former).Kill()
			case "the master hangs":
				g.Server(former).Pause()
				defer g.Server(former).Resume()
			default:
				asked(t, g.Sentinels[0], "SENTINEL", "FAILOVER", g.Name)
			}
			master := awaitFailover(t, g, former)

			require.Error(t, rt.Err(b.Mutex("k").Lock(rt.Within(t, 300*time.Millisecond))))

			next, err := b.Mutex("k").Lock(ending(t)) // and not the hour of a stall
			at := time.Now()
			require.NoError(t, err)
			said.satOut(t, nameOf(g), bootOf(t, master), 2*time.Second, at)
			require.Error(t, lease.Err(), "two holders")
			require.Greater(t, next.Token(), lease.Token())
			released(t, next)
		})
	}
}

func bootOf(t *testing.T, r *redistest.Real) []any {
	t.Helper()
	return asked(t, r, "HMGET", "redquorum:boot", "id", "state").([]any)
}

func TestSentinelsThatLieAreDeadOrKnowNothing(t *testing.T) {
	t.Parallel()
	g := startGroup(t, redistest.GroupConfig{})
	stranger := rt.Real(t, 1).Servers[0] // no Sentinel at all
	mute := rt.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer mute.Close()
	url := "redis-sentinel://" + strings.Join(append([]string{mute.Addr().String(), stranger.Addr(), "127.0.0.1:1"}, g.Addrs()...), ",") + "/" + g.Name + "?dial_timeout=10s"
	c := openAll(t, []string{url}, short)
	lease := lock(t, c, "k")
	released(t, lease)

	_, err := redlock.Open(t.Context(), []string{"redis-sentinel://" + strings.Join(g.Addrs(), ",") + "/other"}, configOf())
	rt.Says(t, err, redlock.ErrNoQuorum, "it watches no master of this name")
}

// One vote is a cluster's, one a Sentinel group's, three are plain masters'. A failover in each of the two,
// and the loss of a plain master, cost nothing but their votes.
func TestLongQuorumOfFiveWithAClusterAndASentinelGroup(t *testing.T) {
	long(t)
	s, g := start(t, redistest.ShardedConfig{Replicas: 1}), startGroup(t, redistest.GroupConfig{})
	plain := rt.Real(t, 3)
	urls := append([]string{urlOf(s), groupURL(g)}, plain.URLs()...)
	c := openAll(t, urls, short)
	voting := func(n int) {
		t.Helper()
		becomes(t, fmt.Sprint(n, " votes"), func() bool {
			l, err := c.Mutex(names[0]).TryLock(t.Context())
			if err != nil {
				return false
			}
			defer func() { _ = l.Unlock(t.Context()) }()
			end := time.Now().Add(50 * time.Millisecond)
			for l.Votes() < n && time.Now().Before(end) {
				time.Sleep(time.Millisecond)
			}
			return l.Votes() >= n
		})
	}
	voting(5)
	kept := control(t, 2*time.Second)
	held := lock(t, c, names[0], redlock.AutoRenew(2*time.Second))
	// Callers see nothing of it, at a lock of the master that is lost.
	during, over := context.WithCancel(t.Context())
	defer over()
	var callers contest
	var contending sync.WaitGroup
	for range 4 {
		d := openAll(t, urls, unhurried, func(c *redlock.Config) { c.MaxTTL, c.TTL = 2*time.Second, 2*time.Second })
		contending.Go(func() { callers.run(during, d, "{"+names[0]+"}contended") })
	}
	former := g.Master(t.Context())
	g.Server(former).Kill()
	promote(t, s, 3, "TAKEOVER")
	awaitFailover(t, g, former)
	last := held.Token()
	if err := held.Unlock(t.Context()); kept() {
		require.NoError(t, err, "three members remember")
	}
	voting(5) // restored from the others
	becomes(t, "callers go on", func() bool { return callers.grants.Load() > 20 })
	over()
	contending.Wait()
	callers.check(t)
	plain.Kill(0, 1)
	for range 20 {
		l := lock(t, c, names[0])
		require.Greater(t, l.Token(), last)
		last = l.Token()
		released(t, l)
	}
	seen := rt.Must(c.Inspect(t.Context(), names[0]))(t)
	for i, m := range seen.Members {
		require.Equal(t, i == 2 || i == 3, m.Err != nil || errors.Is(m.Err, redlock.ErrNoQuorum), "%d: %v", i, m.Err)
	}
	require.NoError(t, plain.Restart(false, 0, 1)) // the counters of the cluster and of the group are good for those that forgot
	voting(5)
	plain.Kill(2)
	require.Greater(t, lock(t, c, names[0]).Token(), last)
}
