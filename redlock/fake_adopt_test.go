//go:build !race

package redlock_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// A downgrade comes late, at a member where the next writer wishes for the vote.
func TestLateDowngradeMakesNoReaderOfAWriter(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		d, w, r := redlock.JoinAll(t, cluster), redlock.JoinAll(t, cluster), redlock.JoinAll(t, cluster)
		ren := redlock.AutoRenew(3 * time.Second)
		warm, err := d.RWMutex("warm", ren).Lock(t.Context()) // the members know the scripts
		require.NoError(t, err)
		require.NoError(t, rt.Must(warm.Downgrade(t.Context()))(t).Unlock(t.Context()))
		time.Sleep(10 * time.Millisecond)
		first := rt.Must(d.RWMutex("k", ren).Lock(t.Context()))(t)
		time.Sleep(10 * time.Millisecond)
		d.EveryLink(func(l *redistest.Link) { l.PauseRequests() }, 2)
		require.NoError(t, rt.Must(first.Downgrade(t.Context()))(t).Unlock(t.Context())) // a majority has it; the third has neither downgrade nor release yet

		writer := rt.Must(w.RWMutex("k", ren).Lock(t.Context()))(t)
		require.NoError(t, writer.Extend(t.Context(), 3*time.Second)) // a re-join, so it wishes for the third vote
		time.Sleep(50 * time.Millisecond)
		d.EveryLink(func(l *redistest.Link) { l.Resume() }, 2)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()

		w.Away(1) // the writer loses the connection to another member: it has two of three votes
		for began := time.Now(); time.Since(began) < 10*time.Second; time.Sleep(20 * time.Millisecond) {
			reader, err := r.RWMutex("k", redlock.TTL(time.Second)).TryRLock(t.Context())
			if err != nil {
				continue
			}
			require.Error(t, writer.Err(), "a writer and a reader hold the lock")
			require.NoError(t, reader.Err())
			return
		}
	})
}

// A member that an adoption has not reached gives the vote to the adopter also after a Downgrade, or frees it with its release.
func TestDowngradeOfAnAdoptedLeaseKnowsWhatItIsToMove(t *testing.T) {
	for _, downgrade := range []bool{false, true} {
		t.Run(fmt.Sprint("downgrade ", downgrade), inPair(3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
			first := rt.Must(p.RWMutex("k", redlock.AutoRenew(30*time.Second)).Lock(t.Context()))(t)
			time.Sleep(10 * time.Millisecond)
			h := handoff(t, first)
			q.EveryLink(func(l *redistest.Link) { l.Refuse(true); l.Cut() }, 2)
			time.Sleep(10 * time.Millisecond)
			l := adopt(t, q, h)
			if downgrade {
				l = rt.Must(l.Downgrade(t.Context()))(t)
			}
			q.EveryLink(func(l *redistest.Link) { l.Refuse(false) }, 2)
			time.Sleep(12 * time.Second) // a renewal
			votes := l.Votes()
			require.NoError(t, l.Unlock(t.Context()))
			require.Equal(t, 3, votes)
			synctest.Wait()
			redlock.NothingLeft(t, cluster)
		}))
	}
}

func TestFailedAdoptionFreesNoVoteOfTheLease(t *testing.T) {
	redlock.Among(t, 3, 3, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		p, q, r := all[0], all[1], all[2]
		first := p.Hold(t, "k", redlock.AutoRenew(30*time.Second))
		synctest.Wait() // all have given their votes
		h := handoff(t, first)
		redlock.Admin(t, cluster.Servers[1], "DEL", "k") // it has two of three votes
		q.Away(1, 2)
		r.EveryLink(func(l *redistest.Link) { l.PauseRequests() }, 2) // the adoption is lost there
		time.Sleep(10 * time.Millisecond)
		require.ErrorIs(t, rt.Err(q.Adopt(t.Context(), h)), redlock.ErrNoQuorum) // "Call Adopt again"
		synctest.Wait()                                                          // for the first member: the others had decided
		require.Error(t, rt.Err(r.Adopt(t.Context(), h)))
		r.EveryLink(func(l *redistest.Link) { l.Cut(); l.Resume(); l.Heal() }, 2)
		time.Sleep(2 * time.Second)
		q.EveryLink(func(l *redistest.Link) { l.Heal() }, 1, 2)
		time.Sleep(3 * time.Second)
		require.NoError(t, rt.Must(q.Adopt(t.Context(), h))(t).Unlock(t.Context()))
	})
}
