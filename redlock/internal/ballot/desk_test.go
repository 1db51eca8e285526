package ballot

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// desk plays events into a ballot by hand: no members, no clock but its own.
type desk struct {
	Ballot
	start  time.Time
	states []member.State
}

// usual are the terms of a lock without options.
var usual = Terms{TTL: 10 * time.Second, Entry: 3 * time.Second, Drift: clock.DefaultDrift, Timeout: 200 * time.Millisecond, GiveUp: 2 * time.Second}

// newDesk is one at which a waiting attempt lies.
func newDesk(n int) *desk {
	d := &desk{Ballot: New("me:1", make([]Voter, n), usual, Past{Start: WaitFirst}), start: time.Now()}
	d.Next(d.start, nil) // Listen
	for range n {
		d.states = append(d.states, member.State{Gen: 1, Epoch: 1, Up: true, Votes: true, Inbox: true})
	}
	return d
}

// at is an instant, in milliseconds after the start.
func (d *desk) at(ms float64) time.Time {
	return d.start.Add(time.Duration(ms * float64(time.Millisecond)))
}

// wait submits a wait to member i at sent.
func (d *desk) wait(i int, sent float64) {
	d.m[i].registers(d.states[i].Gen, d.at(sent))
}

// reply is member i's answer n to a wait: submitted at sent, arrived at got, server time in ms.
func (d *desk) reply(i int, n int64, sent, got, server float64, next string) {
	d.Answered(i, Answer{
		Outcome: member.Answered, N: n, Server: micros(server), Next: next,
		Sent: d.at(sent), At: d.at(got), From: d.states[i], Now: d.states[i],
	}, d.part)
}

func (d *desk) fail(i int, o member.Outcome, err error, sent float64) {
	d.Answered(i, Answer{Outcome: o, Err: err, Sent: d.at(sent), From: d.states[i], Now: d.states[i]}, d.part)
}

func (d *desk) push(i int, token int64, server, got float64, next string) {
	d.Pushed(i, Push{Token: token, Server: micros(server), Next: next, TTL: d.part}, d.states[i], d.at(got))
}

// A member may grant less than was asked for, and says how much. More than was asked for is nobody's promise.
func TestPushIsBelievedForWhatTheMemberGrantedAndWasAskedFor(t *testing.T) {
	for _, tc := range []struct{ told, believed time.Duration }{
		{time.Second, time.Second}, {3 * time.Second, 3 * time.Second}, {time.Hour, 3 * time.Second},
	} {
		d := newDesk(1)
		d.wait(0, 0)
		d.reply(0, -1000, 0, 2, 1, "")
		p := Push{Token: 7, Server: micros(1), Next: "-", TTL: tc.told}
		require.True(t, d.Pushed(0, p, d.states[0], d.at(10)))
		require.Equal(t, 1, d.votes(float64(clock.Validity(tc.believed, d.terms.Drift).Milliseconds()-1)))
		require.Equal(t, 0, d.votes(float64(clock.Validity(tc.believed, d.terms.Drift).Milliseconds()+1)))
	}
	d := newDesk(1)
	d.wait(0, 0)
	p := Push{Token: 7, Server: micros(0), Next: "-", TTL: time.Millisecond}
	require.False(t, d.Pushed(0, p, d.states[0], d.at(1)), "nothing is left of it: ask")
}

func (d *desk) votes(now float64) int {
	in, _, _, _ := d.tally(d.at(now), d.states)
	return in.Len()
}

// micros is a server's time: its clock shows another date than ours.
func micros(ms float64) int64 { return 1_000_000_000 + int64(ms*1000) }

func TestVoteCountsFromBeforeItsRequestToValidity(t *testing.T) {
	d := newDesk(1)
	d.wait(0, 5)
	d.reply(0, 7, 5, 9, 100, "-")
	in, token, exact, until := d.tally(d.at(10), d.states)
	require.Equal(t, 1, in.Len())
	require.EqualValues(t, 7, token)
	require.Equal(t, 1, exact)
	require.Equal(t, d.at(5).Add(clock.Validity(d.part, d.terms.Drift)), until, "from the request, not from the answer")
	require.Equal(t, 0, d.votes(5+3000), "ended")
}

