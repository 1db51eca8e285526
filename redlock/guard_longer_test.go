package redlock_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// longer is short with a greater MaxTTL: that of the clients which are rolled out.
func longer(c *redlock.Config) {
	short(c)
	c.MaxTTL = 30 * time.Second
}

// older is a deployment of three members that clients with short leases have used for a while.
func older(t *testing.T, cluster *redistest.Cluster) *redlock.Peer {
	a := voting(t, cluster, 3, short, redlock.WithFreshMembers())
	time.Sleep(10 * time.Second)
	return a
}

func without(members ...int) func(p *redlock.Peer) {
	return func(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.Refuse(true) }, members...) }
}

// excluded waits until rival has the lock, and fails if held is still trusted then.
func excluded(t *testing.T, rival *redlock.Peer, held *redlock.Lease) {
	t.Helper()
	require.NoError(t, held.Err())
	l := rival.Lock(t, "k")
	require.Error(t, held.Err(), "two holders: tokens %d and %d, the first is trusted for %v more", held.Token(), l.Token(), time.Until(held.ValidUntil()))
	require.Greater(t, l.Token(), held.Token())
	require.NoError(t, l.Unlock(t.Context()))
}

// A client with long leases reaches a majority, so that the third member does not know of them. One member of that
// majority forgets, and a client that starts then has only seen the one that does not know when it marks it.
func TestQuarantineLastsForTheLongestLeaseThatAMajorityKnowsOf(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		a := older(t, cluster)
		b := redlock.GuardedVia(t, cluster, without(0), longer)
		b.Voting(t, 2)
		held := b.Lock(t, "k", redlock.TTL(25*time.Second))
		synctest.Wait()
		require.NoError(t, a.Close())
		b.EveryLink(func(l *redistest.Link) { l.Refuse(true) }, 2) // b would tell it
		restart(t, cluster, false, 2)
		late := redistest.Delay{Fixed: 50 * time.Millisecond}
		d := redlock.GuardedVia(t, cluster, func(p *redlock.Peer) { p.Links[1].SetDelay(late, late) }, short)
		time.Sleep(40 * time.Millisecond)
		require.Equal(t, "g", markerOf(t, cluster, 2, "state"))
		require.Equal(t, "1000", markerOf(t, cluster, 2, "q"), "d has met member 0 alone")
		excluded(t, d, held)
		require.Equal(t, "30000", markerOf(t, cluster, 2, "q"))
	})
}

// A client that was stopped wakes up beside a member that has forgotten, and marks it before it looks at the others.
func TestClientThatWasStoppedMarksForNoLessThanTheLongestLease(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		d := older(t, cluster)
		d.EveryLink(func(l *redistest.Link) { l.Pause() })
		b := voting(t, cluster, 3, longer)
		held := b.Lock(t, "k", redlock.TTL(25*time.Second))
		require.Eventually(t, func() bool { return held.Votes() == 3 }, time.Second, time.Millisecond)
		b.EveryLink(func(l *redistest.Link) { l.Refuse(true) }, 2)
		restart(t, cluster, false, 2)
		steal(t, cluster, "k", time.Millisecond, 1) // and member 1 has lost the vote, too
		d.Links[2].Heal()
		d.Until(t, 2, redlock.MemberQuarantined)
		require.Equal(t, "1000", markerOf(t, cluster, 2, "q"), "d has heard of nothing else")
		d.EveryLink(func(l *redistest.Link) { l.Heal() }, 0, 1)
		excluded(t, d, held)
	})
}

// In a first deployment, too; and who counts the quarantine looks once more before it believes that it is over.
func TestFirstStartWaitsForTheLongestLeaseThatAClientCameToTellOf(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		began := time.Now()
		a := redlock.Guarded(t, cluster, short, func(c *redlock.Config) { c.PingInterval = time.Hour })
		a.Until(t, 2, redlock.MemberQuarantined)
		require.Equal(t, "n", markerOf(t, cluster, 2, "state"))
		time.Sleep(500 * time.Millisecond)
		b := redlock.Guarded(t, cluster, longer)
		b.Until(t, 0, redlock.MemberQuarantined)
		a.Voting(t, 3)
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second-time.Millisecond)
		require.Less(t, time.Since(began), 33*time.Second)
		b.Voting(t, 3)
	})
}

// A vote that one member alone gave would count in a lease that the others learn of too late.
func TestNoVoteIsUsedBeforeAMajorityKnowsOfTheLongestLease(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		older(t, cluster)
		b := redlock.GuardedVia(t, cluster, without(1, 2), longer)
		locking := b.LockLater(t.Context(), "k", redlock.TTL(25*time.Second))
		time.Sleep(12 * time.Second)
		require.Equal(t, "30000", markerOf(t, cluster, 0, "q"))
		require.Equal(t, "1000", markerOf(t, cluster, 1, "q"))
		require.False(t, b.State(0).Votes)
		require.NotContains(t, rt.Must(cluster.Keys(t.Context()))(t)[0], "k")
		b.EveryLink(func(l *redistest.Link) { l.Refuse(false) }, 1)
		require.NoError(t, locking.Get(t).Unlock(t.Context()))
	})
}

