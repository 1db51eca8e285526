package redlock

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

func TestInspectTellsHolderTokensAndQueue(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		a, b := join(t, cluster), join(t, cluster)
		seen, err := a.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Empty(t, seen.Holders)
		held, err := a.Mutex("k", TTL(10*time.Second)).Lock(t.Context())
		require.NoError(t, err)
		synctest.Wait() // all five have voted
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			_, err := b.Mutex("k").Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
			close(done)
		}()
		time.Sleep(500 * time.Millisecond)
		cluster.Kill(4)
		time.Sleep(time.Millisecond)
		seen, err = b.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, KindMutex, seen.Kind)
		require.Equal(t, []Holder{{Owner: held.Hash(), Token: held.Token(), Votes: 4, owner: script.Hash([]byte(held.hold.owner))}}, seen.Holders)
		require.Error(t, seen.Members[4].Err)
		require.Equal(t, MemberDown, seen.Members[4].State)
		for _, v := range seen.Members[:4] {
			require.NoError(t, v.Err)
			require.Len(t, v.Votes, 1)
			require.InDelta(t, 9.5, v.Votes[0].TTL.Seconds(), 0.1)
			require.Equal(t, held.Token(), v.Counter)
			require.Len(t, v.Queue, 1)
			require.True(t, v.Queue[0].Live)
			require.InDelta(t, 0.5, v.Queue[0].Waiting.Seconds(), 0.1)
			require.NotContains(t, v.Votes[0].Owner+v.Queue[0].Owner, ":")
			require.Equal(t, held.Hash(), v.Votes[0].Owner)
			require.False(t, strings.HasPrefix(held.hold.owner, held.Hash()))
		}
		cancel()
		<-done
		require.NoError(t, held.Unlock(t.Context()))
	})
}

// A kind with several holders names each whose votes are a majority, and no other.
func TestHoldersAreThoseThatAMajorityNames(t *testing.T) {
	vote := func(owner string, token uint64) VoteView { return VoteView{Owner: owner, Token: token, owner: owner} }
	seen := []MemberView{
		{Votes: []VoteView{vote("a", 3), vote("b", 5)}},
		{Votes: []VoteView{vote("b", 4), vote("c", 6)}},
		{Votes: []VoteView{vote("a", 7)}},
	}
	require.Equal(t, []Holder{{"a", 7, 2, "a"}, {"b", 5, 2, "b"}}, holders(seen, 2))
	require.Len(t, holders(seen, 1), 3)
	require.Empty(t, holders(seen, 3))
}

func TestForceUnlockServesTheNextWaiterAndEndsTheHolderAtItsNextRenewal(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		a, b, c := join(t, cluster), join(t, cluster), join(t, cluster)
		held, err := a.Mutex("k", AutoRenew(9*time.Second)).Lock(t.Context())
		require.NoError(t, err)
		got := make(chan *Lease, 1)
		go func() {
			l, err := b.Mutex("k").Lock(t.Context())
			require.NoError(t, err)
			got <- l
		}()
		time.Sleep(time.Second)
		at := time.Now()
		forced, err := c.ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, forced)
		next := <-got
		require.Less(t, time.Since(at), 100*time.Millisecond)
		require.Greater(t, next.Token(), held.Token())
		<-held.Done()
		require.LessOrEqual(t, time.Since(at), 3*time.Second, "a third of its TTL")
		require.ErrorIs(t, held.Err(), ErrLost)
		require.NoError(t, next.Err(), "the loser's release does not touch it")
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// Forced open with nobody waiting, the holder must not take it back when it renews.
func TestForceUnlockIsNotUndoneByARejoin(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		a, b := join(t, cluster), join(t, cluster)
		a.slow(0, time.Millisecond, 2*time.Millisecond, 3*time.Millisecond, 4*time.Millisecond) // refusals come one by one
		held, err := a.Mutex("k", AutoRenew(3*time.Second)).Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		forced, err := b.ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, forced)
		<-held.Done()
		time.Sleep(30 * time.Second) // the longest lease that there may have been
		synctest.Wait()
		leftovers(t, cluster)
		forced, err = b.ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.False(t, forced, "nobody held it")
	})
}

func TestForceUnlockLeavesForeignKeysAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		for _, s := range cluster.Servers {
			_, err := s.Do(t.Context(), "SET", "k", "precious")
			require.NoError(t, err)
		}
		_, err := p.ForceUnlock(t.Context(), "k")
		require.ErrorIs(t, err, ErrForeignKey)
		v, err := cluster.Servers[0].Do(t.Context(), "GET", "k")
		require.NoError(t, err)
		require.Equal(t, "precious", v)
		seen, err := p.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Error(t, seen.Members[0].Err)

		// A hash that never ends is shown as what it is, and not as somebody's lock.
		for _, s := range cluster.Servers {
			admin(t, s, "HSET", "h", "field", "precious")
		}
		seen, err = p.Inspect(t.Context(), "h")
		require.NoError(t, err)
		require.Empty(t, seen.Holders)
		for _, v := range seen.Members {
			require.Equal(t, member.KindForeign, ballot.KindOf(v.Err))
			require.Empty(t, v.Votes)
		}
		_, err = p.ForceUnlockSeen(t.Context(), &Inspection{Key: "h", Holders: []Holder{{owner: script.Hash([]byte("field"))}}})
		require.ErrorIs(t, err, ErrForeignKey)
		require.Equal(t, "precious", admin(t, cluster.Servers[0], "HGET", "h", "field"))
	})
}

// A person looks, thinks, and says yes. Whoever got the lock meanwhile keeps it.
func TestForceUnlockOfTheHolderThatWasSeenLeavesTheNextOneAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		a, b, c := join(t, cluster), join(t, cluster), join(t, cluster)
		first := a.hold(t, "k")
		seen, err := c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprintf("%+v %#v", seen, seen), first.hold.owner)
		freed, err := c.ForceUnlockSeen(t.Context(), seen)
		require.NoError(t, err)
		require.Equal(t, 3, freed)

		second := b.hold(t, "k")
		freed, err = c.ForceUnlockSeen(t.Context(), seen)
		require.NoError(t, err)
		require.Zero(t, freed, "seen was another")
		require.Equal(t, 3, votesAt(cluster, second))

		// A request that is on its way for long, and executed at the end of it, is as harmless.
		seen, err = c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		c.slow(time.Second, time.Second, time.Second)
		go func() {
			time.Sleep(100 * time.Millisecond)
			_ = second.Unlock(t.Context())
		}()
		freed, err = c.ForceUnlockSeen(t.Context(), seen)
		require.ErrorIs(t, err, ErrNoQuorum, "nobody answers in time")
		require.Zero(t, freed)
		third := a.hold(t, "k")
		time.Sleep(2 * time.Second)
		require.NoError(t, third.Err())
		require.Equal(t, 3, votesAt(cluster, third))
		require.NoError(t, third.Unlock(t.Context()))
		_, err = c.ForceUnlockSeen(t.Context(), nil)
		require.ErrorIs(t, err, ErrInput)
	})
}

// Where too few members could be asked to name a holder, those who were shown to have votes lose them.
func TestForceUnlockOfVotesThatWereSeen(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		a, c := join(t, cluster), join(t, cluster)
		held := a.hold(t, "k", TTL(20*time.Second))
		admin(t, cluster.Servers[0], "DEL", "k")
		c.links[1].Refuse(true)
		c.links[1].Cut()
		time.Sleep(time.Millisecond)
		seen, err := c.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Empty(t, seen.Holders)
		freed, err := c.ForceUnlockSeen(t.Context(), seen)
		require.NoError(t, err)
		require.Equal(t, 1, freed)
		require.Equal(t, 1, votesAt(cluster, held))
		empty, err := c.Inspect(t.Context(), "nobody's")
		require.NoError(t, err)
		freed, err = c.ForceUnlockSeen(t.Context(), empty)
		require.NoError(t, err)
		require.Zero(t, freed)
	})
}

// A member that answers the holder's renewal early is not given the lease back before a later one refuses.
func TestForceIsFinalWhateverTheHoldersRenewalsDo(t *testing.T) {
	for _, seen := range []bool{false, true} {
		bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			h, p := join(t, cluster), join(t, cluster)
			l := h.hold(t, "k", AutoRenew(9*time.Second))
			h.slow(time.Millisecond, 20*time.Millisecond, time.Millisecond)
			look, err := p.Inspect(t.Context(), "k")
			require.NoError(t, err)
			p.everyLink(func(l *redistest.Link) { l.Refuse(true); l.Cut() }, 2)
			synctest.Wait()
			if seen {
				freed, err := p.ForceUnlockSeen(t.Context(), look)
				require.NoError(t, err)
				require.Equal(t, 2, freed)
			} else {
				held, err := p.ForceUnlock(t.Context(), "k")
				require.NoError(t, err)
				require.True(t, held)
			}
			forced := time.Now()
			<-l.Done()
			require.LessOrEqual(t, time.Since(forced), 3*time.Second+50*time.Millisecond, "at its next renewal")
			require.ErrorIs(t, l.Err(), ErrLost)
			next := p.hold(t, "k", AutoRenew(3*time.Second))
			time.Sleep(time.Minute)
			require.NoError(t, next.Err())
		})
	}
}