func TestAttemptIsTrustedUntilTheNeedthLatestEnd(t *testing.T) {
	d := newDesk(5)
	for i, sent := range []float64{0, 40, 10, 30, 20} {
		d.wait(i, sent)
		d.reply(i, 7, sent, sent+1, 0.1, "-")
	}
	_, _, _, until := d.tally(d.at(50), d.states)
	require.Equal(t, d.at(20).Add(clock.Validity(d.part, d.terms.Drift)), until)
	require.Zero(t, nthLatest([]time.Time{d.start}, 2))
}

// Counting any push: two holders, in a counter-example of 10 steps.
func TestLatePushAfterAYieldDoesNotCount(t *testing.T) {
	d := newDesk(3)
	d.wait(0, 0)
	d.reply(0, -500, 0, 1, 0.5, "-")
	d.push(0, 8, 2, 3, "-")
	require.Equal(t, 1, d.votes(3))
	out := d.yield(d.at(4))
	require.Equal(t, []Offer{{0, 8}}, out)
	require.Equal(t, 0, d.votes(4))
	d.push(0, 8, 2, 5, "-") // the same grant, heard again
	require.Equal(t, 0, d.votes(5))
	d.push(0, 9, 4.5, 6, "-") // a later grant
	require.Equal(t, 1, d.votes(6))
	d.wait(0, 7)
	d.yield(d.at(7))
	d.reply(0, 9, 7, 8, 7.5, "-") // a reply that was on its way when the vote was given up
	require.Equal(t, 0, d.votes(8))
}

func TestRefusalTakesAVoteOnlyIfItIsYounger(t *testing.T) {
	d := newDesk(3)
	d.wait(0, 0)
	d.reply(0, -500, 0, 1, 0.5, "-")
	d.wait(0, 1)
	d.push(0, 8, 3, 4, "-")
	d.reply(0, -400, 1, 5, 2, "-") // executed at 2, before the grant at 3
	require.Equal(t, 1, d.votes(5))
	d.wait(0, 6)
	d.reply(0, -400, 6, 8, 7, "-") // executed at 7: the vote has gone
	require.Equal(t, 0, d.votes(8))
}

func TestPushIsDatedByTheLatestAnchor(t *testing.T) {
	d := newDesk(1)
	d.wait(0, 0)
	d.reply(0, -500, 0, 1, 1000, "-")
	d.push(0, 8, 1400, 600, "-") // 400 ms of server time after the anchor
	_, _, _, until := d.tally(d.at(600), d.states)
	require.Equal(t, d.at(400*(1-d.terms.Drift)).Add(clock.Validity(d.part, d.terms.Drift)), until)
	// Never later than its arrival, even where the server's clock has run a little ahead of ours.
	d.push(0, 9, 1708, 700, "-")
	_, _, _, until = d.tally(d.at(700), d.states)
	require.Equal(t, d.at(700).Add(clock.Validity(d.part, d.terms.Drift)), until)
}

func TestPushThatProvesNothingMakesTheAttemptAsk(t *testing.T) {
	for name, prepare := range map[string]func(d *desk){
		"its server time lies before the anchor": func(d *desk) { d.push(0, 8, 999, 50, "-") },
		"the anchor is of an earlier connection": func(d *desk) {
			d.states[0].Epoch++
			d.push(0, 8, 1010, 50, "-")
		},
		"it was granted after its arrival": func(d *desk) { d.push(0, 8, 9000, 50, "-") },
		"it is past its own end":           func(d *desk) { d.push(0, 8, 1001, 20_000, "-") },
		"the server's clock stepped":       func(d *desk) { d.wait(0, 20); d.reply(0, -500, 20, 21, 1900, "-"); d.push(0, 8, 1910, 50, "-") },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(1)
			d.wait(0, 0)
			d.reply(0, -100_000, 0, 1, 1000, "-")
			d.beat, d.asked = d.at(1e6), d.at(0)
			prepare(d)
			require.Equal(t, 0, d.votes(60))
			require.Equal(t, Register, d.Next(d.at(20_001), d.states).Do)
		})
	}
}

