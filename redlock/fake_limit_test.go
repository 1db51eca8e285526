package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

func endOf(w *redlock.Locking) error {
	<-w.Done
	return w.Err
}

func limitOf(t testing.TB, s *redlock.Semaphore) int {
	t.Helper()
	return rt.Must(s.Limit(t.Context()))(t)
}

func TestStoredLimitTakesThePlaceOfEveryCallers(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		mine, theirs := p.Semaphore("k", 2), q.Semaphore("k", 3)
		require.Equal(t, 2, limitOf(t, mine))
		require.NoError(t, mine.SetLimit(t.Context(), 4))
		require.Equal(t, 4, limitOf(t, mine))
		require.Equal(t, 4, limitOf(t, theirs))
		var held []*redlock.Lease
		for range 4 {
			held = append(held, permit(t, q, "k", 3))
		}
		require.ErrorIs(t, rt.Err(mine.TryAcquire(t.Context())), redlock.ErrHeld)
		waits := later(t.Context(), mine.Acquire)
		time.Sleep(time.Second)
		require.NoError(t, theirs.SetLimit(t.Context(), 5))
		time.Sleep(20 * time.Millisecond)
		held = append(held, waits.Get(t)) // the line is served at once
		q.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
		require.NoError(t, theirs.SetLimit(rt.Within(t, time.Second), 1))
		waits = later(t.Context(), theirs.Acquire)
		for _, l := range held[1:] {
			unlock(t, l)
			time.Sleep(1100 * time.Millisecond)
			require.True(t, waits.Pending(), "as many end first as are above it")
		}
		require.NoError(t, held[0].Err(), "what is held stays")
		unlock(t, held[0])
		time.Sleep(1100 * time.Millisecond)
		l := waits.Get(t)
		require.Zero(t, l.Slot())
		unlock(t, l)
		require.NoError(t, mine.ClearLimit(t.Context()))
		require.Equal(t, 2, limitOf(t, mine))
		require.Equal(t, 3, limitOf(t, theirs))
		held = []*redlock.Lease{permit(t, p, "k", 2), permit(t, p, "k", 2)}
		require.ErrorIs(t, rt.Err(mine.TryAcquire(t.Context())), redlock.ErrHeld)
		unlock(t, held...)
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestLimitOfNothingDrains(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		sem := p.Semaphore("k", 2)
		l := permit(t, p, "k", 2)
		require.NoError(t, sem.SetLimit(t.Context(), 0))
		waits := later(t.Context(), q.Semaphore("k", 2).Acquire)
		time.Sleep(time.Second)
		unlock(t, l)
		rules := q.Count(script.SemWait)
		time.Sleep(20 * time.Second)
		require.True(t, waits.Pending())
		for _, n := range redlock.Hits(rules) {
			require.InDelta(t, 20, n, 2, "a heartbeat a second, and no more")
		}
		seen := rt.Must(p.InspectSemaphore(t.Context(), "k"))(t)
		require.Empty(t, seen.Holders)
		require.Zero(t, seen.Limit)
		require.NoError(t, sem.SetLimit(t.Context(), 1))
		time.Sleep(20 * time.Millisecond)
		unlock(t, waits.Get(t))
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestLimitThatCannotBeStoredIsAnError(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		for _, n := range []int{-1, 4097, 1 << 20} {
			rt.Says(t, p.Semaphore("k", 2).SetLimit(t.Context(), n), redlock.ErrInput, fmt.Sprintf("the limit is %d", n))
		}
		require.ErrorIs(t, p.Semaphore("", 2).SetLimit(t.Context(), 2), redlock.ErrInput)
		require.ErrorIs(t, rt.Err(p.Semaphore("k", 0).Limit(t.Context())), redlock.ErrInput)
		for _, s := range cluster.Servers {
			require.Nil(t, redlock.Admin(t, s, "HGET", "redquorum:tokens", "limit:redquorum:s1:{k}"), "nothing is stored")
		}
		p.Away(0, 1)
		time.Sleep(time.Second)
		require.ErrorIs(t, p.Semaphore("k", 2).SetLimit(t.Context(), 2), redlock.ErrNoQuorum)
		require.ErrorIs(t, rt.Err(p.Semaphore("k", 2).Limit(t.Context())), redlock.ErrNoQuorum)
		require.NoError(t, p.Close())
		require.ErrorIs(t, p.Semaphore("k", 2).SetLimit(t.Context(), 2), redlock.ErrClosed)
	}, redlock.Quiet)
}

