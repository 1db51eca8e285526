package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The cases of the reference system's own tests for its plain lock and its lock over several servers, by
// their names there, as far as they apply. A case without a function names the tests elsewhere that cover
// it, or says why it does not apply. An owner is a Lease here, not a thread, so "another thread" is
// another client, or another caller of the same one.
var redissonCases = []struct {
	name string
	test func(t *testing.T)
	in   []string
	why  string
}{
	// What all its locks share.
	{name: "testLockUnlock", test: lockUnlockTwice},
	{name: "testReentrancy", in: []string{"TestSameOwnerEntersAgain", "TestWithoutAnOwnerASecondLockWaits"}, why: "re-entry only by an owner that is named (As)"},
	{name: "testIsLocked, testIsLockedOtherThread", test: seenLockedByOthers},
	{name: "testIsHeldByCurrentThread, ...OtherThread", test: heldByItsLeaseOnly},
	{name: "testGetHoldCount", in: []string{"TestSameOwnerEntersAgain"}, why: "the count of re-entries is the client's, members see one hold"},
	{name: "testUnlockFail", test: unlockOfWhatIsNotHeld},
	{name: "testForceUnlock", test: forcedOpenIsFree},
	{name: "testExpire", test: expires},
	{name: "testAutoExpire", test: expiresWithItsClient},
	{name: "testTryLockWait", test: waitsAsLongAsItIsTold},
	{name: "testConcurrency_SingleInstance", test: func(t *testing.T) { countTogether(t, 1, 1, 15, 1) }},
	{name: "testConcurrencyLoop_MultiInstance", test: func(t *testing.T) { countTogether(t, 1, 16, 1, int(seeds(100))/faster()) }},
	{name: "testConcurrency_MultiInstance", test: func(t *testing.T) { countTogether(t, 1, 100, 1, 1) }},
	{name: "testInCluster", why: "a Redis Cluster is no member yet"},
	{name: "testRedisFailed", test: failsWhereTheServerStopped},
	{name: "testLockUninterruptibly", test: cancelledWaiterIsNotLetThrough},

	// Its plain lock.
	{name: "testSubscriptionsPerConnection", test: oneSubscriptionForAllNames},
	{name: "testSinglePubSub", test: eightTasksOnFourNames},
	{name: "testLockIsNotRenewedAfterInterruptedTryLock", test: notRenewedAfterACancelledTryLock},
	{name: "testRemainTimeToLive", test: termsDoNotBleed},
	{name: "testRemainTimeToLive2", test: reentriesKeepTheTerm},
	{name: "testLockFailoverInCluster", in: []string{"TestWorkGoesOnWhileTwoOfFiveAreDeadAndTheyVoteAgainAfterwards"}, why: "a Redis Cluster is no member yet; its place here is a member that dies and comes back"},
	{name: "testConcurrencyTryLockUnLock", test: heldLeasesAreLookedAfter},
	{name: "testLockListener", in: []string{"TestTracerHearsWhatHappens"}, why: "there are no listeners of keyspace events: a lease tells its end by Done, all ends go to the Tracer"},

	// Its lock over several servers.
	{name: "testLockLeasetimeWithMilliSeconds", test: func(t *testing.T) { countUnderLeases(t, 7, 900*time.Millisecond) }},
	{name: "testLockLeasetimeWithSeconds", test: func(t *testing.T) { countUnderLeases(t, 7, 2*time.Second) }},
	{name: "testLockLeasetimeWithMinutes", test: func(t *testing.T) { countUnderLeases(t, 7, 2*time.Minute) }},
	{name: "testTryLockLeasetime", test: func(t *testing.T) { countUnderLeases(t, 3, 2*time.Second) }},
	{name: "testLockFailed", test: twoOfThreeHeldElsewhere},
	{name: "testLockSuccess2", test: oneOfThreeHeldAndTheLeaseLasts},
	{name: "testLockSuccess", test: anySingleOneHeld},
	{name: "testConnectionFailed", test: worksWithoutOneServer},
	{name: "testMultiThreads, test", in: []string{"TestBurstOfContendersIsServedWithoutOverlap"}, why: "commented out there"},

	// What is missing there.
	{name: "validity and drift", in: []string{"TestValidityCountsFromBeforeTheFirstRequest", "TestGrantIsNeverBelievedLongerThanItsMemberKeepsIt"}},
	{name: "quorum lost during a hold", in: []string{"TestRenewalWithoutAMajorityOfAnswersEndsTheLeaseAtItsValidity"}},
	{name: "partial release", in: []string{"TestReleaseOfABareMajorityIsNotInDoubtWhileAMemberHangs"}},
	{name: "slow node", in: []string{"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{name: "node restarted without data", in: []string{"TestMajorityThatForgetsUnderAHolderLetsNobodyIn", "TestMemberThatRestartsIsQuarantinedAndRestored"}},
	{name: "clock jump", in: []string{"TestPushFromAMemberWhoseClockWasSetIsNotTrusted"}},
	{name: "client on the side of the minority", test: clientOnTheMinoritySide},
}

func TestRedissonCases(t *testing.T) {
	for _, c := range redissonCases {
		if c.test != nil {
			t.Run(c.name, c.test)
		}
	}
}

// faster is how much less a test does under the race detector, beside what seeds takes off.
func faster() int {
	if raceEnabled {
		return 3
	}
	return 1
}

func lockUnlockTwice(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet)
		for range 2 {
			require.NoError(t, p.Lock(t, "k").Unlock(t.Context()))
		}
		synctest.Wait()
		leftovers(t, cluster)
	})
}

