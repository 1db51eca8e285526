package redlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
	"github.com/redquorum/redquorum/slot"
)

// Countdown latches, in fake time on embedded members.

func awaitLater(ctx context.Context, l *redlock.Latch) *rt.Later[bool] {
	return rt.Begin(func() (bool, error) { return true, l.Await(ctx) })
}

func remaining(t *testing.T, l *redlock.Latch) int {
	t.Helper()
	return rt.Must(l.Remaining(t.Context()))(t)
}

// latchLeft is what members have of a latch that is over: it ends by itself.
func latchLeft(name string) []string {
	return append([]string{slot.Sibling("redquorum:l1", name)}, redlock.Lasting...)
}

func TestLatchOpensForAllWhoWaitWithTheLastArrival(t *testing.T) {
	redlock.Among(t, 3, 4, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		for _, p := range all {
			p.Slow(2*time.Millisecond, 2*time.Millisecond, 2*time.Millisecond)
		}
		var gates []*rt.Later[bool]
		for _, p := range all {
			gates = append(gates, awaitLater(t.Context(), p.Latch("job", 3)), awaitLater(t.Context(), p.Latch("job", 3)))
		}
		synctest.Wait()
		time.Sleep(10 * time.Millisecond)
		for i := range 2 {
			require.NoError(t, all[i].Latch("job", 3).CountDown(t.Context()))
			require.Equal(t, 2-i, remaining(t, all[3].Latch("job", 3)))
		}
		for _, g := range gates {
			rt.Waits(t, g)
		}
		told := all[3].Count(script.LatchArrive)
		last := time.Now()
		require.NoError(t, all[2].Latch("job", 0).CountDown(t.Context()), "another has told the count")
		for _, g := range gates {
			g.Get(t)
			require.LessOrEqual(t, g.At.Sub(last), 2*time.Millisecond, "one way there, and one way back")
		}
		time.Sleep(time.Second)
		n := redlock.Hits(told)
		require.LessOrEqual(t, n[0]+n[1]+n[2], 1, "each member tells it itself: a majority, before Await returns")
		require.Zero(t, remaining(t, all[3].Latch("job", 3)))
		require.NoError(t, all[3].Latch("job", 3).Await(t.Context()), "it stays open")
		synctest.Wait()
		require.Empty(t, rt.Must(cluster.Leftovers(t.Context(), latchLeft("job")...))(t), "nobody waits any more")
	}, redlock.Quiet)
}

func TestEachCountDownOfOneClientCounts(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, _ *redistest.Cluster, p, other *redlock.Peer) {
		for _, by := range []*redlock.Peer{p, other, p} {
			require.NoError(t, by.Latch("pieces", 2).Arrive(t.Context(), "part-1"))
		}
		require.Equal(t, 1, remaining(t, other.Latch("pieces", 2)))
		require.NoError(t, other.Latch("pieces", 2).Arrive(t.Context(), "part-2"))
		require.Zero(t, remaining(t, p.Latch("pieces", 2)))
		p.Slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		sent := p.Count(script.LatchArrive)
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() { require.NoError(t, p.Latch("job", 301).CountDown(t.Context())) })
		}
		wg.Wait()
		require.Equal(t, 1, remaining(t, p.Latch("job", 301)))
		for _, n := range redlock.Hits(sent) {
			require.LessOrEqual(t, n, 4, "those that come while a call is under way travel in the next one")
		}
		for i := range 300 {
			wg.Go(func() { require.NoError(t, p.Latch("parts", 300).Arrive(t.Context(), fmt.Sprint("part-", i))) })
		}
		wg.Wait()
		require.Zero(t, remaining(t, p.Latch("parts", 300)))
	}, redlock.Quiet)
}

func TestLaterRoundBeginsWithNothingAndEndsTheEarlierOnes(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		first, second := redlock.Round(1), redlock.Round(2)
		require.NoError(t, a.Latch("job", 1, first).Arrive(t.Context(), "x"))
		require.NoError(t, b.Latch("job", 1, first).Await(t.Context()))
		waits := awaitLater(t.Context(), b.Latch("never", 9, first))
		synctest.Wait()
		g := awaitLater(t.Context(), a.Latch("job", 2, second))
		require.NoError(t, b.Latch("job", 2, second).Arrive(t.Context(), "x"))
		rt.Waits(t, g)
		require.Equal(t, 1, remaining(t, b.Latch("job", 2, second)))
		for _, l := range []*redlock.Latch{a.Latch("job", 1, first), b.Latch("job", 1)} {
			_, err := l.Remaining(t.Context())
			refused(t, err, redlock.ErrPassed)
		}
		require.NoError(t, a.Latch("job", 1, first).CountDown(t.Context()), "it knows that it was open")
		refused(t, b.Latch("job", 1).CountDown(t.Context()), redlock.ErrPassed)
		refused(t, b.Latch("job", 1).Await(t.Context()), redlock.ErrPassed)
		require.NoError(t, a.Latch("job", 2, second).Arrive(t.Context(), "y"))
		g.Get(t)
		at := time.Now()
		require.NoError(t, a.Latch("never", 1, second).CountDown(t.Context()))
		require.ErrorIs(t, waits.End(), redlock.ErrPassed)
		require.Less(t, waits.At.Sub(at), 10*time.Millisecond, "it is told")
	}, redlock.Quiet)
}

