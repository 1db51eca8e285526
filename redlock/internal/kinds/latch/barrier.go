package latch

import (
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// Barrier is what one party knows of a barrier, and which round it is in.
//
// A member opens a round when it has an arrival of every party at once. That is its vote: it is given
// once in a round, for one set of parties, and never taken back. The round is open when a majority has
// voted for the same parties. An arrival can be withdrawn from a member that has not voted, and ends
// there when it is not renewed. So an arrival that a majority has withdrawn is not counted: some
// member of every majority must count another one. And one that was counted is not taken back: a
// majority has voted. Whoever goes on to the next round says that the one before it was open, because
// only that proves it to a party that has missed the votes.
//
// A Barrier does no I/O and is safe for use by one goroutine at a time.
type Barrier struct {
	parties int64
	need    int
	round   int64 // 0: the members are asked first which one it is
	before  int64 // the round before, if the party knows that it was open; 0: it does not
	digest  int64 // of the parties of before; 0: none
	mine    bool  // an earlier Wait may have arrived in the round: its outcome is owed
	at      []party
	refuses memberset.Set // the members that do not count the party, by the last verdict
}

// party is what a member said last, in the round that this party is in.
type party struct {
	gen      uint64
	said     bool
	accepted bool // it has had an arrival of this Wait
	BarrierState
}

// BarrierState is what a member says of a barrier.
type BarrierState struct {
	Round   int64 // -1: the member knows of none
	Parties int64
	Open    bool
	Digest  int64 // of the parties that it counted
	Before  int64 // the round before, if that is known to have been open; 0: it is not
	Mine    PartyState
	Server  int64 // the member's time, µs
	Proof   int64 // the digest of the parties of Before; 0: none
}

// PartyState is how a member has the party that asks.
type PartyState int64

// Stranger is none of the parties that the member knows. The last two are about the round that was
// asked for, which the member has opened.
const (
	Stranger PartyState = iota
	NotKnown
	Counted      // the arrival of this Wait was
	CountedOther // another arrival of the party was
)

// Verdict is how a Wait stands.
type Verdict int

// The verdicts.
const (
	Shut      Verdict = iota
	Moved             // the party has entered another round: all members are to be asked
	Opened            // Round was open, and the party is in the next one now
	Strangers         // there are more parties than that
	Differs           // others have told another number of parties
)

// NewBarrier returns what a party knows at first.
func NewBarrier(members int, parties int64, need int) *Barrier {
	return &Barrier{parties: parties, need: need, at: make([]party, members)}
}

// Round returns the round that the party is in, and the one before it as far as members are to be told.
// round 0 asks members without arriving.
func (b *Barrier) Round() (round, before, digest int64) { return b.round, b.before, b.digest }

// Begin begins a Wait.
func (b *Barrier) Begin() { clear(b.at) }

// Fail ends a Wait that returned an error. It may have arrived.
func (b *Barrier) Fail() { b.mine = b.round != 0 }

// Heard books an answer of member i to a question about a round.
func (b *Barrier) Heard(i int, round int64, s BarrierState, from member.Brief) {
	p := &b.at[i]
	if p.said && p.gen == from.Gen && s.Server < p.Server || round != b.round {
		return
	}
	if p.said && p.gen == from.Gen && p.Open && p.Round == s.Round && !s.Open {
		return // it was overtaken by the push of the vote
	}
	accepted := round != 0 && s.Round == round && s.Parties == b.parties && !s.Open && s.Mine != Stranger
	*p = party{gen: from.Gen, said: true, accepted: accepted || p.accepted && p.gen == from.Gen, BarrierState: s}
}

// Pushed books that member i has opened a round with an arrival of this Wait. It reports whether the
// push says enough: the member is asked otherwise.
func (b *Barrier) Pushed(i int, round, digest int64, from member.State) bool {
	p := &b.at[i]
	if round != b.round || p.said && p.gen != from.Gen {
		return false
	}
	p.gen, p.said, p.accepted = from.Gen, true, true
	p.Round, p.Parties, p.Open, p.Digest, p.Mine = round, b.parties, true, digest, Counted
	return true
}

// Judge says how the Wait stands by what was heard, and enters another round where that says so.
func (b *Barrier) Judge(states []member.State) Verdict {
	b.refuses = 0
	for i := range b.at {
		if p := &b.at[i]; p.said && (p.Mine == Stranger || p.Round == b.round && p.Parties != b.parties) {
			b.refuses = b.refuses.With(i)
		}
	}
	if b.round == 0 {
		return b.find(states)
	}
	if v := b.passed(states); v != Shut {
		return v
	}
	refused, strange, voted, votes, digest := 0, 0, 0, 0, int64(0)
	for i := range b.at {
		p := &b.at[i]
		if !b.current(i, states) || p.Round != b.round {
			continue
		}
		if p.Parties != b.parties {
			refused++
			continue
		}
		if p.Mine == Stranger {
			strange++
		}
		if p.Open {
			voted++
			if n := b.votes(states, b.round, p.Digest, Stranger) + b.votes(states, b.round, p.Digest, NotKnown); n > votes {
				votes, digest = n, p.Digest
			}
		}
	}
	switch {
	case votes >= b.need && b.votes(states, b.round, digest, Stranger) == 0:
		return b.open(digest)
	case len(b.at)-refused < b.need:
		return Differs
	case len(b.at)-strange < b.need || votes >= b.need:
		return Strangers
	case votes+len(b.at)-voted < b.need: // no set of parties can get a majority in this round
		b.enter(b.round+1, 0, 0)
		return Strangers
	}
	return Shut
}

// Other is another number of parties that members have been told.
func (b *Barrier) Other() (parties int64) {
	for i := range b.at {
		if p := &b.at[i]; p.said && p.Round == b.round && p.Parties != b.parties {
			parties = max(parties, p.Parties)
		}
	}
	return parties
}

// Refuses reports whether member i does not count the party, by what was known at the last verdict.
func (b *Barrier) Refuses(i int) bool { return b.refuses.Has(i) }

// votes counts the members that have opened a round for the parties of a digest, by how they have the
// party itself. NotKnown: all but Stranger.
func (b *Barrier) votes(states []member.State, round, digest int64, how PartyState) (n int) {
	for i := range b.at {
		p := &b.at[i]
		if b.current(i, states) && p.Round == round && p.Open && p.Digest == digest && (p.Mine == how || how == NotKnown && p.Mine != Stranger) {
			n++
		}
	}
	return n
}

// current reports whether member i still has what it said last.
func (b *Barrier) current(i int, states []member.State) bool {
	return b.at[i].said && b.at[i].gen == states[i].Gen && states[i].Votes
}

// open is that the round was open.
func (b *Barrier) open(digest int64) Verdict {
	mine := b.counted()
	b.enter(b.round+1, b.round, digest)
	if mine {
		return Opened
	}
	return Moved
}

// counted reports whether no majority can have voted without an arrival of this Barrier. Otherwise an earlier process of
// the party may have been counted, and have gone on: then this one is needed for the next round.
func (b *Barrier) counted() bool {
	n := 0
	for i := range b.at {
		if p := &b.at[i]; p.accepted || p.Mine == Counted {
			n++
		}
	}
	return b.mine || len(b.at)-n < b.need
}

// passed looks for members that have a later round. One that has it from others proves that this round was open, and
// cannot say whether this party was counted. A member that has voted for the parties says so. Of a majority one has, or
// has forgotten it.
func (b *Barrier) passed(states []member.State) Verdict {
	var last, proof *party
	unsure := 0
	for i := range b.at {
		p := &b.at[i]
		switch {
		case !p.said || p.Round <= b.round:
		case p.Before == b.round && p.Mine == Stranger:
			b.follow(p)
			return Strangers
		case p.Before == b.round && (p.Mine != NotKnown || !b.counted()):
			return b.open(p.Proof)
		case p.Before == b.round:
			proof = p
			if b.current(i, states) {
				unsure++
			}
		case last == nil || p.Round > last.Round:
			last = p
		}
	}
	switch {
	case proof != nil && (unsure >= b.need || b.votes(states, b.round, proof.Proof, NotKnown) > 0):
		return b.open(proof.Proof)
	case proof != nil || last == nil:
		return Shut
	}
	b.follow(last)
	return Moved
}

// follow enters the round of a member, with its proof that the one before it was open: the members that
// this party tells of the round need it as well.
func (b *Barrier) follow(p *party) { b.enter(p.Round, p.Before, p.Proof) }

// find enters the round that is under way, when a majority has said what it has. A barrier that no
// member knows begins at the members' time, which is above all rounds that there have been.
func (b *Barrier) find(states []member.State) Verdict {
	n, begin := 0, int64(1)
	var last *party
	for i := range b.at {
		p := &b.at[i]
		if !b.current(i, states) {
			continue
		}
		n++
		if begin = max(begin, p.Server); p.Round > 0 && (last == nil || p.Round > last.Round || p.Round == last.Round && p.Before > last.Before) {
			last = p
		}
	}
	if n < b.need {
		return Shut
	}
	if last == nil {
		b.enter(begin, 0, 0)
		return Moved
	}
	for i := range b.at {
		digest := b.at[i].Digest
		if b.votes(states, last.Round, digest, Stranger)+b.votes(states, last.Round, digest, NotKnown) >= b.need {
			b.enter(last.Round+1, last.Round, digest)
			return Moved
		}
	}
	b.follow(last)
	return Moved
}

// enter has the party in another round.
func (b *Barrier) enter(round, before, digest int64) {
	b.round, b.before, b.digest, b.mine = round, before, digest, false
	clear(b.at)
}
