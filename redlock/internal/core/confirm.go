package core

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// A token is confirmed where the vote still stands: by a majority that have its counter at the token, and our vote at the same
// time. So every later attempt draws a greater one.

// raise is the question that confirms a token.
type raise struct {
	sent time.Time     // which it is
	yes  memberset.Set // the members that have confirmed
}

// tally counts the votes in hand that are for the same: their set, the greatest token, and how many have exactly that.
func (v *Votes) tally(now time.Time, states []member.State) (in memberset.Set, most vote, exact int) {
	var valid memberset.Set
	for i := range v.m {
		if v.Valid(i, now, states) && v.Whole(i) {
			valid = valid.With(i)
		}
	}
	in = v.Most(valid)
	most = v.greatest(in)
	for i := range v.m {
		if in.Has(i) && v.m[i].equals(&most) {
			exact++
		}
	}
	return in, most, exact
}

// until is the need-th latest of the ends of some votes, zero if there are fewer.
func (v *Votes) until(in memberset.Set) time.Time {
	if in.Len() < v.need {
		return time.Time{}
	}
	var buf [32]time.Time // a Set has no more
	ends := buf[:0]
	for i := range v.m {
		if in.Has(i) {
			ends = append(ends, v.m[i].end)
		}
	}
	slices.SortFunc(ends, func(x, y time.Time) int { return y.Compare(x) })
	return ends[v.need-1]
}

// Grant is what a won attempt was worth when it was decided.
type Grant struct {
	In     memberset.Set // the members whose votes counted
	Raised bool          // it took a second round

	token int64
	until time.Time
}

// Until is until when its votes are trusted.
func (g *Grant) Until() time.Time { return g.until }

// Decision is what the votes in hand come to.
type Decision uint8

const (
	Few   Decision = iota // no majority
	Apart                 // a majority, whose counters differ: the token of the Grant is to be raised at its members
	Won                   // a lease
)

// Decide counts the votes in hand. If a majority have one token, the attempt has won. If they differ, it has agreed on the
// greatest, which is to be confirmed.
func (v *Votes) Decide(now time.Time, states []member.State) (Decision, Grant) {
	in, most, exact := v.tally(now, states)
	if in.Len() < v.need || v.left || v.token != 0 {
		return Few, Grant{}
	}
	v.agreed, v.raise = most, raise{}
	if exact < v.need {
		return Apart, Grant{token: most.token, In: in}
	}
	v.token = most.token
	return Won, Grant{token: most.token, until: v.until(in), In: in}
}

// Raise begins the question that confirms what was agreed on.
func (v *Votes) Raise(sent time.Time) { v.raise = raise{sent: sent} }

// Confirms books the answer of member i to a raise, and reports whether it has lifted its counter to what was agreed on, and has
// our vote.
func (v *Votes) Confirms(i int, a *Answer) bool {
	yes := a.Raise && a.N == 1 && v.m[i].hears(a)
	if yes && v.raise.sent.Equal(a.Sent) {
		v.raise.yes = v.raise.yes.With(i)
	}
	return yes
}

// Confirmed counts the votes that the raise has confirmed, as Tally does. A vote above the token came
// after the one that was confirmed: another may have held the lock, and drawn as much, in between.
func (v *Votes) Confirmed(now time.Time, states []member.State) (in memberset.Set, until time.Time) {
	for i := range v.m {
		if v.raise.yes.Has(i) && v.m[i].below(&v.agreed) && v.Valid(i, now, states) {
			in = in.With(i)
		}
	}
	return in, v.until(in)
}

// Confirm wins if votes enough are confirmed: some may have ended while the members answered.
func (v *Votes) Confirm(now time.Time, states []member.State) (g Grant, won bool) {
	in, until := v.Confirmed(now, states)
	if in.Len() < v.need || v.left || v.token != 0 {
		return Grant{}, false
	}
	v.token = v.agreed.token
	return Grant{token: v.token, until: until, In: in, Raised: true}, true
}

// Adopt makes a lease of what another client has won. Its votes are those that a renewal finds.
func (v *Votes) Adopt(token int64) { v.agreed.token, v.token = token, token }

// AdoptSlots says which slots have been adopted.
func (v *Votes) AdoptSlots(l permit.List) { v.agreed.list = l }

// Renewed books a member's word in a renewal: it has the lease until end, or it does not have it. Before there is a lease, that
// means nothing.
func (v *Votes) Renewed(i int, ok bool, end time.Time) {
	m := &v.m[i]
	switch {
	case v.token == 0:
		return
	case !ok:
		if m.refused = true; m.token > 0 {
			m.drop()
			m.has = Lost
		}
		return
	case m.token == 0:
		m.vote = vote{token: v.token}
	}
	if v.agreed.list != nil {
		m.vote = v.agreed
	}
	m.has, m.wishes = Held, false
	if m.end.IsZero() || clock.Until(end, m.end) > 0 {
		m.end = end
	}
}

// Wishes books that member i, which has generation gen, has refused a re-join that was submitted at sent, and keeps it as a
// wish. A push that grants it comes later, and is dated by that at least.
func (v *Votes) Wishes(i int, gen uint64, sent time.Time) {
	m := &v.m[i]
	if v.token == 0 || gen != m.gen {
		return
	}
	if m.token > 0 && m.list == nil {
		m.drop()
		m.has = Lost
	}
	m.dating, m.first, m.wishes = undated, sent, true
}
