package wait

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Permits are the rules of a semaphore, which is a lock of many slots. A member gives an attempt as
// many slots as it wants, in one step, and it chooses which. The votes of members count together
// only if they are for the same slots: everything that holds of a mutex then holds slot by slot. A
// split follows one member, the gate, because it gives each slot to one attempt.
var Permits = Rules{split: (*Ballot).follow, hint: (*Ballot).kthNamed, align: (*Ballot).tryGate}

// permits are the slots of an attempt's votes.
type permits struct {
	n    int // how many slots the attempt wants
	gate int // the member that a split follows if it can

	at       []seat
	states   []member.State // what the members were good for when Next was called
	heard    int            // counts what members named, in order of hearing
	followed []int          // the slots of the gate that were followed last; nil: none
	rounds   int            // how often the attempt has followed
	anew     int64          // how often it has given up everything: it then wants other slots
}

// seat is what an attempt has of one member besides what a Voter says.
type seat struct {
	stillTold permit.List // what the member answered with, although it was given up
	next      string      // the waiter that the member named last; "": none
	order     int         // when it named that one
}

// saw keeps what the members are good for, because a rule is not given that: it would cost every
// attempt of every kind the memory for it.
func (p *permits) saw(states []member.State) { p.states = append(p.states[:0], states...) }

func newPermits(members int, t *Terms) *permits {
	return &permits{n: t.Slots, gate: int(t.Gate), at: make([]seat, members)}
}

// clone returns a copy that shares nothing with the original that either may change.
func (p *permits) clone() *permits {
	if p == nil {
		return nil
	}
	c := *p
	c.at, c.states = slices.Clone(p.at), slices.Clone(p.states)
	return &c
}

// Permits returns the slots that the attempt raises or has won, each with its token; nil if there
// are none, or if the lock has no slots. Only Next changes it.
func (b *Ballot) Permits() permit.List { return b.core.Slots() }

// Won books what an adopted attempt has won. An attempt of a lock without slots has nil.
func (b *Ballot) Won(l permit.List) { b.core.AdoptSlots(l) }

// GaveUp books that member i, which was told what the lease has, has given it nothing.
func (b *Ballot) GaveUp(i int) {
	if !b.core.Ours(i) {
		b.core.Drop(i)
	}
}

// Agreed returns the token that the attempt raises or has won. Only Next changes it.
func (b *Ballot) Agreed() int64 { return b.core.Agreed() }

// RoundTrip returns how long a member takes to answer, as the attempt has seen it.
func (b *Ballot) RoundTrip() time.Duration { return b.rtt }

// keeps books that member i answers with what was given up. It still does not count, but heartbeats
// keep it alive: unless it is claimed away, nobody ever has it.
func (b *Ballot) keeps(i int, l permit.List) {
	if m := &b.m[i]; b.core.Has(i) == core.None && m.yield != yielding {
		m.yield = yieldLost
		b.permits.at[i].stillTold = l
	}
}

// seatTold books that member i has given a vote, and whom it named then.
func (b *Ballot) seatTold(i int, next string) {
	s := &b.permits.at[i]
	s.stillTold = nil
	b.permits.heard++
	s.next, s.order = next, b.permits.heard
	if len(next) < 2 || next == b.owner { // "-" is nobody
		s.next = ""
	}
}

// Lacking returns the members that have not given a vote for the lease.
func (b *Ballot) Lacking() (s memberset.Set) {
	for i := range b.m {
		if !b.core.Ours(i) {
			s = s.With(i)
		}
	}
	return s
}

// adds reports whether the vote of member i makes the most votes for the same slots more than the
// answers to this question did before. So the votes of the question count to a majority of one set
// of slots, and never further.
func (b *Ballot) adds(i int) bool {
	var answered memberset.Set
	for k := range b.m {
		if b.poll.to.Has(k) && (!b.poll.open.Has(k) || k == i) && b.core.Token(k) > 0 && b.core.Whole(k) {
			answered = answered.With(k)
		}
	}
	return b.core.Most(answered).Len() > b.poll.yes.Len()
}

// kthNamed is the waiter that most members named when they gave their last votes, the first heard of
// among equals. Members name the first waiter in the lane of the slot that they give. So holders that
// release at the same time name different ones.
func (b *Ballot) kthNamed() string {
	best, votes, order := "", 0, 0
	for i := range b.permits.at {
		s := &b.permits.at[i]
		if s.next == "" {
			continue
		}
		n, first := 0, s.order
		for k := range b.permits.at {
			if o := &b.permits.at[k]; o.next == s.next {
				n, first = n+1, min(first, o.order)
			}
		}
		if n > votes || n == votes && first < order {
			best, votes, order = s.next, n, first
		}
	}
	return best
}

// gateNow is the member that a split follows: the first in order that can be asked and answers; -1: none can.
func (b *Ballot) gateNow(now time.Time, states []member.State) int {
	for k := range b.m {
		i := (b.permits.gate + k) % len(b.m)
		m := &b.m[i]
		silent := (m.pending > 0 || m.yield == yielding) && clock.Elapsed(m.since, now) >= b.terms.Timeout
		if states[i].Votes && states[i].Inbox && !silent && (m.lastAnswer != failed || m.overflows > 0) {
			return i
		}
	}
	return -1
}

// longestPause bounds the pause before a split is followed again.
const longestPause = 100 * time.Millisecond