func seenLockedByOthers(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2, quiet)
		locked := func(p *peer) bool {
			v, err := p.Inspect(t.Context(), "k")
			require.NoError(t, err)
			return len(v.Holders) > 0
		}
		for _, want := range []bool{false, true, false} {
			var l *redlock.Lease
			if want {
				l = all[0].Hold(t, "k")
			}
			require.Equal(t, want, locked(all[0]))
			require.Equal(t, want, locked(all[1]))
			if want {
				require.NoError(t, l.Unlock(t.Context()))
				synctest.Wait()
			}
		}
	})
}

func holdersOf(in *redlock.Inspection) (all []string) {
	for _, h := range in.Holders {
		all = append(all, h.Owner)
	}
	return all
}

func heldByItsLeaseOnly(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2, quiet)
		l := all[0].Hold(t, "k")
		require.NoError(t, l.Err())
		v, err := all[1].Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, []string{l.Hash()}, holdersOf(v))
		for _, p := range all { // the same client is another caller
			_, err := p.Mutex("k").TryLock(t.Context())
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		require.NoError(t, l.Unlock(t.Context()))
		require.ErrorIs(t, l.Err(), redlock.ErrReleased)
		next := all[1].Hold(t, "k")
		v, err = all[0].Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, []string{next.Hash()}, holdersOf(v))
		require.NotEqual(t, l.Hash(), next.Hash())
	})
}

func unlockOfWhatIsNotHeld(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2, quiet)
		l := all[0].Hold(t, "k")
		require.NoError(t, l.Unlock(t.Context()))
		synctest.Wait() // all three are free
		next := all[1].Hold(t, "k")
		require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrNotHeld)
		synctest.Wait()
		require.NoError(t, next.Err())
		require.Equal(t, 3, votesAt(cluster, next), "the other's lock is untouched")
	})
}

func forcedOpenIsFree(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2, quiet)
		all[0].Hold(t, "k", redlock.TTL(20*time.Second))
		held, err := all[1].ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, held)
		for _, s := range cluster.Servers {
			require.Equal(t, int64(0), admin(t, s, "EXISTS", "k"))
		}
		held, err = all[1].ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.False(t, held)
		l, err := all[1].Mutex("k").TryLock(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(31 * time.Second) // for as long as nobody is re-joined
		leftovers(t, cluster)
	})
}

func expires(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2, quiet)
		start := time.Now()
		l := all[0].Hold(t, "k", redlock.TTL(2*time.Second))
		next := all[1].Lock(t, "k")
		require.Less(t, time.Since(start), 2020*time.Millisecond)
		require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrLost)
		require.NoError(t, next.Err())
	})
}

func expiresWithItsClient(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 3, quiet)
		all[0].Hold(t, "k")
		start := time.Now()
		time.Sleep(time.Minute) // renewed
		all[0].Die()
		died := time.Now()
		next := all[1].Lock(t, "k")
		require.LessOrEqual(t, time.Since(died), 30*time.Second+10*time.Millisecond, "the watchdog's term")
		require.Greater(t, time.Since(start), time.Minute)
		require.NoError(t, all[1].Close()) // a client that ends in order leaves nothing to wait for
		require.ErrorIs(t, next.Err(), redlock.ErrClosed)
		start = time.Now()
		all[2].Lock(t, "k")
		require.Zero(t, time.Since(start))
	})
}