func TestTwoAgreeingAnchorsRestoreTrustAfterAStep(t *testing.T) {
	d := newDesk(1)
	d.wait(0, 0)
	d.reply(0, -9000, 0, 1, 1000, "-")
	d.wait(0, 20)
	d.reply(0, -9000, 20, 21, 5000, "-")
	require.Equal(t, stepped, d.m[0].dating)
	d.wait(0, 40)
	d.reply(0, -9000, 40, 41, 5020, "-")
	d.push(0, 8, 5030, 60, "-")
	require.Equal(t, 1, d.votes(60))
}

func TestPushBeforeAnyAnswerIsDatedByTheFirstWait(t *testing.T) {
	d := newDesk(1)
	d.push(0, 8, 10, 20, "-") // nothing was ever asked
	require.Equal(t, 0, d.votes(20))
	d.wait(0, 5)
	d.push(0, 8, 10, 20, "-")
	_, _, _, until := d.tally(d.at(20), d.states)
	require.Equal(t, d.at(5).Add(clock.Validity(d.part, d.terms.Drift)), until)
}

func TestWhatAnEndedGenerationSaidCountsForNothing(t *testing.T) {
	d := newDesk(3)
	d.wait(0, 0)
	old := d.states[0]
	d.reply(0, 50, 0, 1, 0.5, "-")
	require.Equal(t, 1, d.votes(1))
	d.states[0].Gen, d.states[0].Epoch = 2, 2
	require.Equal(t, 0, d.votes(2), "a vote")
	d.wait(1, 0)
	d.states[1].Gen = 2
	d.Answered(1, Answer{Outcome: member.Answered, N: 50, Server: 1, Sent: d.at(0), At: d.at(3), From: old, Now: d.states[1]}, d.part)
	require.Equal(t, 0, d.votes(3), "an answer")
	d.Pushed(2, Push{Token: 50, Server: micros(0), Next: "-", TTL: d.part}, member.State{Gen: 1}, d.at(3))
	require.Equal(t, 0, d.votes(3), "a push of a member that may not vote")
	// A restored counter may lie below a token yielded before: the new generation starts afresh.
	d.m[0].yielded = 50
	d.wait(0, 4)
	d.reply(0, 20, 4, 5, 0.9, "-")
	require.Equal(t, 1, d.votes(5))
}

func TestMemberThatMayNotVoteDoesNotCount(t *testing.T) {
	d := newDesk(1)
	d.wait(0, 0)
	d.reply(0, 7, 0, 1, 0.5, "-")
	d.states[0].Votes = false
	require.Equal(t, 0, d.votes(1))
	d.wait(0, 2)
	d.reply(0, 8, 2, 3, 2.5, "-")
	d.states[0].Votes = true
	require.EqualValues(t, 7, d.m[0].token, "answered while it might not vote")
}

func TestHintIsOfNobodyWhoHasGivenUp(t *testing.T) {
	d := newDesk(3)
	d.hear(&d.next, "gone:1", 0)
	d.hear(&d.next, "gone:1", 1)
	d.hear(&d.next, "next:2", 2)
	d.Announced(0, "gone:1")
	d.Announced(0, "waits:3")
	d.Withdrawn("gone:1")
	require.Equal(t, "next:2", d.Hint())
	d.Withdrawn("next:2")
	require.Equal(t, "waits:3", d.Hint())
	d.Withdrawn("waits:3")
	require.Empty(t, d.Hint())
}

// Others decide how many waiters there are, and for how long a lock is held: what is remembered of them has a limit.
func TestWaitersRememberedAreFew(t *testing.T) {
	d := newDesk(1)
	for n := range 1000 {
		d.Announced(0, fmt.Sprint("heard:", n))
		d.hear(&d.next, fmt.Sprint("next:", n), 0)
	}
	require.Len(t, d.heard, 32)
	require.Len(t, d.next, 32)
	require.Equal(t, "next:968", d.Hint(), "the first heard of those that are remembered")
	require.Equal(t, "heard:999", d.heard[31].owner)
}

