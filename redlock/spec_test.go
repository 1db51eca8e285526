package redlock_test

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The published algorithm, and the tests of each of its rules, in the order of the page:
//
//	https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//
// "Step n" is the numbered list under "The Redlock Algorithm"; other headings are named. Where we do
// more than the page asks for, or otherwise, the comment says so.

// Safety and liveness guarantees, mutual exclusion: TestSchedulesExplored and TestSeeds.
// Free of deadlocks: TestHolderThatDiesIsSucceededWhenItsLeaseEnds. Fault tolerance:
// TestThreeOfFiveDeadIsNoQuorumWithThreeCausesAndHealsByItself and, by the number of members,
// TestRoundEndsWithTheAnswerThatDecidesIt.
//
// Correct implementation with a single instance: acquire.txt and release.txt in internal/script/testdata.
//
// Step 1: TestValidityCountsFromBeforeTheFirstRequest. Step 2: TestMembersThatAnswerAfterTheDecisionStillGiveTheirVotes
// and TestRoundEndsWithTheAnswerThatDecidesIt. Step 4: TestValidityCountsFromBeforeTheFirstRequest. We also take off the
// drift, which the page does in its safety argument.
//
// Retry on failure: TestSplitsAreWonByDifferentClients. The page desynchronises contenders by chance. Ours yield to one of
// them (docs/protocol.md, "Split votes"). Who fails gives back what it had: TestSpecStep5FailureUnlocksAllInstances.
//
// Making the algorithm more reliable: TestExtendMovesTheEndOfAFixedLease, TestExtendThatAMajorityRefusesIsALossWhoeverBooksIt,
// and for the limit TestMaxHoldCapsALeaseThatIsRenewed.
//
// Releasing the lock: TestUnknownIsNeverAYesAndIsAlwaysCleanedUp.
//
// Liveness arguments: TestUnknownIsNeverAYesAndIsAlwaysCleanedUp and TestLostPushIsHealedByTheNextHeartbeat.
//
// Performance, crash recovery and fsync: TestRoundEndsWithTheAnswerThatDecidesIt and
// TestMajorityThatForgetsUnderAHolderLetsNobodyIn (docs/protocol.md, "Restart guard").

// Step 3: acquired if and only if a majority agreed, and not more time has passed than the lock is valid.
func TestSpecStep3MajorityWithinTheValidity(t *testing.T) {
	for yes := range 6 {
		for _, slow := range []bool{false, true} {
			redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				for i := yes; i < 5; i++ {
					steal(t, cluster, "k", time.Minute, i)
				}
				rtt := 90 * time.Millisecond
				if slow {
					rtt = 100 * time.Millisecond
				}
				p.Slow(slices.Repeat([]time.Duration{rtt}, 5)...)
				_, err := p.Mutex("k", redlock.TTL(100*time.Millisecond)).TryLock(t.Context())
				switch {
				case yes < 3:
					require.ErrorIs(t, err, redlock.ErrHeld)
				case slow:
					require.ErrorIs(t, err, redlock.ErrTooSlow)
					_, err = p.Mutex("k", redlock.TTL(100*time.Millisecond)).Lock(t.Context())
					require.ErrorIs(t, err, redlock.ErrTooSlow, "nor after some more tries")
				default:
					require.NoError(t, err)
				}
			})
		}
	}
}

// Step 5: who fails, for whatever reason, unlocks all instances, also those that it believes it could not
// lock.
func TestSpecStep5FailureUnlocksAllInstances(t *testing.T) {
	for name, fail := range map[string]func(p *redlock.Peer, cluster *redistest.Cluster){
		"too few": func(_ *redlock.Peer, cluster *redistest.Cluster) { steal(t, cluster, "k", time.Minute, 0, 1, 2) },
		"unanswered": func(p *redlock.Peer, _ *redistest.Cluster) {
			p.EveryLink(func(l *redistest.Link) { l.DelayReply(redistest.WithArg(script.Acquire.SHA), 1, time.Second) }, 0, 1, 2)
		},
		"no validity": func(p *redlock.Peer, _ *redistest.Cluster) {
			p.EveryLink(func(l *redistest.Link) { l.DelayReply(redistest.WithArg(script.Acquire.SHA), 1, 100*time.Millisecond) })
		},
	} {
		t.Run(name, inAlone(5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			fail(p, cluster)
			releases := p.Count(script.Release)
			_, err := p.Mutex("k", redlock.TTL(90*time.Millisecond)).TryLock(t.Context())
			require.Error(t, err)
			synctest.Wait()
			for _, n := range redlock.Hits(releases) {
				require.Positive(t, n)
			}
		}))
	}
}

// Safety arguments: from the first key set to the first that expires, less the drift, nobody else can have
// a majority. The instances are asked at very different times, and their clocks are off.
func TestSpecSafetyNobodyElseDuringTheMinimumValidity(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		for i, rate := range []float64{1.005, 0.995, 1.005, 1, 1.005} {
			cluster.Embedded(i).SetRate(rate)
		}
		p, other := redlock.JoinAll(t, cluster, redlock.Quiet), redlock.JoinAll(t, cluster, redlock.Quiet)
		p.Slow(0, 50*time.Millisecond, 100*time.Millisecond, 150*time.Millisecond, 180*time.Millisecond)
		l := p.Lock(t, "k", redlock.TTL(2*time.Second))
		for l.Err() == nil {
			require.ErrorIs(t, other.Try(t, "k"), redlock.ErrHeld, "with %v to go", time.Until(l.ValidUntil()))
			wait := 50 * time.Millisecond
			if left := time.Until(l.ValidUntil()); left > 1 && left <= wait {
				wait = left - 1 // the last nanosecond
			}
			time.Sleep(wait)
		}
	})
}
