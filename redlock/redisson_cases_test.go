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
	{name: "testLockUnlock", test: func(t *testing.T) { countTogether(t, 3, 1, 1, 2) }},
	{name: "testReentrancy", in: []string{"TestSameOwnerEntersAgain", "TestWithoutAnOwnerASecondLockWaits"}, why: "re-entry only by an owner that is named (As)"},
	{name: "testIsLocked, testIsLockedOtherThread, testIsHeldByCurrentThread, ...OtherThread", test: heldByItsLeaseOnly},
	{name: "testGetHoldCount", in: []string{"TestSameOwnerEntersAgain"}, why: "the count of re-entries is the client's, members see one hold"},
	{name: "testUnlockFail", in: []string{"TestLeaseIsUnlockedOnce"}},
	{name: "testForceUnlock", test: forcedOpenIsFree},
	{name: "testExpire", in: []string{"TestSpecOnlyTheOwnLockIsDeleted", "TestHolderThatDiesIsSucceededWhenItsLeaseEnds"}},
	{name: "testAutoExpire", test: expiresWithItsClient},
	{name: "testTryLockWait", in: []string{"TestWithoutAnOwnerASecondLockWaits"}},
	{name: "testConcurrency_SingleInstance", test: func(t *testing.T) { countTogether(t, 1, 1, 15, 1) }},
	{name: "testConcurrencyLoop_MultiInstance", test: func(t *testing.T) { countTogether(t, 1, 16, 1, fewer(int(seeds(100)), 8)) }},
	{name: "testConcurrency_MultiInstance", test: func(t *testing.T) { countTogether(t, 1, 100, 1, 1) }},
	{name: "testInCluster", why: "a Redis Cluster is no member yet"},
	{name: "testRedisFailed", in: []string{"TestSilenceIsNotReportedAsHeld", "TestLockGivesUpWhereNoQuorumCanBeAsked"}},
	{name: "testLockUninterruptibly", in: []string{"TestCancelAtAnyMomentLeavesNothingBehind", "TestWaiterThatCancelsLeavesNothingAndStopsNobody"}},

	// Its plain lock.
	{name: "testSubscriptionsPerConnection", test: oneSubscriptionForAllNames},
	{name: "testSinglePubSub", test: eightTasksOnFourNames},
	{name: "testLockIsNotRenewedAfterInterruptedTryLock", test: notRenewedAfterACancelledTryLock},
	{name: "testRemainTimeToLive", test: termsDoNotBleed},
	{name: "testRemainTimeToLive2", test: reentriesKeepTheTerm},
	{name: "testLockFailoverInCluster", in: []string{"TestMemberThatRestartsIsQuarantinedAndRestored"}, why: "its place here is a member that dies and comes back"},
	{name: "testConcurrencyTryLockUnLock", test: heldLeasesAreLookedAfter},
	{name: "testLockListener", in: []string{"TestTracerHearsWhatHappens"}, why: "there are no listeners of keyspace events: a lease tells its end by Done, all ends go to the Tracer"},

	// Its lock over several servers.
	{name: "testLockLeasetimeWithMilliSeconds", test: func(t *testing.T) { countTogether(t, 7, 1, 10, 5, redlock.TTL(900*time.Millisecond)) }},
	{name: "testLockLeasetimeWithSeconds", test: func(t *testing.T) { countTogether(t, 7, 1, 10, 5, redlock.TTL(2*time.Second)) }},
	{name: "testLockLeasetimeWithMinutes", test: func(t *testing.T) { countTogether(t, 7, 1, 10, 5, redlock.TTL(2*time.Minute)) }},
	{name: "testTryLockLeasetime", test: func(t *testing.T) { countTogether(t, 3, 1, 10, 5, redlock.TTL(2*time.Second)) }},
	{name: "testLockFailed", in: []string{"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{name: "testLockSuccess, testLockSuccess2", test: anySingleOneHeld},
	{name: "testConnectionFailed", in: []string{"TestClientStartsWithoutAMinorityAndSaysWhoIsMissing"}},
	{name: "testMultiThreads, test", in: []string{"TestBurstOfContendersIsServedWithoutOverlap"}, why: "commented out there"},

	// Its locks of several names, and what is known to be wrong with them, by number.
	{name: "MultiLock testLockUnlock", in: []string{"TestMultiIsOneCommandPerMember"}},
	{name: "MultiLock testWaitAndLeaseTimeouts", test: oneOfTenHasTheSet},
	{name: "MultiLock testMultiThreads", in: []string{"TestMultiWaitingHoldsNothingBehind"}},
	{name: "MultiLock test", in: []string{"TestMultiExcludesTheMutexOfEachName"}},
	{name: "FasterMultiLock testReentrantLock", in: []string{"TestMultiReenters"}},
	{name: "FasterMultiLock testRenewExpiration, testTryLock", in: []string{"TestMultiEndsWithTheFirstOfItsLeases"}},
	{name: "FasterMultiLock testTryLockWait", test: setAfterLeasesThatEnd},
	{name: "FasterMultiLock testLockIsNotRenewedAfterInterruptedTryLock", in: []string{"TestMultiCancelAtAnyMomentLeavesNothingBehind"}},
	{name: "defect 1: the lease grows with each round", in: []string{"TestMultiWithAFixedTTLHasAllOfItInTheEnd"}},
	{name: "defect 2, #4456: a cancelled call returns as if it had the lock, or leaves half of it", in: []string{"TestMultiCancelAtAnyMomentLeavesNothingBehind"}},
	{name: "defect 13: the first name is not looked at", test: setEndsWithWhicheverName},
	{name: "#467, #631, #1160, #4050: callers wait for each other", in: []string{"TestMultiOppositeOrdersDoNotDeadlock", "TestSeedsOfSets"}},

	// Its two semaphores, and what is known to be wrong with them.
	{name: "Semaphore testZero, testReleaseWithoutPermits, testAcquireWithoutSetPermits, testReleaseIfExists", in: []string{"TestArgumentsOfASemaphoreThatCannotWorkAreNamed"}, why: "a permit that nobody took cannot be given back"},
	{name: "Semaphore testAcquireAfterAddPermits, testAddPermits, testReducePermits, testTrySetPermits", in: []string{"TestStoredLimitTakesThePlaceOfEveryCallers"}},
	{name: "Semaphore testBlockingAcquire, testBlockingNAcquire", in: []string{"TestSeveralPermitsAreNotStarved"}},
	{name: "Semaphore testTryNAcquire", test: fourAfterASecond},
	{name: "Semaphore testDrainPermits", in: []string{"TestLimitOfNothingDrains"}},
	{name: "Semaphore testReleaseAcquire, availablePermits", in: []string{"TestInspectionShowsWhoHasWhichSlots"}},
	{name: "Semaphore testConcurrency_SingleInstance", test: func(t *testing.T) { crowdTogether(t, crowd{members: 1, clients: 1, callers: 15, limit: 1, rounds: 1}) }},
	{name: "Semaphore testConcurrency_MultiInstance_1_permits", test: func(t *testing.T) { crowdTogether(t, crowd{members: 3, clients: 10, callers: 3, limit: 1, rounds: 1}) }},
	{name: "Semaphore testConcurrencyLoop_MultiInstance", in: []string{"TestCrowdsOfASemaphore"}},
	{name: "PermitExpirable testUpdateLeaseTime, testGetLeaseTime", test: permitIsExtended},
	{name: "PermitExpirable testExpire, testExpireTryAcquire, testReleaseExpired, testAvailablePermits", in: []string{"TestPermitsThatRenewThemselvesLastAndThoseWithATTLEnd"}},
	{name: "PermitExpirable testExpiration", test: permitLeavesNoKey},
	{name: "PermitExpirable testSetPermits, testAddPermits", in: []string{"TestStoredLimitTakesThePlaceOfEveryCallers"}},
	{name: "PermitExpirable testRelease, testReleaseManyNotExistOrExpired, testTryReleaseManyExpired", in: []string{"TestReleaseOfAPermitNamesItsSlots"}, why: "several permits are one lease here, which ends whole"},
	{name: "PermitExpirable testConcurrency_MultiPermits, MultiPermits2", test: twoForAllOfIt},
	{name: "defect 15: a lost message hangs a waiter", test: lostPushOfAPermit},
	{name: "defect 15: a lost reply loses a permit for good", test: lostReplyOfAPermit},
	{name: "#2045, #2933, #4462: a crashed holder's permits are lost for ever", in: []string{"TestSlotOfADeadHolderComesBack"}},
	{name: "#3046: permits are not renewed", in: []string{"TestPermitsThatRenewThemselvesLastAndThoseWithATTLEnd"}},
	{name: "#3573, #3728, #6664, #5762: waiters for several starve, or are not woken", in: []string{"TestSeveralPermitsAreNotStarved"}},
	{name: "#659, #4100, #4678: permits are miscounted", in: []string{"TestRandomCallsOfASemaphoreKeepItsInvariants", "TestSeedsOfSemaphores"}},
	{name: "#4097: a semaphore over several masters", in: []string{"TestPermitSurvivesMembersThatAreKilled", "TestSeedsOfSemaphores"}},

	// What is missing there.
	{name: "validity and drift", in: []string{"TestValidityCountsFromBeforeTheFirstRequest", "TestGrantIsNeverBelievedLongerThanItsMemberKeepsIt"}},
	{name: "quorum lost during a hold", in: []string{"TestRenewalWithoutAMajorityOfAnswersEndsTheLeaseAtItsValidity"}},
	{name: "partial release", in: []string{"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{name: "slow node", in: []string{"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{name: "node restarted without data", in: []string{"TestMajorityThatForgetsUnderAHolderLetsNobodyIn", "TestMemberThatRestartsIsQuarantinedAndRestored"}},
	{name: "clock jump", in: []string{"TestPushFromAMemberWhoseClockWasSetIsNotTrusted"}},
	{name: "client on the side of the minority", test: clientOnTheMinoritySide},
}

func TestRedissonCases(t *testing.T) {
	t.Parallel()
	for _, c := range redissonCases {
		if c.test != nil {
			t.Run(c.name, c.test)
		}
	}
}

// fewer is n, or what there is time for under the race detector.
func fewer(n, race int) int {
	if raceEnabled {
		return race
	}
	return n
}

func holdersOf(in *redlock.Inspection) (all []string) {
	for _, h := range in.Holders {
		all = append(all, h.Owner)
	}
	return all
}

func heldByItsLeaseOnly(t *testing.T) {
	among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
		seen := func(want ...string) {
			t.Helper()
			for _, p := range all {
				require.Equal(t, want, holdersOf(inspect(t, p, "k")))
			}
		}
		seen()
		l := all[0].Hold(t, "k")
		require.NoError(t, l.Err())
		seen(l.Hash())
		for _, p := range all { // the same client is another caller
			require.ErrorIs(t, p.Try(t, "k"), redlock.ErrHeld)
		}
		require.NoError(t, l.Unlock(t.Context()))
		require.ErrorIs(t, l.Err(), redlock.ErrReleased)
		synctest.Wait()
		seen()
		next := all[1].Hold(t, "k")
		seen(next.Hash())
		require.NotEqual(t, l.Hash(), next.Hash())
	}, quiet)
}

func forcedOpenIsFree(t *testing.T) {
	among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
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
	}, quiet)
}