// refused asserts that an error counts the members that refused, and takes none of them for silent.
func refused(t testing.TB, err, kind error) {
	t.Helper()
	require.ErrorIs(t, err, kind)
	q := rt.As[*redlock.QuorumError](t, err)
	no := 0
	for _, v := range q.Votes {
		require.NotEqual(t, quorum.Yes, v.Vote, "%s: %v", v.Member, err)
		if v.Vote == quorum.No {
			no++
		}
	}
	require.Positive(t, no, "%v", err)
	require.NotContains(t, err.Error(), "(0 refused")
}

func TestAnotherCountForOneRoundIsAConflictAndLeavesNothing(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		require.NoError(t, a.Latch("job", 3).CountDown(t.Context()))
		synctest.Wait() // the last member knows it too
		before := keysOfAll(t, cluster)
		refused(t, b.Latch("job", 2).CountDown(t.Context()), redlock.ErrConflict)
		err := b.Latch("job", 2).Await(t.Context())
		refused(t, err, redlock.ErrConflict)
		require.ErrorContains(t, err, "latch or barrier has another count: 3, and not 2")
		synctest.Wait()
		require.Equal(t, before, keysOfAll(t, cluster))
		require.Equal(t, 2, remaining(t, a.Latch("job", 3)))
	}, redlock.Quiet)
}

// The number of a later call would count the one that was refused, too.
func TestCountDownThatIsRefusedDoesNotCountLater(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		two := b.Latch("job", 2)
		require.NoError(t, two.Arrive(t.Context(), "x")) // so b keeps the latch in mind
		synctest.Wait()                                  // no arrival comes to the last member behind the deletion
		require.NoError(t, a.Latch("job", 3).Delete(t.Context()))
		synctest.Wait()
		require.NoError(t, a.Latch("job", 3).Arrive(t.Context(), "y"))
		synctest.Wait()
		refused(t, two.CountDown(t.Context()), redlock.ErrConflict)
		refused(t, two.CountDown(t.Context()), redlock.ErrConflict)
		synctest.Wait()
		require.NoError(t, a.Latch("job", 3).Delete(t.Context()))
		synctest.Wait()
		require.NoError(t, two.CountDown(t.Context()))
		require.Equal(t, 1, remaining(t, a.Latch("job", 0)))
	}, redlock.Quiet)
}

func TestArrivalIsNotRepeatedBehindADeletion(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		redlock.Admin(t, cluster.Servers[0], "SCRIPT", "LOAD", script.LatchDelete.Source)
		p.EveryLink(func(l *redistest.Link) { l.SetDelay(redistest.Delay{}, redistest.Delay{Fixed: 20 * time.Millisecond}) }, 0)
		require.NoError(t, p.Latch("job", 3).CountDown(t.Context()))
		require.NoError(t, p.Latch("job", 3).Delete(t.Context()))
		time.Sleep(time.Second)
		require.Empty(t, keysOfAll(t, cluster))
	}, redlock.Quiet)
}

// Who has heard that a latch is open tells the members that have not said so. A deletion may come first.
func TestClientThatTellsOthersDoesNotMakeADeletedLatchAgain(t *testing.T) {
	three(t, func(t *testing.T, cluster *redistest.Cluster, a, b, c *redlock.Peer) {
		taught(t, cluster)
		a.Slow(0, 100*time.Millisecond, 100*time.Millisecond) // it hears of the first member soon
		g := awaitLater(t.Context(), a.Latch("job", 1))
		time.Sleep(500 * time.Millisecond)
		a.EveryLink(func(l *redistest.Link) { l.LosePush(1) }, 1, 2)
		require.NoError(t, b.Latch("job", 1).CountDown(t.Context()))
		time.Sleep(20 * time.Millisecond) // what a tells the others is on its way
		require.NoError(t, b.Latch("job", 1).Delete(t.Context()))
		g.Get(t)
		time.Sleep(time.Second)
		require.Equal(t, 1, remaining(t, c.Latch("job", 1)))
		require.Empty(t, rt.Must(cluster.Leftovers(t.Context(), redlock.Lasting...))(t))
	})
}

