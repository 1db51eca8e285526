package core

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
)

// The member has forgotten what it granted then, whatever the states were that the answer was read with.
func TestVoteOfAnEarlierGenerationIsNoVote(t *testing.T) {
	now := time.Now()
	old := &Answer{Outcome: member.Answered, N: 7, Sent: now, At: now, From: member.Brief{Gen: 1, Votes: true}, Now: member.Brief{Gen: 1, Votes: true}}
	for name, tell := range map[string]func(v *Votes) bool{
		"granted":    func(v *Votes) bool { return v.Granted(0, old, time.Second) },
		"given back": func(v *Votes) bool { return v.GivenBack(0, old, time.Second) },
		"pushed": func(v *Votes) bool {
			v.Registers(0, now)
			return v.Pushed(0, &Push{Token: 7, Server: 1, TTL: time.Second}, &member.State{Gen: 1, Votes: true}, now, time.Second) == Counts
		},
	} {
		var v Votes
		v.Begin(make([]Voter, 1), 0, clock.DefaultDrift)
		v.Enter(0, 1)
		require.True(t, tell(&v), name)
		v.Enter(0, 2)
		require.Zero(t, v.Token(0), name)
		require.False(t, tell(&v), name)
	}
}
