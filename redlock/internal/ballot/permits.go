package ballot

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
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
	agreed   permit.List    // the slots that it raises or has won, with the greatest token of each
}

// seat is what an attempt has of one member besides what a Voter says. If the Voter has no token,
// the list means nothing.
type seat struct {
	gen   uint64      // the generation that given and kept belong to
	list  permit.List // the vote
	given permit.List // the greatest token of each slot that was given up: only a greater one counts
	kept  permit.List // what the member answered with, although it was given up
	next  string      // the waiter that the member named last; "": none
	order int         // when it named that one
}

// saw keeps what the members are good for, because a rule is not given that: it would cost every
// attempt of every kind the memory for it.
func (p *permits) saw(states []member.State) { p.states = append(p.states[:0], states...) }

func newPermits(members int, t *Terms) *permits {
	return &permits{n: int(t.Permits), gate: int(t.Gate), at: make([]seat, members)}
}

// clone returns a copy that shares nothing with the original that either may change.
func (p *permits) clone() *permits {
	if p == nil {
		return nil
	}
	c := *p
	c.at, c.states = slices.Clone(p.at), slices.Clone(p.states)
	for i := range c.at {
		c.at[i].given = slices.Clone(c.at[i].given)
	}
	return &c
}

// Permits returns the slots that the attempt raises or has won, each with its token; nil if there
// are none, or if the lock has no slots. Only Next changes it.
func (b *Ballot) Permits() permit.List {
	if b.permits == nil {
		return nil
	}
	return b.permits.agreed
}

// Won books what an adopted attempt has won. An attempt of a lock without slots has nil.
func (b *Ballot) Won(l permit.List) {
	if b.permits != nil {
		b.permits.agreed = l
	}
}

// GaveUp books that member i, which was told what the lease has, has given it nothing.
func (b *Ballot) GaveUp(i int) {
	if !b.ours(i) {
		b.m[i].drop()
	}
}

// RoundTrip returns how long a member takes to answer, as the attempt has seen it.
func (b *Ballot) RoundTrip() time.Duration { return b.rtt }

// seat is that of member i, without what belonged to an earlier generation.
func (b *Ballot) seat(i int) *seat {
	s := &b.permits.at[i]
	if gen := b.m[i].gen; s.gen != gen {
		s.gen, s.given, s.kept = gen, nil, nil
	}
	return s
}

// stale reports whether a list that member i tells is no vote: a slot of it was given up, or the
// member has told a later one since. Counters of different slots are unrelated, so a token is
// compared with those of its slot alone.
func (b *Ballot) stale(i int, l permit.List, server int64) bool {
	m, s := &b.m[i], b.seat(i)
	for _, p := range l {
		if p.Token <= s.given.Token(p.Slot) || m.token > 0 && p.Token < s.list.Token(p.Slot) {
			return true
		}
	}
	return m.token > 0 && server > 0 && server < m.server && !slices.Equal(l, s.list)
}

// keeps books that member i answers with what was given up. It still does not count, but heartbeats
// keep it alive: unless it is claimed away, nobody ever has it.
func (b *Ballot) keeps(i int, l permit.List) {
	if m := &b.m[i]; m.has == none && m.yield != offered {
		m.yield = undone
		b.seat(i).kept = l
	}
}

// seated books the list of a vote that was taken at member i, and whom the member named then.
func (b *Ballot) seated(i int, l permit.List, next string) {
	s := b.seat(i)
	s.list, s.kept = l, nil
	b.permits.heard++
	s.next, s.order = next, b.permits.heard
	if len(next) < 2 || next == b.owner { // "-" is nobody
		s.next = ""
	}
}

// whole reports whether member i has given as many slots as the attempt wants.
func (b *Ballot) whole(i int) bool { return len(b.permits.at[i].list) == b.permits.n }

// sameSlots reports whether two lists are of the same slots.
func sameSlots(x, y permit.List) bool {
	return slices.EqualFunc(x, y, func(p, q permit.Permit) bool { return p.Slot == q.Slot })
}