func TestAwaitIsNotOpenedByAnAnswerFromBeforeADeletion(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		taught(t, cluster)
		require.NoError(t, b.Latch("job", 1).Arrive(t.Context(), "x"))
		require.NoError(t, b.Latch("job", 1).Delete(t.Context())) // so b does not tell it again
		require.NoError(t, b.Latch("job", 0).Arrive(t.Context(), "x"))
		require.NoError(t, b.Latch("job", 1).Await(t.Context()))
		synctest.Wait()
		a.EveryLink(func(l *redistest.Link) { l.SetDelay(redistest.Delay{}, redistest.Delay{Fixed: 100 * time.Millisecond}) })
		ctx, cancel := context.WithCancel(t.Context())
		g := awaitLater(ctx, a.Latch("job", 1))
		time.Sleep(10 * time.Millisecond) // the members have answered
		require.NoError(t, a.Latch("job", 1).Delete(t.Context()))
		time.Sleep(200 * time.Millisecond)
		rt.Waits(t, g)
		cancel()
		require.ErrorIs(t, g.End(), context.Canceled)
		require.Equal(t, 1, remaining(t, a.Latch("job", 1)))
	}, redlock.Quiet)
}

func TestArrivalThatIsRefusedIsNotToldAgain(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		require.NoError(t, p.Latch("job", 3, redlock.Life(time.Minute)).CountDown(t.Context()))
		require.ErrorIs(t, p.Latch("job", 2).Arrive(t.Context(), "x"), redlock.ErrConflict)
		require.NoError(t, p.Latch("job", 3).Delete(t.Context()))
		d.Forget(0)
		p.Until(t, 0, redlock.MemberQuarantined)
		p.Until(t, 0, redlock.MemberVoting)
		synctest.Wait()
		noKeys(t, d)
	})
}

// keysOfAll is what every member has of latches, without what changes by itself.
func keysOfAll(t *testing.T, cluster *redistest.Cluster) (out []string) {
	t.Helper()
	for _, s := range cluster.Servers {
		for _, key := range redlock.Admin(t, s, "KEYS", "redquorum:l*").([]any) {
			out = append(out, fmt.Sprint(s.Addr(), key, redlock.Admin(t, s, "HGETALL", key.(string))))
		}
	}
	return out
}

func TestBadInputToALatchIsToldAndReachesNobody(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for what, l := range map[string]*redlock.Latch{
			"count":  p.Latch("job", -1),
			"much":   p.Latch("job", 1<<31),
			"round":  p.Latch("job", 1, redlock.Round(1<<53)),
			"life":   p.Latch("job", 1, redlock.Life(time.Millisecond)),
			"long":   p.Latch("job", 1, redlock.Life(367*24*time.Hour)),
			"name":   p.Latch("", 1),
			"ours":   p.Latch("redquorum:x", 1),
			"length": p.Latch(strings.Repeat("x", 1<<17+1), 1),
		} {
			for _, err := range []error{l.CountDown(t.Context()), l.Arrive(t.Context(), "x"), l.Await(t.Context()), l.Delete(t.Context())} {
				require.ErrorIs(t, err, redlock.ErrInput, what)
			}
			require.ErrorIs(t, rt.Err(l.Remaining(t.Context())), redlock.ErrInput, what)
		}
		l := p.Latch("job", 1)
		require.ErrorIs(t, l.Arrive(t.Context(), ""), redlock.ErrInput)
		require.ErrorIs(t, l.Arrive(t.Context(), strings.Repeat("x", 257)), redlock.ErrInput)
		var none context.Context
		require.ErrorIs(t, l.Await(none), redlock.ErrInput)
		require.ErrorIs(t, l.CountDown(ended), context.Canceled)
		require.ErrorIs(t, l.Await(ended), context.Canceled)
		noKeysAtRest(t, d)
	}, redlock.Quiet)
}

// One push arrives, and the others are lost: the client tells the members, and waits for no heartbeat. If all are lost, the next
// heartbeat tells.
func TestAwaitTellsMembersThatHaveNotSaidThatItIsOpen(t *testing.T) {
	for _, lost := range [][]int{{0, 2}, {0, 1, 2}} {
		withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
			g := awaitLater(t.Context(), a.Latch("job", 1))
			synctest.Wait()
			d.Network(a.Client, redlocktest.Network{LosePushes: true}, lost...)
			at := time.Now()
			require.NoError(t, b.Latch("job", 1).CountDown(t.Context()))
			g.Get(t)
			if took := g.At.Sub(at); len(lost) == 3 {
				require.LessOrEqual(t, took, time.Second)
				require.Greater(t, took, 100*time.Millisecond, "they were lost")
			} else {
				require.LessOrEqual(t, took, 10*time.Millisecond)
			}
		}, redlock.Quiet)
	}
}

