package wait

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Dark tells the ballot since when the client has known that fewer than a majority can be asked. A
// zero time means that a majority can be asked.
func (b *Ballot) Dark(since time.Time) {
	if b.noQuorumSince.IsZero() {
		b.noQuorumSince = since
	}
}

// NoQuorumSince returns the same time, as the attempt knows it.
func (b *Ballot) NoQuorumSince() time.Time { return b.noQuorumSince }

// wait decides what a waiting attempt does: docs/protocol.md, "Waiting".
func (b *Ballot) wait(s *Step, now time.Time, states []member.State) {
	in, _, _, _ := b.core.Tally(now, states)
	if in.Len() >= b.need {
		b.decide(s, now, states)
		return
	}
	b.refresh(now, states)
	back := b.look(states)
	c := b.survey(now, states)
	b.listensAgain(back)

	if cause, ends := c.hopeless(len(b.m), b.need); ends {
		b.end(s, cause, now, states)
		return
	}
	giveUpAt, ends := b.noQuorumUntil(&c, now)
	if ends {
		b.end(s, NoQuorum, now, states)
		return
	}
	standBackAt, can := b.minorityUntil(&c, now)
	switch {
	case !can && standBackAt.IsZero(): // a change of a member wakes
		s.Wake = earliest(giveUpAt, now.Add(b.terms.Entry/3))
		return
	case !can:
		b.standBack(s, c.failing, now)
		return
	case clock.Until(b.notBefore, now) > 0:
		s.Wake = earliest(giveUpAt, b.notBefore)
		return
	}
	yield, split := b.terms.Rules.split(b, c, now)
	if yield.Do != Sleep {
		*s = yield
		return
	}
	if !b.askAgain(s, in != 0, now, states) {
		s.Wake = earliest(b.heartbeat, giveUpAt, standBackAt, split, b.before(in != 0, now, states), b.retryAt(states), b.silence(now))
	}
}

// end gives up.
func (b *Ballot) end(s *Step, why Cause, now time.Time, states []member.State) {
	if why == TooSlow {
		b.endAttempt(s, TooSlow, now, states)
		return
	}
	b.phase = over
	s.Do, s.Cause = Lose, why
	for i := range b.m {
		if why == NoQuorum && !b.responsive(i, now, states) {
			b.unheard = b.unheard.With(i)
		}
	}
}

// responsive reports whether member i can be asked, and has not been without an answer for too long.
func (b *Ballot) responsive(i int, now time.Time, states []member.State) bool {
	m := &b.m[i]
	late := m.pending > 0 && clock.Elapsed(m.since, now) >= b.terms.Timeout
	return states[i].Votes && states[i].Inbox && !b.silentBefore.Has(i) && !late
}

// refresh drops votes that have ended.
func (b *Ballot) refresh(now time.Time, states []member.State) {
	for i := range b.m {
		m := &b.m[i]
		if b.core.Token(i) > 0 && !b.core.Valid(i, now, states) {
			if b.core.Drop(i); b.again[i].retry.IsZero() {
				b.askAt(i, now) // it may be free
			}
		}
		if b.shared != nil && m.yield == yieldedBack {
			b.yieldAgain(i, now)
		}
	}
}

// look returns the members that can be waited at again, as of now. A push may be lost where we began to listen, also
// if nobody looked while we did not; in a Redis Cluster, where the slot was then.
func (b *Ballot) look(states []member.State) (back memberset.Set) {
	for i := range b.m {
		m := &b.again[i]
		if !states[i].Votes || !states[i].Inbox {
			b.notListening, b.listenAgain = b.notListening.With(i), b.listenAgain.Without(i)
			continue
		}
		if b.notListening.Has(i) || m.ear != 0 && m.ear != states[i].Ear {
			back = back.With(i)
		}
		b.notListening, m.ear = b.notListening.Without(i), states[i].Ear
	}
	return back
}

// listensAgain books members that can be waited at again: what was in vain may not be any more.
func (b *Ballot) listensAgain(back memberset.Set) {
	if back != 0 {
		b.notBefore, b.silentBefore, b.listenAgain = time.Time{}, b.silentBefore&^back, b.listenAgain|back
	}
}

