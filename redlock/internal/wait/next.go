package wait

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// phase is how far an attempt has come.
type phase uint8

const (
	over          phase = iota // won or ended
	fresh                      // nothing has been asked
	asking                     // acquire is out
	full                       // the client's own lines are: it is asked again later
	raising                    // raise is out
	waiting                    // registered, or about to be
	followingGate              // it asks once, and follows the votes of one member
)

// poll is a question whose answers are counted, as those of a quorum.Round.
type poll struct {
	sent  time.Time // which question it is
	to    memberset.Set
	open  memberset.Set
	yes   memberset.Set
	past  memberset.Set // passed over: the call stood in a chain that had ended before it
	again bool          // it asks those that a former question was passed over by
}

// book counts the answer to the question that was sent at a moment.
func (p *poll) book(i int, sent time.Time, v quorum.Vote) {
	if !p.open.Has(i) || !p.sent.Equal(sent) {
		return // a straggler of an earlier one
	}
	p.open = p.open.Without(i)
	switch v {
	case quorum.Yes:
		p.yes = p.yes.With(i)
	case quorum.NotAsked:
		p.past = p.past.With(i)
	}
}

// verdict is that of the answers until now.
func (p *poll) verdict(need int) quorum.Verdict {
	return quorum.Decide(p.yes.Len(), p.open.Len(), need)
}

// Action says what an attempt has to do.
type Action uint8

const (
	Sleep    Action = iota // do nothing before Step.Wake, unless something is heard
	Acquire                // submit acquire to Step.To
	BackOff                // leave the client's own lines alone for at least Step.Pause
	Listen                 // let everything that is heard from now on wake the attempt
	Register               // submit wait to Step.To
	Yield                  // submit a yield for each of Step.Offers
	Claim                  // submit a claim for each of Step.Offers, then wait to Step.To
	Raise                  // submit raise with Step.Token to Step.To
	Win                    // take Step.Grant, and submit raise with its token to Step.To
	Again                  // release everything; another attempt follows: Ballot.Past
	Lose                   // release everything
)

// Cause says why an attempt has ended without the lock.
type Cause uint8

const (
	Refused     Cause = iota // the members refused what was asked
	Foreign                  // keys that are not locks make a majority impossible
	TooSlow                  // a majority granted, so late that no validity is left
	Unconfirmed              // a majority granted, and too few confirmed the token
	NoQuorum                 // fewer than a majority could be asked for too long, or will ever answer
	StoodBack                // fewer than a majority can be asked now, and others may use the votes
	Stuck                    // the votes in hand stand in the way of one that stands in the way at the other members
)

// Why says what made a waiting attempt ask.
type Why uint8

const (
	ByNothing Why = iota // it asks for the first time
	ByPoll               // the heartbeat
	ByExpiry             // a member's lock should have ended, by its word, or a push proved nothing
	ByMember             // a member can be asked that could not be asked before
	ByGrant              // others have freed the lock
)

// Step says what to do next. The ballot has booked it, so the caller must submit every call of it.
type Step struct {
	Do     Action
	Poll   bool          // look again when the question is decided; false: at whatever is heard
	Why    Why           // of Register
	Freed  bool          // of Register: Redisson has freed the lock there
	Cause  Cause         // of Again and Lose
	Early  bool          // of Refused: the answers decided, without waiting for the other members
	To     memberset.Set // the members to ask
	Need   int           // of Acquire: the yes of so many of them decide
	Wake   time.Time     // of Acquire, Raise, Sleep: when to look again
	Pause  time.Duration // of BackOff
	Token  int64         // of Raise
	Ticket int64         // of Register and Claim; 0: none is agreed, or the lock has no tickets
	Offers []Offer       // of Yield and Claim
	Grant  Grant         // of Win
}

// Ends reports whether this is the last step of the attempt.
func (s *Step) Ends() bool { return s.Do >= Win }

// Grant is what a won attempt was worth when it was decided.
type Grant = core.Grant

// Looks reports whether Next looks at the states of the members. If it does not, they may be nil.
// Only Next changes what Looks and Waited report.
func (b *Ballot) Looks() bool { return b.phase != fresh && b.phase != full }

// Next says what to do now. It overwrites all of s with that.
func (b *Ballot) Next(s *Step, now time.Time, states []member.State) {
	*s = Step{}
	if b.permits != nil {
		b.permits.saw(states)
	}
	switch b.phase {
	case fresh:
		if b.start == WaitFirst {
			b.listen(s)
		} else {
			b.ask(s, now)
		}
	case full:
		b.ask(s, now)
	case asking:
		switch v := b.poll.verdict(b.need); {
		case v == quorum.Won:
			b.decide(s, now, states)
		case v == quorum.Lost || b.silent(now):
			b.refused(s, v == quorum.Lost, now, states)
		default:
			s.Poll, s.Wake = true, b.pollEnd()
		}
	case raising:
		switch v := b.poll.verdict(b.need); {
		case v == quorum.Won:
			b.raised(s, now, states)
		case v == quorum.Lost || b.silent(now):
			b.endAttempt(s, Unconfirmed, now, states)
		default:
			s.Poll, s.Wake = true, b.pollEnd()
		}
	case waiting:
		b.wait(s, now, states)
	case followingGate:
		b.followGateOnce(s, now, states)
	default:
		panic("wait: the attempt is over")
	}
}