// A limit may be stored while somebody waits for more permits than it allows. That caller is told,
// and does not keep those behind it waiting.
func TestWaiterForMoreThanAStoredLimitLeavesTheLine(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		few, many := q.Semaphore("k", 4), p.Semaphore("k", 4, redlock.Permits(3))
		held := permit(t, q, "k", 4, redlock.Permits(2))
		waits := later(t.Context(), many.Acquire)
		time.Sleep(time.Second)
		behind := later(t.Context(), few.Acquire)
		time.Sleep(time.Second)
		require.NoError(t, few.SetLimit(t.Context(), 2))
		start := time.Now()
		err := endOf(waits)
		require.LessOrEqual(t, time.Since(start), 1100*time.Millisecond, "a heartbeat tells it")
		require.ErrorIs(t, err, redlock.ErrLimit)
		require.ErrorContains(t, err, `acquire permit "k": more permits than the stored limit allows: Permits is 3, and the limit in force is 2`)
		time.Sleep(10 * time.Millisecond)
		require.True(t, behind.Pending(), "two of two are held")
		unlock(t, held)
		time.Sleep(10 * time.Millisecond)
		require.False(t, behind.Pending(), "nobody stands before it")
		unlock(t, behind.Get(t))

		asked := p.Count(script.SemAcquire)
		require.ErrorIs(t, rt.Err(many.Acquire(t.Context())), redlock.ErrLimit)
		require.ErrorIs(t, rt.Err(many.TryAcquire(t.Context())), redlock.ErrLimit)
		require.Zero(t, redlock.Hits(asked)[0], "it knows that, and asks no member for a slot")
		_, err = q.Semaphore("k", 4, redlock.Permits(4)).TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrLimit, "the client that stored it knows, too")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, rt.Err(many.Acquire(ctx)), context.Canceled)

		require.NoError(t, few.SetLimit(t.Context(), 3)) // of which p has not heard
		l := rt.Must(many.TryAcquire(t.Context()))(t)
		unlock(t, l)
		require.NoError(t, few.ClearLimit(t.Context()))
		l = rt.Must(p.Semaphore("k", 4, redlock.Permits(4)).Acquire(t.Context()))(t)
		unlock(t, l)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// A client that has heard of no limit yet is told by the answers to its first question.
func TestFirstQuestionForMoreThanAStoredLimitIsToldSo(t *testing.T) {
	for _, try := range []bool{true, false} {
		withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
			require.NoError(t, q.Semaphore("k", 4).SetLimit(t.Context(), 2))
			many := p.Semaphore("k", 4, redlock.Permits(3))
			call := map[bool]func(context.Context) (*redlock.Lease, error){true: many.TryAcquire, false: many.Acquire}[try]
			start := time.Now()
			require.ErrorIs(t, rt.Err(call(t.Context())), redlock.ErrLimit)
			require.LessOrEqual(t, time.Since(start), 10*time.Millisecond)
			noKeysAtRest(t, d)
		}, redlock.Quiet)
	}
}

// While the limit is 0, nobody gets a slot, and nobody stands in anybody's way.
func TestWaiterForSeveralStaysWhileTheLimitIsNothing(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		sem := q.Semaphore("k", 4)
		require.NoError(t, sem.SetLimit(t.Context(), 0))
		first := later(t.Context(), p.Semaphore("k", 4, redlock.Permits(3)).Acquire)
		second := later(t.Context(), p.Semaphore("k", 4, redlock.Permits(2)).Acquire)
		time.Sleep(10 * time.Second)
		require.True(t, first.Pending())
		require.True(t, second.Pending())
		require.NoError(t, sem.SetLimit(t.Context(), 2))
		require.ErrorIs(t, endOf(first), redlock.ErrLimit)
		l := second.Get(t)
		require.Len(t, l.Slots(), 2)
		unlock(t, l)
		noKeys(t, d)
	}, redlock.Quiet)
}