// survey counts what the members are good for.
type survey struct {
	allHeard      bool          // every member has answered, failed, or been silent for too long
	failing       memberset.Set // fail whatever is asked of them
	offers        int           // have a vote of ours that may be yielded
	open          int           // can be asked
	working       int           // and do not fail
	responsive    int           // nor owe an answer for too long, nor are in doubt
	quarantined   int           // will vote again by themselves, after a quarantine
	slow          int           // granted in vain
	foreign       int           // the key is no lock there
	refuseForGood int           // will not vote, however long it is waited for
}

func (b *Ballot) survey(now time.Time, states []member.State) survey {
	c := survey{allHeard: true}
	for i := range b.m {
		m, st := &b.m[i], &states[i]
		late := clock.Elapsed(m.since, now) >= b.terms.Timeout
		c.allHeard = c.allHeard && (m.pending == 0 && m.yield != yielding || late)
		if b.mayYield(i) {
			c.offers++
		}
		if b.core.Has(i) == core.Expired {
			c.slow++
		}
		if m.lastAnswer == failed && m.overflows == 0 {
			c.failing = c.failing.With(i)
		}
		switch {
		case !st.Quarantine.IsZero():
			c.quarantined++
		case st.Votes && st.Inbox:
			c.open++
			if c.failing.Has(i) {
				break
			}
			c.working++
			if b.responsive(i, now, states) {
				c.responsive++
			}
		}
		switch KindOf(m.cause()) {
		case member.KindForeign:
			c.foreign++
			c.refuseForGood++
		case member.KindExhausted, member.KindAuth:
			c.refuseForGood++
		default:
			if KindOf(st.Deaf) == member.KindAuth {
				c.refuseForGood++
			}
		}
	}
	return c
}

// hopeless says why nothing is to be waited for, if so.
func (c *survey) hopeless(n, need int) (why Cause, ends bool) {
	switch {
	case n-c.foreign < need:
		return Foreign, true
	case c.slow >= need:
		return TooSlow, true
	case n-c.refuseForGood < need:
		return NoQuorum, true
	}
	return 0, false
}

// noQuorumUntil says when to give up because fewer than a majority can be asked, zero while they can, and whether that is
// now.
func (b *Ballot) noQuorumUntil(c *survey, now time.Time) (at time.Time, ends bool) {
	switch {
	case c.responsive+c.quarantined >= b.need:
		b.noQuorumSince = time.Time{}
		return time.Time{}, false
	case b.terms.GiveUp < 0:
		return time.Time{}, false
	case b.noQuorumSince.IsZero():
		b.noQuorumSince = now
	}
	at = b.noQuorumSince.Add(b.terms.GiveUp)
	return at, clock.Until(at, now) <= 0
}

// minorityUntil says whether a majority can be asked, or may be able to be: until at. Without one no vote is of use here, and
// each is kept from somebody who may have the others. (A member that hangs is one that cannot be asked as soon as its
// connection has stalled.) A zero at beside false: nothing is in hand.
func (b *Ballot) minorityUntil(c *survey, now time.Time) (at time.Time, can bool) {
	standing := b.Owed() != 0
	switch {
	case c.working >= b.need, !standing && c.open >= b.need:
		b.minoritySince = time.Time{}
		return time.Time{}, true
	case !standing:
		return time.Time{}, false
	case b.minoritySince.IsZero():
		b.minoritySince = now
	}
	at = b.minoritySince.Add(b.terms.Timeout)
	return at, clock.Until(at, now) > 0
}

// askAgain asks as a heartbeat, when a member's lock should have ended, when one can be asked again,
// or when the attempt does not stand at its ticket there. inHand says that there are votes. askAgain reports whether it asks.
func (b *Ballot) askAgain(s *Step, inHand bool, now time.Time, states []member.State) bool {
	expired, room := b.retries(now, states)
	heartbeat := clock.Until(earliest(b.heartbeat, b.before(inHand, now, states)), now) <= 0
	switch {
	case heartbeat || expired:
		why := ByExpiry
		if heartbeat && b.asked.IsZero() {
			why = ByNothing
		} else if heartbeat {
			why = ByPoll
		}
		b.heartbeatEvery = b.pace()
		b.asked, b.heartbeat, b.listenAgain = now, now.Add(b.heartbeatEvery), 0
		b.wrongPlaces()
		b.register(s, memberset.All(len(b.m)), why, now, states)
		return true
	case b.listenAgain|room != 0:
		to := b.listenAgain | room
		b.listenAgain = 0
		b.register(s, to, ByMember, now, states)
		return true
	}
	if to := b.wrongPlaces(); to != 0 {
		b.registerAt(s, to, ByNothing, now, states)
		return true
	}
	if b.shared == nil {
		return false
	}
	to, freed := b.shared.ask()
	if to == 0 {
		return false
	}
	b.registerAt(s, to, ByMember, now, states)
	if s.Freed = freed; freed {
		s.Why = ByGrant
	}
	return true
}