// pollEnd is when members that have not answered count as silent, unless they are busy: see quorum.Round.Wait. Who claims does not
// wait for a round: all members have just answered then.
func (b *Ballot) pollEnd() time.Time {
	if b.phase == followingGate {
		return b.poll.sent.Add(quorum.Patience * b.terms.Timeout)
	}
	return b.poll.sent.Add(b.terms.Timeout)
}

func (b *Ballot) silent(now time.Time) bool { return clock.Until(b.pollEnd(), now) <= 0 }

// ask asks all members for their votes: docs/protocol.md, "Asking".
func (b *Ballot) ask(s *Step, now time.Time) {
	all := memberset.All(len(b.m))
	for i := range b.m {
		b.m[i].asks(now)
	}
	b.phase, b.poll = asking, poll{sent: now, to: all, open: all}
	s.Do, s.Poll, s.To, s.Need, s.Wake = Acquire, true, all, b.need, b.pollEnd()
}

// askPassedOver asks the members that have passed the attempt over, if it can still win with their votes.
// They may have done so because of another lock in the same chain. It reports whether it asks. It
// does so once, because a question that travels alone is passed over by nobody.
func (b *Ballot) askPassedOver(s *Step, now time.Time) bool {
	past, yes := b.poll.past, b.poll.yes
	if past == 0 || b.poll.again || yes.Len()+past.Len() < b.need {
		return false
	}
	for i := range b.m {
		if past.Has(i) {
			b.m[i].asks(now)
		}
	}
	b.poll = poll{sent: now, to: past, open: past, yes: yes, again: true}
	s.Do, s.Poll, s.To, s.Need, s.Wake = Acquire, true, past, b.need-yes.Len(), b.pollEnd()
	return true
}

// refused says how it goes on after a question that was not won.
func (b *Ballot) refused(s *Step, early bool, now time.Time, states []member.State) {
	if b.backOff(s, now, states) || b.askPassedOver(s, now) {
		return
	}
	if align := b.terms.Rules.align; b.start == TryOnce && align != nil && align(b, now) {
		s.Do = Listen
		return
	}
	foreign := 0
	for i := range b.m {
		if KindOf(b.m[i].cause()) == member.KindForeign {
			foreign++
		}
	}
	if b.start == TryOnce || len(b.m)-foreign < b.need {
		b.phase = over
		s.Do, s.Cause, s.Early = Lose, Refused, early
		return
	}
	b.listen(s)
}

// backOff tries again, with the votes in hand, if only full lines of this client's own were in the
// way. It reports whether they were.
func (b *Ballot) backOff(s *Step, now time.Time, states []member.State) bool {
	if b.start != AskFirst {
		return false
	}
	pause := b.onlyOverflows(now, states)
	if pause == 0 {
		return false
	}
	b.phase = full
	s.Do, s.Pause = BackOff, pause
	return true
}

// listen goes on waiting, with the votes in hand.
func (b *Ballot) listen(s *Step) {
	b.phase, b.poll, b.start = waiting, poll{}, WaitFirst
	b.more()
	s.Do = Listen
}

// decide turns a majority of votes into a token and a validity, with a second round where the counters disagree.
func (b *Ballot) decide(s *Step, now time.Time, states []member.State) {
	switch decision, grant := b.core.Decide(now, states); decision {
	case core.Few:
		b.endAttempt(s, TooSlow, now, states)
	case core.Apart:
		b.raise(s, grant.In, now)
	case core.Won:
		s.Grant = grant
		b.win(s)
	}
}

// raise makes sure that a majority that still holds for us has its counter at the token, so that every
// later attempt draws a greater one. Members that may have voted are asked, too, so that one slow confirmation of those
// that decided does not hold it up. Why no clock is needed: docs/protocol.md, "Fencing tokens".
func (b *Ballot) raise(s *Step, in memberset.Set, now time.Time) {
	b.core.Raise(now)
	in = b.mayHaveVoted(in)
	for i := range b.m {
		if in.Has(i) {
			b.m[i].sent++
		}
	}
	b.phase, b.poll = raising, poll{sent: now, to: in, open: in}
	s.Do, s.Poll, s.To, s.Token, s.Wake = Raise, true, in, b.core.Agreed(), b.pollEnd()
}

// raised wins if votes enough are confirmed: some may have ended while the members answered.
func (b *Ballot) raised(s *Step, now time.Time, states []member.State) {
	grant, won := b.core.Confirm(now, states)
	if !won {
		b.endAttempt(s, TooSlow, now, states)
		return
	}
	s.Grant = grant
	b.win(s)
}

// win books the lease of s.Grant. The step raises the votes below its token that no raise has gone
// to. Nobody waits for that.
func (b *Ballot) win(s *Step) {
	asked := memberset.Set(0)
	if s.Grant.Raised {
		asked = b.poll.to
	}
	b.phase, b.poll = over, poll{}
	s.Do = Win
	for i := range b.m {
		if _, late := b.Late(i); late && (b.permits != nil || !asked.Has(i)) {
			s.To = s.To.With(i)
			b.m[i].sent++
		}
	}
}
