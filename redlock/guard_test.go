package redlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// short is a deployment whose longest lease is a second, so that a quarantine is one.
func short(c *redlock.Config) {
	c.MaxTTL, c.TTL, c.Entry = time.Second, time.Second, 300*time.Millisecond
	c.NoQuorumAfter = -1
}

// markerOf reads a field of a member's marker.
func markerOf(t testing.TB, cluster *redistest.Cluster, i int, field string) string {
	t.Helper()
	v, err := cluster.Servers[i].Do(context.Background(), "HGET", "redquorum:boot", field)
	require.NoError(t, err)
	s, _ := v.(string)
	return s
}

func tokenAt(t testing.TB, cluster *redistest.Cluster, i int, key string) int64 {
	t.Helper()
	v, err := cluster.Servers[i].Do(context.Background(), "HGET", "redquorum:tokens", strconv.FormatInt(script.Exclusive(key).Bucket, 10))
	require.NoError(t, err)
	s, _ := v.(string)
	n, _ := strconv.ParseInt(s, 10, 64)
	return n
}

func cycle(t testing.TB, p *peer, key string) uint64 {
	t.Helper()
	l, err := p.Mutex(key).Lock(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Unlock(t.Context()))
	return l.Token()
}

func TestFreshMembersVoteAtOnce(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		began := time.Now()
		p := guarded(t, cluster, short, redlock.WithFreshMembers())
		p.Voting(t, 5)
		require.Less(t, time.Since(began), 200*time.Millisecond)
		for i := range 5 {
			require.Equal(t, "n", markerOf(t, cluster, i, "state"))
			require.Equal(t, "1000", markerOf(t, cluster, i, "q"))
		}
		cycle(t, p, "k")
		for _, m := range p.Members() {
			require.Equal(t, redlock.MemberVoting, m.State)
		}
	})
}

// Servers younger than MaxTTL may be a deployment that lost everything at once: somebody may still hold.
func TestFirstStartWaitsUntilTheServersAreOlderThanTheLongestLease(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		began := time.Now()
		p := guarded(t, cluster, short)
		p.Until(t, 4, redlock.MemberQuarantined)
		_, err := p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrQuarantined)
		var q *member.QuarantineError
		require.ErrorAs(t, err, &q)
		require.WithinDuration(t, began.Add(time.Second), q.Until, 100*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = p.Mutex("k").Lock(ctx)
		require.ErrorIs(t, err, redlock.ErrQuarantined)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		l, err := p.Mutex("k").Lock(t.Context()) // waits it out
		require.NoError(t, err)
		require.GreaterOrEqual(t, time.Since(began), time.Second)
		require.Less(t, time.Since(began), 1500*time.Millisecond)
		require.NoError(t, l.Unlock(t.Context()))

		// A second client finds the markers and votes at once.
		second := time.Now()
		other := guarded(t, cluster, short)
		other.Voting(t, 5)
		require.Less(t, time.Since(second), 200*time.Millisecond)
	})
}

func TestMemberThatRestartsIsQuarantinedAndRestored(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("with its data %v", keep), func(t *testing.T) {
			bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
				p, q := guarded(t, cluster, short, redlock.WithFreshMembers()), guarded(t, cluster, short)
				p.Voting(t, 5)
				q.Voting(t, 5)
				cycle(t, p, "k")
				for i := range 5 { // counters far ahead of any clock: only memory keeps their order
					_, err := cluster.Servers[i].Do(t.Context(), "HSET", "redquorum:tokens", bucketOf("k"), "9000000000000000")
					require.NoError(t, err)
				}
				last := cycle(t, p, "k")
				require.EqualValues(t, 9000000000000001, last)
				cluster.Kill(1)
				down := time.Now()
				require.NoError(t, cluster.Restart(keep, 1))
				p.Voting(t, 4)
				for time.Since(down) < 5*time.Second {
					next := cycle(t, q, "k")
					require.Greater(t, next, last)
					last = next
					time.Sleep(10 * time.Millisecond)
					if st := p.State(1); st.Votes && st.Up {
						require.GreaterOrEqual(t, time.Since(down), time.Second, "q after the restart at the earliest")
					}
				}
				p.Voting(t, 5)
				q.Voting(t, 5)
				require.Equal(t, "w", markerOf(t, cluster, 1, "state"))
				require.Equal(t, "0", markerOf(t, cluster, 1, "clk"))
				require.Greater(t, cycle(t, p, "k"), last)
				require.Greater(t, tokenAt(t, cluster, 1, "k"), int64(9000000000000001))
			})
		})
	}
}