func expiresWithItsClient(t *testing.T) {
	among(t, 3, 3, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
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
	}, quiet)
}

// countTogether lets callers of clients count, each a number of times, with nothing but the lock between
// them.
func countTogether(t *testing.T, members, clients, callers, rounds int, opts ...redlock.LockOption) {
	among(t, members, clients, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
		count := &unguarded{}
		var wg sync.WaitGroup
		for _, p := range all {
			for range callers {
				wg.Go(func() {
					for range rounds {
						l, err := p.Mutex("k", opts...).Lock(t.Context())
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
		nothingLeft(t, cluster)
	}, quiet, func(c *redlock.Config) { c.MaxTTL = 2 * time.Minute })
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

func oneSubscriptionForAllNames(t *testing.T) {
	alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		channels := func() []any { return admin(t, cluster.Servers[0], "PUBSUB", "CHANNELS").([]any) }
		rounds := fewer(5000/32, 10)
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
	}, quiet)
}

func eightTasksOnFourNames(t *testing.T) {
	alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
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
	}, quiet)
}

func notRenewedAfterACancelledTryLock(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
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
	}, quiet)
}

func termsDoNotBleed(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
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
	}, quiet, func(c *redlock.Config) { c.MaxTTL, c.TTL = time.Hour, 30*time.Second })
}