func waitsAsLongAsItIsTold(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2, quiet)
		all[0].Hold(t, "k")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		start := time.Now()
		_, err := all[1].Mutex("k").Lock(ctx)
		require.Equal(t, 3*time.Second, time.Since(start))
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// countTogether lets callers of clients count, each a number of times, with nothing but the lock between
// them.
func countTogether(t *testing.T, members, clients, callers, rounds int) {
	bubble(t, members, func(t *testing.T, cluster *redistest.Cluster) {
		count := &unguarded{}
		var wg sync.WaitGroup
		for _, p := range peers(t, cluster, clients, quiet) {
			for range callers {
				wg.Go(func() {
					for range rounds {
						l, err := p.Mutex("k").Lock(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						count.add(10 * time.Millisecond)
						if err := l.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		wg.Wait()
		require.Equal(t, clients*callers*rounds, count.value)
		synctest.Wait()
		leftovers(t, cluster)
	})
}

// unguarded is a counter of which updates are lost if two add at once: its reads and writes are whole, as
// in a storage, and there is time between them.
type unguarded struct {
	mu    sync.Mutex
	value int
}

func (u *unguarded) add(takes time.Duration) {
	u.mu.Lock()
	read := u.value
	u.mu.Unlock()
	time.Sleep(takes)
	u.mu.Lock()
	u.value = read + 1
	u.mu.Unlock()
}

// countUnderLeases is countTogether with leases of a fixed length, each longer than its work.
func countUnderLeases(t *testing.T, members int, ttl time.Duration) {
	bubble(t, members, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet, func(c *redlock.Config) { c.MaxTTL = 2 * time.Minute })
		count := &unguarded{}
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				for range 5 {
					for {
						ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
						l, err := p.Mutex("k", redlock.TTL(ttl)).Lock(ctx)
						cancel()
						if err != nil {
							continue // and again, as there
						}
						count.add(10 * time.Millisecond)
						if err := l.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
						break
					}
				}
			})
		}
		wg.Wait()
		require.Equal(t, 50, count.value)
	})
}

func failsWhereTheServerStopped(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		cluster.Kill()
		start := time.Now()
		_, err := p.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = p.Mutex("k").Lock(ctx)
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.Less(t, time.Since(start), 3*time.Second)
	})
}

func cancelledWaiterIsNotLetThrough(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2, quiet)
		held := all[0].Hold(t, "k")
		ctx, cancel := context.WithCancel(t.Context())
		w := all[1].LockLater(ctx, "k")
		time.Sleep(time.Second)
		cancel()
		<-w.Done
		require.Nil(t, w.Lease)
		require.ErrorIs(t, w.Err, context.Canceled)
		require.NoError(t, held.Err())
		require.NoError(t, held.Unlock(t.Context()))
		synctest.Wait()
		leftovers(t, cluster)
	})
}

func oneSubscriptionForAllNames(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet)
		channels := func() []any { return admin(t, cluster.Servers[0], "PUBSUB", "CHANNELS").([]any) }
		rounds := 5000 / 32
		if raceEnabled {
			rounds = 10
		}
		var wg sync.WaitGroup
		for i := range 32 {
			wg.Go(func() {
				for k := range rounds {
					l, err := p.Mutex(fmt.Sprint("k", (i+k)%5)).Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Millisecond)
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(20 * time.Millisecond)
		require.Len(t, channels(), 1, "for five names and 32 callers")
		wg.Wait()
		require.NoError(t, p.Close())
		synctest.Wait()
		require.Empty(t, channels())
		leftovers(t, cluster)
	})
}

func eightTasksOnFourNames(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				l, err := p.Mutex(fmt.Sprint("k", i%4)).Lock(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				time.Sleep(50 * time.Millisecond)
				_ = l.Unlock(t.Context())
			})
		}
		wg.Wait()
	})
}

func notRenewedAfterACancelledTryLock(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet)
		p.Slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		for _, after := range []time.Duration{0, 3 * time.Millisecond, 7 * time.Millisecond} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(after, cancel)
			_, err := p.Mutex("k").TryLock(ctx)
			require.ErrorIs(t, err, context.Canceled)
			extends := p.Count(script.Extend)
			time.Sleep(45 * time.Second)
			require.Equal(t, []int{0, 0, 0}, hits(extends))
			leftovers(t, cluster)
		}
	})
}