// Who cannot have a vote is told why: not that the member is down, and nothing more.
func TestMemberThatDoesNotVoteAloneSaysWhy(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		older(t, cluster)
		b := redlock.GuardedVia(t, cluster, without(1, 2), longer)
		time.Sleep(12 * time.Second) // and all others have learnt of the longer leases
		for i, m := range b.Members() {
			require.Equal(t, redlock.MemberDown, m.State)
			require.Equal(t, i == 0, strings.Contains(fmt.Sprint(m.Err), "until this client has reached a majority"), "%v", m.Err)
			require.Error(t, m.Err)
		}
		rt.Says(t, rt.Err(b.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum, "before a majority of the members was met")
		b.EveryLink(func(l *redistest.Link) { l.Refuse(false) }, 1)
		b.Until(t, 0, redlock.MemberVoting)
		require.NoError(t, b.Members()[0].Err)
	})
}

// Two clients mark a member that forgot, and the one with the longer leases comes second.
func TestClientThatFindsAMemberMarkedMeanwhileTellsItsMaxTTL(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		require.NoError(t, older(t, cluster).Close())
		b := voting(t, cluster, 3, longer)
		marking := func(cmd []string) bool { return len(cmd) > 6 && cmd[0] == "EVAL" && cmd[len(cmd)-2] == "g" }
		b.Links[2].Call(marking, 1, func([]string) {
			info := redlock.Admin(t, cluster.Servers[2], "INFO", "server")
			_, id, _ := strings.Cut(info.(string), "run_id:")
			_, repl, _ := strings.Cut(redlock.Admin(t, cluster.Servers[2], "INFO", "replication").(string), "master_replid:")
			redlock.Admin(t, cluster.Servers[2], "HSET", "redquorum:boot", "id", strings.Fields(id)[0]+" 5", "state", "g", "q", "1000", "repl", strings.Fields(repl)[0])
			redlock.Admin(t, cluster.Servers[2], "SET", "redquorum:quarantine", "1", "PX", "1000")
		})
		restart(t, cluster, false, 2)
		began := time.Now()
		b.Until(t, 2, redlock.MemberQuarantined)
		require.Contains(t, markerOf(t, cluster, 2, "id"), " 5")
		require.Equal(t, "30000", markerOf(t, cluster, 2, "q"))
		b.Voting(t, 3)
		require.GreaterOrEqual(t, time.Since(began), 30*time.Second-time.Millisecond)
	})
}

// The last look at a source may be older than what it was told since: its table tells q, too.
func TestSourcesTellOfLongerLeasesThanTheLastLookFound(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		a := older(t, cluster)
		d := voting(t, cluster, 3, short, func(c *redlock.Config) { c.PingInterval, c.StallTimeout = time.Hour, 3*time.Hour })
		require.NoError(t, a.Close())
		b := voting(t, cluster, 3, longer)
		held := b.Lock(t, "k", redlock.TTL(25*time.Second))
		synctest.Wait()
		b.EveryLink(func(l *redistest.Link) { l.Refuse(true) }, 2)
		restart(t, cluster, false, 2)
		steal(t, cluster, "k", time.Millisecond, 1) // and member 1 has lost the vote, too
		d.Until(t, 2, redlock.MemberQuarantined)
		require.Equal(t, "1000", markerOf(t, cluster, 2, "q"))
		excluded(t, d, held)
	})
}

// Where the member's clock runs behind, its quarantine ends a little later there than by the client's count.
func TestQuarantineThatEndsLaterByTheMembersClockIsNoSignOfLongerLeases(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		log := slog.New(slog.NewTextHandler(writer(func(b []byte) (int, error) {
			assert.NotContains(t, string(b), "stays silent for longer", "told without a reason: %s", b)
			return len(b), nil
		}), nil))
		p := voting(t, cluster, 3, short, redlock.WithFreshMembers(), redlock.WithLogger(log), func(c *redlock.Config) { c.PingInterval, c.StallTimeout = 20*time.Second, time.Minute })
		time.Sleep(10 * time.Second)
		restart(t, cluster, false, 2)
		p.Until(t, 2, redlock.MemberQuarantined)
		synctest.Wait()
		began := time.Now()
		require.EqualValues(t, 1, redlock.Admin(t, cluster.Servers[2], "PEXPIRE", "redquorum:quarantine", "2000"))
		p.Voting(t, 3)
		require.GreaterOrEqual(t, time.Since(began), 2*time.Second-time.Millisecond)
	})
}

// The first call after a rest may be one that waits first, because callers of this client have waited before it. It takes no
// look along. Members that have forgotten meanwhile give it no vote, beside a holder that they do not know any more.
func TestWaitAfterARestGetsNoVoteOfAnotherMemory(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := voting(t, cluster, 3, redlock.WithFreshMembers())
		held := voting(t, cluster, 3).Lock(t, "k")
		ctx, stop := context.WithCancel(t.Context())
		first := p.LockLater(ctx, "k")
		time.Sleep(10 * time.Millisecond) // it stands in front
		second := p.LockLater(t.Context(), "k")
		time.Sleep(time.Second)
		synctest.Wait()
		sent := p.Links[0].Call(redistest.WithArg(script.Acquire.SHA), -1, func([]string) {})
		require.NoError(t, cluster.Flush(0, 1))
		stop()
		<-first.Done
		time.Sleep(50 * time.Millisecond)
		require.NoError(t, held.Err())
		require.True(t, second.Pending(), "two holders")
		require.Zero(t, sent.Hits(), "it waits first")
		_ = held.Unlock(t.Context()) // two of three may not know it any more
		require.NoError(t, second.Get(t).Unlock(t.Context()))
	})
}
