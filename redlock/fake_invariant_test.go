package redlock_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// What must always hold, in fake time on embedded members. All times are exact: a round trip takes
// what the path is told to take, and computing takes nothing.

// Ways for an acquire to be executed, or perhaps executed, without an answer.
var unanswered = []struct {
	name  string
	fault func(l *redistest.Link)
}{
	{"reply lost", func(l *redistest.Link) { l.LoseReply(redistest.WithArg(script.Acquire.SHA), 1) }},
	{"connection cut behind it", func(l *redistest.Link) { l.CutAfter(redistest.WithArg(script.Acquire.SHA), 1) }},
	{"connection cut before it", func(l *redistest.Link) { l.CutBefore(redistest.WithArg(script.Acquire.SHA), 1) }},
	{"executed behind a broken connection", func(l *redistest.Link) {
		l.ZombieOn(redistest.WithArg(script.Acquire.SHA), 1, 700*time.Millisecond)
	}},
	{"arrives late", func(l *redistest.Link) {
		l.DelayCommand(redistest.WithArg(script.Acquire.SHA), 1, 900*time.Millisecond)
	}},
	{"reply late", func(l *redistest.Link) {
		l.DelayReply(redistest.WithArg(script.Acquire.SHA), 1, 900*time.Millisecond)
	}},
	{"path held", func(l *redistest.Link) { l.Pause(); time.AfterFunc(1500*time.Millisecond, l.Resume) }},
	{"path lost", func(l *redistest.Link) { l.BlackHole(); time.AfterFunc(1500*time.Millisecond, l.Heal) }},
}

func TestUnknownIsNeverAYesAndIsAlwaysCleanedUp(t *testing.T) {
	for _, fault := range unanswered {
		t.Run(fault.name, inAlone(5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			for broken := 1; broken <= 5; broken++ {
				name := fmt.Sprintf("k%d", broken)
				for i := range broken {
					fault.fault(p.Links[i])
				}
				start := time.Now()
				l, err := p.Mutex(name, redlock.TTL(30*time.Second)).TryLock(t.Context())
				if broken <= 2 {
					require.NoError(t, err, "a minority is not needed")
					require.Zero(t, time.Since(start), "nor waited for")
					synctest.Wait()
					require.Equal(t, 5-broken, l.Votes(), "an answer that did not come is no vote")
					require.NoError(t, l.Unlock(t.Context()))
				} else if err != nil {
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
					require.NotErrorIs(t, err, redlock.ErrHeld, "silence does not mean held")
					require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
				} else {
					require.Positive(t, time.Since(start), "it was asked for again, on connections that came then")
					require.LessOrEqual(t, time.Since(start), 200*time.Millisecond)
					require.NoError(t, l.Unlock(t.Context()))
				}
				// Far from the TTL: the connection is found dead within 2 s and made anew.
				time.Sleep(6 * time.Second)
				redlock.Leftovers(t, cluster)
				p.Settle(t, 5)
			}
		}))
	}
}

// The caller's context ends at every point of an acquisition, whatever is under way then: the first
// round, the second, the wait, the hand-over.
func TestCancelAtAnyMomentLeavesNothingBehind(t *testing.T) {
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("held=%v", held), inPair(5, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
			p.Slow(2*time.Millisecond, 4*time.Millisecond, 6*time.Millisecond, 8*time.Millisecond, 10*time.Millisecond)
			var won, cancelled, queued int
			for after := time.Duration(0); after <= 24*time.Millisecond; after += 500 * time.Microsecond {
				name := fmt.Sprint("k", after)
				redlock.Skew(t, cluster, name, 50, 40, 30, 20, 10) // so that there is a second round
				var holder *redlock.Lease
				if held {
					holder = other.Lock(t, name)
					time.AfterFunc(14*time.Millisecond, func() { go func() { _ = holder.Unlock(context.Background()) }() })
				}
				ctx, cancel := context.WithCancel(t.Context())
				time.AfterFunc(after, cancel)
				if after == 0 {
					cancel()
				}
				start := time.Now()
				l, err := p.Mutex(name).Lock(ctx)
				if err != nil {
					cancelled++
					require.ErrorIs(t, err, context.Canceled)
					require.Equal(t, after, time.Since(start), "a call ends with its context")
				} else {
					won++
					require.NoError(t, l.Unlock(context.Background()))
				}
				if held {
					time.Sleep(12 * time.Millisecond) // what is under way has arrived
					for _, s := range cluster.Servers {
						if n := redlock.Admin(t, s, "ZCARD", redlock.QueueOf(name)); n != int64(0) {
							queued++
						}
					}
					require.Zero(t, queued, "a place in a queue was left behind")
					time.Sleep(20 * time.Millisecond)
				}
				time.Sleep(12 * time.Millisecond)
				redlock.Leftovers(t, cluster)
				cancel()
			}
			require.Positive(t, won, "some must get through, or the moments prove nothing")
			require.Greater(t, cancelled, 20)
		}, redlock.Quiet))
	}
}