// before is a heartbeat that comes before the votes in hand end. If heartbeats are rare, a vote that was pushed began long
// after the last one. So it is a third of their time after the first vote in hand began, and no sooner than where they are
// not rare.
func (b *Ballot) before(inHand bool, now time.Time, states []member.State) (at time.Time) {
	if !inHand || b.asked.IsZero() {
		return time.Time{}
	}
	if b.heartbeatEvery <= b.terms.Entry/3 {
		return b.asked.Add(b.part / 3)
	}
	for i := range b.m {
		if b.core.Valid(i, now, states) {
			at = earliest(at, b.core.End(i).Add(b.part/3-clock.Validity(b.part, b.terms.Drift)))
		}
	}
	if floor := b.asked.Add(b.part / 3); at.IsZero() || clock.Until(floor, at) > 0 {
		return floor
	}
	return at
}

// retries says whether the lock of a member should have ended by its own word, and which of our own lines may have room
// again.
func (b *Ballot) retries(now time.Time, states []member.State) (expired bool, room memberset.Set) {
	for i := range b.m {
		switch at := b.retryOf(i, states); {
		case at.IsZero() || clock.Until(at, now) > 0:
		case b.m[i].overflows > 0:
			room = room.With(i)
		default:
			expired = true
		}
	}
	return expired, room
}

// retryAt is when retries has something new to say.
func (b *Ballot) retryAt(states []member.State) (wake time.Time) {
	for i := range b.m {
		wake = earliest(wake, b.retryOf(i, states))
	}
	return wake
}

// askAt books when member i is worth asking; zero: it is not.
func (b *Ballot) askAt(i int, at time.Time) {
	if b.besides != nil || !at.IsZero() {
		b.more().again[i].retry = at
	}
}

// retryOf is when member i is worth asking by what it said, but for a moment after everybody was asked; zero: it is not.
func (b *Ballot) retryOf(i int, states []member.State) time.Time {
	at, floor := b.again[i].retry, b.asked.Add(time.Millisecond)
	if at.IsZero() || !states[i].Votes {
		return time.Time{}
	}
	if clock.Until(floor, at) > 0 {
		return floor
	}
	return at
}

// silence is when the silence of a member begins to count as an answer, or a vote may be offered again.
func (b *Ballot) silence(now time.Time) (wake time.Time) {
	for i := range b.m {
		m := &b.m[i]
		if m.pending > 0 || m.yield == yielding {
			if end := m.since.Add(b.terms.Timeout); clock.Until(end, now) > 0 {
				wake = earliest(wake, end)
			}
		}
		if b.shared != nil && m.yield == yieldedBack {
			wake = earliest(wake, b.shared.pauses[i].at)
		}
	}
	return wake
}

// register is registerAt for members whose retry is due, or as good as due.
func (b *Ballot) register(s *Step, to memberset.Set, why Why, now time.Time, states []member.State) {
	for i := range b.m {
		if to.Has(i) {
			b.askAt(i, time.Time{})
		}
	}
	b.registerAt(s, to, why, now, states)
}

// registerAt asks every member of the set that votes and whose inbox is confirmed: a grant that cannot be heard of
// helps nobody.
func (b *Ballot) registerAt(s *Step, to memberset.Set, why Why, now time.Time, states []member.State) {
	s.Do, s.Why, s.Ticket = Register, why, b.ticket()
	for i := range b.m {
		if to.Has(i) && states[i].Votes && states[i].Inbox {
			s.To = s.To.With(i)
			b.registers(i, states[i].Gen, now)
		}
	}
}

// earliest is the first of the moments that are not zero, if there are any.
func earliest(all ...time.Time) (first time.Time) {
	for _, t := range all {
		if first.IsZero() || !t.IsZero() && clock.Until(t, first) < 0 {
			first = t
		}
	}
	return first
}