// fellows returns the members of a set whose votes are for the slots of member i.
func (b *Ballot) fellows(of quorum.Set, i int) (in quorum.Set) {
	at := b.permits.at
	for k := range at {
		if of.Has(k) && sameSlots(at[k].list, at[i].list) {
			in = in.With(k)
		}
	}
	return in
}

// most returns the largest set of members, of those given, whose votes are for the same slots.
func (b *Ballot) most(of quorum.Set) (best quorum.Set) {
	for i := range b.m {
		if of.Has(i) && !best.Has(i) {
			if in := b.fellows(of, i); in.Len() > best.Len() {
				best = in
			}
		}
	}
	return best
}

// tallySlots is tally for the slots that most members have given. The token is that of the first slot.
func (b *Ballot) tallySlots(now time.Time, states []member.State) (in quorum.Set, token int64, exact int, until time.Time) {
	var valid quorum.Set
	for i := range b.m {
		if b.valid(i, now, states) && b.whole(i) {
			valid = valid.With(i)
		}
	}
	if in = b.most(valid); in == 0 {
		return 0, 0, 0, time.Time{}
	}
	agreed := b.greatest(in)
	var buf [quorum.MaxMembers]time.Time
	ends := buf[:0]
	for i := range b.m {
		if in.Has(i) {
			ends = append(ends, b.m[i].end)
			if slices.Equal(b.permits.at[i].list, agreed) {
				exact++
			}
		}
	}
	return in, agreed[0].Token, exact, nthLatest(ends, b.need)
}

// greatest returns the slots that some members have given alike, with the greatest token of each.
func (b *Ballot) greatest(in quorum.Set) (l permit.List) {
	for i := range b.m {
		switch list := b.permits.at[i].list; {
		case !in.Has(i):
		case l == nil:
			l = slices.Clone(list)
		default:
			for k := range l {
				l[k].Token = max(l[k].Token, list[k].Token)
			}
		}
	}
	return l
}

// agree keeps what the members of a set have given, for the calls that name it.
func (b *Ballot) agree(in quorum.Set) {
	if b.permits != nil {
		b.permits.agreed = b.greatest(in)
	}
}

// agrees reports whether the vote of member i is one for the slots of the lease, or of the raise,
// with tokens that are not above those.
func (b *Ballot) agrees(i int) bool {
	list, agreed := b.permits.at[i].list, b.permits.agreed
	return slices.EqualFunc(list, agreed, func(p, q permit.Permit) bool { return p.Slot == q.Slot && p.Token <= q.Token })
}

// strays reports whether the vote of member i is not one for the lease, or lies below its tokens.
// The member must then be told what the lease has.
func (b *Ballot) strays(i int) bool {
	list, won := b.permits.at[i].list, b.permits.agreed
	if !sameSlots(list, won) {
		return true
	}
	for k := range list {
		if list[k].Token < won[k].Token {
			return true
		}
	}
	return false
}

// ours reports whether member i has given a vote for the lease.
func (b *Ballot) ours(i int) bool {
	return b.m[i].token > 0 && (b.permits == nil || b.permits.agreed == nil || sameSlots(b.permits.at[i].list, b.permits.agreed))
}

// Lacking returns the members that have not given a vote for the lease.
func (b *Ballot) Lacking() (s quorum.Set) {
	for i := range b.m {
		if !b.ours(i) {
			s = s.With(i)
		}
	}
	return s
}