// More than one call carries: the others follow the first, though nobody waits for them any more.
func TestArrivalsGoOnBehindACallWhenTheirContextsHaveEnded(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		a.Slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		ctx := rt.Within(t, time.Millisecond)
		var wg sync.WaitGroup
		for i := range 300 {
			wg.Go(func() {
				require.ErrorIs(t, a.Latch("job", 301).Arrive(ctx, fmt.Sprint("part-", i)), context.DeadlineExceeded)
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		require.Equal(t, 1, remaining(t, b.Latch("job", 301)))
	}, redlock.Quiet)
}

// One member alone has the last arrival.
func TestAwaitTellsMembersThatItIsOpenBeforeItReturns(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		b.EveryLink((*redistest.Link).PauseRequests, 1, 2)
		a.Slow(0, 20*time.Millisecond, 20*time.Millisecond)
		g := awaitLater(t.Context(), a.Latch("job", 1))
		time.Sleep(100 * time.Millisecond)
		require.Error(t, b.Latch("job", 1).CountDown(rt.Within(t, time.Millisecond)))
		g.Get(t)
		open := 0
		for _, s := range cluster.Servers {
			if redlock.Admin(t, s, "HGET", "redquorum:l1:{job}", "o") == "1" {
				open++
			}
		}
		require.GreaterOrEqual(t, open, 2)
	}, redlock.Quiet)
}

func TestClientArrivesAgainAtAMemberThatForgot(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p, q := redlock.Guarded(t, cluster, redlock.WithFreshMembers()), redlock.Guarded(t, cluster, redlock.WithFreshMembers())
		p.Voting(t, 3)
		q.Voting(t, 3)
		require.NoError(t, p.Latch("job", 3).CountDown(t.Context()))
		require.NoError(t, p.Latch("job", 3).CountDown(t.Context()))
		for i := range 3 { // each forgets, one after the other
			require.NoError(t, cluster.Restart(false, i))
			for _, state := range []string{redlock.MemberQuarantined, redlock.MemberVoting} {
				p.Until(t, i, state)
				q.Until(t, i, state)
			}
			synctest.Wait()
			sum, ok := redlock.Admin(t, cluster.Servers[i], "HGET", slot.Sibling("redquorum:l1", "job"), "s").(string)
			require.True(t, ok)
			require.Equal(t, "2", sum)
		}
		require.Equal(t, 1, remaining(t, q.Latch("job", 3)))
		require.NoError(t, q.Latch("job", 3).CountDown(t.Context()))
		require.NoError(t, q.Latch("job", 3).Await(t.Context()))

		require.NoError(t, cluster.Restart(false, 0)) // it forgot that it is open
		q.Until(t, 0, redlock.MemberQuarantined)
		q.Until(t, 0, redlock.MemberVoting)
		synctest.Wait()
		require.Equal(t, "1", redlock.Admin(t, cluster.Servers[0], "HGET", slot.Sibling("redquorum:l1", "job"), "o"))
	})
}

// Each member has missed another arrival, and who arrived is gone: together they have all of them.
func TestAwaitJoinsWhatNoMemberHasAlone(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		for i := range 3 {
			p := redlock.Connect(t, cluster, redlock.Quiet)
			p.Settle(t, 3)
			p.Away(i)
			synctest.Wait()
			require.NoError(t, p.Latch("job", 3).Arrive(t.Context(), fmt.Sprint("part-", i)))
			p.Die()
			require.NoError(t, p.Close())
		}
		p := redlock.JoinAll(t, cluster, redlock.Quiet)
		require.Zero(t, remaining(t, p.Latch("job", 3)))
		at := time.Now()
		require.NoError(t, p.Latch("job", 3).Await(t.Context()))
		require.LessOrEqual(t, time.Since(at), 2100*time.Millisecond, "when it has heard the same twice")
		for _, s := range cluster.Servers {
			require.Equal(t, "1", redlock.Admin(t, s, "HGET", slot.Sibling("redquorum:l1", "job"), "o"))
			require.Equal(t, "3", redlock.Admin(t, s, "HGET", slot.Sibling("redquorum:l1", "job"), "s"), "each was told what it lacked")
		}
	})
}

