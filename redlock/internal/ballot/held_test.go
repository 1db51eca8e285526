package ballot

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// validity is that of what is granted while waiting, in milliseconds.
func (d *desk) validity() float64 {
	return float64(clock.Validity(d.part, d.terms.Drift).Milliseconds())
}

// A push dates a grant better than the answer to a wait that was sent before it: the later end stays. If the member's
// clock has stepped, the push proves nothing.
func TestAnswerDoesNotShortenTheGrantOfAPush(t *testing.T) {
	for _, tc := range []struct {
		name   string
		server float64 // the member's clock when it answers
		votes  int
	}{
		{"the clock runs", 115, 1},
		{"the clock stepped", 5000, 0},
	} {
		d := newDesk(1)
		d.wait(0, 0)
		d.reply(0, -1000, 0, 2, 1, "")
		d.wait(0, 5)
		d.push(0, 7, 100, 110, "-")
		d.reply(0, 7, 5, 120, tc.server, "-")
		require.Equal(t, 1, d.votes(d.validity()), tc.name)
		require.Equal(t, tc.votes, d.votes(5+d.validity()+50), tc.name)
	}
}

// A grant lasts as long as its own key, and not as long as the one before it.
func TestGrantHasAnEndOfItsOwn(t *testing.T) {
	d := newDesk(1)
	d.wait(0, 0)
	d.reply(0, 7, 0, 1, 1, "-")
	d.wait(0, 10)
	d.Answered(0, Answer{
		Outcome: member.Answered, N: 8, Server: micros(11), Sent: d.at(10), At: d.at(12), From: d.states[0], Now: d.states[0],
	}, time.Second)
	require.Equal(t, 1, d.votes(900))
	require.Equal(t, 0, d.votes(1100), "the vote with token 7 would have counted")
}

// An answer is a yes if the vote that it gives counts.
func TestAnswerIsAYesForAVoteThatCounts(t *testing.T) {
	answer := func(d *desk, n int64, server float64) quorum.Vote {
		d.wait(0, 20)
		return d.Answered(0, Answer{
			Outcome: member.Answered, N: n, Server: micros(server), Sent: d.at(20), At: d.at(22), From: d.states[0], Now: d.states[0],
		}, d.part)
	}
	d := newDesk(3)
	require.Equal(t, quorum.Yes, answer(d, 8, 21))
	d.yield(d.at(30))
	require.Equal(t, quorum.No, answer(d, 8, 31), "it was given up")

	d = newDesk(3)
	d.wait(0, 0)
	d.reply(0, -500, 0, 1, 1, "-")
	d.push(0, 8, 10, 11, "-")
	require.Equal(t, quorum.No, answer(d, -500, 5), "a refusal that is older than the vote")
	require.Equal(t, 1, d.votes(25))
}

func TestRenewalMovesTheEndOfAVote(t *testing.T) {
	now := time.Now()
	b := Adopt("me:1", make([]Voter, 3), usual, 7)
	require.Zero(t, b.Votes(now))
	b.Renewed(0, true, now.Add(time.Second))
	b.Renewed(1, false, time.Time{})
	require.Equal(t, 1, b.Votes(now), "the member that was asked and has it")
	require.Zero(t, b.Votes(now.Add(2*time.Second)))
	b.Renewed(0, true, now.Add(5*time.Second))
	b.Renewed(0, true, now.Add(3*time.Second))
	require.Equal(t, 1, b.Votes(now.Add(4*time.Second)), "a late answer does not shorten it")
	require.Zero(t, b.Votes(now.Add(6*time.Second)))
	b.Renewed(0, false, time.Time{})
	require.Zero(t, b.Votes(now), "the member does not have it any more")
}