// adds reports whether the vote of member i makes the most votes for the same slots more than the
// answers to this question did before. So the votes of the question count to a majority of one set
// of slots, and never further.
func (b *Ballot) adds(i int) bool {
	var answered quorum.Set
	for k := range b.m {
		if b.poll.to.Has(k) && (!b.poll.open.Has(k) || k == i) && b.m[k].token > 0 && b.whole(k) {
			answered = answered.With(k)
		}
	}
	return b.most(answered).Len() > b.poll.yes.Len()
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
		silent := (m.pending > 0 || m.yield == offered) && clock.Elapsed(m.since, now) >= b.terms.Timeout
		if states[i].Votes && states[i].Inbox && !silent && (m.word != failed || m.crowded > 0) {
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
func (b *Ballot) follow(c census, now time.Time) (s Step, wake time.Time) {
	p, states := b.permits, b.permits.states
	switch {
	case c.offers == 0:
		b.split = time.Time{}
	case c.settled && b.split.IsZero():
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
	case !b.valid(gate, now, states) || !b.whole(gate):
		p.followed = nil
		b.giveUp(&s, 0, now, states)
	case slices.Equal(p.at[gate].list.Slots(), p.followed): // in vain: they are another's elsewhere
		p.followed = nil
		p.anew++
		b.giveUp(&s, quorum.All(len(b.m)), now, states)
	default:
		p.followed = p.at[gate].list.Slots()
		b.claimFrom(&s, gate, p.followed, now, states)
		if len(s.Offers) == 0 {
			return Step{}, time.Time{}
		}
	}
	return s, time.Time{}
}

// giveUp gives up every vote. It asks the other members, because one of them may have given a vote
// whose push was lost, and some members in any case.
func (b *Ballot) giveUp(s *Step, ask quorum.Set, now time.Time, states []member.State) {
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
		if i != gate && !(b.valid(i, now, states) && sameSlots(b.permits.at[i].list, b.permits.at[gate].list)) {
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
	m.enter(states[i].Gen) // what was given in an earlier one is not given up in this one
	seat, had := b.seat(i), permit.List(nil)
	switch {
	case m.token > 0:
		had = seat.list
	case m.yield == undone:
		had = seat.kept
	}
	if had == nil && slots == nil {
		return false
	}
	m.registers(states[i].Gen, now)
	for _, p := range had {
		if !slices.Contains(slots, p.Slot) {
			seat.give(p)
		}
	}
	seat.kept = nil
	m.drop()
	m.yield = offered
	s.Offers = append(s.Offers, Offer{Member: i, Had: had, Slots: slots})
	return true
}

// give books that a permit was given up.
func (s *seat) give(p permit.Permit) {
	for k := range s.given {
		if g := &s.given[k]; g.Slot == p.Slot {
			g.Token = max(g.Token, p.Token)
			return
		}
	}
	s.given = append(s.given, p)
}

// ClaimAnswered books the result of a claim, and says what it counts for. lease is the TTL that the
// claim asked for.
func (b *Ballot) ClaimAnswered(i int, a *Answer, lease time.Duration) quorum.Vote {
	if m := &b.m[i]; m.yield == offered {
		m.yield = settled
	}
	return b.Answered(i, a, lease)
}

// tryGate goes on with an attempt that never waits, if a majority has given slots, but not the same
// ones: the others of those that answered are claimed those of the gate, once. It reports whether it does.
func (b *Ballot) tryGate(now time.Time) bool {
	if b.poll.open != 0 && !b.silent(now) {
		return false
	}
	states := b.permits.states
	voted := quorum.Set(0)
	for i := range b.m {
		if b.valid(i, now, states) && b.whole(i) {
			voted = voted.With(i)
		}
	}
	gate := b.gateNow(now, states)
	if gate < 0 || voted.Len() < b.need || !voted.Has(gate) {
		return false
	}
	b.phase, b.poll = aligning, poll{}
	b.permits.followed = b.permits.at[gate].list.Slots()
	return true
}

// aligns is Next of an attempt that goes on as tryGate says.
func (b *Ballot) aligns(s *Step, now time.Time, states []member.State) {
	if b.poll.sent.IsZero() {
		b.poll.sent = now
		s.Do = Claim
		for i := range b.m {
			if b.m[i].pending == 0 && !(b.valid(i, now, states) && slices.Equal(b.permits.at[i].list.Slots(), b.permits.followed)) {
				b.claim(s, i, b.permits.followed, now, states)
			}
		}
		return
	}
	if in, _, _, _ := b.tally(now, states); in.Len() >= b.need {
		b.decide(s, now, states)
		return
	}
	settled, refusals := true, 0
	for i := range b.m {
		settled = settled && b.m[i].yield != offered
		if b.m[i].word == refused {
			refusals++
		}
	}
	if !settled && !b.silent(now) {
		s.Wake = b.pollEnd()
		return
	}
	b.phase = over
	s.Do, s.Cause = Lose, Stuck
	if !settled && len(b.m)-refusals >= b.need { // silence is no refusal
		s.Cause = NoQuorum
	}
}
