package wait

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
)

// What the owner of a vote hears of those that wait behind it.

// named is a waiter, and the members that named it.
type named struct {
	owner string
	by    memberset.Set
}

// hearMost is how many waiters are remembered that announced themselves. A hint needs those of late only: who has been passed
// over by so many is named by its members, as the next in line. And others decide how many there are.
const hearMost = 32

// Announced books a waiter's announcement, which member i made to the holder of a vote, and which arrived at a time. A vote
// that a yield gave back is yielded again if the waiter would get it. If it would not, another may by now, who had missed a
// heartbeat before: that is seen after a third of the vote's time, as in a short line. (A yield looks at the whole queue. In a
// long one of a busy lock there are announcements all the time.)
func (b *Ballot) Announced(i int, waiter string, at time.Time) {
	b.hear(waiter, i)
	m := &b.m[i]
	if m.yield != yieldedBack {
		return
	}
	lower := b.terms.Rules.lower
	if lower == nil || lower(b, waiter) || clock.Until(b.core.End(i).Add(b.part/3-clock.Validity(b.part, b.terms.Drift)), at) <= 0 {
		m.mayYieldAgain()
	}
}

// Wished books that a waiter which member i announced holds the lock: the attempt cannot have a majority before that ends, so a
// vote of it is yielded in any case, and the member gives it to the holder.
func (b *Ballot) Wished(i int, holder string) {
	b.hear(holder, i)
	b.more().again[i].wished = true
	b.m[i].mayYieldAgain()
}

// Withdrawn forgets a waiter that has given up. Its name is never used again.
func (b *Ballot) Withdrawn(waiter string) {
	if b.besides == nil {
		return
	}
	named := func(n named) bool { return n.owner == waiter }
	b.next, b.heard = slices.DeleteFunc(b.next, named), slices.DeleteFunc(b.heard, named)
}

// hear remembers a waiter that member i announced, in place of the one heard of first where there are
// too many.
func (b *Ballot) hear(waiter string, i int) {
	if !b.others(waiter) {
		return
	}
	b.more()
	for k := range b.heard {
		if b.heard[k].owner == waiter {
			b.heard[k].by = b.heard[k].by.With(i)
			return
		}
	}
	if len(b.heard) == hearMost {
		b.heard = slices.Delete(b.heard, 0, 1)
	}
	b.heard = append(b.heard, named{waiter, memberset.Set(0).With(i)})
}

// namesNext remembers the waiter that member i names as next in line, in place of the one that it named before: that one may
// have had the lock since. The list is in order of hearing.
func (b *Ballot) namesNext(waiter string, i int) {
	if !b.others(waiter) {
		return
	}
	by := memberset.Set(0).With(i)
	b.more()
	b.next = slices.DeleteFunc(b.next, func(n named) bool { return n.by == by })
	for k := range b.next {
		b.next[k].by = b.next[k].by.Without(i)
	}
	if k := slices.IndexFunc(b.next, func(n named) bool { return n.owner == waiter }); k >= 0 {
		by |= b.next[k].by
		b.next = slices.Delete(b.next, k, k+1)
	}
	b.next = append(b.next, named{waiter, by})
}

// others reports whether a name is that of another attempt.
func (b *Ballot) others(name string) bool { return len(name) > 1 && name != b.owner } // "-" is nobody

// mostNamed is the waiter that most members named as next in line, the last heard of among equals: where members have
// different queues, one that was named earlier has more often been served by others since, so that it waits at none of them
// any more, and each would choose a successor of its own. If no member named one, it is the first heard of those that most
// members announced. (Counting announcements first starves: a newcomer that all members announce would beat older waiters
// whose members disagree.)
func (b *Ballot) mostNamed() string {
	if b.besides == nil {
		return ""
	}
	best := named{}
	for _, n := range b.next {
		if n.by.Len() >= best.by.Len() {
			best = n
		}
	}
	if best.owner != "" {
		return best.owner
	}
	for _, n := range b.heard {
		if n.by.Len() > best.by.Len() {
			best = n
		}
	}
	return best.owner
}