func reentriesKeepTheTerm(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
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
		nothingLeft(t, cluster)
	}, quiet)
}

func heldLeasesAreLookedAfter(t *testing.T) {
	alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		m := p.Mutex("k")
		rounds := fewer(200, 20)
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
		nothingLeft(t, cluster)
	}, quiet)
}

func anySingleOneHeld(t *testing.T) {
	for at := range 3 {
		among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
			steal(t, cluster, "k", time.Hour, at)
			first := all[0].Hold(t, "k")
			second := all[1].LockLater(t.Context(), "k")
			time.Sleep(time.Minute)
			require.True(t, second.Pending())
			require.NoError(t, first.Unlock(t.Context()))
			require.NoError(t, second.Get(t).Unlock(t.Context()))
		}, quiet)
	}
}

func clientOnTheMinoritySide(t *testing.T) {
	among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
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

// crowdTogether plays a crowd and leaves nothing.
func crowdTogether(t *testing.T, c crowd) {
	among(t, c.members, c.clients, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
		c.play(t, 1, cluster, all)
		time.Sleep(10 * time.Millisecond)
		leftovers(t, cluster)
	}, quiet)
}

// Four permits of ten, of which others give back seven after a second: not before, and at once then.
func fourAfterASecond(t *testing.T) {
	pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *peer) {
		held := permit(t, p, "k", 10, redlock.Permits(7))
		start := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		waits := later(ctx, q.Semaphore("k", 10, redlock.Permits(4)).Acquire)
		time.Sleep(time.Second)
		unlock(t, held)
		time.Sleep(time.Millisecond)
		require.InDelta(t, time.Second, waits.At.Sub(start), float64(10*time.Millisecond))
		unlock(t, waits.Get(t))
		leftovers(t, cluster)
	})
}