func TestHintPrefersWhoIsNextInLineAtMostMembers(t *testing.T) {
	d := newDesk(5)
	require.Empty(t, d.Hint())
	for i := range 5 {
		d.Announced(i, "newcomer:9") // all members announce it
	}
	require.Equal(t, "newcomer:9", d.Hint())
	d.hear(&d.next, "a:1", 0)
	require.Equal(t, "a:1", d.Hint(), "announcements count only when nobody is named as next")
	d.hear(&d.next, "b:2", 1)
	require.Equal(t, "a:1", d.Hint(), "ties go to the first heard")
	d.hear(&d.next, "b:2", 2)
	d.hear(&d.next, "b:2", 2)
	require.Equal(t, "b:2", d.Hint())
	d.hear(&d.next, "me:1", 3)
	d.hear(&d.next, "me:1", 4)
	d.hear(&d.next, "me:1", 0)
	require.Equal(t, "b:2", d.Hint(), "never itself")
}

// ready is a desk of n on which every member has refused, so that only what a test does matters.
func ready(n int) *desk {
	d := newDesk(n)
	d.beat, d.asked = d.at(1000), d.at(0)
	for i := range n {
		d.wait(i, 0)
		d.reply(i, -100_000, 0, 1, 0.5, "-")
	}
	return d
}

func TestSplitIsYieldedOnceEveryMemberHasAnswered(t *testing.T) {
	d := ready(5)
	d.wait(0, 10)
	d.wait(1, 10)
	d.reply(0, 7, 10, 11, 10.5, "-")
	s := d.Next(d.at(11), d.states)
	require.Equal(t, Sleep, s.Do, "a majority may still come")
	d.reply(1, -100_000, 10, 12, 10.5, "-")
	s = d.Next(d.at(12), d.states)
	require.Equal(t, Sleep, s.Do)
	pause := max(time.Millisecond, 2*d.rtt)
	require.Equal(t, d.at(12).Add(pause), s.Wake, "two round trips of grace")
	s = d.Next(s.Wake, d.states)
	require.Equal(t, Yield, s.Do)
	require.Equal(t, []Offer{{0, 7}}, s.Offers)
}

// Waiting for a hung member's answer: no acquisition at all with one member stopped.
func TestSilentMemberDoesNotHoldUpAYield(t *testing.T) {
	d := ready(5)
	d.wait(0, 10)
	d.wait(1, 10)
	d.reply(0, 7, 10, 11, 10.5, "-")
	s := d.Next(d.at(11), d.states)
	require.Equal(t, d.at(10).Add(d.terms.Timeout), s.Wake, "it looks again when the silence counts")
	s = d.Next(s.Wake, d.states)
	require.Equal(t, Sleep, s.Do)
	s = d.Next(s.Wake, d.states)
	require.Equal(t, Yield, s.Do)
}

func TestVoteThatAYieldKeptIsNotOfferedAgainInVain(t *testing.T) {
	d := ready(3)
	d.wait(0, 10)
	d.reply(0, 7, 10, 11, 10.5, "-")
	d.Next(d.at(11), d.states)
	s := d.Next(d.at(20), d.states)
	require.Equal(t, Yield, s.Do)
	d.YieldAnswered(0, Answer{Outcome: member.Answered, N: 8, Server: micros(21), Sent: d.at(20), At: d.at(22), From: d.states[0], Now: d.states[0]})
	in, token, _, _ := d.tally(d.at(22), d.states)
	require.Equal(t, 1, in.Len())
	require.EqualValues(t, 8, token)
	require.Equal(t, d.at(20).Add(clock.Validity(d.part, d.terms.Drift)), d.m[0].end, "from the yield's submission")
	for ms := 22.0; ms < 900; ms += 50 {
		require.Equal(t, Sleep, d.Next(d.at(ms), d.states).Do)
	}
	d.Announced(0, "other:3") // somebody new waits there
	d.Next(d.at(900), d.states)
	require.Equal(t, Yield, d.Next(d.at(950), d.states).Do)
}