// follow aligns the votes in hand two round trips after every member has answered or been silent for
// too long, and more seldom if that does not help. What the gate gave is asked of all others. If that was
// in vain, or the gate gave nothing, everything is given up and asked anew.
func (b *Ballot) follow(c survey, now time.Time) (s Step, wake time.Time) {
	p, states := b.permits, b.permits.states
	switch {
	case c.offers == 0:
		b.split = time.Time{}
	case c.allHeard && b.split.IsZero():
		b.split = now.Add(min(max(time.Millisecond, 2*b.rtt)<<min(p.rounds/4, 7), max(longestPause, 2*b.rtt)))
	}
	if b.split.IsZero() || clock.Until(b.split, now) > 0 {
		return Step{}, b.split
	}
	b.split = time.Time{}
	p.rounds++
	gate := b.gateNow(now, states)
	s.Do = Claim
	switch {
	case gate < 0:
		return Step{}, time.Time{}
	case !b.core.Valid(gate, now, states) || !b.core.Whole(gate):
		p.followed = nil
		b.giveUp(&s, 0, now, states)
	case slices.Equal(b.core.List(gate).Slots(), p.followed): // in vain: they are another's elsewhere
		p.followed = nil
		p.anew++
		b.giveUp(&s, memberset.All(len(b.m)), now, states)
	default:
		p.followed = b.core.List(gate).Slots()
		b.claimFrom(&s, gate, p.followed, now, states)
		if len(s.Offers) == 0 {
			return Step{}, time.Time{}
		}
	}
	return s, time.Time{}
}

// giveUp gives up every vote. It asks the other members, because one of them may have given a vote
// whose push was lost, and some members in any case.
func (b *Ballot) giveUp(s *Step, ask memberset.Set, now time.Time, states []member.State) {
	for i := range b.m {
		if !b.claim(s, i, nil, now, states) {
			ask = ask.With(i)
		}
	}
	do := s.Do
	b.register(s, ask, ByNothing, now, states)
	s.Do = do
}

// claimFrom asks all members but one for the slots that this one gave.
func (b *Ballot) claimFrom(s *Step, gate int, slots []int, now time.Time, states []member.State) {
	for i := range b.m {
		if i != gate && !(b.core.Valid(i, now, states) && b.core.Alike(i, gate)) {
			b.claim(s, i, slots, now, states)
		}
	}
}

// claim asks member i for some slots, in place of those that it gave. With no slots, it only gives
// up what there is, and reports whether there was anything. What is claimed away counts for nothing
// from now on.
func (b *Ballot) claim(s *Step, i int, slots []int, now time.Time, states []member.State) bool {
	if !states[i].Votes || !states[i].Inbox {
		return false
	}
	m := &b.m[i]
	b.enter(i, states[i].Gen) // what was given in an earlier one is not given up in this one
	seat, had := &b.permits.at[i], permit.List(nil)
	switch {
	case b.core.Token(i) > 0:
		had = b.core.List(i)
	case m.yield == yieldLost:
		had = seat.stillTold
	}
	if had == nil && slots == nil {
		return false
	}
	b.registers(i, states[i].Gen, now)
	given := b.core.GiveUp(i, had, slots)
	seat.stillTold = nil
	m.yield = yielding
	s.Offers = append(s.Offers, Offer{Given: given, Slots: slots})
	return true
}

// ClaimAnswered books the result of a claim, and says what it counts for.
func (b *Ballot) ClaimAnswered(i int, a *Answer) quorum.Vote {
	if m := &b.m[i]; m.yield == yielding {
		m.yield = noYield
	}
	return b.Answered(i, a)
}

// tryGate goes on with an attempt that never waits, if a majority has given slots, but not the same
// ones: the others of those that answered are claimed those of the gate, once. It reports whether it does.
func (b *Ballot) tryGate(now time.Time) bool {
	if b.poll.open != 0 && !b.silent(now) {
		return false
	}
	states := b.permits.states
	voted := memberset.Set(0)
	for i := range b.m {
		if b.core.Valid(i, now, states) && b.core.Whole(i) {
			voted = voted.With(i)
		}
	}
	gate := b.gateNow(now, states)
	if gate < 0 || voted.Len() < b.need || !voted.Has(gate) {
		return false
	}
	b.phase, b.poll = followingGate, poll{}
	b.permits.followed = b.core.List(gate).Slots()
	return true
}

// followGateOnce is Next of an attempt that goes on as tryGate says.
func (b *Ballot) followGateOnce(s *Step, now time.Time, states []member.State) {
	if b.poll.sent.IsZero() {
		b.poll.sent = now
		s.Do = Claim
		for i := range b.m {
			if b.m[i].pending == 0 && !(b.core.Valid(i, now, states) && slices.Equal(b.core.List(i).Slots(), b.permits.followed)) {
				b.claim(s, i, b.permits.followed, now, states)
			}
		}
		return
	}
	if in, _, _, _ := b.core.Tally(now, states); in.Len() >= b.need {
		b.decide(s, now, states)
		return
	}
	allHeard, refusals := true, 0
	for i := range b.m {
		allHeard = allHeard && b.m[i].yield != yielding
		if b.m[i].lastAnswer == refused {
			refusals++
		}
	}
	if !allHeard && !b.silent(now) {
		s.Wake = b.pollEnd()
		return
	}
	b.phase = over
	s.Do, s.Cause = Lose, Stuck
	if !allHeard && len(b.m)-refusals >= b.need { // silence is no refusal
		s.Cause = NoQuorum
	}
}