func TestRoundEndsWithTheAnswerThatDecidesIt(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, tc := range []struct {
		members int
		hung    []int
		refused []int // members where the lock is another's
		want    time.Duration
		err     error
	}{
		// Member i answers after 10(i+1) ms.
		{members: 1, want: ms(10)},
		{members: 2, want: ms(20)},
		{members: 3, want: ms(20)},
		{members: 4, want: ms(30)}, // of four it takes three
		{members: 5, want: ms(30)},
		{members: 3, hung: []int{0}, want: ms(30)},
		{members: 4, hung: []int{0}, want: ms(40)},
		{members: 5, hung: []int{0, 1}, want: ms(50)},
		{members: 5, hung: []int{3, 4}, want: ms(30)},
		{members: 1, refused: []int{0}, want: ms(10), err: redlock.ErrHeld},
		{members: 2, refused: []int{0}, want: ms(10), err: redlock.ErrHeld}, // one of two is enough to lose
		{members: 3, refused: []int{0, 1}, want: ms(20), err: redlock.ErrHeld},
		{members: 4, refused: []int{0, 1}, want: ms(20), err: redlock.ErrHeld},
		{members: 5, refused: []int{0, 1, 2}, want: ms(30), err: redlock.ErrHeld},
		{members: 5, refused: []int{0, 1}, want: ms(50)},
		{members: 5, refused: []int{2, 3, 4}, want: ms(50), err: redlock.ErrHeld},
		{members: 5, hung: []int{0, 1}, refused: []int{2, 3, 4}, want: ms(50), err: redlock.ErrHeld},
		{members: 5, hung: []int{0, 1, 2}, want: ms(200), err: redlock.ErrNoQuorum},
		{members: 5, hung: []int{0, 1}, refused: []int{4}, want: ms(200), err: redlock.ErrHeld}, // a majority answered, and it would have voted
		{members: 2, hung: []int{0}, want: ms(200), err: redlock.ErrNoQuorum},                   // half of them is no majority
		{members: 4, hung: []int{0, 1}, want: ms(200), err: redlock.ErrNoQuorum},
		{members: 7, hung: []int{0, 1, 2}, want: ms(70)},
		{members: 7, hung: []int{0, 1, 2, 3}, want: ms(200), err: redlock.ErrNoQuorum},
	} {
		t.Run(fmt.Sprintf("of %d hung %v refused %v", tc.members, tc.hung, tc.refused), inAlone(tc.members, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			steal(t, cluster, "k", time.Minute, tc.refused...)
			for i, l := range p.Links {
				l.SetDelay(redistest.Delay{Fixed: ms(3)}, redistest.Delay{Fixed: ms(10*(i+1) - 3)})
			}
			if len(tc.hung) > 0 {
				cluster.Pause(tc.hung...)
			}
			start := time.Now()
			l, err := p.Mutex("k").TryLock(t.Context())
			require.Equal(t, tc.want, time.Since(start))
			if tc.err != nil {
				require.ErrorIs(t, err, tc.err)
				return
			}
			require.NoError(t, err)
			start = time.Now()
			require.NoError(t, l.Unlock(t.Context()))
			want := tc.want
			if len(tc.refused) > 0 {
				want = ms(30) // where the lock was another's, nothing of it is left either
			}
			require.Equal(t, want, time.Since(start), "unlock returns with the majority too")
		}))
	}
}