// The connection broke before the yield was executed. The vote may never count again, and each heartbeat
// lengthens it: without a second yield nobody would ever have this member.
func TestVoteWhoseYieldWasLostIsOfferedAgain(t *testing.T) {
	for _, o := range []member.Outcome{member.Unknown, member.NotSent} {
		d := ready(3)
		d.wait(0, 10)
		d.reply(0, 7, 10, 11, 10.5, "-")
		d.Next(d.at(11), d.states)
		require.Equal(t, Yield, d.Next(d.at(20), d.states).Do)
		d.wait(0, 21)
		d.reply(0, 7, 21, 22, 21.5, "-") // the yield is under way
		require.Equal(t, Sleep, d.Next(d.at(23), d.states).Do)
		d.YieldAnswered(0, Answer{Outcome: o, Err: member.ErrDown, Sent: d.at(20), At: d.at(25), From: d.states[0], Now: d.states[0]})
		require.Equal(t, Sleep, d.Next(d.at(30), d.states).Do)
		d.wait(0, 40)
		d.reply(0, 7, 40, 41, 40.5, "-")
		require.Equal(t, 0, d.votes(41), "it may not count any more")
		d.Next(d.at(41), d.states)
		s := d.Next(d.at(60), d.states)
		require.Equal(t, Yield, s.Do)
		require.Equal(t, []Offer{{0, 7}}, s.Offers)
		d.YieldAnswered(0, Answer{Outcome: member.Answered, N: 9, Server: micros(61), Sent: d.at(60), At: d.at(62), From: d.states[0], Now: d.states[0]})
		require.Equal(t, 1, d.votes(62))
		require.Equal(t, Sleep, d.Next(d.at(80), d.states).Do)
	}
}

func TestWaitIsRepeatedAsHeartbeatAndWhenALeaseShouldHaveEnded(t *testing.T) {
	d := ready(3)
	require.Equal(t, Sleep, d.Next(d.at(2), d.states).Do)
	s := d.Next(d.at(1000), d.states)
	require.Equal(t, Register, s.Do)
	require.Equal(t, quorum.All(3), s.To)
	require.Equal(t, d.at(1000).Add(d.terms.Entry/3), d.beat)
	d.wait(1, 1000)
	d.reply(1, -50, 1000, 1001, 1000.5, "-") // its lease has 50 ms left
	s = d.Next(d.at(1002), d.states)
	require.Equal(t, Sleep, s.Do)
	require.Equal(t, d.at(1001+51), s.Wake)
	require.Equal(t, Register, d.Next(d.at(1052), d.states).Do)
}

func TestMemberIsAskedAtOnceWhenItCanBeAgain(t *testing.T) {
	d := ready(3)
	d.states[1].Inbox = false
	require.Equal(t, Sleep, d.Next(d.at(2), d.states).Do)
	d.states[1].Inbox = true
	s := d.Next(d.at(3), d.states)
	require.Equal(t, Register, s.Do)
	require.Equal(t, quorum.Set(0).With(1), s.To)
	require.Equal(t, Sleep, d.Next(d.at(4), d.states).Do)
}

func TestMemberThatIsBackIsAskedAlsoWhereSomethingElseComesFirst(t *testing.T) {
	d := ready(3)
	d.states[2].Inbox = false
	d.wait(0, 10)
	d.reply(0, 7, 10, 11, 10.5, "-")
	s := d.Next(d.at(11), d.states)
	require.Equal(t, Sleep, s.Do)
	d.states[2].Inbox = true
	at := s.Wake
	require.Equal(t, Yield, d.Next(at, d.states).Do, "a vote in vain")
	s = d.Next(at, d.states)
	require.Equal(t, Register, s.Do)
	require.Equal(t, quorum.Set(0).With(2), s.To)
	require.Equal(t, Sleep, d.Next(at, d.states).Do, "once")

	d = ready(3)
	for i := range d.m { // whoever asked them reached none
		d.wait(i, 10)
		d.fail(i, member.NotSent, member.ErrDown, 10)
		d.m[i].sent = 0
		d.states[i].Inbox = false
	}
	require.Equal(t, Sleep, d.Next(d.at(11), d.states).Do)
	d.states[0].Inbox = true
	require.Equal(t, Sleep, d.Next(d.at(12), d.states).Do, "one of three")
	d.states[1].Inbox = true
	s = d.Next(d.at(13), d.states)
	require.Equal(t, Register, s.Do)
	require.Equal(t, quorum.Set(0).With(0).With(1), s.To)
}

