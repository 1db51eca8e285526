package ballot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// begun is a desk at which an attempt has asked all members, at 0.
func begun(t *testing.T, n int, past Past) *desk {
	d := newDesk(n)
	d.Ballot = New("me:1", make([]Voter, n), usual, past)
	s := d.Next(d.start, d.states)
	require.Equal(t, Step{Do: Acquire, To: quorum.All(n), Wake: d.at(200), Poll: true}, s)
	return d
}

// says is member i's answer n to the acquire that was sent at a moment.
func (d *desk) says(i int, n int64, sent, got float64) quorum.Vote {
	return d.Answered(i, Answer{
		Outcome: member.Answered, N: n, Sent: d.at(sent), At: d.at(got), From: d.states[i], Now: d.states[i],
	}, d.terms.TTL)
}

func (d *desk) then(ms float64) Step { return d.Next(d.at(ms), d.states) }

func TestMajorityInStepWinsAtOnce(t *testing.T) {
	d := begun(t, 3, Past{})
	d.says(0, 7, 0, 1)
	require.Equal(t, Step{Do: Sleep, Wake: d.at(200), Poll: true}, d.then(1))
	d.says(2, 7, 0, 2)
	s := d.then(2)
	require.Equal(t, Win, s.Do)
	require.EqualValues(t, 7, s.Grant.Token)
	require.Equal(t, quorum.Set(0b101), s.Grant.In)
	require.False(t, s.Grant.Raised)
	require.Zero(t, s.To)
	require.Panics(t, func() { d.then(3) }, "it is over")
}

func TestVotesBelowTheTokenAreRaisedBehindAWin(t *testing.T) {
	d := begun(t, 3, Past{})
	d.says(0, 7, 0, 1)
	d.says(1, 5, 0, 1)
	d.says(2, 7, 0, 1)
	s := d.then(2)
	require.Equal(t, Win, s.Do)
	require.Equal(t, quorum.Set(0b010), s.To)
}

func TestRefusalIsWaitedOutOrNot(t *testing.T) {
	for _, tc := range []struct {
		start Start
		want  Step
	}{
		{TryOnce, Step{Do: Lose, Cause: Refused, Early: true}}, {AskFirst, Step{Do: Listen}},
	} {
		d := begun(t, 3, Past{Start: tc.start})
		d.says(0, -100, 0, 1)
		d.says(1, -100, 0, 1)
		require.Equal(t, tc.want, d.then(1))
		require.Equal(t, tc.start == AskFirst, d.Waited())

		d = begun(t, 3, Past{Start: tc.start})
		d.says(0, -100, 0, 1)
		tc.want.Early = false
		require.Equal(t, Sleep, d.then(199).Do)
		require.Equal(t, tc.want, d.then(200), "two are silent")
	}
}

func TestKeyThatIsNoLockIsNotWaitedFor(t *testing.T) {
	d := begun(t, 3, Past{})
	for i := range 2 {
		d.fail(i, member.Refused, &member.ReplyError{Kind: member.KindForeign}, 0)
	}
	require.Equal(t, Step{Do: Lose, Cause: Refused, Early: true}, d.then(1))
}

// The question is asked again where it did not fit into our own lines. An answer to the first one says nothing of how
// the second one is decided.
func TestStragglerOfAnEarlierQuestionDoesNotDecide(t *testing.T) {
	d := begun(t, 3, Past{})
	for i := range 2 {
		d.fail(i, member.NotSent, member.ErrOverflow, 0)
	}
	s := d.then(1)
	require.Equal(t, MakeRoom, s.Do)
	require.Positive(t, s.Pause)
	require.Equal(t, Acquire, d.then(10).Do)
	require.Equal(t, quorum.No, d.says(2, -100, 0, 11))
	d.says(0, -100, 10, 12)
	require.Equal(t, Sleep, d.then(12).Do, "one of three has refused")
	d.says(1, 7, 10, 13)
	d.says(2, 7, 10, 13)
	require.Equal(t, Win, d.then(13).Do)
}

func TestFullLinesDoNotMakeATryWait(t *testing.T) {
	d := begun(t, 1, Past{Start: TryOnce})
	d.fail(0, member.NotSent, member.ErrOverflow, 0)
	require.Equal(t, Lose, d.then(1).Do)
}

// late is an attempt whose votes had ended when a majority had answered.
func (d *desk) late() Step {
	for i := range d.m {
		d.says(i, 7, 0, 20_000)
	}
	return d.then(20_000)
}

func TestAttemptThatWasTooSlowIsMadeThreeTimes(t *testing.T) {
	d := begun(t, 3, Past{})
	require.Equal(t, Step{Do: Again, Cause: TooSlow}, d.late())
	for _, want := range []Deed{Again, Lose} {
		past := d.Past()
		require.Equal(t, WaitFirst, past.Start, "somebody else is in the way, or the members are slow")
		past.Start = AskFirst
		d = begun(t, 3, past)
		s := d.late()
		require.Equal(t, want, s.Do)
		require.Equal(t, TooSlow, s.Cause)
	}
	require.Equal(t, Lose, begun(t, 3, Past{Start: TryOnce}).late().Do)
}

func TestTokenThatIsNotConfirmedIsTriedForUntilThePatienceEnds(t *testing.T) {
	for giveUp, want := range map[time.Duration][]Deed{
		2 * time.Second: {Again, Again, Lose}, 3 * time.Second: {Again, Again, Again}, -1: {Again, Again, Again},
	} {
		past := Past{}
		for k, ms := range []float64{1000, 2900, 3000} {
			d := begun(t, 3, past)
			d.terms.GiveUp = giveUp
			d.says(0, 5, 0, 1)
			d.says(1, 7, 0, 1)
			s := d.then(1)
			require.Equal(t, Raise, s.Do)
			require.Equal(t, quorum.All(3), s.To, "the third may have voted")
			for i := range 2 {
				d.RaiseAnswered(i, Answer{Outcome: member.Unknown, Err: member.ErrBroken, Sent: d.at(1), Now: d.states[i]})
			}
			s = d.then(ms)
			require.Equal(t, Step{Do: want[k], Cause: Unconfirmed}, s, "%v at %v", giveUp, ms)
			past = d.Past()
			past.Start = AskFirst
		}
	}
}

// Each retreat because of members that fail is longer than the one before, up to a second.
func TestWhoStandsBackAgainAndAgainDoesSoForLonger(t *testing.T) {
	past := Past{Start: WaitFirst}
	var pauses []time.Duration
	for range 6 {
		d := newDesk(3)
		d.Ballot = New("me:1", make([]Voter, 3), usual, past)
		s := d.standBack(quorum.Set(0b011), d.start)
		require.Equal(t, Step{Do: Again, Cause: StoodBack}, s)
		past = d.Past()
		next := New("me:2", make([]Voter, 3), usual, past)
		pauses = append(pauses, next.notYet.Sub(d.start))
		require.Equal(t, quorum.Set(0b011), next.doubt)
	}
	const ms = time.Millisecond
	require.Equal(t, []time.Duration{200 * ms, 400 * ms, 800 * ms, 1000 * ms, 1000 * ms, 1000 * ms}, pauses)
}
