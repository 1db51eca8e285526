package wait

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Writing returns the rules of the writers of a lock that has readers too. Among writers a split is
// resolved as with the exclusive lock. An attempt that had the lock may have written, so its
// release serves the readers first: readersFirst makes its hint one that says so.
func Writing(readersFirst func(hint string) string) Rules {
	return Rules{split: (*Ballot).splitUp, hint: func(b *Ballot) string {
		if b.core.Lease() > 0 {
			return readersFirst(b.mostNamed())
		}
		return b.mostNamed()
	}}
}

// Reading are the rules of readers. A reader shares its votes with all others, so it never yields
// one. If it cannot have a majority because a writer waits behind a vote of its own, it starts
// over. Readers name only writers: a member lets in the readers that wait by itself.
var Reading = Rules{split: (*Ballot).startOver, hint: (*Ballot).mostNamed}

// Beside returns the rules of a lock that has no readers itself, as they are if another client has
// readers of that name. Its scripts do not look for readers, because hardly any name has some. So
// its release lets them in, first of all, only if one of them has told the holder that it waits.
func Beside(r Rules, readersFirst func(hint string) string) Rules {
	hint := r.hint
	r.hint = func(b *Ballot) string {
		if b.readers && b.core.Lease() > 0 {
			return readersFirst(hint(b))
		}
		return hint(b)
	}
	return r
}

// ReadersWait books that readers wait behind a vote of the attempt.
func (b *Ballot) ReadersWait() { b.readers = true }

// startOver ends the attempt if a writer waits behind one of its votes, four round trips after
// every member has answered or been silent for too long. Its release gives those votes to the
// writer, and the next attempt waits behind that one, under an owner of its own: a late answer or
// push to this owner then finds nobody. A reader has no place in any line that it could lose. An
// attempt that kept its votes would be in the way of a writer that is in its way at the other
// members.
func (b *Ballot) startOver(c survey, now time.Time) (s Step, wake time.Time) {
	switch {
	case !b.inTheWay():
		b.split = time.Time{}
	case c.allHeard && b.split.IsZero():
		b.split = now.Add(max(2*time.Millisecond, 4*b.rtt))
	}
	if b.split.IsZero() || clock.Until(b.split, now) > 0 {
		return Step{}, b.split
	}
	b.phase, b.poll, b.split = over, poll{}, time.Time{}
	return Step{Do: Again, Cause: Stuck}, time.Time{}
}

// inTheWay reports whether a waiter was named by a member that has a vote of ours.
func (b *Ballot) inTheWay() bool {
	behind := func(n named) bool {
		for i := range b.m {
			if b.core.Token(i) > 0 && n.by.Has(i) {
				return true
			}
		}
		return false
	}
	return slices.ContainsFunc(b.next, behind) || slices.ContainsFunc(b.heard, behind)
}