// Whoever listens anew may have missed a push, also if nobody looked while it did not listen.
func TestMemberIsAskedAtOnceWhenItIsListenedToAnew(t *testing.T) {
	d := ready(3)
	d.states[1].Ear = 1
	require.Equal(t, Sleep, d.Next(d.at(2), d.states).Do, "the first that is seen")
	d.states[1].Ear = 2
	s := d.Next(d.at(3), d.states)
	require.Equal(t, Register, s.Do)
	require.Equal(t, quorum.Set(0).With(1), s.To)
	require.Equal(t, Sleep, d.Next(d.at(4), d.states).Do)
	d.states[1].Ear, d.states[1].Inbox = 0, false
	require.Equal(t, Sleep, d.Next(d.at(5), d.states).Do, "it cannot be heard yet")
	d.states[1].Ear, d.states[1].Inbox = 3, true
	require.Equal(t, Register, d.Next(d.at(6), d.states).Do)
	require.Equal(t, Sleep, d.Next(d.at(7), d.states).Do)
}

func TestWaitingEndsWithoutAQuorumToAsk(t *testing.T) {
	d := newDesk(3) // a fresh attempt: nothing is in hand anywhere
	d.states[0].Votes, d.states[1].Votes = false, false
	s := d.Next(d.at(10), d.states)
	require.Equal(t, Sleep, s.Do, "no majority can be asked: so nobody is")
	require.Equal(t, d.at(10).Add(d.terms.Entry/3), s.Wake)
	d.states[1].Votes = true // a majority again: the patience starts anew
	require.Equal(t, Register, d.Next(d.at(500), d.states).Do)
	for i := 1; i < 3; i++ { // it reaches nobody
		d.fail(i, member.NotSent, member.ErrDown, 500)
	}
	d.states[1].Votes = false
	now, last := d.at(600), s
	for range 100 {
		last = d.Next(now, d.states)
		if last.Do != Sleep {
			break
		}
		now = last.Wake
	}
	require.Equal(t, Lose, last.Do)
	require.Equal(t, NoQuorum, last.Cause)
	require.Equal(t, d.at(600).Add(d.terms.GiveUp), now)
}

func TestVoteThatEndsWhileWaitingIsAskedForAtOnce(t *testing.T) {
	d := newDesk(3)
	d.part = 300 * time.Millisecond
	d.beat, d.asked = d.at(1000), d.at(0)
	for i := range 3 {
		d.wait(i, 0)
	}
	d.reply(0, 7, 0, 1, 0.5, "-")
	d.reply(1, -100_000, 0, 1, 0.5, "-")
	d.reply(2, -100_000, 0, 1, 0.5, "-")
	d.asked = d.at(250) // a heartbeat whose answers were lost
	s := d.Next(d.at(301), d.states)
	require.Equal(t, Register, s.Do, "it may be free")
}

// A line of our own that is full says nothing of the member.
func TestFullLineIsNotADeadMember(t *testing.T) {
	d := newDesk(3)
	var pauses []time.Duration
	for now := d.start; now.Sub(d.start) < 10*time.Second; {
		s := d.Next(now, d.states)
		if s.Do == Register {
			for i := range 3 {
				d.Answered(i, Answer{Outcome: member.NotSent, Err: member.ErrOverflow, Sent: now, From: d.states[i], Now: d.states[i]}, d.part)
			}
			s = d.Next(now, d.states)
			pauses = append(pauses, clock.Until(s.Wake, now))
		}
		require.Equal(t, Sleep, s.Do)
		require.True(t, s.Wake.After(now))
		now = s.Wake
	}
	require.Less(t, pauses[0], 10*time.Millisecond)
	for _, p := range pauses {
		require.Positive(t, p)
		require.LessOrEqual(t, p, 128*time.Millisecond)
	}
	require.Zero(t, d.darkSince)
}

// A vote that makes no majority is of no use to who cannot have one, and may be what another needs.
func TestWaiterWithoutAMajorityToAskGivesUpWhatItHas(t *testing.T) {
	for name, lose := range map[string]func(d *desk){
		"two are down": func(d *desk) { d.states[1].Votes, d.states[2].Votes = false, false },
		"two refuse all commands": func(d *desk) {
			d.fail(1, member.Refused, errors.New("a reply of another shape"), 2)
			d.fail(2, member.Refused, errors.New("a reply of another shape"), 2)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := ready(3)
			lose(d)
			now := d.at(10)
			s := d.Next(now, d.states)
			for ; s.Do == Sleep || s.Do == Register; s = d.Next(now, d.states) {
				require.Less(t, now.Sub(d.start), time.Second)
				if s.Do == Sleep {
					now = s.Wake
				}
			}
			require.Equal(t, Again, s.Do)
			require.Equal(t, StoodBack, s.Cause)
			require.LessOrEqual(t, now.Sub(d.start), 2*d.terms.Timeout+20*time.Millisecond)

			next := New("me:2", make([]Voter, 3), usual, d.Past())
			next.Next(now, d.states) // Listen
			require.Equal(t, Sleep, next.Next(now, d.states).Do, "the next attempt does not take it again at once")
		})
	}
}