func TestStragglersAreBoundedInNumberAndTime(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		one := func() { require.NoError(t, p.Lock(t, "k").Unlock(t.Context())) }
		one()
		synctest.Wait()
		before := runtime.NumGoroutine()
		d.Pause(2) // hangs: accepts everything and answers nothing
		start := time.Now()
		for range 300 {
			one()
		}
		require.Zero(t, time.Since(start), "a hung member costs no time")
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+5, "nor a goroutine per call")
		time.Sleep(3 * time.Second) // the stall is noticed: all 600 calls are given up
		for range 100 {
			one()
		}
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+10)
		d.Resume(2)
		time.Sleep(10 * time.Second)
		p.Settle(t, 3)
		noKeys(t, d)
		one()
		synctest.Wait()
		require.LessOrEqual(t, runtime.NumGoroutine(), before+2)
	})
}

func TestMembersThatAnswerAfterTheDecisionStillGiveTheirVotes(t *testing.T) {
	withOne(t, 5, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		p.Slow(0, 0, 0, 40*time.Millisecond, 80*time.Millisecond)
		l := p.Lock(t, "k")
		require.Equal(t, 3, l.Votes())
		require.Equal(t, 3, l.Votes())
		time.Sleep(41 * time.Millisecond)
		require.Equal(t, 4, l.Votes())
		time.Sleep(40 * time.Millisecond)
		require.Equal(t, 5, l.Votes(), "a full house is what survives a forgetful member")
		require.Equal(t, 5, l.Votes())
		require.Equal(t, 5, votesSeen(t, p, l))
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(100 * time.Millisecond)
		noKeys(t, d)
	})
}

func TestValidityCountsFromBeforeTheFirstRequest(t *testing.T) {
	withOne(t, 5, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		d.Network(p.Client, redlocktest.Network{Request: 30 * time.Millisecond, Reply: 20 * time.Millisecond})
		const rtt = 50 * time.Millisecond

		start := time.Now()
		l := p.Lock(t, "fixed", redlock.TTL(10*time.Second))
		require.Equal(t, rtt, time.Since(start))
		require.Equal(t, start.Add(redlock.Validity(10*time.Second)), l.ValidUntil(), "acquire")
		time.Sleep(3 * time.Second)
		start = time.Now()
		require.NoError(t, l.Extend(t.Context(), 20*time.Second))
		require.Equal(t, start.Add(redlock.Validity(20*time.Second)), l.ValidUntil(), "Extend")
		require.NoError(t, l.Unlock(t.Context()))

		l = p.Lock(t, "renewed", redlock.AutoRenew(9*time.Second))
		renewal := time.Now().Add(3 * time.Second)
		time.Sleep(3*time.Second + rtt - 1)
		require.Equal(t, renewal.Add(-3*time.Second-rtt).Add(redlock.Validity(9*time.Second)), l.ValidUntil(), "not renewed yet")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		require.Equal(t, renewal.Add(redlock.Validity(9*time.Second)), l.ValidUntil(), "renewal")
	})
}

func TestLeaseEndsExactlyWithItsValidityWhileEveryMemberHangs(t *testing.T) {
	for _, opt := range []redlock.LockOption{redlock.TTL(10 * time.Second), redlock.AutoRenew(10 * time.Second)} {
		withOne(t, 5, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
			start := time.Now()
			l := p.Lock(t, "k", opt)
			synctest.Wait()
			d.Pause()
			time.Sleep(redlock.Validity(10*time.Second) - 1)
			require.NoError(t, l.Err())
			require.NoError(t, l.Context().Err())
			<-l.Done()
			require.Equal(t, redlock.Validity(10*time.Second), time.Since(start))
			require.Equal(t, redlock.LostExpired, redlock.LostFor(l))
			require.ErrorIs(t, context.Cause(l.Context()), redlock.ErrLost)
			require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrLost)
		})
	}
}

func TestLostLeaseIsNotRevivedByALateRenewal(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		start := time.Now()
		l := p.Lock(t, "k", redlock.AutoRenew(3*time.Second))
		synctest.Wait()
		p.EveryLink((*redistest.Link).PauseReplies)
		end := l.ValidUntil()
		time.Sleep(time.Until(end) - 1)
		require.Greater(t, redlock.Admin(t, cluster.Servers[0], "PTTL", "k"), int64(1000), "the members did renew it")
		<-l.Done()
		require.Equal(t, redlock.Validity(3*time.Second), time.Since(start))
		p.EveryLink((*redistest.Link).Resume)
		synctest.Wait()
		require.Equal(t, redlock.LostExpired, redlock.LostFor(l))
		require.Equal(t, end, l.ValidUntil())
		require.ErrorIs(t, l.Extend(t.Context(), time.Second), redlock.ErrLost)
		redlock.Leftovers(t, cluster) // and it was given back, behind the renewal
	}, redlock.Quiet)
}

