package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// The published algorithm, one test for each of its rules, here or where the rule says, in the order of the page:
//
//	https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
//
// "Step n" is the numbered list under "The Redlock Algorithm"; other headings are named. Where we do
// more than the page asks for, or otherwise, the comment says so.

// Safety and liveness guarantees: mutual exclusion. Of many clients that want it, one holds it.
// TestBurstOfContendersIsServedWithoutOverlap shows it.

// Safety and liveness guarantees: free of deadlocks. A holder that crashes, or is cut off, blocks the
// lock for no longer than its time to live.
// TestHolderThatDiesIsSucceededWhenItsLeaseEnds shows it.

// Safety and liveness guarantees: fault tolerance. As long as a majority is up, locks are taken and given
// back.
func TestSpecFaultTolerance(t *testing.T) {
	for _, n := range []int{1, 2, 3, 4, 5, 7} {
		withOne(t, n, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
			for down := range (n + 1) / 2 {
				if down > 0 {
					d.Cut(down - 1)
					synctest.Wait()
				}
				l, err := p.Mutex("k").TryLock(t.Context())
				require.NoError(t, err, "%d of %d down", down, n)
				require.NoError(t, l.Unlock(t.Context()))
			}
			d.Cut(n - 1)
			synctest.Wait()
			require.ErrorIs(t, p.Try(t, "k"), redlock.ErrNoQuorum, "half of %d, or more, is down", n)
		})
	}
}

// Correct implementation with a single instance: set only where nothing is, with an expiry, and with a
// random value that tells one holder from another.
func TestSpecKeyIsSetOnlyWhereNothingIsAndExpires(t *testing.T) {
	alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		server := cluster.Servers[0]
		l := p.Hold(t, "k", redlock.TTL(10*time.Second))
		require.Equal(t, int64(10000), admin(t, server, "PTTL", "k"))
		before := admin(t, server, "HGETALL", "k")
		time.Sleep(time.Second)
		require.ErrorIs(t, p.Try(t, "k", redlock.TTL(20*time.Second)), redlock.ErrHeld)
		require.Equal(t, before, admin(t, server, "HGETALL", "k"))
		require.Equal(t, int64(9000), admin(t, server, "PTTL", "k"), "refused attempts change nothing")
		require.NoError(t, l.Unlock(t.Context()))
		p.Hold(t, "k", redlock.TTL(10*time.Second))
		require.NotEqual(t, before, admin(t, server, "HGETALL", "k"), "a value for each acquisition")
	})
}

// Correct implementation with a single instance: a lock is deleted only by who finds its own value there,
// in one step. The holder was away for so long that the lock is another's now.
func TestSpecOnlyTheOwnLockIsDeleted(t *testing.T) {
	pair(t, 1, func(t *testing.T, cluster *redistest.Cluster, p, other *peer) {
		l := p.Hold(t, "k", redlock.TTL(time.Second))
		p.EveryLink((*redistest.Link).PauseRequests)
		next := other.Lock(t, "k")
		require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrLost)
		p.EveryLink((*redistest.Link).Resume)
		time.Sleep(time.Second)
		require.Equal(t, 1, votesAt(cluster, next))
		require.NoError(t, next.Err())
	})
}

// Step 1: the client notes the time before it asks anybody.
// TestValidityCountsFromBeforeTheFirstRequest shows it.

// Step 2: the same key and the same random value at all instances.
// TestMembersThatAnswerAfterTheDecisionStillGiveTheirVotes shows it.

// Step 2: an instance that does not answer is given up after a time that is small against the lock's, and
// (Retry on failure) all are asked at the same time.
func TestSpecStep2NobodyWaitsForASilentInstance(t *testing.T) {
	withOne(t, 5, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		p.Slow(slices.Repeat([]time.Duration{20 * time.Millisecond}, 5)...)
		start := time.Now()
		require.NoError(t, p.Lock(t, "a").Unlock(t.Context()))
		require.Equal(t, 40*time.Millisecond, time.Since(start), "two rounds, not ten")
		d.Pause(0, 1)
		start = time.Now()
		require.NoError(t, p.Lock(t, "b").Unlock(t.Context()))
		require.Equal(t, 40*time.Millisecond, time.Since(start))
		d.Pause(2)
		start = time.Now()
		require.ErrorIs(t, p.Try(t, "c"), redlock.ErrNoQuorum)
		require.Less(t, time.Since(start), 30*time.Second/100)
	})
}