func TestAwaitTellsMembersWhatTheyLackBeforeTheLastArrival(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		a.Away(2)
		synctest.Wait()
		for i := range 200 {
			require.NoError(t, a.Latch("job", 201).Arrive(t.Context(), fmt.Sprint("part-", i)))
		}
		a.Die()
		require.NoError(t, a.Close())
		g := awaitLater(t.Context(), b.Latch("job", 201))
		time.Sleep(3 * time.Second)
		require.Equal(t, "200", redlock.Admin(t, cluster.Servers[2], "HGET", slot.Sibling("redquorum:l1", "job"), "s"))
		reads := b.Count(script.LatchRead)
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(reads), "members that have the same are not read")
		require.NoError(t, b.Latch("job", 201).CountDown(t.Context()))
		g.Get(t)
	}, redlock.Quiet)
}

func TestFewOfManyWhoAwaitTellAMemberWhatItLacks(t *testing.T) {
	const waiting, arrivals = 16, 200
	redlock.Among(t, 3, waiting+1, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		a, all := all[0], all[1:]
		a.Away(2)
		synctest.Wait()
		for i := range arrivals {
			require.NoError(t, a.Latch("job", arrivals+1).Arrive(t.Context(), fmt.Sprint("part-", i)))
		}
		a.Die()
		require.NoError(t, a.Close())
		var told []*redistest.Rule
		var gates []*rt.Later[bool]
		for _, p := range all {
			p.Slow(2*time.Millisecond, 2*time.Millisecond, 2*time.Millisecond)
			told = append(told, p.Count(script.LatchArrive)...)
			gates = append(gates, awaitLater(t.Context(), p.Latch("job", arrivals+1)))
		}
		for began := time.Now(); redlock.Admin(t, cluster.Servers[2], "HGET", slot.Sibling("redquorum:l1", "job"), "s") != fmt.Sprint(arrivals); time.Sleep(time.Second) {
			require.Less(t, time.Since(began), 5*time.Minute)
		}
		time.Sleep(5 * time.Second)
		n := 0
		for _, h := range redlock.Hits(told) {
			n += h
		}
		require.LessOrEqual(t, n, waiting, "each that tells takes two commands; 1 of 16 does as a rule, and all of them without a choice")
		require.NoError(t, all[0].Latch("job", arrivals+1).CountDown(t.Context()))
		for _, g := range gates {
			g.Get(t)
		}
	}, redlock.Quiet)
}

func TestArrivalIsDoneAtAMajorityAndNotBefore(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		p.Away(0)
		synctest.Wait()
		require.NoError(t, p.Latch("job", 9).CountDown(t.Context()))
		p.Away(1)
		at := time.Now()
		require.ErrorIs(t, p.Latch("job", 9).CountDown(t.Context()), redlock.ErrNoQuorum)
		require.InDelta(t, 2, time.Since(at).Seconds(), 0.1)
		p.Back()
		p.Settle(t, 3)
		synctest.Wait()
		require.Equal(t, 7, remaining(t, p.Latch("job", 9)), "the arrival is the client's, and went on")
	})
}

func TestAwaitEndsWithItsContextAndWithTheClientAndIsWithdrawn(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		ctx, cancel := context.WithCancel(t.Context())
		g, other := awaitLater(ctx, p.Latch("job", 1)), awaitLater(t.Context(), p.Latch("job", 1))
		synctest.Wait()
		cancel()
		require.ErrorIs(t, g.End(), context.Canceled)
		rt.Waits(t, other)
		time.Sleep(5 * time.Second)
		require.NotEmpty(t, redlock.Admin(t, cluster.Servers[0], "HGETALL", slot.Sibling("redquorum:lo", "job")), "the other keeps the watch up")
		require.NoError(t, p.Close())
		require.ErrorIs(t, other.End(), redlock.ErrClosed)
		synctest.Wait()
		require.Empty(t, rt.Must(cluster.Leftovers(t.Context(), latchLeft("job")...))(t), "it is withdrawn")
		require.ErrorIs(t, p.Latch("job", 1).Await(t.Context()), redlock.ErrClosed)
		require.ErrorIs(t, p.Latch("job", 1).CountDown(t.Context()), redlock.ErrClosed)
	}, redlock.Quiet)
}

func TestAwaitGoesOnWhileAMajorityIsThere(t *testing.T) {
	withTwo(t, 5, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		g := awaitLater(t.Context(), a.Latch("job", 1))
		synctest.Wait()
		a.Away(0, 3)
		time.Sleep(10 * time.Second)
		rt.Waits(t, g)
		at := time.Now()
		require.NoError(t, b.Latch("job", 1).CountDown(t.Context()))
		g.Get(t)
		require.Less(t, g.At.Sub(at), 100*time.Millisecond)

		g = awaitLater(t.Context(), a.Latch("other", 1))
		a.Away(1)
		require.ErrorIs(t, g.End(), redlock.ErrNoQuorum)
	})
}

