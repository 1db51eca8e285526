package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
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