func TestRenewalRefusedByAMajorityEndsTheLeaseAtOnce(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Slow(slices.Repeat([]time.Duration{10 * time.Millisecond}, 5)...)
		l := p.Lock(t, "k", redlock.AutoRenew(9*time.Second))
		granted := time.Now()
		steal(t, cluster, "k", time.Minute, 0, 2, 4)
		<-l.Done()
		require.Equal(t, 3*time.Second+10*time.Millisecond, time.Since(granted), "the next renewal, one round trip")
		require.Equal(t, redlock.LostRefused, redlock.LostFor(l))
		time.Sleep(50 * time.Millisecond)
		for _, i := range []int{1, 3} {
			require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[i], "EXISTS", "k"), "released where it was still held")
		}
	})
}

func TestRenewalRefusedByAMinorityGoesOn(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Lock(t, "k", redlock.AutoRenew(9*time.Second))
		steal(t, cluster, "k", time.Hour, 0, 4)
		time.Sleep(time.Minute)
		require.NoError(t, l.Err())
		require.Equal(t, 3, l.Votes())
	})
}

// Silence is no refusal, and no confirmation either.
func TestRenewalWithoutAMajorityOfAnswersEndsTheLeaseAtItsValidity(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		start := time.Now()
		l := p.Lock(t, "k", redlock.AutoRenew(9*time.Second))
		time.Sleep(7 * time.Second)
		start = start.Add(6 * time.Second) // of the renewal that is in force
		require.Equal(t, start.Add(redlock.Validity(9*time.Second)), l.ValidUntil())
		p.EveryLink((*redistest.Link).BlackHole, 0, 1)
		steal(t, cluster, "k", time.Minute, 2) // two silent, one refuses, two confirm
		<-l.Done()
		require.Equal(t, redlock.Validity(9*time.Second), time.Since(start))
		require.Equal(t, redlock.LostExpired, redlock.LostFor(l))
	})
}

func TestRenewalGivesTheLeaseBackToMembersThatDoNotHaveIt(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		redlock.Skew(t, cluster, "k", 70, 70, 70, 70, 70)
		l := p.Lock(t, "k", redlock.AutoRenew(9*time.Second))
		require.Equal(t, uint64(71), l.Token())
		synctest.Wait()
		for _, i := range []int{1, 3} { // forget
			redlock.Admin(t, cluster.Servers[i], "DEL", "k")
			redlock.Admin(t, cluster.Servers[i], "HSET", member.TokensKey, redlock.BucketOf("k"), "5")
		}
		time.Sleep(2900 * time.Millisecond)
		require.Equal(t, 3, votesAt(cluster, l))
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, 5, votesAt(cluster, l))
		require.Equal(t, 5, l.Votes())
		for _, s := range cluster.Servers {
			require.Equal(t, int64(71), redlock.Counter(t, s, "k"), "the counter first: a later token must be greater")
		}
		require.NoError(t, l.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	})
}

func TestExtendNeverShortensAtTheMembers(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Lock(t, "k", redlock.TTL(20*time.Second))
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, l.Extend(t.Context(), 5*time.Second))
		require.Equal(t, start.Add(redlock.Validity(5*time.Second)), l.ValidUntil(), "clamped here")
		for _, s := range cluster.Servers {
			require.Equal(t, int64(19000), redlock.Admin(t, s, "PTTL", "k"), "and not there")
		}
		// The script itself, whatever a client asks of it.
		k := script.Exclusive("k")
		for _, s := range cluster.Servers {
			require.Equal(t, []any{int64(1)}, redlock.Admin(t, s, "EVAL", script.Extend.Source, "1", k.Name, redlock.OwnerOf(l), "1000", ""))
			require.Equal(t, int64(19000), redlock.Admin(t, s, "PTTL", "k"))
		}
		<-l.Done()
		require.Equal(t, redlock.Validity(5*time.Second), time.Since(start))
		require.Equal(t, redlock.LostExpired, redlock.LostFor(l))
		redlock.NothingLeft(t, cluster)
	})
}