// Step 3: acquired if and only if a majority agreed, and not more time has passed than the lock is valid.
func TestSpecStep3MajorityWithinTheValidity(t *testing.T) {
	for yes := range 6 {
		for _, slow := range []bool{false, true} {
			alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
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
				default:
					require.NoError(t, err)
				}
			})
		}
	}
}

// Step 4: what is left is the validity less the time that passed. We also take off the drift, which the
// page does in its safety argument.
func TestSpecStep4ValidityIsWhatIsLeft(t *testing.T) {
	alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		skew(t, cluster, "k", 1, 1, 1, 1, 1)
		p.Slow(0, 50*time.Millisecond, 100*time.Millisecond, 150*time.Millisecond, 180*time.Millisecond)
		l := p.Lock(t, "k", redlock.TTL(10*time.Second))
		const elapsed = 100 * time.Millisecond
		require.Equal(t, 10*time.Second-elapsed-clock.Drift(10*time.Second, clock.DefaultDrift), time.Until(l.ValidUntil()))
	})
}

// Step 5: who fails, for whatever reason, unlocks all instances, also those that it believes it could not
// lock.
func TestSpecStep5FailureUnlocksAllInstances(t *testing.T) {
	for name, fail := range map[string]func(p *peer, cluster *redistest.Cluster){
		"too few": func(_ *peer, cluster *redistest.Cluster) { steal(t, cluster, "k", time.Minute, 0, 1, 2) },
		"unanswered": func(p *peer, _ *redistest.Cluster) {
			p.EveryLink(func(l *redistest.Link) { l.DelayReply(redistest.WithArg(script.Acquire.SHA), 1, time.Second) }, 0, 1, 2)
		},
		"no validity": func(p *peer, _ *redistest.Cluster) {
			p.EveryLink(func(l *redistest.Link) { l.DelayReply(redistest.WithArg(script.Acquire.SHA), 1, 100*time.Millisecond) })
		},
	} {
		t.Run(name, inAlone(5, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
			fail(p, cluster)
			releases := p.Count(script.Release)
			_, err := p.Mutex("k", redlock.TTL(90*time.Millisecond)).TryLock(t.Context())
			require.Error(t, err)
			synctest.Wait()
			for _, n := range hits(releases) {
				require.Positive(t, n)
			}
		}))
	}
}

// Retry on failure: contenders that split the votes must come apart again. The page desynchronises them
// by chance; ours yield to one of them (docs/protocol.md, "Split votes").
func TestSpecRetrySplitVotesAreResolved(t *testing.T) {
	withMany(t, 3, 3, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		start := time.Now()
		waiting := split(t, all, "k")
		time.Sleep(200 * time.Millisecond)
		for range all {
			i := slices.IndexFunc(waiting, func(w *locking) bool { return !w.Pending() })
			require.GreaterOrEqual(t, i, 0, "nobody has it after %v", time.Since(start))
			require.NoError(t, waiting[i].Get(t).Unlock(t.Context()))
			waiting = slices.Delete(waiting, i, i+1)
			time.Sleep(100 * time.Millisecond)
		}
	}, quiet)
}

// Retry on failure: who fails gives back what it had at once, so that nobody must wait for the expiry.
func TestSpecRetryPartialLocksAreGivenBackAtOnce(t *testing.T) {
	pair(t, 5, func(t *testing.T, cluster *redistest.Cluster, p, other *peer) {
		steal(t, cluster, "k", time.Second, 0, 1, 2)
		require.ErrorIs(t, p.Try(t, "k", redlock.TTL(30*time.Second)), redlock.ErrHeld)
		synctest.Wait()
		for _, i := range []int{3, 4} {
			require.Equal(t, int64(0), admin(t, cluster.Servers[i], "EXISTS", "k"))
		}
		time.Sleep(time.Second)
		_, err := other.Mutex("k").TryLock(t.Context())
		require.NoError(t, err)
	})
}

// Releasing the lock: at all instances, whether or not the client knows that it has the lock there.
func TestSpecReleaseGoesToAllInstances(t *testing.T) {
	alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		p.EveryLink(func(l *redistest.Link) { l.DelayReply(redistest.WithArg(script.Acquire.SHA), 1, time.Second) }, 3, 4)
		l := p.Hold(t, "k")
		require.Equal(t, 3, l.Votes())
		require.Equal(t, 5, votesAt(cluster, l))
		require.NoError(t, l.Unlock(t.Context()))
		nothingLeft(t, cluster)
	})
}

