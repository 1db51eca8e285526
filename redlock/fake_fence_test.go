package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

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
			alone(t, n, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
				skew(t, cluster, "k", tc.counters...)
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
					after = append(after, counter(t, s, "k"))
				}
				require.Equal(t, tc.after, after)
				require.NoError(t, l.Unlock(t.Context()))
				require.Greater(t, p.Lock(t, "k").Token(), tc.token)
			}, redlock.WithTracer(tr))
		})
	}
}

// The member that gave the token is gone at the next acquisition, and so is the one that never heard of
// the first: only what the raise left at the third keeps the order.
func TestTokensRiseWithoutTheMemberThatGaveTheGreatest(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		skew(t, cluster, "k", 5, 5, 9)
		cluster.Kill(1)
		first := p.Lock(t, "k")
		require.Equal(t, uint64(10), first.Token())
		require.NoError(t, first.Unlock(t.Context()))
		synctest.Wait()
		cluster.Kill(2)
		require.NoError(t, cluster.Restart(true, 1))
		p.Settle(t, 2)
		require.Greater(t, p.Lock(t, "k").Token(), first.Token())
	})
}

func TestTokenNeedsAMajorityThatConfirmsTheRaise(t *testing.T) {
	raise := redistest.WithArg(script.Raise.SHA)
	for _, tc := range []struct {
		name  string
		fault func(t *testing.T, cluster *redistest.Cluster, l *redistest.Link, i int)
	}{
		{"no answer", func(_ *testing.T, _ *redistest.Cluster, l *redistest.Link, _ int) { l.LoseReply(raise, 1) }},
		{"cut", func(_ *testing.T, _ *redistest.Cluster, l *redistest.Link, _ int) { l.CutBefore(raise, 1) }},
		{"no longer held there", func(t *testing.T, cluster *redistest.Cluster, l *redistest.Link, i int) {
			l.Call(raise, 1, func([]string) { admin(t, cluster.Servers[i], "DEL", "k") })
		}},
	} {
		t.Run(tc.name, inAlone(3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
			for broken := 1; broken <= 2; broken++ { // of three votes
				skew(t, cluster, "k", 5, 7, 9)
				p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
				for i := range broken {
					tc.fault(t, cluster, p.Links[i], i)
				}
				l, err := p.Mutex("k").TryLock(t.Context())
				if broken == 1 && err == nil { // all three had voted when it was decided
					require.Equal(t, uint64(10), l.Token())
					require.NoError(t, l.Unlock(t.Context()))
				} else {
					require.ErrorIs(t, err, redlock.ErrNoQuorum)
				}
				p.EveryLink((*redistest.Link).Heal)
				time.Sleep(6 * time.Second)
				leftovers(t, cluster)
				p.Settle(t, 3)
			}
		}))
	}
}

// One of the majority that decided does not answer; a member that had not voted by then confirms in its place.
func TestRaiseIsConfirmedByMembersThatVotedLater(t *testing.T) {
	alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		skew(t, cluster, "k", 5, 7, 9, 3, 20)
		p.Slow(time.Millisecond, 2*time.Millisecond, 3*time.Millisecond, 4*time.Millisecond, 5*time.Millisecond)
		p.Links[2].LoseReply(redistest.WithArg(script.Raise.SHA), 1)
		start := time.Now()
		l := p.Lock(t, "k")
		require.Less(t, time.Since(start), 200*time.Millisecond, "MemberTimeout")
		require.EqualValues(t, 10, l.Token(), "a vote above it does not confirm it, and one below it does")
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(6 * time.Second)
		leftovers(t, cluster)
	})
}

func TestLockTriesAgainWhereARaiseFailed(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		skew(t, cluster, "k", 5, 7, 9)
		p.Slow(3*time.Millisecond, 2*time.Millisecond, time.Millisecond)
		for _, i := range []int{1, 2} { // those that decide the first attempt
			p.Links[i].Call(redistest.WithArg(script.Raise.SHA), 1, func([]string) { admin(t, cluster.Servers[i], "DEL", "k") })
		}
		l := p.Lock(t, "k")
		require.GreaterOrEqual(t, l.Token(), uint64(11), "above all that the first attempt drew")
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, 3, votesAt(cluster, l))
		require.NoError(t, l.Unlock(t.Context()))
		time.Sleep(10 * time.Millisecond)
		leftovers(t, cluster)
	})
}