func TestExtendMovesTheEndOfAFixedLease(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		l := p.Lock(t, "k", redlock.TTL(5*time.Second))
		time.Sleep(4 * time.Second)
		start := time.Now()
		require.NoError(t, l.Extend(t.Context(), 20*time.Second))
		<-l.Done()
		require.Equal(t, redlock.Validity(20*time.Second), time.Since(start))
	})
}

func TestExtendWithoutAMajorityLeavesTheOldValidity(t *testing.T) {
	withOne(t, 5, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		l := p.Lock(t, "k", redlock.TTL(5*time.Second))
		until := l.ValidUntil()
		synctest.Wait()
		d.Pause(0, 1, 2)
		start := time.Now()
		require.ErrorIs(t, l.Extend(t.Context(), 20*time.Second), redlock.ErrNoQuorum)
		require.Equal(t, 200*time.Millisecond, time.Since(start))
		require.Equal(t, until, l.ValidUntil())
		<-l.Done()
		require.Equal(t, until, time.Now())
	})
}

func TestMaxHoldCapsALeaseThatIsRenewed(t *testing.T) {
	tr := &tracer{}
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		start := time.Now()
		l := p.Lock(t, "k", redlock.AutoRenew(3*time.Second), redlock.MaxHold(10*time.Second))
		limit := start.Add(10 * time.Second)
		require.NoError(t, l.Extend(t.Context(), 20*time.Second)) // no way round it
		for l.Err() == nil {
			require.False(t, l.ValidUntil().After(limit))
			time.Sleep(100 * time.Millisecond)
		}
		require.WithinRange(t, l.ValidUntil(), limit.Add(-clock.Drift(3*time.Second, clock.DefaultDrift)), limit)
		require.Equal(t, redlock.LostMaxHold, redlock.LostFor(l))
		synctest.Wait()
		require.Len(t, tr.losses(), 1)
		require.Equal(t, redlock.LostMaxHold, tr.losses()[0].Reason)
		noKeys(t, d)
	}, redlock.WithTracer(tr))
}

func TestFixedLeaseGrantedWhileWaitingIsRenewedOnceToItsEnd(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, holder, p *redlock.Peer) {
		held := holder.Hold(t, "k")
		waiting := p.LockLater(t.Context(), "k", redlock.TTL(20*time.Second))
		time.Sleep(2 * time.Second)
		extends := p.Count(script.Extend)
		require.NoError(t, held.Unlock(t.Context()))
		l := waiting.Get(t)
		granted := time.Now()
		require.False(t, l.ValidUntil().After(granted.Add(redlock.Validity(3*time.Second))), "a waiter is believed for no more than its entry")
		<-l.Done()
		require.WithinRange(t, time.Now(), granted.Add(redlock.Validity(20*time.Second)), granted.Add(20*time.Second))
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(extends))
		require.Equal(t, redlock.LostExpired, redlock.LostFor(l))
	}, redlock.Quiet)
}

// threeYes is a client of members that agree to everything.
func threeYes(t *testing.T) ([]*redlock.Yes, *redlock.Peer) {
	members := []*redlock.Yes{{}, {}, {}}
	c := rt.Must(redlock.New([]member.Member{members[0], members[1], members[2]}))(t)
	t.Cleanup(func() { _ = c.Close() })
	return members, &redlock.Peer{Client: c}
}

// Leases that were acquired one after the other fall due one after the other. A call takes those along
// that are due a little later: nearly every call is full. Nor does a lease have a goroutine.
func TestRenewalsOfManyLeasesAreBatched(t *testing.T) {
	for _, tc := range []struct {
		apart, ttl, span time.Duration
		least, most      int // calls, in batches of all leases
	}{
		{0, 30 * time.Second, 65 * time.Second, 6, 6},
		{time.Millisecond, 9 * time.Second, 12 * time.Second, 4, 6}, // four renewals, or a little more as they come early
	} {
		faketime.Test(t, func(t *testing.T) {
			const leases = 2000
			members, p := threeYes(t)
			synctest.Wait()
			goroutines := runtime.NumGoroutine()
			all := make([]*redlock.Lease, leases)
			for i := range all {
				all[i] = p.Lock(t, fmt.Sprint("lease-", i), redlock.AutoRenew(tc.ttl))
				time.Sleep(tc.apart)
			}
			before := members[0].Called(script.Extend)
			time.Sleep(tc.span)
			calls := members[0].Called(script.Extend) - before
			require.GreaterOrEqual(t, calls, tc.least*leases/redlock.PerCall)
			require.LessOrEqual(t, calls, tc.most*leases/redlock.PerCall+12)
			for _, l := range all {
				require.NoError(t, l.Err())
				require.Greater(t, time.Until(l.ValidUntil()), tc.ttl/2)
			}
			require.LessOrEqual(t, runtime.NumGoroutine(), goroutines+2)
		})
	}
}