// What one member says may have been replaced while it was away.
func TestLimitOfOneMemberAloneRefusesNobody(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		require.NoError(t, q.Semaphore("k", 4).SetLimit(t.Context(), 2))
		q.Away(0)
		time.Sleep(time.Second)
		require.NoError(t, q.Semaphore("k", 4).SetLimit(t.Context(), 4))
		p.Slow(time.Millisecond, 20*time.Millisecond, 20*time.Millisecond) // the first to answer knows the old one
		l := rt.Must(p.Semaphore("k", 4, redlock.Permits(3)).Acquire(t.Context()))(t)
		unlock(t, l)
		require.NoError(t, q.Semaphore("k", 4).SetLimit(t.Context(), 2))
		require.ErrorIs(t, rt.Err(p.Semaphore("k", 4, redlock.Permits(3)).TryAcquire(t.Context())), redlock.ErrLimit)
	}, redlock.Quiet)
}

// While no majority can confirm a limit, the caller waits as for any permit.
func TestLimitThatNoMajorityConfirmsIsNoReasonToStopWaiting(t *testing.T) {
	for _, patience := range []time.Duration{2 * time.Second, -1} {
		deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
			p := another(t, d, redlock.Quiet, func(c *redlock.Config) { c.NoQuorumAfter = patience })
			require.NoError(t, another(t, d, redlock.Quiet).Semaphore("k", 4).SetLimit(t.Context(), 2))
			p.Away(1, 2)
			time.Sleep(time.Second)
			ctx := rt.Within(t, time.Minute)
			start := time.Now()
			waits := later(ctx, p.Semaphore("k", 4, redlock.Permits(3)).Acquire)
			if patience > 0 {
				require.ErrorIs(t, endOf(waits), redlock.ErrNoQuorum)
				require.InDelta(t, 2*time.Second, time.Since(start), float64(1500*time.Millisecond))
				return
			}
			time.Sleep(10 * time.Second)
			require.True(t, waits.Pending())
			p.Back()
			require.ErrorIs(t, endOf(waits), redlock.ErrLimit)
			require.Less(t, time.Since(start), 15*time.Second)
		})
	}
}

// Members that answer everything but the question for the limit are not asked it without a pause.
func TestLimitThatMembersDoNotTellIsAskedForAtHeartbeats(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		require.NoError(t, q.Semaphore("k", 4).SetLimit(t.Context(), 2))
		p.Slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		p.EveryLink(func(l *redistest.Link) { l.Fail(redistest.WithArg(script.SemLimit.SHA), -1, "OOM none is left") }, 1, 2)
		asked := p.Count(script.SemLimit)
		ctx := rt.Within(t, 10*time.Second)
		_, err := p.Semaphore("k", 4, redlock.Permits(3)).Acquire(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NotErrorIs(t, err, redlock.ErrLimit)
		require.InDelta(t, 10, redlock.Hits(asked)[0], 2)
	}, redlock.Quiet)
}

// A member that was away when the limit was set hears of it from the callers.
func TestMemberThatWasAwayHearsOfAStoredLimit(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		cluster.Servers[2].Kill()
		time.Sleep(time.Second)
		require.NoError(t, p.Semaphore("k", 4).SetLimit(t.Context(), 1))
		require.NoError(t, cluster.Servers[2].Restart(true))
		time.Sleep(2 * time.Second)
		l := permit(t, q, "k", 4) // it is told by the others
		unlock(t, l)
		unlock(t, permit(t, q, "k", 4)) // and tells this one
		time.Sleep(10 * time.Millisecond)
		stored := redlock.Admin(t, cluster.Servers[0], "HGET", "redquorum:tokens", "limit:redquorum:s1:{k}")
		require.NotNil(t, stored)
		require.Equal(t, stored, redlock.Admin(t, cluster.Servers[2], "HGET", "redquorum:tokens", "limit:redquorum:s1:{k}"))
		cluster.Servers[0].Kill()
		time.Sleep(time.Second)
		x := permit(t, p, "k", 4)
		require.ErrorIs(t, rt.Err(q.Semaphore("k", 4).TryAcquire(t.Context())), redlock.ErrHeld, "the limit is 1 at both that are left")
		unlock(t, x)
	}, redlock.Quiet)
}

func forgotten(t *testing.T, cluster *redistest.Cluster, clients ...*redlock.Peer) {
	t.Helper()
	restart(t, cluster, false, 0, 1, 2)
	for _, p := range clients {
		for i := range p.Links {
			p.Until(t, i, redlock.MemberQuarantined)
		}
	}
	for _, p := range clients {
		p.Voting(t, len(p.Links))
	}
}

