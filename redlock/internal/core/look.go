package core

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// What others read of votes, to decide what to ask next, and to say why. Nothing here changes a vote.

// Token returns the token of the vote of member i, 0 if there is none. A vote of several slots has that of the first.
func (v *Votes) Token(i int) int64 { return v.m[i].token }

// List returns the slots of the vote of member i with their tokens, nil if there are none.
func (v *Votes) List(i int) permit.List { return v.m[i].list }

// End returns until when the vote of member i is trusted.
func (v *Votes) End(i int) time.Time { return v.m[i].end }

// Has returns what we have of member i.
func (v *Votes) Has(i int) Has { return v.m[i].has }

// String is the word for it.
func (h Has) String() string { return [...]string{"none", "held", "expired", "lost"}[h] }

// GivenUp returns the greatest token given up at member i, of a vote without slots.
func (v *Votes) GivenUp(i int) int64 { return v.m[i].given }

// Alike reports whether the votes of two members are for the same.
func (v *Votes) Alike(i, k int) bool { return v.m[i].sameAs(&v.m[k].vote) }

// Tally counts the votes in hand that are for the same: their set, the greatest token, how many have exactly that, and until
// when a majority of them is trusted (the need-th latest of their ends).
func (v *Votes) Tally(now time.Time, states []member.State) (in memberset.Set, token int64, exact int, until time.Time) {
	in, most, exact := v.tally(now, states)
	return in, most.token, exact, v.until(in)
}

// Agreed returns the token that is agreed on.
func (v *Votes) Agreed() int64 { return v.agreed.token }

// Lease returns the token of the lease, 0 before there is one.
func (v *Votes) Lease() int64 { return v.token }

// Slots returns the slots that the attempt raises or has won, each with its token; nil if there are none.
func (v *Votes) Slots() permit.List { return v.agreed.list }

// Late reports whether a vote that came after the decision lies below the token, or is for another subject. The member's
// counter must then be lifted, and nobody waits for that.
func (v *Votes) Late(i int) (token int64, late bool) {
	return v.token, v.token > 0 && v.lags(i)
}

// lags is Late for an attempt that has won. Most answers come before that, so Late is inlined and
// this is not.
//
//go:noinline
func (v *Votes) lags(i int) bool {
	m := &v.m[i]
	return m.token > 0 && !v.agreed.below(&m.vote)
}

// Wishing reports whether the next grant of member i is what the lease has wished for.
func (v *Votes) Wishing(i int) bool { return v.m[i].wishes }

// Ours reports whether member i has given a vote for the lease.
func (v *Votes) Ours(i int) bool {
	return v.m[i].token > 0 && (v.agreed.list == nil || v.m[i].sameAs(&v.agreed))
}

// Lacks reports whether the lease has no vote of member i, by its last word.
func (v *Votes) Lacks(i int, now time.Time) bool {
	return !v.Ours(i) || clock.Until(v.m[i].end, now) <= 0
}

// Verdict is what the words until now come to: once it is decided, it stays.
func (c *Count) Verdict() quorum.Verdict {
	switch {
	case c.won:
		return quorum.Won
	case c.lost:
		return quorum.Lost
	}
	return quorum.Undecided
}

// Vote is what member i has said.
func (c *Count) Vote(i int) quorum.Vote {
	switch {
	case c.yes.Has(i):
		return quorum.Yes
	case c.refused.Has(i):
		return quorum.No
	}
	return quorum.Unsure
}

// Need returns how many votes decide.
func (v *Votes) Need() int { return v.need }

// TTL is for how long the members were asked to keep the lease.
func (c *Count) TTL() time.Duration { return c.ttl }

// Limit returns the instant beyond which the term is never renewed; zero: there is none.
func (t *Term) Limit() time.Time { return t.limit }

// Left counts the tokens that a hold may still give, and Most is the last of them.
func (r *Range) Left() int64 { return r.most - r.last }
func (r *Range) Most() int64 { return r.most }

// Token is that of the lease.
func (g *Grant) Token() int64 { return g.token }