// Three of five lose their memory under a living holder: without the quarantine a rival has a majority.
func TestMajorityThatForgetsUnderAHolderLetsNobodyIn(t *testing.T) {
	for _, members := range [][]int{{0, 1, 2}, {0, 1, 2, 3, 4}} {
		bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
			a, b := guarded(t, cluster, short, redlock.WithFreshMembers()), guarded(t, cluster, short)
			a.Voting(t, 5)
			b.Voting(t, 5)
			held, err := a.Mutex("k", redlock.TTL(time.Second)).Lock(t.Context())
			require.NoError(t, err)
			require.Eventually(t, func() bool { return held.Votes() == 5 }, time.Second, time.Millisecond)
			cluster.Kill(members...)
			require.NoError(t, cluster.Restart(false, members...))
			next, err := b.Mutex("k").Lock(t.Context())
			require.NoError(t, err)
			require.Error(t, held.Err(), "%v: two holders", members)
			require.Greater(t, next.Token(), held.Token())
			require.NoError(t, next.Unlock(t.Context()))
		})
	}
}

func TestFlushIsSeenByTheFirstGrant(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		p := guarded(t, cluster, short, redlock.WithFreshMembers(), func(c *redlock.Config) { c.PingInterval = time.Hour })
		p.Voting(t, 5)
		cycle(t, p, "k")
		synctest.Wait()
		require.NoError(t, cluster.Flush(2))
		gen := p.State(2).Gen
		cycle(t, p, "k")
		p.Voting(t, 4)
		p.Until(t, 2, redlock.MemberQuarantined)
		require.Greater(t, p.State(2).Gen, gen)
	})
}

func TestFlushIsSeenByTheNextPing(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := guarded(t, cluster, short, redlock.WithFreshMembers())
		p.Voting(t, 3)
		require.NoError(t, cluster.Flush(1))
		at := time.Now()
		p.Voting(t, 2)
		require.LessOrEqual(t, time.Since(at), time.Second)
		p.Voting(t, 3)
		require.Equal(t, "w", markerOf(t, cluster, 1, "state"))
	})
}

// One member alone has nobody to ask: order goes on from its clock, and that is said.
func TestSingleMemberThatForgetsGoesOnByItsClock(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		steps := &guardSteps{}
		p := guarded(t, cluster, short, redlock.WithFreshMembers(), redlock.WithTracer(steps))
		p.Voting(t, 1)
		last := cycle(t, p, "k")
		cluster.Kill(0)
		require.NoError(t, cluster.Restart(false, 0))
		p.Voting(t, 0)
		p.Voting(t, 1)
		require.Greater(t, cycle(t, p, "k"), last)
		require.Equal(t, "1", markerOf(t, cluster, 0, "clk"))
		require.Equal(t, "marked forgot tokens_by_clock", steps.String())
	})
}

type guardSteps struct{ steps []string }

func (g *guardSteps) AcquireStart(ctx context.Context, _ redlock.AcquireStart) context.Context {
	return ctx
}
func (g *guardSteps) AcquireEnd(context.Context, redlock.AcquireEnd) {}
func (g *guardSteps) Guard(_, step string, _ time.Time)              { g.steps = append(g.steps, step) }
func (g *guardSteps) String() string                                 { return strings.Join(g.steps, " ") }

func TestStrictKeepsAMemberOutThatNobodyCanRestore(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		strict := func(c *redlock.Config) { c.RestartGuard = redlock.Strict }
		p := guarded(t, cluster, short, strict, redlock.WithFreshMembers())
		p.Voting(t, 3)
		cycle(t, p, "k")
		cluster.Kill(0, 1)
		require.NoError(t, cluster.Restart(false, 0, 1))
		p.Voting(t, 1)
		time.Sleep(time.Minute)
		require.Equal(t, redlock.MemberRestoring, p.Members()[0].State)
		_, err := p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrQuarantined)
	})
}

func TestGuardOffBelievesAnOldMarkerAndNotAMissingOne(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		off := func(c *redlock.Config) { c.RestartGuard = redlock.GuardOff }
		p := guarded(t, cluster, short, off, redlock.WithFreshMembers())
		p.Voting(t, 3)
		last := cycle(t, p, "k")
		cluster.Kill(0)
		require.NoError(t, cluster.Restart(true, 0))
		at := time.Now()
		p.Voting(t, 2)
		p.Voting(t, 3)
		require.Less(t, time.Since(at), time.Second, "no quarantine")
		next := cycle(t, p, "k")
		require.Greater(t, next, last)
		cluster.Kill(0)
		require.NoError(t, cluster.Restart(false, 0))
		p.Voting(t, 2)
		at = time.Now()
		p.Voting(t, 3)
		require.GreaterOrEqual(t, time.Since(at), 900*time.Millisecond)
		require.Greater(t, cycle(t, p, "k"), next)
	})
}

