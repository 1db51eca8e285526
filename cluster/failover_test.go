package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cluster"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// names of locks that each of the three masters keeps at first.
var names = func() (out [3]string) {
	for i := 0; out[0] == "" || out[1] == "" || out[2] == ""; i++ {
		name := fmt.Sprintf("lock%d", i)
		out[int(slot.Of(name))*3/slot.Count] = name
	}
	return out
}()

func short(c *redlock.Config) { c.MaxTTL, c.TTL = 2*time.Second, 2*time.Second }

// takeover is a way for a replica to become a master. cut: it never gets what the master granted last, which is
// what the replication of Redis, asynchronous as it is, may do at any time. (CLUSTER FAILOVER alone is refused
// to a replica that lags.)
type takeover struct {
	name string
	cut  bool
	do   func(t *testing.T, s *redistest.Sharded)
}

func manual(how string) func(t *testing.T, s *redistest.Sharded) {
	return func(t *testing.T, s *redistest.Sharded) { promote(t, s, 3, how) }
}

func promote(t *testing.T, s *redistest.Sharded, i int, how string) {
	t.Helper()
	require.NoError(t, s.Promote(ending(t), i, how), "CLUSTER FAILOVER %s", how)
}

func cut(t *testing.T, s *redistest.Sharded, i int) {
	t.Helper()
	require.NoError(t, s.Cut(ending(t), s.Servers[i]))
}

var takeovers = []takeover{
	{"the master is killed", true, func(_ *testing.T, s *redistest.Sharded) { s.Servers[0].Kill() }},
	{"CLUSTER FAILOVER", false, manual("")},
	{"CLUSTER FAILOVER FORCE", true, manual("FORCE")},
}

// partly goes on with the slots whose masters are left while others have none.
var partly = redistest.RealConfig{Args: []string{"--cluster-require-full-coverage", "no"}}

// A replica that takes over may lack what the master granted. So nobody gets the lock from it until the
// longest lease has ended, whether the holder still believes or is gone, and the other masters go on.
// Cost: 4 s, of the servers of a cluster with replicas.
func TestReplicaThatTakesOverDoesNotVoteUntilTheLongestLeaseHasEnded(t *testing.T) {
	t.Parallel()
	takesOver(t, takeovers[:1])
}

func TestLongReplicaThatTakesOverDoesNotVoteUntilTheLongestLeaseHasEnded(t *testing.T) {
	long(t)
	takesOver(t, takeovers[1:])
}

func takesOver(t *testing.T, ways []takeover) {
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, redistest.ShardedConfig{Replicas: 1, Server: partly})
			var said told
			a, b := open(t, s, short, traced(redlock.Tracer{Guard: said.guard})), open(t, s, short, traced(redlock.Tracer{Guard: said.guard}))
			if way.cut {
				cut(t, s, 3)
			}
			lease := lock(t, a, names[0], redlock.TTL(2*time.Second))
			kept := control(t, 2*time.Second)
			other := lock(t, a, names[1])
			others := []any{markerOf(t, s.Servers[1]), markerOf(t, s.Servers[2])}
			way.do(t, s)
			waitOwner(t, s, 3)
			if way.cut {
				lacks(t, s.Servers[3], names[0])
			}

			r := rt.Begin(func() (*redlock.Lease, error) { return b.Mutex(names[0]).Lock(ending(t)) })
			for range 20 { // the others are none the worse
				l := lock(t, b, names[2])
				released(t, l)
			}
			require.NoError(t, r.End())
			require.Error(t, lease.Err(), "two holders")
			said.satOut(t, s.Servers[3].Addr(), markerOf(t, s.Servers[3]), 2*time.Second, r.At)
			require.Greater(t, r.Value.Token(), lease.Token())
			replica := cluster.Config{Seeds: []string{s.Servers[4].Addr()}, Node: node.Config{DialTimeout: time.Minute}}
			masters, err := cluster.Topology(t.Context(), replica)
			require.NoError(t, err, "a replica tells it, too")
			require.Len(t, masters, 3)
			require.Equal(t, others, []any{markerOf(t, s.Servers[1]), markerOf(t, s.Servers[2])})
			released(t, r.Value)
			if err := other.Unlock(t.Context()); kept() {
				require.NoError(t, err)
			}

			// And a client that comes now finds nothing to wait for.
			c := open(t, s, short, func(c *redlock.Config) { c.FreshMembers = false })
			whole := markerOf(t, s.Servers[3])
			l := lock(t, c, names[0])
			require.Equal(t, whole, markerOf(t, s.Servers[3]), "whole again")
			require.Greater(t, l.Token(), r.Value.Token())
			released(t, l)
		})
	}
}

func lacks(t *testing.T, r *redistest.Real, name string) {
	t.Helper()
	require.Zero(t, asked(t, r, "EXISTS", name), "it has %s: this shows nothing", name)
}

// released unlocks a lease of seconds that was got a moment ago. On a machine that has slept for as long it may have
// ended by itself, and not otherwise.
func released(t *testing.T, l *redlock.Lease) {
	t.Helper()
	err := l.Unlock(t.Context())
	var lost *redlock.LostError
	if !errors.As(err, &lost) || time.Now().Before(lost.Until) {
		require.NoError(t, err)
	}
}

// control holds a lease at a server of its own to which nothing happens. Where that is lost, too, the machine was too
// busy to renew a lease of this length in time, whatever else happened.
func control(t *testing.T, ttl time.Duration) (kept func() bool) {
	t.Helper()
	c := openAll(t, startPlain(t, 1), short, func(c *redlock.Config) { c.MaxTTL, c.TTL = ttl, ttl })
	l := lock(t, c, "control")
	return func() bool { return l.Err() == nil }
}