func termsDoNotBleed(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet, func(c *redlock.Config) { c.MaxTTL, c.TTL = time.Hour, 30*time.Second })
		left := func() int64 {
			synctest.Wait() // two of three members decide, and this one may be the third
			return admin(t, cluster.Servers[0], "PTTL", "k").(int64)
		}
		m := p.Mutex("k", redlock.TTL(time.Hour))
		l, err := m.Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, time.Hour.Milliseconds(), left())
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, int64(-2), left())
		p.Hold(t, "k")
		require.Equal(t, int64(30000), left())
	})
}

func reentriesKeepTheTerm(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet)
		m := p.Mutex("k", redlock.TTL(10*time.Second), redlock.As("me"))
		var l *redlock.Lease
		for range 3 {
			var err error
			l, err = m.Lock(t.Context())
			require.NoError(t, err)
		}
		for range 2 {
			require.NoError(t, l.Unlock(t.Context()))
		}
		synctest.Wait()
		require.InDelta(t, 10000, admin(t, cluster.Servers[0], "PTTL", "k"), 1000)
		require.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		leftovers(t, cluster)
	})
}

func heldLeasesAreLookedAfter(t *testing.T) {
	bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster, quiet)
		m := p.Mutex("k")
		rounds := 200
		if raceEnabled {
			rounds = 20
		}
		var mu sync.Mutex
		had := 0
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for range rounds {
					l, err := m.TryLock(t.Context())
					if err != nil {
						if !errors.Is(err, redlock.ErrHeld) {
							t.Error(err)
						}
						continue
					}
					if !redlock.IsKept(l) {
						t.Error("held, and nobody would renew it")
					}
					if err := l.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
					mu.Lock()
					had++
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		require.GreaterOrEqual(t, had, rounds)
		synctest.Wait()
		leftovers(t, cluster)
	})
}

func twoOfThreeHeldElsewhere(t *testing.T) {
	for free := range 3 {
		bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			p := join(t, cluster, quiet)
			steal(t, cluster, "k", time.Minute, (free+1)%3, (free+2)%3)
			_, err := p.Mutex("k").TryLock(t.Context())
			require.ErrorIs(t, err, redlock.ErrHeld)
		})
	}
}

func oneOfThreeHeldAndTheLeaseLasts(t *testing.T) {
	for at := range 3 {
		bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			p := join(t, cluster, quiet)
			steal(t, cluster, "k", time.Minute, at)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			l, err := p.Mutex("k", redlock.TTL(5*time.Second)).Lock(ctx)
			require.NoError(t, err)
			time.Sleep(3 * time.Second)
			require.NoError(t, l.Err())
			require.NoError(t, l.Unlock(t.Context()))
		})
	}
}

func anySingleOneHeld(t *testing.T) {
	for at := range 3 {
		bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			all := peers(t, cluster, 2, quiet)
			steal(t, cluster, "k", time.Hour, at)
			first := all[0].Hold(t, "k")
			second := all[1].LockLater(t.Context(), "k")
			time.Sleep(time.Minute)
			require.True(t, second.Pending())
			require.NoError(t, first.Unlock(t.Context()))
			require.NoError(t, second.Get(t).Unlock(t.Context()))
		})
	}
}

func worksWithoutOneServer(t *testing.T) {
	for down := range 3 {
		bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			cluster.Kill(down)
			p := connect(t, cluster, quiet)
			p.Settle(t, 2)
			for range 3 {
				l := p.Lock(t, "k")
				require.NoError(t, l.Unlock(t.Context()))
			}
		})
	}
}

func clientOnTheMinoritySide(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := peers(t, cluster, 2)
		held := all[0].Hold(t, "k", redlock.TTL(20*time.Second))
		free := all[0].Mutex("free")
		all[0].EveryLink((*redistest.Link).BlackHole, 1, 2)
		_, err := free.TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.NotErrorIs(t, err, redlock.ErrHeld)
		l, err := all[1].Mutex("free").TryLock(t.Context())
		require.NoError(t, err, "the other side goes on")
		require.NoError(t, l.Unlock(t.Context()))
		w := all[1].LockLater(t.Context(), "k")
		<-held.Done()
		ended := time.Now()
		next := w.Get(t)
		require.False(t, w.At.Before(ended), "and gets the lock when the lease of the cut off one is over")
		require.Greater(t, next.Token(), held.Token())
		require.Less(t, w.At.Sub(ended), time.Second)
	})
}
