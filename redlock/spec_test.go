package redlock_test

import (
	"context"
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

// Faults that other lock libraries have, or had, each as a test that it is not here. The numbers are
// those of a study of the peers: V, what was verified by running them; S, redsync's; R, rueidislock's.
// A row without a function names the tests elsewhere that cover it.
var peersFaults = []struct {
	id    string
	fault string
	test  func(t *testing.T)
	in    []string
}{
	{"V1 S1", "a cancelled acquire leaves keys on every member", nil, []string{
		"TestCancelAtAnyMomentLeavesNothingBehind", "TestSeeds",
		"TestCallWithAContextThatHasEndedAsksNobody"}},
	{"V2 S2", "one member free and two held by another, and the vote of the free one is orphaned", nil, []string{
		"TestSpecStep5FailureUnlocksAllInstances"}},
	{"V3 S3", "unlock waits for a hung member, and the lease looks valid afterwards", unlockBesideAHungMember, []string{
		"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{"V4 S3", "lock waits for a hung member although a majority has answered", nil, []string{"TestRoundEndsWithTheAnswerThatDecidesIt"}},
	{"S3", "extend has no time-out of its own", nil, []string{"TestExtendWithoutAMajorityLeavesTheOldValidity"}},
	{"V5 R1", "clocks of clients and servers apart make a lock void", clocksHoursApart, nil},
	{"V6", "an owner whose name begins another's takes over its lock", ownerThatBeginsAnother, nil},
	{"V7 S9", "a TTL too short to be one gives a lock that does not exist", nil, []string{"TestArgumentsThatCannotWorkAreNamed"}},
	{"V8", "who holds one lock is refused a free one besides", nil, []string{"TestSameOwnerEntersAgain"}},
	{"V9", "an even number of members and a tie hang for ever", nil, []string{
		"TestRoundEndsWithTheAnswerThatDecidesIt", "TestSplitEndsAlthoughItsYieldsAreLost"}},
	{"V10 S4", "a call on a connection that hangs outlives its context", nil, []string{"TestNoCallOutlivesItsContextWhileMembersHang"}},
	{"S5 R4", "a lost reply makes an attempt its own rival", nil, []string{"TestUnknownIsNeverAYesAndIsAlwaysCleanedUp", "TestSeeds"}},
	{"S6", "extend brings back a lock that another had in between", nil, []string{
		"TestExtendThatAMajorityRefusesIsALossWhoeverBooksIt", "TestForceIsFinalWhateverTheHoldersRenewalsDo"}},
	{"S7", "a context's end is reported as something else", nil, []string{"TestSilenceIsNotReportedAsHeld"}},
	{"S8", "extend accepts a lease that is over", nil, []string{
		"TestLostLeaseIsNotRevivedByALateRenewal", "TestNothingIsGivenBackAfterTheEnd"}},
	{"S8", "a member that was missing never gets the lease", nil, []string{"TestRenewalGivesTheLeaseBackToMembersThatDoNotHaveIt"}},
	{"R2", "a stale foreign key on one member blocks the lock", nil, []string{"TestKeyThatIsNoLockIsReported"}},
	{"R3", "the end of a lease waits for a renewal that hangs", nil, []string{
		"TestLeaseEndsExactlyWithItsValidityWhileEveryMemberHangs", "TestLostLeaseIsNotRevivedByALateRenewal"}},
	{"R5", "keys on one server are counted as independent votes", nil, []string{
		"TestMemberThatIsListedTwiceVotesOnce", "TestOneServerUnderTwoNamesIsNotTwoMembers"}},
	{"R6", "a waiter spins", nil, []string{"TestWhatMovesAWaiterIsTold"}},
}

func TestPeersFaults(t *testing.T) {
	t.Parallel()
	for _, f := range peersFaults {
		if f.test != nil {
			t.Run(f.id+" "+f.fault, f.test)
		}
	}
}

func unlockBesideAHungMember(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Slow(3*time.Millisecond, 5*time.Millisecond, 7*time.Millisecond)
		l := p.Hold(t, "k")
		time.Sleep(10 * time.Millisecond)
		cluster.Pause(0)
		start := time.Now()
		require.NoError(t, l.Extend(context.Background(), 30*time.Second))
		require.Equal(t, 7*time.Millisecond, time.Since(start), "the second of three answers")
		start = time.Now()
		require.NoError(t, l.Unlock(context.Background()))
		require.Equal(t, 7*time.Millisecond, time.Since(start), "the second of three answers")
		require.ErrorIs(t, l.Err(), redlock.ErrReleased)
		require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrReleased)
		require.False(t, l.ValidUntil().After(start), "nothing of a lease that was unlocked may be relied on")
		cluster.Resume(0)
		time.Sleep(10 * time.Millisecond)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func clocksHoursApart(t *testing.T) {
	for _, step := range []time.Duration{-24 * time.Hour, 24 * time.Hour} {
		redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
			for i := range 3 { // against the clients' clocks, and against one another
				cluster.Embedded(i).Step(step + time.Duration(i)*time.Minute)
			}
			all := redlock.Peers(t, cluster, 2, redlock.Quiet)
			l := all[0].Hold(t, "k", redlock.TTL(10*time.Second))
			require.Equal(t, 3, votesAt(cluster, l), "%v", step)
			for _, s := range cluster.Servers {
				require.Equal(t, int64(10000), redlock.Admin(t, s, "PTTL", "k"))
			}
			require.ErrorIs(t, all[1].Try(t, "k"), redlock.ErrHeld)
			next := all[1].Lock(t, "k")
			require.Error(t, l.Err())
			require.Greater(t, next.Token(), l.Token())
		})
	}
}

func ownerThatBeginsAnother(t *testing.T) {
	for _, numbers := range [][2]uint64{{12, 1}, {1, 12}} {
		redlock.Among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
			for i, p := range all { // owners differ by their last digits only
				redlock.NumberOwners(p.Client, redlock.UUID(all[0].Client), numbers[i])
			}
			first := all[0].Hold(t, "k", redlock.TTL(10*time.Second))
			require.ErrorIs(t, all[1].Try(t, "k"), redlock.ErrHeld)
			synctest.Wait() // and its release freed nothing
			require.NoError(t, first.Err())
			require.Equal(t, 3, votesAt(cluster, first))
		}, redlock.Quiet)
	}
}
