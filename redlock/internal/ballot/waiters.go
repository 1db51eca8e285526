package ballot

import (
	"slices"

	"github.com/redquorum/redquorum/quorum"
)

// What the owner of a vote hears of those that wait behind it.

// named is a waiter, and the members that named it.
type named struct {
	owner string
	by    quorum.Set
}

// hearMost is how many waiters are remembered. A hint needs those of late only: who has been passed
// over by so many is named again by its members, as the next in line. And others decide how many
// there are.
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

// hear remembers a waiter that member i named, in place of the one heard of first where there are
// too many.
func (b *Ballot) hear(list *[]named, owner string, i int) {
	if len(owner) < 2 || owner == b.owner { // "-" is nobody
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

// mostNamed is the waiter that most members named as next in line, the first heard of among equals.
// If no member named one, it is taken from those that announced themselves. (Counting announcements
// first starves: a newcomer that all members announce would beat older waiters whose members
// disagree.)
func (b *Ballot) mostNamed() string {
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
