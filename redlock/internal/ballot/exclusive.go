package ballot

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
)

// The rules of the exclusive lock: what excludes what, who succeeds, how a split yields. Everything else of the
// package counts votes, whatever they are for.

// excluded books that the lock is another's at a member.
func (m *Voter) excluded(a *Answer) {
	m.retry = a.At.Add(time.Duration(-a.N)*time.Millisecond + time.Millisecond)
	m.word = refused
	if m.yield == undone {
		m.yield = settled
	}
	if m.has == tardy {
		m.has = none
		if m.token > 0 {
			m.has = held
		}
	}
	// Answers come in order, but pushes cross them: a refusal older than the vote says nothing.
	if m.token > 0 && a.Server > m.server {
		m.drop()
	}
}

// stillKept books that the member answers with a vote that was given up, or with an older one.
func (m *Voter) stillKept(token int64) {
	switch {
	case token == m.yielded && m.has == none && m.yield != offered:
		m.yield = undone
	case m.yield == undone:
		m.yield = settled
	}
}

// mayBeOffered reports whether the member has something of ours that another attempt could use.
func (m *Voter) mayBeOffered() bool { return m.token > 0 && m.yield != kept || m.yield == undone }

// Offer is a vote that is given up.
type Offer struct {
	Member int
	Token  int64
}

// splitUp says which votes to yield now, or else when. A split is that several attempts have some votes and nobody has a
// majority: all members give to the same one, as soon as each has answered or been silent for too long.
func (b *Ballot) splitUp(c *census, now time.Time) (out []Offer, wake time.Time) {
	switch {
	case c.offers == 0:
		b.split = time.Time{}
	case c.settled && b.split.IsZero():
		b.split = now.Add(max(time.Millisecond, 2*b.rtt))
	}
	if b.split.IsZero() || clock.Until(b.split, now) > 0 {
		return nil, b.split
	}
	b.split = time.Time{}
	return b.yield(now), time.Time{}
}

// yield gives up every vote in hand that was not offered in vain already, and those whose yield was lost.
func (b *Ballot) yield(now time.Time) (out []Offer) {
	for i := range b.m {
		m := &b.m[i]
		if !m.mayBeOffered() {
			continue
		}
		if m.yield != undone {
			m.yielded = m.token
		}
		out = append(out, Offer{i, m.yielded})
		m.drop()
		m.yield = offered
		m.sent++
		if m.pending == 0 {
			m.since = now
		}
	}
	return out
}

// YieldAnswered books the result of a yield: a new token if the vote stayed ours.
func (b *Ballot) YieldAnswered(i int, a Answer) quorum.Vote {
	m := &b.m[i]
	if m.yield == offered {
		m.yield = settled
	}
	switch {
	case !b.books(i, &a):
	case a.N > m.yielded && a.N > m.token:
		m.take(vote{token: a.N, end: a.Sent.Add(clock.Validity(b.part, b.terms.Drift)), server: a.Server, voteOf: m.gen})
		m.yield = kept
	case m.token == 0:
		m.word = refused
	}
	return a.counts(false)
}

// named is a waiter, and the members that named it.
type named struct {
	owner string
	by    quorum.Set
}

// hearMost is how many waiters are remembered. A hint needs those of late only: who has been passed over by so many is named
// again by its members, as the next in line. And others decide how many there are.
const hearMost = 32

// Announced books a waiter's announcement, which member i made to the holder of a vote.
func (b *Ballot) Announced(i int, waiter string) {
	b.hear(&b.heard, waiter, i)
	b.m[i].reconsider()
}

// Withdrawn forgets a waiter that has given up. Its name is never used again.
func (b *Ballot) Withdrawn(waiter string) {
	named := func(n named) bool { return n.owner == waiter }
	b.next, b.heard = slices.DeleteFunc(b.next, named), slices.DeleteFunc(b.heard, named)
}

// hear remembers a waiter that member i named, in place of the one heard of first where there are too many.
func (b *Ballot) hear(list *[]named, owner string, i int) {
	if owner == "" || owner == "-" || owner == b.owner {
		return
	}
	for k := range *list {
		if (*list)[k].owner == owner {
			(*list)[k].by = (*list)[k].by.With(i)
			return
		}
	}
	if len(*list) == hearMost {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, named{owner, quorum.Set(0).With(i)})
}

// Hint names the successor for the release. It takes the waiter that most members named as next in
// line, and among equals the one heard first. If members named none, it takes one of those that
// announced themselves. (Counting announcements first starves, because a newcomer that all members
// announce would beat older waiters whose members disagree.)
func (b *Ballot) Hint() string {
	list := b.next
	if len(list) == 0 {
		list = b.heard
	}
	best := named{}
	for _, n := range list {
		if n.by.Len() > best.by.Len() {
			best = n
		}
	}
	return best.owner
}
