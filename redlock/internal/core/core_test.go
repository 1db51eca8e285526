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
	old := &Answer{Outcome: member.Answered, N: 7, Sent: now, At: now, From: member.Brief{Gen: 1, Votes: true}, Now: member.Brief{Gen: 1, Votes: true}}
	for name, tell := range map[string]func(v *Votes) bool{
		"granted":    func(v *Votes) bool { return v.Granted(0, old, time.Second) },
		"given back": func(v *Votes) bool { return v.GivenBack(0, old) },
		"pushed": func(v *Votes) bool {
			v.Registers(0, now)
			return v.Pushed(0, &Push{Token: 7, Server: 1, TTL: time.Second}, &member.State{Brief: member.Brief{Gen: 1, Votes: true}}, now) == Counts
		},
	} {
		var v Votes
		v.Begin(make([]Voter, 1), Terms{TTL: time.Second, Part: time.Second, Drift: clock.DefaultDrift})
		v.Enter(0, 1)
		require.True(t, tell(&v), name)
		v.Enter(0, 2)
		require.Zero(t, v.Token(0), name)
		require.False(t, tell(&v), name)
	}
}

func TestTermThatHasEndedNeverRevives(t *testing.T) {
	now := time.Now()
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
		require.False(t, term.Renew(&said, now, at), "nobody has confirmed it")
		require.Equal(t, quorum.Won, said.Book(0, true))
		require.Equal(t, tc.want > 0, term.Renew(&said, now, at), name)
		require.Equal(t, tc.want > 0, term.Held(at), name)
		if tc.want > 0 {
			require.Equal(t, now.Add(tc.want), term.Until(), "its limit")
			require.True(t, term.Renew(&said, now.Add(-time.Minute), at))
			require.Equal(t, now.Add(tc.want), term.Until(), "a late answer does not shorten it")
			require.True(t, term.Shorten(at))
			require.False(t, term.Renew(&said, now, at), name)
		}
	}
}

// What is given back has ended before, and what has been won once begins one term.
func TestOnlyWhatHasEndedIsGivenBack(t *testing.T) {
	now := time.Now()
	won := func() (v Votes, g Grant) {
		states := []member.State{{Brief: member.Brief{Gen: 1, Votes: true}}}
		v.Begin(make([]Voter, 1), Terms{TTL: time.Second, Part: time.Second, Drift: clock.DefaultDrift})
		v.Enter(0, 1)
		at := member.Brief{Gen: 1, Votes: true}
		v.Granted(0, &Answer{Outcome: member.Answered, N: 7, Sent: now, At: now, From: at, Now: at}, time.Second)
		_, g = v.Decide(now, states)
		return v, g
	}
	v, g := won()
	term, ok := v.Start(g, now)
	require.True(t, ok && term.Held(now))
	require.False(t, v.Abandon().Yes(), "it has a term")
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
