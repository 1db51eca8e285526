package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Votes are the votes that one attempt has, and what it has agreed on with them. The zero value has none.
type Votes struct {
	m     []Voter
	given []permit.List // by member: the greatest token of each slot that was given up; nil: none was
	need  int
	terms Terms
	part  time.Duration // the TTL of a vote that is granted while waiting

	raise   raise
	agreed  vote  // what is raised or won
	token   int64 // of the lease, once it is won
	started bool  // the term of that
	left    bool  // the attempt was abandoned, and wins nothing any more
}

// Terms are what an attempt asks members for.
type Terms struct {
	Slots int           // for how many slots a vote has to be; 0: the lock has none
	TTL   time.Duration // of the vote of a lease
	Entry time.Duration // how long a waiter is remembered, and bound of the TTL of a vote that is granted while waiting
	Drift float64
}

// Voter is one member, as far as its vote goes. A caller provides the memory of voters, and looks into none.
type Voter struct {
	vote
	end    time.Time // trusted until
	server int64     // server time of the grant, µs; 0 where it was not told
	has    Has

	// drawn says that a grant has told the vote, and nothing since that it was gone. Between a vote that a re-join made, or that only a
	// renewal has found, and the token of its lease, others may have had the member. So once it has refused a lease, none is drawn:
	// a push may be older than that.
	drawn, refused bool

	// What follows belongs to a generation of the member (a restored counter may lie below a token that was given up, and its
	// clock may be another's).
	gen    uint64
	given  int64 // the greatest token given up here, of a vote without slots: a vote counts only above it
	wishes bool  // the member keeps a wish of the lease: see Wishes
	dating dating
	anchor clock.Anchor // of the latest wait answered, unless undated
	first  time.Time    // submission of the first call that a push may follow
}

// vote is what a vote is for, and its token. Without slots it is for the lock as a whole, and allocates nothing. A vote for
// slots has a token for each, and token is that of the first.
type vote struct {
	token int64 // 0: none
	list  permit.List
}

// Has says what we have of a member. A held vote has a token, and a vote that is none or gone has none. A tardy vote keeps its
// token until it is dropped.
type Has uint8

const (
	None    Has = iota // no vote
	Held               // a vote, which counts until its end
	Expired            // its last grant had ended by the time it was heard of
	Lost               // by the word of a renewal, the vote that it had for the lease is there no longer
)

// Begin begins with no votes in v, which is a zero Votes. There is one voter for each member.
func (v *Votes) Begin(voters []Voter, t Terms) {
	v.m, v.need, v.terms, v.part = voters, member.Majority(len(voters)), t, min(t.TTL, t.Entry)
}

// Enter begins generation gen of member i, if that is a later one: the member may have forgotten, so no vote of an earlier one
// counts. It reports whether it is.
func (v *Votes) Enter(i int, gen uint64) bool {
	m := &v.m[i]
	if gen <= m.gen {
		return false
	}
	m.gen, m.given, m.dating, m.anchor, m.first = gen, 0, undated, clock.Anchor{}, time.Time{}
	if v.given != nil {
		v.given[i] = nil
	}
	m.drop()
	return true
}

// Valid reports whether the vote of member i counts now.
func (v *Votes) Valid(i int, now time.Time, states []member.State) bool {
	m := &v.m[i]
	return m.token > 0 && states[i].Votes && m.gen == states[i].Gen && clock.Until(m.end, now) > 0
}

// Whole reports whether the vote of member i is for as many slots as the attempt wants.
func (v *Votes) Whole(i int) bool { return len(v.m[i].list) == v.terms.Slots }

// Drop forgets the vote of member i.
func (v *Votes) Drop(i int) { v.m[i].drop() }

func (m *Voter) drop() {
	m.vote, m.end, m.server, m.drawn = vote{}, time.Time{}, 0, false
	if m.has == Held {
		m.has = None
	}
}

// vote is what a member has given. That of a lock without slots has none, whatever a member says: so nothing in slots.go decides
// about such a lock.
func (v *Votes) vote(token int64, list permit.List) vote {
	if v.terms.Slots == 0 {
		list = nil
	}
	return vote{token, list}
}

// take books a vote that a grant has told.
func (m *Voter) take(x vote, end time.Time, server int64) {
	m.vote, m.end, m.server, m.has, m.wishes, m.drawn = x, end, server, Held, false, !m.refused
}

// sameAs reports whether two votes are for the same, and may count together.
func (x *vote) sameAs(y *vote) bool {
	return x.list == nil && y.list == nil || sameSlots(x.list, y.list)
}

// below reports whether a vote is for the same as y, with no token above that of y.
func (x *vote) below(y *vote) bool {
	return x.token <= y.token && (x.list == nil && y.list == nil || slotsBelow(x.list, y.list))
}

// equals reports whether two votes are one.
func (x *vote) equals(y *vote) bool {
	return x.token == y.token && (x.list == nil && y.list == nil || slices.Equal(x.list, y.list))
}

// greatest returns what some members have voted for alike, with the greatest token of each slot.
func (v *Votes) greatest(in memberset.Set) (most vote) {
	for i := range v.m {
		switch x := &v.m[i].vote; {
		case !in.Has(i):
		case most.token == 0:
			if most = *x; x.list != nil {
				most.list = slices.Clone(x.list)
			}
		default:
			if most.token = max(most.token, x.token); most.list != nil {
				raiseSlots(most.list, x.list)
			}
		}
	}
	return most
}

// Most returns the largest set of members, of those given, whose votes are for the same.
func (v *Votes) Most(of memberset.Set) memberset.Set {
	if v.terms.Slots == 0 {
		return of // all are for the lock as a whole
	}
	return mostAlike(of, len(v.m), v.Alike)
}
