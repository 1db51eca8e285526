package redlock

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

func TestVoteThatComesBeforeTheGrantIsRaised(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		Skew(t, cluster, "k", 9, 9, 5)
		a := p.newAttempt(p.cfg.lockOf("k"), &terms{kind: &exclusive, ttl: time.Second}, wait.Past{}, t.Context())
		var s wait.Step
		now := a.next(&s)
		a.do(&s, now)
		synctest.Wait() // the caller is slow: all have answered
		now = a.next(&s)
		require.NoError(t, a.run(t.Context(), &s, now))
		require.Equal(t, int64(10), s.Grant.Token())
		require.False(t, s.Grant.Raised, "a majority was in step")
		synctest.Wait()
		for i, s := range cluster.Servers {
			require.Equal(t, int64(10), Counter(t, s, "k"), i)
		}
		a.abandon()
	})
}

func TestQuarantineIsNotNoQuorum(t *testing.T) {
	resting := &member.QuarantineError{Until: time.Now()}
	vote := func(v quorum.Vote, err error) quorum.MemberVote { return quorum.MemberVote{Vote: v, Err: err} }
	yes, no := vote(quorum.Yes, nil), vote(quorum.No, nil)
	rest, down := vote(quorum.No, resting), vote(quorum.No, member.ErrDown)
	for _, tc := range []struct {
		votes []quorum.MemberVote
		want  error
	}{
		{[]quorum.MemberVote{yes, yes, rest, rest, rest}, ErrQuarantined},
		{[]quorum.MemberVote{rest, rest, rest, rest, rest}, ErrQuarantined},
		{[]quorum.MemberVote{yes, rest, rest, down, down}, ErrQuarantined},
		{[]quorum.MemberVote{rest, rest, down, down, down}, ErrNoQuorum},
		{[]quorum.MemberVote{no, no, no, rest, rest}, ErrHeld},
		{[]quorum.MemberVote{no, no, down, rest, down}, ErrNoQuorum},
		{[]quorum.MemberVote{no, no, down, rest, yes}, ErrHeld},
		{[]quorum.MemberVote{no, yes, down, down, yes}, ErrHeld},
	} {
		require.Equal(t, tc.want, reasonOf(tc.votes, 3), "%v", tc.votes)
	}
	require.True(t, errors.Is(resting, ErrQuarantined))
}

// OverBelief names the members that a lease counts although their lock is not its own any more.
func OverBelief(cluster *redistest.Cluster, l *Lease) (wrong []string) {
	now := time.Now()
	l.hold.mu.Lock()
	b := wait.Probe{Ballot: &l.hold.b}
	votes := b.Clone()
	l.hold.mu.Unlock()
	b.Ballot = &votes
	for i := range cluster.Servers {
		if v := b.Vote(i); v.Token > 0 && v.Until.After(now) && !Has(cluster.Servers[i], l) {
			wrong = append(wrong, fmt.Sprintf("member %d, believed for %v more", i, v.Until.Sub(now)))
		}
	}
	return wrong
}

// Clocks of members run at both ends of what the drift factor covers, and everything travels for a
// while. At any instant, each vote that a valid lease counts is there at its member.
func TestGrantIsNeverBelievedLongerThanItsMemberKeepsIt(t *testing.T) {
	rates := []float64{0.99, 0.995, 1, 1.005, 1.01}
	for seed := range Seeds(10) {
		Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
			random := rand.New(rand.NewPCG(seed, 2))
			for i := range cluster.Servers {
				cluster.Embedded(i).SetRate(rates[random.IntN(len(rates))])
			}
			all := Peers(t, cluster, 4, Quiet)
			var pushed, checks int
			var mu sync.Mutex
			var wg sync.WaitGroup
			for i, p := range all {
				p.Jitter(seed*10+uint64(i), 40*time.Millisecond, 40*time.Millisecond, 60*time.Millisecond)
				wg.Go(func() {
					for range 3 {
						l := p.Lock(t, "k", TTL(900*time.Millisecond))
						n := Watch(t, cluster, l, fmt.Sprint("seed ", seed))
						l.hold.mu.Lock()
						waited := wait.Probe{Ballot: &l.hold.b}.Dated()
						l.hold.mu.Unlock()
						mu.Lock()
						checks += n
						if waited {
							pushed++
						}
						mu.Unlock()
					}
				})
			}
			wg.Wait()
			require.Greater(t, pushed, 5, "most are granted while waiting")
			require.Greater(t, checks, 60)
		})
	}
}

// Watch looks at a lease until it ends, at regular moments and just before each of its votes ends, and
// returns how often.
func Watch(t testing.TB, cluster *redistest.Cluster, l *Lease, what string) (n int) {
	for l.Err() == nil {
		n++
		if wrong := OverBelief(cluster, l); wrong != nil {
			t.Errorf("%s: %v", what, wrong)
			return n
		}
		now := time.Now()
		next := now.Add(100 * time.Millisecond)
		l.hold.mu.Lock()
		for i := range cluster.Servers {
			if last := (wait.Probe{Ballot: &l.hold.b}).Vote(i).Until.Add(-1); last.After(now) && last.Before(next) {
				next = last
			}
		}
		l.hold.mu.Unlock()
		if last := l.ValidUntil().Add(-1); last.After(now) && last.Before(next) {
			next = last
		}
		time.Sleep(time.Until(next))
	}
	return n
}

// A lock that is held for long, and that others look at with a short patience again and again.
func TestHolderForgetsWaitersThatGaveUp(t *testing.T) {
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		h, looks, stays := JoinAll(t, cluster, Quiet), JoinAll(t, cluster, Quiet), JoinAll(t, cluster, Quiet)
		held := h.Hold(t, "leader")
		names := func() (named int, hint string) {
			synctest.Wait()
			held.hold.mu.Lock()
			defer held.hold.mu.Unlock()
			return wait.Probe{Ballot: &held.hold.b}.Named(), held.hold.b.Hint()
		}
		for range 50 {
			require.ErrorIs(t, looks.LockFor(t, "leader", 5*time.Millisecond), ErrHeld)
			named, hint := names()
			require.Zero(t, named)
			require.Empty(t, hint)
		}
		waiting := stays.LockLater(t.Context(), "leader")
		_, hint := names()
		require.True(t, strings.HasPrefix(hint, stays.uuid+":"), "who waits is named")
		require.NoError(t, held.Unlock(t.Context()))
		waiting.Get(t)
	})
}
