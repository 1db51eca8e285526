package demo

import "time"

// sharedLedger keeps the books on one lock with readers, as ledger does on one without. It checks that
//
//   - nobody believes in a lease beside a writer that believes in its own;
//   - a writer's token is greater than every token granted before, and a reader's is greater than
//     that of every writer before.
//
// It is pure, and its caller must do what the caller of a ledger must.
type sharedLedger struct {
	open map[int]sharedBelief // by number of the grant
	next int

	reads, writes int
	atOnce        int // the most readers that believed at one instant
	beside        int // grants while a writer believed, or to a writer while anybody did
	disorder      int // tokens out of that order

	writer, any uint64 // the greatest token of a writer, and of anybody
}

type sharedBelief struct {
	write bool
	until func() time.Time
}

// granted tells that a reader, or a writer, got the lock at now. The number it returns is for ended.
// Of a grant that is told after its lease has ended nothing follows: others may have come since.
func (l *sharedLedger) granted(write bool, token uint64, now time.Time, until func() time.Time) (number int) {
	if write {
		l.writes++
	} else {
		l.reads++
	}
	if !until().After(now) {
		return -1
	}
	readers := 0
	for _, b := range l.open {
		switch believes := b.until().After(now); {
		case believes && (write || b.write):
			l.beside++
		case believes:
			readers++
		}
	}
	if write {
		if token <= l.any {
			l.disorder++
		}
		l.writer = max(l.writer, token)
	} else {
		if token <= l.writer {
			l.disorder++
		}
		l.atOnce = max(l.atOnce, readers+1)
	}
	l.any = max(l.any, token)
	if l.open == nil {
		l.open = map[int]sharedBelief{}
	}
	l.next++
	l.open[l.next] = sharedBelief{write, until}
	return l.next
}

// ended tells that who got the lock with that number believes nothing from now on.
func (l *sharedLedger) ended(number int) { delete(l.open, number) }