// Members that may have forgotten are not asked. While too many of them are in quarantine, calls wait.
func TestLatchWaitsForMembersInQuarantine(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		d.Forget(0, 1)
		p.Until(t, 0, redlock.MemberQuarantined)
		p.Until(t, 1, redlock.MemberQuarantined)
		ctx := rt.Within(t, time.Second)
		require.ErrorIs(t, p.Latch("job", 1).CountDown(ctx), redlock.ErrQuarantined)
		ctx = rt.Within(t, time.Second)
		require.ErrorIs(t, p.Latch("job", 1).Await(ctx), context.DeadlineExceeded, "no member has it")
		for _, key := range d.Leftovers() {
			require.False(t, strings.HasPrefix(key, "0/redquorum:l"), key)
		}
		require.NoError(t, p.Latch("job", 1).Await(t.Context()), "the arrival goes on")
	})
}

func TestKeyOfAnotherTypeIsNoLatch(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		for _, s := range cluster.Servers[:2] {
			redlock.Admin(t, s, "SET", slot.Sibling("redquorum:l1", "job"), "data")
		}
		require.ErrorIs(t, p.Latch("job", 1).CountDown(t.Context()), redlock.ErrForeignKey)
		require.ErrorIs(t, p.Latch("job", 1).Await(t.Context()), redlock.ErrForeignKey)
	}, redlock.Quiet)
}

func TestDeletedLatchIsGoneAndNotToldAgain(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		require.NoError(t, p.Latch("job", 3).CountDown(t.Context()))
		require.NoError(t, p.Latch("job", 3).Delete(t.Context()))
		noKeysAtRest(t, d)
		p.Away(1)
		p.Back()
		p.Settle(t, 3)
		noKeysAtRest(t, d)
		require.Equal(t, 3, remaining(t, p.Latch("job", 3)))
		require.Equal(t, 1, remaining(t, p.Latch("untold", 0)))
		p.Away(0, 1)
		require.ErrorIs(t, p.Latch("job", 3).Delete(t.Context()), redlock.ErrNoQuorum)
		require.ErrorIs(t, rt.Err(p.Latch("job", 3).Remaining(t.Context())), redlock.ErrNoQuorum)
	})
}

func TestPartiesOfABarrierGoOnTogetherRoundByRound(t *testing.T) {
	withMany(t, 3, 3, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		var in [50]atomic.Int32
		var first atomic.Uint64
		var wg sync.WaitGroup
		for i, p := range all {
			wg.Go(func() {
				b := p.Barrier("phase", 3, fmt.Sprint("party-", i))
				for round := uint64(1); round < 50; round++ {
					time.Sleep(time.Duration(i+1) * 40 * time.Millisecond)
					in[round].Add(1)
					at, err := b.Wait(t.Context())
					first.CompareAndSwap(0, at)
					if err != nil || at != first.Load()+round-1 || in[round].Load() != 3 {
						t.Errorf("round %d: %d of 3 came, round %d, %v", round, in[round].Load(), at, err)
						return
					}
				}
			})
		}
		for i := range 3 {
			time.Sleep(100 * time.Millisecond)
			d.Forget(i)
			for _, p := range all {
				p.Until(t, i, redlock.MemberQuarantined)
			}
			for _, p := range all {
				p.Until(t, i, redlock.MemberVoting)
			}
		}
		wg.Wait()
		synctest.Wait()
		for _, key := range d.Leftovers() {
			require.Contains(t, key, slot.Sibling("redquorum:b1", "phase"))
		}
	}, short)
}

func TestPartyOfABarrierThatBeginsAnewEntersTheRoundThatIsUnderWay(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		first := uint64(0)
		both := func(x, y *redlock.Barrier, want uint64) {
			t.Helper()
			var once sync.Mutex
			var wg sync.WaitGroup
			for _, one := range []*redlock.Barrier{x, y} {
				wg.Go(func() {
					ctx := rt.Within(t, time.Minute)
					round, err := one.Wait(ctx)
					once.Lock()
					defer once.Unlock()
					if first == 0 {
						first = round
					}
					assert.False(t, err != nil || round != first+want-1, "round %d, %v", round, err)
				})
				synctest.Wait() // the first one waits
			}
			wg.Wait()
		}
		x, y := a.Barrier("phase", 2, "x"), b.Barrier("phase", 2, "y")
		both(x, y, 1)
		both(x, y, 2)
		require.ErrorIs(t, rt.Err(y.Wait(rt.Within(t, time.Second))), context.DeadlineExceeded)
		require.NoError(t, b.Close())
		both(a.Barrier("phase", 2, "y"), x, 3)
		for _, bad := range []*redlock.Barrier{a.Barrier("phase", 0, "x"), a.Barrier("phase", 2, ""), a.Barrier("", 2, "x")} {
			require.ErrorIs(t, rt.Err(bad.Wait(t.Context())), redlock.ErrInput)
		}
		rt.Says(t, rt.Err(a.Barrier("phase", 1, "x", redlock.Round(7)).Wait(t.Context())), redlock.ErrInput, "counts its rounds itself")
		var none context.Context
		require.ErrorIs(t, rt.Err(x.Wait(none)), redlock.ErrInput)
	}, redlock.Quiet)
}