// Members that have all forgotten begin without a limit, while a client still tells the one that it knows. Of that one there were
// many before.
func TestLimitSetAfterEverythingWasForgottenIsNotUndoneByOneOfBefore(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, old *redlock.Peer) {
		sets := voting(t, cluster, 3, short)
		for n := range 5 {
			require.NoError(t, sets.Semaphore("k", 4).SetLimit(t.Context(), 7-n))
		}
		unlock(t, permit(t, old, "k", 4)) // it is told the limit of 3
		require.NoError(t, sets.Close())
		forgotten(t, cluster, old)
		after := voting(t, cluster, 3, short)
		require.NoError(t, after.Semaphore("k", 4).SetLimit(t.Context(), 1))
		one := permit(t, old, "k", 4)
		require.Zero(t, one.Slot())
		require.ErrorIs(t, rt.Err(old.Semaphore("k", 4).TryAcquire(t.Context())), redlock.ErrHeld, "a slot from the limit on")
		require.Equal(t, 1, limitOf(t, after.Semaphore("k", 4)))
		unlock(t, one)
	})
}

// A client is one of those that remember: what it sets is above that, too, whatever the members' clocks say by then.
func TestLimitIsNotUndoneByWhatItsSetterRemembers(t *testing.T) {
	voters(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		require.NoError(t, p.Semaphore("k", 4).SetLimit(t.Context(), 3))
		for i := range cluster.Servers {
			cluster.Embedded(i).Step(-2 * time.Hour)
		}
		forgotten(t, cluster, p)
		require.NoError(t, p.Semaphore("k", 4).SetLimit(t.Context(), 1))
		one := permit(t, p, "k", 4)
		require.ErrorIs(t, rt.Err(p.Semaphore("k", 4).TryAcquire(t.Context())), redlock.ErrHeld, "a slot from the limit on")
		require.Equal(t, 1, limitOf(t, p.Semaphore("k", 4)))
		unlock(t, one)
	})
}

// Two that set a limit at the same time: both return, and one of the two limits is in force.
func TestSettersAtTheSameTimeAgree(t *testing.T) {
	three(t, func(t *testing.T, cluster *redistest.Cluster, a, b, c *redlock.Peer) {
		for i, p := range []*redlock.Peer{a, b, c} {
			p.Jitter(uint64(i), 2*time.Millisecond, 2*time.Millisecond, time.Millisecond)
		}
		for range 10 {
			var wg sync.WaitGroup
			for i, p := range []*redlock.Peer{a, b, c} {
				wg.Go(func() { require.NoError(t, p.Semaphore("k", 1).SetLimit(t.Context(), 10+i)) })
			}
			wg.Wait()
			time.Sleep(20 * time.Millisecond)
			n := limitOf(t, a.Semaphore("k", 1))
			require.True(t, n >= 10 && n <= 12)
			require.Equal(t, n, limitOf(t, c.Semaphore("k", 1)))
			var stored []any
			for _, s := range cluster.Servers {
				stored = append(stored, redlock.Admin(t, s, "HGET", "redquorum:tokens", "limit:redquorum:s1:{k}"))
			}
			require.Equal(t, stored[0], stored[1])
			require.Equal(t, stored[1], stored[2])
		}
	})
}

func TestInspectionShowsWhoHasWhichSlots(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		seen := rt.Must(p.InspectSemaphore(t.Context(), "k"))(t)
		require.Empty(t, seen.Holders)
		require.Equal(t, -1, seen.Limit)
		x, y := permit(t, p, "k", 4, redlock.Permits(2)), permit(t, q, "k", 4)
		waits := later(t.Context(), q.Semaphore("k", 4, redlock.Permits(3)).Acquire)
		time.Sleep(500 * time.Millisecond)
		require.NoError(t, p.Semaphore("k", 4).SetLimit(t.Context(), 4))
		d.Cut(1)
		synctest.Wait()
		seen = rt.Must(p.InspectSemaphore(t.Context(), "k"))(t)
		require.Equal(t, "k", seen.Key)
		require.Equal(t, 4, seen.Limit)
		held := map[string][]redlock.Slot{}
		for _, h := range seen.Holders {
			require.Equal(t, 2, h.Votes)
			held[h.Owner] = h.Slots
		}
		require.Equal(t, map[string][]redlock.Slot{x.Owner(): x.Slots(), y.Owner(): y.Slots()}, held)
		require.Error(t, seen.Members[1].Err)
		for _, i := range []int{0, 2} {
			m := seen.Members[i]
			require.Len(t, m.Votes, 2)
			require.Len(t, m.Queue, 1)
			require.True(t, m.Queue[0].Live)
			require.Equal(t, 3, m.Queue[0].Permits)
			require.InDelta(t, 500*time.Millisecond, m.Queue[0].Waiting, float64(20*time.Millisecond))
			require.InDelta(t, 30*time.Second, m.Votes[0].TTL, float64(time.Second))
		}
		require.ErrorIs(t, rt.Err(p.InspectSemaphore(t.Context(), "")), redlock.ErrInput)

		seen.Holders = slices.DeleteFunc(seen.Holders, func(h redlock.Holder) bool { return h.Owner != x.Owner() })
		require.Equal(t, 2, rt.Must(q.ForceUnlockSeen(t.Context(), seen))(t))
		time.Sleep(20 * time.Millisecond)
		l := waits.Get(t)
		require.Len(t, l.Slots(), 3)
		time.Sleep(11 * time.Second)
		require.Equal(t, redlock.LostRefused, redlock.LostFor(x), "no renewal brings it back")
		seen.Holders = []redlock.Holder{{VoteView: redlock.VoteView{Owner: "abc"}}}
		require.ErrorIs(t, rt.Err(q.ForceUnlockSeen(t.Context(), seen)), redlock.ErrInput)
		unlock(t, l, y)
	}, redlock.Quiet)
}