// told hears what clients say of quarantines: when one ends, as soon as it begins.
type told struct {
	mu   sync.Mutex
	ends map[string][]time.Time // by member
}

func (g *told) guard(member, step string, until time.Time) {
	switch step {
	case "marked", "forgot", "quarantined":
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.ends == nil {
			g.ends = make(map[string][]time.Time)
		}
		g.ends[member] = append(g.ends[member], until)
	}
}

func (g *told) since(member string, from time.Time) (ends []time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, end := range g.ends[member] {
		if !end.Before(from) {
			ends = append(ends, end)
		}
	}
	return ends
}

// satOut makes sure that whoever marked a member, at the moment which is the end of a marker's id, set it so long a
// quarantine, which no machine is too slow for, and that a vote which was heard of at a moment came no earlier. A client that
// meets the member after the end says nothing.
func (g *told) satOut(t *testing.T, member string, marker []any, quarantine time.Duration, at time.Time) {
	t.Helper()
	const rounding = 5 * time.Millisecond
	marked := markedAt(t, marker)
	for _, end := range g.since(member, marked.Add(-rounding)) {
		require.GreaterOrEqual(t, end.Sub(marked), quarantine-rounding, "a quarantine")
	}
	require.GreaterOrEqual(t, at.Sub(marked), quarantine-rounding, "a vote before the end of the quarantine")
}

func markedAt(t *testing.T, marker []any) time.Time {
	t.Helper()
	_, text, ok := strings.Cut(marker[0].(string), " ")
	require.True(t, ok)
	return time.UnixMicro(rt.Must(strconv.ParseInt(text, 10, 64))(t))
}

func markerOf(t *testing.T, r *redistest.Real) []any {
	t.Helper()
	keys := asked(t, r, "KEYS", "redquorum:boot:*"+nodeID(t, r))
	require.Len(t, keys, 1)
	return asked(t, r, "HMGET", keys.([]any)[0].(string), "id", "state").([]any)
}

func nodeID(t *testing.T, r *redistest.Real) string {
	t.Helper()
	return asked(t, r, "CLUSTER", "MYID").(string)
}

func waitOwner(t *testing.T, s *redistest.Sharded, want int) {
	t.Helper()
	becomes(t, "it takes over", func() bool { return s.Owner(t.Context(), 0) == s.Servers[want] })
}

// Contenders on every master, with masters killed and replicas taking over beneath them: no two holders, tokens
// rise, and callers see nothing but what a failover may do to a lock that has no other member.
func TestLongMastersFailUnderTheirContenders(t *testing.T) {
	long(t)
	t.Parallel()
	s := start(t, redistest.ShardedConfig{Replicas: 1})
	var said told
	var clients []*redlock.Client
	for range 3 {
		clients = append(clients, open(t, s, short, traced(redlock.Tracer{Guard: said.guard})))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	var contests [3]contest
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for k := range contests {
		for i := range 12 {
			wg.Go(func() { contests[k].run(ctx, clients[i%3], names[k]) })
		}
	}
	served := func() {
		t.Helper()
		for k := range contests {
			require.NoError(t, contests[k].more(ctx, 20), names[k])
		}
	}
	// replace has a replica take the place of the master of a slot, however do brings that about.
	replace := func(slot int, do func(master, heir int)) (master int) {
		t.Helper()
		master = s.Index(s.Owner(ctx, slot))
		require.GreaterOrEqual(t, master, 0)
		heir := (master + s.Masters) % len(s.Servers)
		before := rt.Must(s.Epoch(ctx, heir))(t)
		do(master, heir)
		becomes(t, "an heir", func() bool { return s.Owner(ctx, slot) == s.Servers[heir] })
		require.Greater(t, rt.Must(s.Epoch(ctx, heir))(t), before, "a configuration of its own")
		served()
		said.satOut(t, s.Servers[heir].Addr(), markerOf(t, s.Servers[heir]), 2*time.Second, time.Now())
		return master
	}
	served()
	killed, replaced := 0, 0
	for began := time.Now(); time.Since(began) < 30*time.Second || replaced < 3; {
		down := replace(0, func(master, _ int) { s.Servers[master].Kill() })
		killed++
		require.NoError(t, s.Servers[down].Restart(true))
		require.NoError(t, s.Synced(ctx, s.Servers[down]))
		require.NoError(t, s.Await(ctx))
		for k := range contests {
			replace(k*slot.Count/3+1, func(_, heir int) { promote(t, s, heir, "") })
			replaced++
		}
	}
	cancel()
	wg.Wait()
	t.Logf("%d masters were killed, and %d replaced by command", killed, replaced)
	for k := range contests {
		c := &contests[k]
		t.Logf("%s: %d grants, longest pause %v, %d errors", names[k], c.grants.Load(), c.longest, len(c.errs))
		require.LessOrEqual(t, len(c.errs), killed+replaced, "of one holder at a time: %v", c.errs)
		for _, err := range c.errs {
			// Who unlocks cannot reach the master, or finds a successor that never had the lock. Lock waits,
			// and may be told in the end that a busy machine left nothing of the lease.
			require.True(t, errors.Is(err, redlock.ErrInDoubt) || errors.Is(err, redlock.ErrLost) || errors.Is(err, redlock.ErrTooSlow), "%v", err)
		}
		c.safe(t)
	}
}

func startPlain(t *testing.T, n int) []string {
	t.Helper()
	return rt.Real(t, n).URLs()
}