// Renewals that fall due together may be more than a member's queue takes. What did not fit is asked
// for again in time. That needs batches of a size that fits at all.
func TestRenewalsBeyondAMembersQueueAreRepeated(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		var all []*redlock.Lease
		for i := range 40 { // 1.2 MB of names, of which 1 MiB fits
			all = append(all, p.Lock(t, fmt.Sprintf("%04d%s", i, strings.Repeat("x", 30000)), redlock.AutoRenew(30*time.Second)))
		}
		p.Slow(5*time.Millisecond, 5*time.Millisecond, 5*time.Millisecond)
		time.Sleep(time.Minute)
		for _, l := range all {
			require.NoError(t, l.Err())
		}
	}, redlock.Quiet)
}

func TestLossOfOneLeaseEndsNoOther(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		var all []*redlock.Lease
		for i := range 100 {
			all = append(all, p.Lock(t, fmt.Sprint("k", i), redlock.AutoRenew(9*time.Second)))
		}
		steal(t, cluster, "k10", time.Minute, 0, 1)
		for _, s := range cluster.Servers[1:] {
			redlock.Admin(t, s, "DEL", "k20")
			redlock.Admin(t, s, "SET", "k20", "a string")
		}
		time.Sleep(time.Minute)
		for i, l := range all {
			if i == 10 || i == 20 {
				require.Equal(t, redlock.LostRefused, redlock.LostFor(l), l.Key())
			} else {
				require.NoError(t, l.Err(), l.Key())
			}
		}
	})
}

func TestNoCallOutlivesItsContextWhileMembersHang(t *testing.T) {
	const limit = 30 * time.Millisecond
	for _, hung := range []int{2, 3} { // of three: a bare majority, all
		withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
			held := p.Hold(t, "held")
			other := another(t, d)
			h := other.Lock(t, "handed", redlock.AutoRenew(20*time.Second))
			handoff := handoff(t, h)
			synctest.Wait()
			for i := range hung {
				d.Pause(i)
			}
			for name, call := range map[string]func(ctx context.Context) error{
				"TryLock": func(ctx context.Context) error { _, err := p.Mutex("a").TryLock(ctx); return err },
				"Lock":    func(ctx context.Context) error { _, err := p.Mutex("b").Lock(ctx); return err },
				"Extend":  func(ctx context.Context) error { return held.Extend(ctx, 30*time.Second) },
				"Adopt":   func(ctx context.Context) error { _, err := p.Adopt(ctx, handoff); return err },
			} {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				start := time.Now()
				err := call(ctx)
				require.Equal(t, limit, time.Since(start), name)
				require.ErrorIs(t, err, context.DeadlineExceeded, name)
				cancel()
			}
			ctx := rt.Within(t, limit)
			start := time.Now()
			err := held.Unlock(ctx)
			require.Equal(t, limit, time.Since(start))
			require.ErrorIs(t, err, redlock.ErrInDoubt)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			d.Resume()
			time.Sleep(25 * time.Second) // "handed" has nobody to release it
			noKeys(t, d)
		}, func(c *redlock.Config) { c.MemberTimeout = 10 * time.Second })
	}
}

// Fencing tokens, in fake time on embedded members whose counters disagree.

