package ballot

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

// Questions of one generation, answers of the next.
func TestAnswerOfAnEndedGenerationDoesNotCountInTheNext(t *testing.T) {
	d := newDesk(3)
	old := d.states[0]
	d.wait(0, 0)
	d.states[0].Gen, d.states[0].Epoch = 2, 2
	d.wait(0, 5) // the attempt has gone on: what it keeps is of the new generation now
	d.Answered(0, Answer{Outcome: member.Answered, N: 50, Server: micros(1), Sent: d.at(0), At: d.at(6), From: old, Now: d.states[0]}, d.part)
	require.Equal(t, 0, d.votes(6))
	d.reply(0, 20, 5, 7, 6, "-")
	require.Equal(t, 1, d.votes(7), "a restored counter may lie below")
}

func TestPushOfAnEndedGenerationTakesNothingAway(t *testing.T) {
	var d *desk
	for connections := range uint64(2) { // a member that was flushed forgets without a new one
		d = newDesk(3)
		old := d.states[0]
		d.wait(0, 0)
		d.states[0].Gen, d.states[0].Epoch = old.Gen+1, old.Epoch+connections
		d.wait(0, 5)
		d.reply(0, 20, 5, 7, 6, "-")
		d.Pushed(0, Push{Token: 50, Server: micros(7), Next: "-", TTL: d.part}, old, d.at(8))
		require.Equal(t, 1, d.votes(8))
		require.EqualValues(t, 20, d.m[0].token)
	}

	d.wait(1, 5)
	resting := d.states[1]
	resting.Votes = false
	d.Pushed(1, Push{Token: 9, Server: micros(7), Next: "-", TTL: d.part}, resting, d.at(8))
	require.Equal(t, 1, d.votes(8), "nor one of a member that may not vote")
}