func TestArrivalOutlivesADeleteThatOvertakesIt(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		d.Pause(0, 1)
		arrived := rt.Go(func() error { return p.Latch("job", 3).CountDown(t.Context()) })
		synctest.Wait()
		require.ErrorIs(t, p.Latch("job", 3).Delete(rt.Within(t, time.Millisecond)), redlock.ErrNoQuorum)
		d.Resume()
		select {
		case err := <-arrived:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			t.Fatal("it waits for ever")
		}
	}, redlock.Quiet)
}

func TestSecondCallOfABarrierEndsWithItsContext(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		b := p.Barrier("phase", 2, "x")
		ctx := rt.Within(t, time.Minute)
		first := rt.Go(func() error { return rt.Err(b.Wait(ctx)) })
		synctest.Wait()
		soon := rt.Within(t, time.Second)
		at := time.Now()
		_, err := b.Wait(soon)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Contains(t, err.Error(), `wait at barrier "phase"`)
		require.Equal(t, time.Second, time.Since(at))
		require.ErrorIs(t, <-first, context.DeadlineExceeded)
		go func() {
			_, err := b.Wait(context.WithoutCancel(ctx))
			first <- err
		}()
		synctest.Wait()
		go func() { _ = p.Close() }()
		require.ErrorIs(t, rt.Err(b.Wait(t.Context())), redlock.ErrClosed)
		require.ErrorIs(t, <-first, redlock.ErrClosed)
	}, redlock.Quiet)
}

func goesOn(ctx context.Context, b *redlock.Barrier) *rt.Later[uint64] {
	return rt.Begin(func() (uint64, error) { return b.Wait(ctx) })
}

// A barrier that nobody has touched for its Life ends at the members. A party that begins anew counts on from the
// members' time, and lets nobody through who remembers the number that it had.
func TestRoundOfABarrierThatEndedOpensNothing(t *testing.T) {
	withMany(t, 3, 3, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		x, y, z := all[0].Barrier("phase", 3, "x"), all[1].Barrier("phase", 3, "y"), all[2].Barrier("phase", 3, "z")
		last := uint64(0)
		for range 5 {
			others := []*rt.Later[uint64]{goesOn(t.Context(), x), goesOn(t.Context(), y)}
			round := rt.Must(z.Wait(t.Context()))(t)
			require.Greater(t, round, last)
			for _, one := range others {
				require.Equal(t, round, one.Get(t))
			}
			last = round
		}
		time.Sleep(24*time.Hour + time.Minute)
		late := goesOn(t.Context(), all[2].Barrier("phase", 3, "z"))
		time.Sleep(time.Minute)
		rt.Waits(t, late)
		other := goesOn(t.Context(), x)
		time.Sleep(time.Minute)
		rt.Waits(t, late, other)
		round := rt.Must(y.Wait(t.Context()))(t)
		require.Greater(t, round, last)
		require.Equal(t, round, late.Get(t))
		require.Equal(t, round, other.Get(t))

		time.Sleep(24*time.Hour + time.Minute) // and nobody remembers a number
		late, other = goesOn(t.Context(), all[1].Barrier("phase", 3, "y")), goesOn(t.Context(), all[2].Barrier("phase", 3, "z"))
		next := rt.Must(all[0].Barrier("phase", 3, "x").Wait(t.Context()))(t)
		require.Greater(t, next, round, "the numbers rise")
		require.Equal(t, next, late.Get(t))
		require.Equal(t, next, other.Get(t))
	}, redlock.Quiet)
}

func TestArrivalOfAWaitThatFailedIsTakenBackAtOnce(t *testing.T) {
	redlock.Among(t, 3, 2, func(t *testing.T, _ *redistest.Cluster, all []*redlock.Peer) {
		ctx, cancel := context.WithCancel(t.Context())
		failed := goesOn(ctx, all[0].Barrier("phase", 2, "x"))
		synctest.Wait()
		cancel()
		require.ErrorIs(t, failed.End(), context.Canceled)
		synctest.Wait()
		y := goesOn(t.Context(), all[1].Barrier("phase", 2, "y"))
		rt.Waits(t, y)
		start := time.Now()
		require.Equal(t, rt.Must(all[0].Barrier("phase", 2, "x").Wait(t.Context()))(t), y.Get(t))
		require.Zero(t, time.Since(start), "it hears of the round, and arrives there at once")
	}, redlock.Quiet)
}