func permitIsExtended(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		l := permit(t, p, "k", 1, redlock.TTL(time.Second))
		require.NoError(t, l.Extend(t.Context(), 3*time.Second))
		time.Sleep(2800 * time.Millisecond)
		require.NoError(t, l.Err())
		_, err := p.Semaphore("k", 1).TryAcquire(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		time.Sleep(500 * time.Millisecond)
		require.ErrorIs(t, l.Extend(t.Context(), time.Second), redlock.ErrLost, "it is over")
		unlock(t, permit(t, p, "k", 1))
		leftovers(t, cluster)
	})
}

func permitLeavesNoKey(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		l := permit(t, p, "k", 3, redlock.TTL(time.Second))
		p.Die()
		<-l.Done()
		time.Sleep(2 * time.Second)
		leftovers(t, cluster)
	})
}

// One has a permit of two, and two wait for both.
func twoForAllOfIt(t *testing.T) {
	three(t, func(t *testing.T, cluster *redistest.Cluster, a, b, c *peer) {
		held := permit(t, a, "k", 2)
		both := []*locking{
			later(t.Context(), b.Semaphore("k", 2, redlock.Permits(2)).Acquire),
			later(t.Context(), c.Semaphore("k", 2, redlock.Permits(2)).Acquire),
		}
		time.Sleep(100 * time.Millisecond)
		require.True(t, both[0].Pending() && both[1].Pending())
		unlock(t, held)
		time.Sleep(100 * time.Millisecond)
		first, second := both[0], both[1]
		if first.Pending() {
			first, second = second, first
		}
		require.True(t, second.Pending())
		unlock(t, first.Get(t))
		time.Sleep(100 * time.Millisecond)
		unlock(t, second.Get(t))
		leftovers(t, cluster)
	})
}

func lostPushOfAPermit(t *testing.T) {
	pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *peer) {
		held := permit(t, p, "k", 1)
		waits := later(t.Context(), q.Semaphore("k", 1).Acquire)
		time.Sleep(100 * time.Millisecond)
		q.EveryLink(func(l *redistest.Link) { l.LosePush(1) })
		unlock(t, held)
		time.Sleep(1100 * time.Millisecond) // a heartbeat
		unlock(t, waits.Get(t))
		leftovers(t, cluster)
	})
}

func lostReplyOfAPermit(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		for _, s := range []script.Script{script.SemAcquire, script.SemRelease} {
			p.EveryLink(func(l *redistest.Link) { l.CutAfter(redistest.WithArg(s.SHA), 1) })
			l, err := p.Semaphore("k", 1).Acquire(t.Context())
			require.NoError(t, err)
			_ = l.Unlock(t.Context())
			time.Sleep(time.Second)
			leftovers(t, cluster)
		}
	})
}