func TestSecondRoundHappensExactlyWhenTheCountersOfTheMajorityDisagree(t *testing.T) {
	for _, tc := range []struct {
		name     string
		counters []int64
		order    []int // members by their distance
		token    uint64
		second   bool
		after    []int64
	}{
		{"in step", []int64{5, 5, 5}, []int{0, 1, 2}, 6, false, []int64{6, 6, 6}},
		{"one ahead, too late to matter", []int64{5, 5, 9}, []int{0, 1, 2}, 6, false, []int64{6, 6, 10}},
		{"one ahead, first", []int64{5, 5, 9}, []int{2, 0, 1}, 10, true, []int64{10, 10, 10}},
		{"one ahead, decides", []int64{5, 5, 9}, []int{0, 2, 1}, 10, true, []int64{10, 10, 10}},
		{"one behind is raised without a round", []int64{9, 9, 5}, []int{0, 1, 2}, 10, false, []int64{10, 10, 10}},
		{"one behind, first", []int64{9, 9, 5}, []int{2, 1, 0}, 10, true, []int64{10, 10, 10}},
		{"five, majority in step", []int64{5, 5, 5, 9, 1}, []int{0, 1, 2, 3, 4}, 6, false, []int64{6, 6, 6, 10, 6}},
		{"five, all different", []int64{1, 2, 3, 4, 5}, []int{0, 1, 2, 3, 4}, 4, true, []int64{4, 4, 4, 5, 6}},
		{"five, greatest first", []int64{1, 2, 3, 4, 5}, []int{4, 3, 2, 1, 0}, 6, true, []int64{6, 6, 6, 6, 6}},
		{"of two", []int64{3, 8}, []int{0, 1}, 9, true, []int64{9, 9}},
		{"of four", []int64{3, 3, 3, 8}, []int{0, 1, 2, 3}, 4, false, []int64{4, 4, 4, 9}},
		{"alone", []int64{41}, []int{0}, 42, false, []int64{42}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := len(tc.counters)
			tr := &tracer{}
			redlock.Alone(t, n, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				redlock.Skew(t, cluster, "k", tc.counters...)
				rtt := make([]time.Duration, n)
				for place, i := range tc.order {
					rtt[i] = time.Duration(place+1) * 10 * time.Millisecond
				}
				p.Slow(rtt...)
				start := time.Now()
				l := p.Lock(t, "k")
				took := rtt[tc.order[n/2]] // the answer that makes the majority
				if tc.second {
					took *= 2
				}
				require.Equal(t, took, time.Since(start), "a round, or two")
				require.Equal(t, tc.token, l.Token())
				require.Equal(t, tc.second, tr.last().SecondRound)
				require.Equal(t, tc.token, tr.last().Token)
				time.Sleep(200 * time.Millisecond)
				var after []int64
				for _, s := range cluster.Servers {
					after = append(after, redlock.Counter(t, s, "k"))
				}
				require.Equal(t, tc.after, after)
				require.NoError(t, l.Unlock(t.Context()))
				require.Greater(t, p.Lock(t, "k").Token(), tc.token)
			}, redlock.WithTracer(tr))
		})
	}
}

func TestRaiseIsConfirmedByMembersThatVotedLater(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		redlock.Skew(t, cluster, "k", 5, 7, 9, 3, 20)
		p.Slow(time.Millisecond, 2*time.Millisecond, 3*time.Millisecond, 4*time.Millisecond, 5*time.Millisecond)
		p.Links[2].LoseReply(redistest.WithArg(script.Raise.SHA), 1)
		start := time.Now()
		l := p.Lock(t, "k")
		require.Less(t, time.Since(start), 200*time.Millisecond, "MemberTimeout")
		require.EqualValues(t, 10, l.Token(), "a vote above it does not confirm it, and one below it does")
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(6 * time.Second)
		redlock.Leftovers(t, cluster)
	})
}

func TestTokenOfAHandOverIsRaisedToo(t *testing.T) {
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		tr := &tracer{}
		holder, p := redlock.JoinAll(t, cluster, redlock.Quiet), redlock.JoinAll(t, cluster, redlock.Quiet, redlock.WithTracer(tr))
		held := holder.Hold(t, "k")
		p.Slow(10*time.Millisecond, 11*time.Millisecond, 12*time.Millisecond, 13*time.Millisecond, 14*time.Millisecond)
		waiting := p.LockLater(t.Context(), "k")
		time.Sleep(3100 * time.Millisecond)
		base := int64(held.Token())
		redlock.Skew(t, cluster, "k", base+10, base+20, base+30, base+40, base+50)
		require.NoError(t, held.Unlock(t.Context()))
		require.Equal(t, base+31, int64(waiting.Get(t).Token()), "the greatest of the first three")
		require.True(t, tr.last().SecondRound)
		require.True(t, tr.last().Waited)
		time.Sleep(100 * time.Millisecond)
		for i, s := range cluster.Servers {
			require.Equal(t, base+max(31, 10*int64(i)+11), redlock.Counter(t, s, "k"), "member %d", i)
		}
	})
}
