package core

import (
	"slices"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// What votes for slots have besides: a semaphore's. Each function looks at lists of slots with their tokens, and at nothing else.

// sameSlots reports whether two lists have the same slots.
func sameSlots(x, y permit.List) bool {
	return slices.EqualFunc(x, y, func(p, q permit.Permit) bool { return p.Slot == q.Slot })
}

// slotsBelow reports whether they do, and no token of x is above that of y.
func slotsBelow(x, y permit.List) bool {
	return slices.EqualFunc(x, y, func(p, q permit.Permit) bool { return p.Slot == q.Slot && p.Token <= q.Token })
}

// slotsBehind reports whether a slot of l has a lesser token than had has.
func slotsBehind(l, had permit.List) bool {
	return slices.ContainsFunc(l, func(p permit.Permit) bool { return p.Token < had.Token(p.Slot) })
}

// raiseSlots gives each slot of l the token of the same slot of other, where that is greater.
func raiseSlots(l, other permit.List) {
	for k := range l {
		l[k].Token = max(l[k].Token, other[k].Token)
	}
}

// withGivenUp adds to what was given up the slots of a list, but for those that are kept.
func withGivenUp(given, l permit.List, keep []int) permit.List {
	for _, p := range l {
		if slices.Contains(keep, p.Slot) {
			continue
		}
		if k := slices.IndexFunc(given, func(g permit.Permit) bool { return g.Slot == p.Slot }); k >= 0 {
			given[k].Token = max(given[k].Token, p.Token)
		} else {
			given = append(given, p)
		}
	}
	return given
}

// anyGivenUp reports whether a slot of l was given up.
func anyGivenUp(l, given permit.List) bool {
	return slices.ContainsFunc(l, func(p permit.Permit) bool { return p.Token <= given.Token(p.Slot) })
}

// mostAlike returns the largest set of members, of those given, that are alike.
func mostAlike(of memberset.Set, n int, alike func(i, k int) bool) (best memberset.Set) {
	for i := range n {
		if !of.Has(i) || best.Has(i) {
			continue
		}
		in := memberset.Set(0)
		for k := range n {
			if of.Has(k) && alike(k, i) {
				in = in.With(k)
			}
		}
		if in.Len() > best.Len() {
			best = in
		}
	}
	return best
}