func TestRaiseThatTakesTooLongLeavesNoLease(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		skew(t, cluster, "k", 5, 7, 9)
		p.EveryLink(func(l *redistest.Link) { l.DelayReply(redistest.WithArg(script.Raise.SHA), 1, 100*time.Millisecond) })
		require.ErrorIs(t, p.Try(t, "k", redlock.TTL(100*time.Millisecond)), redlock.ErrTooSlow)
	})
}

// Another name of the bucket is granted between the vote and the raise.
func TestRaiseNeverLowersACounter(t *testing.T) {
	alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *peer) {
		skew(t, cluster, "k", 5, 7, 9)
		p.Slow(time.Millisecond, time.Millisecond, time.Millisecond) // all have voted before the first raise
		p.EveryLink(func(l *redistest.Link) {
			l.Call(redistest.WithArg(script.Raise.SHA), 1, func([]string) { skew(t, cluster, "k", 100, 100, 100) })
		})
		p.Lock(t, "k")
		time.Sleep(10 * time.Millisecond)
		for _, s := range cluster.Servers {
			require.Equal(t, int64(100), counter(t, s, "k"))
		}
	})
}

func TestTokenOfAHandOverIsRaisedToo(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		tr := &tracer{}
		holder, p := join(t, cluster, quiet), join(t, cluster, quiet, redlock.WithTracer(tr))
		held := holder.Hold(t, "k")
		p.Slow(10*time.Millisecond, 11*time.Millisecond, 12*time.Millisecond, 13*time.Millisecond, 14*time.Millisecond)
		waiting := p.LockLater(t.Context(), "k")
		time.Sleep(3100 * time.Millisecond)
		base := int64(held.Token())
		skew(t, cluster, "k", base+10, base+20, base+30, base+40, base+50)
		require.NoError(t, held.Unlock(t.Context()))
		l := waiting.Get(t)
		require.Equal(t, base+31, int64(l.Token()), "the greatest of the first three")
		require.True(t, tr.last().SecondRound)
		require.True(t, tr.last().Waited)
		time.Sleep(100 * time.Millisecond)
		for i, s := range cluster.Servers {
			require.Equal(t, base+max(31, 10*int64(i)+11), counter(t, s, "k"), "member %d", i)
		}
	})
}

func TestFirstUseOfABucketStartsAtTheServersTime(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		cluster.Embedded(1).Step(time.Hour)
		p := join(t, cluster)
		before := time.Now().Add(time.Hour).UnixMicro()
		p.Slow(3*time.Millisecond, time.Millisecond, 2*time.Millisecond)
		l := p.Lock(t, "k")
		require.InDelta(t, before, l.Token(), 1000, "the clock that is ahead counts")
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, l.Token()+1, p.Lock(t, "k").Token(), "and no clock from then on")
	})
}

// Members miss grants, forget nothing, and are pushed ahead by other names and by hand.
func TestTokensRiseWhateverMembersMiss(t *testing.T) {
	for _, members := range []int{3, 5} {
		for seed := range seeds(4) {
			bubble(t, members, func(t *testing.T, cluster *redistest.Cluster) {
				random := rand.New(rand.NewPCG(seed, uint64(members)))
				all := peers(t, cluster, 3, quiet)
				for i, p := range all {
					p.Jitter(seed*10+uint64(i), time.Millisecond, time.Millisecond, time.Millisecond)
				}
				var ref referee
				names := []string{"{t}a", "{t}b"} // one bucket
				down := -1
				for range 40 {
					p, name := all[random.IntN(3)], names[random.IntN(2)]
					i := random.IntN(members)
					switch random.IntN(6) {
					case 0:
						if down < 0 {
							down = i
							cluster.Kill(i)
						}
					case 1:
						if down >= 0 {
							require.NoError(t, cluster.Restart(true, down))
							down = -1
						}
					case 2:
						p.Links[i].CutAfter(redistest.WithArg(script.Acquire.SHA), 1)
					case 3:
						p.Links[i].CutBefore(redistest.WithArg(script.Raise.SHA), 1)
					case 4:
						if i != down {
							admin(t, cluster.Servers[i], "HINCRBY", member.TokensKey, bucketOf(name), strconv.Itoa(random.IntN(50)))
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					if l, err := p.Mutex(name).Lock(ctx); err == nil {
						ref.granted(l)
						time.Sleep(time.Duration(random.IntN(5)) * time.Millisecond)
						_ = l.Unlock(t.Context())
					}
					cancel()
					time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
				}
				require.Empty(t, ref.wrong, fmt.Sprint("seed ", seed))
				require.Greater(t, ref.count, 20)
			})
		}
	}
}