func TestGreaterMaxTTLIsRaisedAndAdopted(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := guarded(t, cluster, short, redlock.WithFreshMembers())
		p.Voting(t, 3)
		at := time.Now()
		long := guarded(t, cluster, short, func(c *redlock.Config) { c.MaxTTL = 10 * time.Second })
		long.Voting(t, 3)
		require.GreaterOrEqual(t, time.Since(at), time.Second, "one ping, so that all have learnt of it")
		require.Equal(t, "10000", markerOf(t, cluster, 0, "q"))
		time.Sleep(1100 * time.Millisecond)
		require.NoError(t, long.Close()) // the other must have learnt of it
		cluster.Kill(1)
		require.NoError(t, cluster.Restart(false, 1))
		at = time.Now()
		p.Voting(t, 2)
		p.Voting(t, 3)
		require.GreaterOrEqual(t, time.Since(at), 9*time.Second, "the client with the short leases waits for the long ones")
	})
}

// While a member is in quarantine nothing of it counts, and a release still reaches it.
func TestReleaseReachesAMemberInQuarantine(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := guarded(t, cluster, short, redlock.WithFreshMembers())
		p.Voting(t, 3)
		held, err := p.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.Eventually(t, func() bool { return held.Votes() == 3 }, time.Second, time.Millisecond)
		cluster.Kill(2)
		require.NoError(t, cluster.Restart(true, 2)) // comes back with the lock in it
		p.Until(t, 2, redlock.MemberQuarantined)
		require.NoError(t, held.Unlock(t.Context()))
		synctest.Wait()
		keys, err := cluster.Keys(t.Context())
		require.NoError(t, err)
		require.NotContains(t, keys[2], "k")
	})
}

// A client that marked a first deployment looks at a member, never comes to mark it, and meets it again
// long after: whoever has marked it meanwhile may hold there.
func TestFirstDeploymentIsOverAfterAWhile(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		time.Sleep(time.Minute) // servers older than MaxTTL
		a := guarded(t, cluster, short)
		marking := func(cmd []string) bool { return len(cmd) > 6 && cmd[0] == "EVAL" && cmd[len(cmd)-1] == "n" }
		a.Links[2].Call(marking, -1, func([]string) { a.Links[2].Refuse(true) })
		a.Links[2].CutBefore(marking, -1)
		a.Voting(t, 2)
		b := guarded(t, cluster, short)
		b.Voting(t, 3)
		time.Sleep(time.Hour)
		b.Links[0].Refuse(true)
		b.Links[0].Cut()
		held, err := b.Mutex("k", redlock.TTL(time.Second)).Lock(t.Context())
		require.NoError(t, err)
		synctest.Wait()
		b.Links[2].Pause() // b does not see what happens to member 2
		require.NoError(t, cluster.Flush(2))
		a.Links[2].Heal()
		a.Links[2].Refuse(false)
		for until := time.Now().Add(900 * time.Millisecond); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
			if l, err := a.Mutex("k").TryLock(t.Context()); err == nil {
				require.Error(t, held.Err(), "two holders, tokens %d and %d", held.Token(), l.Token())
				break
			}
		}
	})
}

// The wait until all have learnt of longer leases holds for every client that asks for them, not only for
// the one that raised q.
func TestSecondClientWithAGreaterMaxTTLWaitsToo(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		a := guarded(t, cluster, short, redlock.WithFreshMembers())
		a.Voting(t, 1)
		long := func(c *redlock.Config) { c.MaxTTL, c.TTL = 10*time.Second, 10*time.Second }
		time.Sleep(100 * time.Millisecond)
		b := guarded(t, cluster, short, long)
		b.Until(t, 0, redlock.MemberQuarantined)
		c := guarded(t, cluster, short, long)
		c.Voting(t, 1)
		held, err := c.Mutex("k", redlock.TTL(10*time.Second)).TryLock(t.Context())
		require.NoError(t, err)
		b.Die()
		c.Die()
		cluster.Kill(0)
		require.NoError(t, cluster.Restart(false, 0))
		l, err := a.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.Error(t, held.Err(), "two holders: tokens %d, %d", held.Token(), l.Token())
	})
}

// Restored means: to what the others know, before anything else is granted there.
func TestCountersAreRestoredBeforeTheMemberVotes(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		p := guarded(t, cluster, short, redlock.WithFreshMembers())
		p.Voting(t, 5)
		const unused = "16383"
		for i := range 5 {
			_, err := cluster.Servers[i].Do(t.Context(), "HSET", "redquorum:tokens", unused, strconv.Itoa(9_000_000_000_000_000+i))
			require.NoError(t, err)
		}
		cluster.Kill(4)
		require.NoError(t, cluster.Restart(true, 4)) // a restored counter of its own counts for nothing
		p.Voting(t, 4)
		p.Voting(t, 5)
		v, err := cluster.Servers[4].Do(t.Context(), "HGET", "redquorum:tokens", unused)
		require.NoError(t, err)
		require.Equal(t, "9000000000000003", v)
	})
}