// "Not yours" is what a release wants to hear from a member that never voted, and a loss where the vote was ours.
func TestReleaseIsConfirmedByWhatTheMemberHad(t *testing.T) {
	answered := func(n int64) Answer { return Answer{Outcome: member.Answered, N: n} }
	b := Adopt("me:1", make([]Voter, 4), usual, 7)
	end := time.Now().Add(time.Second)
	b.Renewed(0, true, end)
	b.Renewed(1, true, end)
	b.Renewed(2, true, end)
	b.Renewed(2, false, time.Time{})

	require.False(t, b.ReleaseAnswered(0, Answer{Outcome: member.Unknown, N: 1}), "no answer")
	require.Zero(t, b.Disowned())
	require.True(t, b.ReleaseAnswered(0, answered(1)))
	require.Zero(t, b.Disowned())
	b.ReleaseAnswered(0, answered(0))
	require.Zero(t, b.Disowned(), "a second release finds nothing")
	require.False(t, b.ReleaseAnswered(1, answered(0)), "the vote was ours, and is not there")
	require.Equal(t, 1, b.Disowned())
	require.False(t, b.ReleaseAnswered(2, answered(0)), "a renewal had found it gone")
	require.True(t, b.ReleaseAnswered(3, answered(0)), "it never voted")
	require.Equal(t, 3, b.Disowned())
}

func TestStandingIsTheLastWordOfAMember(t *testing.T) {
	d := newDesk(4)
	cause := errors.New("cause")
	for i := range d.m[:3] {
		d.wait(i, 0)
	}
	d.reply(0, 7, 0, 1, 1, "-")
	d.reply(1, -500, 0, 1, 1, "-")
	d.fail(2, member.Unknown, cause, 0)
	for i, want := range []Standing{Votes, Refuses, Fails, Undecided} {
		got, err := d.Standing(i, d.at(10), d.states)
		require.Equal(t, want, got)
		require.Equal(t, want == Fails, err == cause)
	}
}

// A raise that a majority confirmed wins if a majority of those votes still counts when it is decided.
func TestRaiseWinsIfAMajorityStillCounts(t *testing.T) {
	for _, ended := range []bool{false, true} {
		d := begun(t, 3, Past{})
		d.says(0, 5, 0, 1)
		d.says(1, 7, 0, 1)
		require.Equal(t, Raise, d.then(1).Do)
		require.Equal(t, Sleep, d.then(1).Do, "nobody has answered")
		for i := range 2 {
			d.RaiseAnswered(i, Answer{Outcome: member.Answered, N: 1, Sent: d.at(1), At: d.at(2), From: d.states[i], Now: d.states[i]})
		}
		if ended {
			d.states[1].Gen++
		}
		s := d.then(3)
		if ended {
			require.Equal(t, Step{Do: Again, Cause: TooSlow}, s)
			continue
		}
		require.Equal(t, Win, s.Do)
		require.True(t, s.Ends())
		require.True(t, s.Grant.Raised)
		require.EqualValues(t, 7, s.Grant.Token)
		require.Equal(t, quorum.Set(0b011), s.Grant.In)
	}
}

// A raise that a majority cannot confirm any more is not waited for.
func TestRaiseThatIsLostEndsAtOnce(t *testing.T) {
	d := begun(t, 3, Past{})
	d.says(0, 5, 0, 1)
	d.says(1, 7, 0, 1)
	require.Equal(t, Raise, d.then(1).Do)
	for i := range 2 {
		d.RaiseAnswered(i, Answer{Outcome: member.Answered, Sent: d.at(1), At: d.at(2), From: d.states[i], Now: d.states[i]})
	}
	require.Equal(t, Step{Do: Again, Cause: Unconfirmed}, d.then(2))
}

// A member whose key is no lock does not vote. The others are waited for if they are a majority.
func TestMajorityWithoutTheKeyThatIsNoLockIsWaitedFor(t *testing.T) {
	d := begun(t, 3, Past{Start: AskFirst})
	d.fail(0, member.Refused, &member.ReplyError{Kind: member.KindForeign}, 0)
	d.says(1, -500, 0, 1)
	d.says(2, -500, 0, 1)
	require.Equal(t, Listen, d.then(1).Do)
}