// Safety arguments: from the first key set to the first that expires, less the drift, nobody else can have
// a majority. The instances are asked at very different times, and their clocks are off.
func TestSpecSafetyNobodyElseDuringTheMinimumValidity(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		for i, rate := range []float64{1.005, 0.995, 1.005, 1, 1.005} {
			cluster.Embedded(i).SetRate(rate)
		}
		p, other := join(t, cluster, quiet), join(t, cluster, quiet)
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

// Safety arguments: who needed longer than the validity to get a majority does not have the lock, and
// unlocks.
func TestSpecSafetyMajorityTooLateIsNoLock(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		p.Slow(0, 60*time.Millisecond, 60*time.Millisecond)
		require.ErrorIs(t, p.Try(t, "k", redlock.TTL(50*time.Millisecond)), redlock.ErrTooSlow)
		_, err := p.Mutex("k", redlock.TTL(50*time.Millisecond)).Lock(t.Context())
		require.ErrorIs(t, err, redlock.ErrTooSlow, "nor after some more tries")
		time.Sleep(60 * time.Millisecond)
		noKeys(t, d)
	})
}

// Liveness arguments: keys expire by themselves, also those that no majority ever had.
func TestSpecLivenessKeysExpire(t *testing.T) {
	withOne(t, 5, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		d.Network(p.Client, redlocktest.Network{LoseReplies: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		time.AfterFunc(time.Millisecond, p.Die) // not even a release
		_, err := p.Mutex("k", redlock.TTL(5*time.Second)).TryLock(ctx)
		require.Error(t, err)
		time.Sleep(6 * time.Second)
		noKeys(t, d)
	})
}

// Liveness arguments: clients take their locks away when they are done, so that nobody waits for expiry.
// TestLostPushIsHealedByTheNextHeartbeat shows it.

// Performance, crash recovery and fsync: a lock is had in one round trip and given back in one, and what
// many callers ask of an instance goes out together.
func TestSpecPerformanceOneRoundTrip(t *testing.T) {
	alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		p.Slow(slices.Repeat([]time.Duration{10 * time.Millisecond}, 5)...)
		require.NoError(t, p.Lock(t, "far").Unlock(t.Context())) // by which the client learns that they are far away
		start := time.Now()
		var wg sync.WaitGroup
		for i := range 50 {
			skew(t, cluster, fmt.Sprint(i), 1, 1, 1, 1, 1)
			wg.Go(func() { _ = p.Lock(t, fmt.Sprint(i)).Unlock(t.Context()) })
		}
		wg.Wait()
		require.Equal(t, 20*time.Millisecond, time.Since(start))
	}, quiet)
}

// Performance, crash recovery and fsync: an instance that comes back without its memory must not help a
// second client to a majority while the first one's lock is valid. (Delayed restarts: docs/protocol.md,
// "Restart guard".)
func TestSpecRestartedInstanceDoesNotVoteBeforeOldLocksAreOver(t *testing.T) {
	withTwo(t, 5, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		p.Away(3, 4)
		l := p.Hold(t, "k", redlock.TTL(20*time.Second))
		require.Equal(t, 3, l.Votes())
		d.Forget(2)
		tries := 0
		for ; l.Err() == nil; tries++ {
			_, err := other.Mutex("k").TryLock(t.Context())
			require.Error(t, err, "with %v to go", time.Until(l.ValidUntil()))
			time.Sleep(200 * time.Millisecond)
		}
		require.Greater(t, tries, 90)
	})
}

// Making the algorithm more reliable: extending. It counts where the instance still has the client's own
// value, and for the lock if a majority says so within its validity.
func TestSpecExtendNeedsAMajorityThatStillHasTheLock(t *testing.T) {
	for stolen := range 4 {
		alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
			l := p.Hold(t, "k", redlock.TTL(10*time.Second))
			time.Sleep(5 * time.Second)
			for i := range stolen {
				steal(t, cluster, "k", time.Minute, i)
			}
			start := time.Now()
			err := l.Extend(t.Context(), 10*time.Second)
			if stolen <= 2 {
				require.NoError(t, err)
				require.Equal(t, start.Add(validity(10*time.Second)), l.ValidUntil())
			} else {
				require.ErrorIs(t, err, redlock.ErrLost)
			}
		})
	}
}

// Making the algorithm more reliable: the number of extensions is limited, or a client could keep others
// out for ever.
func TestSpecExtensionsAreLimited(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		start := time.Now()
		l := p.Lock(t, "k") // nobody unlocks it
		<-l.Done()
		require.InDelta(t, 10, time.Since(start).Minutes(), 0.01)
		require.Equal(t, redlock.LostMaxHold, lostFor(l))
		require.Equal(t, 24*time.Hour, redlock.DefaultConfig().MaxHold)
	}, quiet, func(c *redlock.Config) { c.MaxHold = 10 * time.Minute })
}