func TestErrorsThatWillNotPassEndTheWaitAtOnce(t *testing.T) {
	foreign := &member.ReplyError{Kind: member.KindForeign, Text: "WRONGTYPE"}
	denied := &member.ReplyError{Kind: member.KindAuth, Text: "NOPERM"}
	busy := &member.ReplyError{Kind: member.KindBusy, Text: "BUSY"}
	for _, tc := range []struct {
		err  error
		at   int
		want Step
	}{
		{foreign, 2, Step{}}, {foreign, 3, Step{Do: Lose, Cause: Foreign}},
		{denied, 2, Step{}}, {denied, 3, Step{Do: Lose, Cause: NoQuorum}},
		{busy, 5, Step{}},
	} {
		d := ready(5)
		for i := range tc.at {
			d.wait(i, 2)
			d.fail(i, member.Refused, tc.err, 2)
		}
		s := d.Next(d.at(3), d.states)
		s.Wake = time.Time{}
		require.Equal(t, tc.want, s, "%v at %d", tc.err, tc.at)
	}
}

func TestReleaseIsOwedWhereAWriteMayHaveGone(t *testing.T) {
	d := newDesk(4)
	for i := range 4 {
		d.wait(i, 0)
	}
	d.fail(0, member.NotSent, member.ErrDown, 0)
	d.fail(1, member.Unknown, member.ErrBroken, 0)
	d.reply(2, -5, 0, 1, 0.5, "-")
	require.Equal(t, quorum.All(4)&^quorum.All(1), d.Owed(), "all but the one that nothing was sent to")
	require.Equal(t, 0, d.votes(1), "unknown is never a yes")
}

func TestOnlyConfirmedVotesThatStillCountMakeAGrantAfterARaise(t *testing.T) {
	d := newDesk(3)
	for i := range 3 {
		d.wait(i, 0)
		d.reply(i, int64(5+i), 0, 1, 0.5, "-")
	}
	_, token, exact, _ := d.tally(d.at(2), d.states)
	require.EqualValues(t, 7, token)
	require.Equal(t, 1, exact)
	ok := func(n int64) Answer {
		return Answer{Outcome: member.Answered, N: n, Sent: d.at(2), At: d.at(3), From: d.states[0], Now: d.states[0]}
	}
	s := d.Next(d.at(2), d.states)
	require.Equal(t, Raise, s.Do)
	require.EqualValues(t, 7, s.Token)
	require.Equal(t, quorum.All(3), s.To)
	require.Equal(t, quorum.Yes, d.RaiseAnswered(0, ok(1)))
	require.Equal(t, quorum.No, d.RaiseAnswered(1, ok(0)), "not its vote any more")
	require.Equal(t, quorum.Yes, d.RaiseAnswered(2, ok(1)))
	in, until := d.confirmed(d.at(3), d.states)
	require.Equal(t, 2, in.Len())
	require.False(t, until.IsZero())
	d.poll.token = 6
	above, _ := d.confirmed(d.at(3), d.states)
	d.poll.token = 7
	require.Equal(t, 1, above.Len(), "a vote above the token is another than the one that was confirmed")
	d.states[2].Gen = 2
	in, until = d.confirmed(d.at(3), d.states)
	require.Equal(t, 1, in.Len())
	require.True(t, until.IsZero())
}

func TestVoteBelowTheTokenIsLate(t *testing.T) {
	d := newDesk(3)
	d.wait(2, 0)
	d.reply(2, 5, 0, 1, 0.5, "-")
	late := func(i int) bool {
		_, late := d.Late(i)
		return late
	}
	require.False(t, late(2), "nothing is decided")
	d.token = 9
	require.True(t, late(2))
	require.False(t, late(1), "no vote")
	d.token = 5
	require.False(t, late(2))
}
