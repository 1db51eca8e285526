package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// The member has forgotten what it granted then, whatever the states were that the answer was read with.
func TestVoteOfAnEarlierGenerationIsNoVote(t *testing.T) {
	now := time.Now()
	old := &Answer{Outcome: member.Answered, N: 7, Sent: now, TTL: time.Second, At: now, From: member.Brief{Gen: 1, Votes: true}, Now: member.Brief{Gen: 1, Votes: true}}
	for name, tell := range map[string]func(v *Votes) bool{
		"granted":    func(v *Votes) bool { return v.Granted(0, old) },
		"given back": func(v *Votes) bool { return v.GivenBack(0, old) },
		"pushed": func(v *Votes) bool {
			v.Registers(0, now)
			return v.Pushed(0, &Push{Token: 7, Server: 1, TTL: time.Second}, &member.State{Brief: member.Brief{Gen: 1, Votes: true}}, now) == Counts
		},
	} {
		var v Votes
		v.Begin(make([]Voter, 1), Terms{TTL: time.Second, Entry: time.Second, Drift: clock.DefaultDrift})
		v.Enter(0, 1)
		require.True(t, tell(&v), name)
		v.Enter(0, 2)
		require.Zero(t, v.Token(0), name)
		require.False(t, tell(&v), name)
	}
}

func TestTermThatHasEndedNeverRevives(t *testing.T) {
	now := time.Now()
	yes := func(sent time.Time) *Answer {
		return &Answer{Outcome: member.Answered, N: 1, Sent: sent, Now: member.Brief{Votes: true}}
	}
	for name, tc := range map[string]struct {
		end  bool
		at   time.Duration
		want time.Duration // until when it is trusted then; 0: it is over
	}{
		"held":             {false, time.Second - 1, 4 * time.Second},
		"over":             {false, time.Second, 0},
		"ended":            {true, time.Millisecond, 0},
		"ended, then over": {true, time.Second, 0},
	} {
		term := ProbeTerm(now.Add(time.Second), now.Add(4*time.Second), clock.DefaultDrift)
		if tc.end {
			require.True(t, term.End(member.ErrDown, now).Yes(), name)
			require.False(t, term.End(member.ErrBroken, now.Add(1)).Yes(), name)
			require.ErrorIs(t, term.Err(), member.ErrDown, "once")
		}
		at, said := now.Add(tc.at), Asks(time.Minute, 1)
		require.False(t, term.Renew(&said, at), "nobody has confirmed it")
		said.Book(0, &Answer{Outcome: member.Answered, N: 1, Sent: now})
		require.Equal(t, quorum.Undecided, said.Verdict(), "it may not vote")
		said.Book(0, yes(now))
		require.Equal(t, quorum.Won, said.Verdict())
		require.Equal(t, tc.want > 0, term.Renew(&said, at), name)
		require.Equal(t, tc.want > 0, term.Held(at), name)
		if tc.want > 0 {
			require.Equal(t, now.Add(tc.want), term.Until(), "its limit")
			said.Book(0, yes(now.Add(-time.Minute)))
			require.True(t, term.Renew(&said, at))
			require.Equal(t, now.Add(tc.want), term.Until(), "a late answer does not shorten it")
			require.True(t, term.Shorten(at))
			require.False(t, term.Renew(&said, at), name)
		}
	}
}

// What is given back has ended before, and what has been won once begins one term.
func TestOnlyWhatHasEndedIsGivenBack(t *testing.T) {
	now := time.Now()
	won := func() (v Votes, g Grant) {
		states := []member.State{{Brief: member.Brief{Gen: 1, Votes: true}}}
		v.Begin(make([]Voter, 1), Terms{TTL: time.Second, Entry: time.Second, Drift: clock.DefaultDrift})
		v.Enter(0, 1)
		at := member.Brief{Gen: 1, Votes: true}
		v.Granted(0, &Answer{Outcome: member.Answered, N: 7, Sent: now, TTL: time.Second, At: now, From: at, Now: at})
		_, g = v.Decide(now, states)
		return v, g
	}
	v, g := won()
	term, ok := v.Start(g, now)
	require.True(t, ok && term.Held(now))
	require.False(t, v.Abandon().Yes(), "it has a term")
	d, _ := v.Decide(now, []member.State{{Brief: member.Brief{Gen: 1, Votes: true}}})
	require.Equal(t, Few, d, "it has won")
	_, ok = v.Start(g, now)
	require.False(t, ok, "twice")
	next, over := term.Succeed(member.ErrDown, now)
	require.True(t, over.Yes() && next.Held(now) && !term.Held(now))
	v, g = won()
	require.True(t, v.Abandon().Yes())
	_, ok = v.Start(g, now)
	require.False(t, ok, "it was abandoned")
	v, g = won()
	_, ok = v.Start(g, g.Until())
	require.False(t, ok, "its votes are over")
}

func TestAnswerIsWhatWasAskedFor(t *testing.T) {
	now, at := time.Now(), member.Brief{Gen: 1, Votes: true}
	states := []member.State{{Brief: at}}
	var v Votes
	v.Begin(make([]Voter, 1), Terms{TTL: time.Second, Entry: time.Second, Drift: clock.DefaultDrift})
	v.Enter(0, 1)
	a := &Answer{Outcome: member.Answered, N: 1, Sent: now, At: now, From: at, Now: at}
	require.False(t, v.Granted(0, a) || v.GivenBack(0, a), "no vote was asked for")
	a.TTL = time.Minute
	require.True(t, v.Granted(0, a))
	end := v.End(0)
	v.Renewed(0, true, end.Add(time.Hour))
	v.Wishes(0, 1, now.Add(time.Hour))
	require.Equal(t, end, v.End(0), "there is no lease")
	v.Raise(now)
	require.False(t, v.Confirms(0, a), "no raise was asked for")
	a.Raise = true
	require.True(t, v.Confirms(0, a))
	require.True(t, v.Valid(0, now, states))
}

// A member that takes a lease back answers a later question of the same renewal.
func TestLeaseIsTrustedFromTheFirstQuestionOn(t *testing.T) {
	now, may := time.Now(), member.Brief{Votes: true}
	term, said := ProbeTerm(now.Add(time.Second), time.Time{}, 0), Asks(time.Minute, 3)
	for i, sent := range []time.Duration{time.Second, 0, time.Second} {
		said.Book(i, &Answer{Outcome: member.Answered, N: int64(i), Sent: now.Add(sent), Now: may})
	}
	require.True(t, term.Renew(&said, now))
	require.Equal(t, now.Add(clock.Validity(time.Minute, 0)), term.Until())
}