// What a member said before it forgot is no promise: it does not know the limit any more.
func TestLimitOfAMemberThatForgotMeanwhileDoesNotCount(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := redlock.Guarded(t, cluster, redlock.WithFreshMembers(), func(c *redlock.Config) { c.MemberTimeout = 5 * time.Second })
		p.Voting(t, 3)
		p.Slow(time.Millisecond, 400*time.Millisecond, time.Millisecond)
		p.Links[2].Call(redistest.WithArg(script.SemLimit.SHA), -1, func([]string) { cluster.Servers[2].Kill() })
		done := make(chan error, 1)
		go func() { done <- p.Semaphore("k", 4).SetLimit(t.Context(), 2) }()
		time.Sleep(500 * time.Millisecond) // the second question is with the slow member, and the first has stored it
		cluster.Servers[0].Kill()
		require.NoError(t, cluster.Servers[0].Restart(false))
		err := <-done
		require.Error(t, err)
		require.True(t, errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrQuarantined), "%v", err)
	})
}

// Slots that are free are found wherever they are: a waiter that prefers one far away is given them,
// and holds up nobody behind it. Here only the last two are free, and a waiter prefers one of the first half.
func TestLineIsServedWhereverTheFreeSlotsAre(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		const low, held, high, far = 2048, 4094, 4096, "99999999999999"
		args := []string{"HSET", "redquorum:s1:{k}", ".", far, "-", far}
		for slot := range held {
			owner := fmt.Sprintf("dead:%d", slot)
			args = append(args, fmt.Sprint(slot), owner, owner, fmt.Sprintf("%s %d:5", far, slot))
		}
		for _, s := range cluster.Servers {
			redlock.Admin(t, s, args...)
			redlock.Admin(t, s, "PEXPIRE", "redquorum:s1:{k}", "100000000")
		}
		ctx := rt.Within(t, time.Minute)
		first := later(ctx, p.Semaphore("k", low).Acquire)
		time.Sleep(time.Second)
		second := later(ctx, q.Semaphore("k", low).Acquire)
		time.Sleep(time.Second)
		require.True(t, first.Pending())
		require.NoError(t, q.Semaphore("k", low).SetLimit(t.Context(), high))
		time.Sleep(20 * time.Millisecond)
		require.False(t, first.Pending(), "two slots are free")
		a, b := first.Get(t), second.Get(t)
		require.ElementsMatch(t, []int{held, held + 1}, []int{a.Slot(), b.Slot()})
		unlock(t, a, b)
	}, redlock.Quiet)
}

// A waiter hears of a limit that is too low, and of a greater one before it has left the line: it goes on waiting.
func TestWaiterStaysInLineIfTheLimitIsRaisedAtOnce(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		held := permit(t, a, "k", 4)
		waits := later(t.Context(), b.Semaphore("k", 4, redlock.Permits(4)).Acquire)
		time.Sleep(10 * time.Millisecond)
		redlock.HearLimits(b.Client, "k", 2, 4)
		synctest.Wait()
		unlock(t, held)
		unlock(t, waits.Get(t))
	})
}
