package latch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// inRound is a party of two in round 7, at 3 members that vote.
func inRound(t *testing.T) *Barrier {
	t.Helper()
	b, states := NewBarrier(3, 2, 2), votingAt(1, 1, 1)
	b.Begin()
	for i := range 2 {
		require.Equal(t, Shut, b.Judge(states))
		b.Heard(i, 0, BarrierState{Round: 7, Parties: 2, Mine: NotKnown}, states[i].Brief)
	}
	require.Equal(t, Moved, b.Judge(states))
	round, before, _ := b.Round()
	require.Equal(t, []int64{7, 0}, []int64{round, before})
	return b
}

// vote is that of a member for the parties of a digest.
func vote(digest int64, mine PartyState) BarrierState {
	return BarrierState{Round: 7, Parties: 2, Open: true, Digest: digest, Mine: mine, Server: 5}
}

func TestVotesOpenARoundWhenAMajorityHasTheSameParties(t *testing.T) {
	states := votingAt(1, 1, 1)
	b := inRound(t)
	b.Heard(0, 7, vote(11, Counted), states[0].Brief)
	require.Equal(t, Shut, b.Judge(states))
	b.Heard(1, 7, vote(12, Counted), states[1].Brief)
	require.Equal(t, Shut, b.Judge(states), "they have counted others")
	b.Heard(2, 7, vote(12, Counted), states[2].Brief)
	require.Equal(t, Opened, b.Judge(states))
	round, before, digest := b.Round()
	require.Equal(t, []int64{8, 7, 12}, []int64{round, before, digest})

	b = inRound(t)
	b.Heard(0, 7, vote(11, Counted), states[0].Brief)
	require.True(t, b.Pushed(1, 7, 11, states[1]))
	require.False(t, b.Pushed(1, 8, 11, states[1]), "that is said by an answer alone")
	b.Heard(1, 7, BarrierState{Round: 7, Parties: 2, Mine: NotKnown, Server: 4}, states[1].Brief)
	require.Equal(t, Opened, b.Judge(states), "the answer is older than the push")
}

func TestVotesThatAMemberHasForgottenCountForNothing(t *testing.T) {
	b, states := inRound(t), votingAt(1, 1, 1)
	b.Heard(0, 7, vote(11, Counted), states[0].Brief)
	b.Heard(1, 7, vote(11, Counted), states[1].Brief)
	require.Equal(t, Shut, b.Judge(votingAt(2, 1, 1)))
	away := votingAt(1, 1, 1)
	away[0].Votes = false
	require.Equal(t, Shut, b.Judge(away))
	require.Equal(t, Opened, b.Judge(states))
}

// An earlier process of the party may have gone through the round.
func TestVotesForAnEarlierProcessSendTheNextOneOn(t *testing.T) {
	states := votingAt(1, 1, 1)
	b := inRound(t)
	b.Heard(0, 7, vote(11, CountedOther), states[0].Brief)
	b.Heard(1, 7, vote(11, CountedOther), states[1].Brief)
	require.Equal(t, Moved, b.Judge(states))
	round, before, _ := b.Round()
	require.Equal(t, []int64{8, 7}, []int64{round, before})

	b = inRound(t)
	b.Fail() // of this process
	b.Begin()
	b.Heard(0, 7, vote(11, CountedOther), states[0].Brief)
	b.Heard(1, 7, vote(11, CountedOther), states[1].Brief)
	require.Equal(t, Opened, b.Judge(states), "its own Wait that failed was counted")

	b = inRound(t)
	b.Heard(0, 7, vote(11, CountedOther), states[0].Brief)
	b.Heard(1, 7, vote(11, Counted), states[1].Brief)
	require.Equal(t, Moved, b.Judge(states), "the third one may have voted before")
}

func TestVotesForSoManyPartiesThatNoneHasAMajorityAreAnError(t *testing.T) {
	b, states := inRound(t), votingAt(1, 1, 1)
	b.Heard(0, 7, vote(11, Counted), states[0].Brief)
	b.Heard(1, 7, vote(12, Counted), states[1].Brief)
	require.Equal(t, Shut, b.Judge(states), "the third one may decide")
	b.Heard(2, 7, vote(13, Stranger), states[2].Brief)
	require.Equal(t, Strangers, b.Judge(states))
	require.True(t, b.Refuses(2))
	require.False(t, b.Refuses(0))
	round, before, _ := b.Round()
	require.Equal(t, []int64{8, 0}, []int64{round, before}, "the next one begins with nothing")
}

func TestVotesForOthersAreAnError(t *testing.T) {
	b, states := inRound(t), votingAt(1, 1, 1)
	b.Heard(0, 7, vote(11, Stranger), states[0].Brief)
	require.Equal(t, Shut, b.Judge(states))
	b.Heard(1, 7, BarrierState{Round: 8, Parties: 2, Before: 7, Mine: Stranger}, states[1].Brief)
	require.Equal(t, Strangers, b.Judge(states))

	b = inRound(t)
	for i := range 2 {
		b.Heard(i, 7, BarrierState{Round: 7, Parties: 3, Mine: NotKnown}, states[i].Brief)
	}
	require.Equal(t, Differs, b.Judge(states))
}

// Whoever is behind learns from the next round that its own was open.
func TestProofThatARoundWasOpenGoesWithTheNext(t *testing.T) {
	b, states := NewBarrier(3, 2, 2), votingAt(1, 1, 1)
	b.Begin()
	next := BarrierState{Round: 8, Parties: 2, Before: 7, Proof: 11, Mine: NotKnown}
	b.Heard(0, 0, next, states[0].Brief)
	b.Heard(1, 0, BarrierState{Round: 7, Parties: 2, Open: true, Digest: 11, Mine: NotKnown}, states[1].Brief)
	require.Equal(t, Moved, b.Judge(states))
	round, before, digest := b.Round()
	require.Equal(t, []int64{8, 7, 11}, []int64{round, before, digest})

	counted, stranger := next, next
	counted.Mine, stranger.Mine = Counted, Stranger
	for said, want := range map[BarrierState]Verdict{counted: Opened, vote(11, Counted): Opened, next: Opened, stranger: Strangers, vote(12, Counted): Shut, vote(11, Stranger): Shut} {
		b = inRound(t)
		b.Fail()
		b.Begin()
		b.Heard(0, 7, next, states[0].Brief)
		require.Equal(t, Shut, b.Judge(states), "it may have been open for others")
		b.Heard(1, 7, said, states[1].Brief)
		require.Equal(t, want, b.Judge(states), said)
		if round, before, digest = b.Round(); want != Shut {
			require.Equal(t, []int64{8, 7, 11}, []int64{round, before, digest})
		}
	}

	b = inRound(t)
	b.Heard(0, 7, BarrierState{Round: 9, Parties: 2, Before: 8, Proof: 12, Mine: NotKnown}, states[0].Brief)
	require.Equal(t, Moved, b.Judge(states), "nothing says that 7 was open")
	round, before, digest = b.Round()
	require.Equal(t, []int64{9, 8, 12}, []int64{round, before, digest})
}