func TestPartyTooManyOfABarrierIsTold(t *testing.T) {
	withMany(t, 3, 4, func(t *testing.T, _ *redlocktest.Deployment, all []*caller) {
		var parties []*redlock.Barrier
		for i, p := range all {
			parties = append(parties, p.Barrier("phase", 3, fmt.Sprint("w", i+1)))
		}
		for range 3 {
			others := []*rt.Later[uint64]{goesOn(t.Context(), parties[0]), goesOn(t.Context(), parties[1])}
			round := rt.Must(parties[2].Wait(t.Context()))(t)
			for _, one := range others {
				require.Equal(t, round, one.Get(t))
			}
			_, err := parties[3].Wait(t.Context())
			rt.Says(t, err, redlock.ErrConflict, "others are its 3 parties")
			require.ErrorContains(t, err, `wait at barrier "phase"`)
		}
	}, redlock.Quiet)
}

func TestLatchCallsEndWhileAMajorityRefuses(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		for what, call := range map[string]struct {
			sha string
			do  func() error
		}{
			"count down": {script.LatchArrive.SHA, func() error { return p.Latch("job", 2).CountDown(t.Context()) }},
			"await":      {script.LatchAwait.SHA, func() error { return p.Latch("other", 2).Await(t.Context()) }},
			"wait at barrier": {script.BarrierWait.SHA, func() error {
				_, err := p.Barrier("phase", 2, "x").Wait(t.Context())
				return err
			}},
		} {
			p.EveryLink(func(l *redistest.Link) { l.Fail(redistest.WithArg(call.sha), -1, "OOM command not allowed") }, 1, 2)
			at := time.Now()
			err := call.do()
			rt.Says(t, err, redlock.ErrNoQuorum, "OOM", what)
			require.ErrorContains(t, err, what)
			require.InDelta(t, 2, time.Since(at).Seconds(), 0.5, what)
		}
	})
}

// Who awaits a latch that an earlier use of its name has opened is told by the Logger, once; who has waited for it, or has
// arrived, is not.
func TestLoggerHearsOfALatchThatWasOpenBefore(t *testing.T) {
	log := &transcript{}
	before := func() int { return strings.Count(log.String(), "open before") }
	withMany(t, 3, 3, func(t *testing.T, _ *redlocktest.Deployment, all []*caller) {
		g := awaitLater(t.Context(), all[0].Latch("import", 1))
		synctest.Wait()
		require.NoError(t, all[1].Latch("import", 1).CountDown(t.Context()))
		g.Get(t)
		require.NoError(t, all[1].Latch("import", 1).Await(t.Context()))
		require.Zero(t, before())
		synctest.Wait() // every member has it
		for range 3 {
			require.NoError(t, all[2].Latch("import", 1).Await(t.Context()))
		}
		require.Equal(t, 1, before())
		require.NoError(t, all[0].Latch("import", 1, redlock.Round(2)).CountDown(t.Context()))
		require.NoError(t, all[2].Latch("import", 1, redlock.Round(2)).Await(t.Context()))
		require.Equal(t, 1, before(), "with a Round it is of this use")
	}, redlock.Quiet, func(c *redlock.Config) { c.Logger = log.logger() })
}

func TestInspectLatchShowsABarrier(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, _ *redlocktest.Deployment, a, b *caller) {
		x := goesOn(t.Context(), a.Barrier("phase", 2, "x"))
		synctest.Wait()
		in := rt.Must(b.InspectLatch(t.Context(), "phase"))(t)
		require.Equal(t, []any{2, 1, false}, []any{in.Latch.Count, in.Latch.Remaining, in.Latch.Open})
		require.Equal(t, []any{1, 1}, []any{in.Members[0].Latch.Arrived, in.Members[0].Latch.Waiting})
		round := rt.Must(b.Barrier("phase", 2, "y").Wait(t.Context()))(t)
		require.Equal(t, round, x.Get(t))
		synctest.Wait()
		in = rt.Must(b.InspectLatch(t.Context(), "phase"))(t)
		require.Equal(t, []any{round, 2, 0, true}, []any{in.Latch.Round, in.Latch.Count, in.Latch.Remaining, in.Latch.Open})
		require.NoError(t, b.Latch("phase", 3).CountDown(t.Context()))
		in = rt.Must(b.InspectLatch(t.Context(), "phase"))(t)
		require.Equal(t, []any{uint64(0), 3, 2}, []any{in.Latch.Round, in.Latch.Count, in.Latch.Remaining})
	}, redlock.Quiet)
}
