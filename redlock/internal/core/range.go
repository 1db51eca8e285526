package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// A hold may give several leases, each with a token of its range, without asking anybody. A range ends where a majority have had their
// counters while drawn votes of ours were there. So all tokens of one hold lie on one side of all tokens of another. No clock occurs in
// this, except that a member which forgets is restored no sooner than a lease is over.

// Range are the tokens that a hold may still give. The zero value has none.
type Range struct {
	last, most int64

	// Of the reservation that was submitted last: what it asks for, the members that have confirmed it, and when it is over.
	asked     int64
	yes       memberset.Set
	sent, end time.Time
}

// Range begins that of a lease, which has its first token.
func (v *Votes) Range() Range { return Range{last: v.token, most: v.token} }

// Next gives the next token, unless there is none.
func (r *Range) Next() (token int64, ok bool) {
	if r.last >= r.most {
		return 0, false
	}
	r.last++
	return r.last, true
}

// Reserve begins a reservation of n tokens that is about to be submitted, in place of an earlier one: counters are to be lifted to most.
// It is over after a time, and when the term is over as far as that is known now.
func (r *Range) Reserve(t *Term, n int64, sent time.Time, within time.Duration) (most int64) {
	r.asked, r.yes, r.sent, r.end = r.most+n, 0, sent, sent.Add(min(within, clock.Until(t.until, sent)))
	return r.asked
}

// Reserved books what member i answers to a reservation, and reports whether the range is longer. A member confirms by a vote that is
// drawn, and the votes of a majority that have confirmed are so still, in the generations that are current.
func (v *Votes) Reserved(r *Range, i int, a *Answer, now time.Time, states []member.State) (longer bool) {
	if !a.Raise || a.Outcome != member.Answered || a.Idle() {
		return false
	}
	if a.N == 0 {
		v.Renewed(i, false, time.Time{})
	}
	if m := &v.m[i]; (a.N == 1 || a.N == 2) && r.sent.Equal(a.Sent) && m.drawn && m.hears(a) {
		r.yes = r.yes.With(i)
	}
	n := 0
	for k := range v.m {
		if m := &v.m[k]; r.yes.Has(k) && m.drawn && states[k].Votes && states[k].Gen == m.gen {
			n++
		}
	}
	if longer = n >= v.need && r.asked > r.most && clock.Until(r.end, now) > 0; longer {
		r.most = r.asked
	}
	return longer
}
