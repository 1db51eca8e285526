package demo

import "time"

// permitLedger keeps the books on the slots of one semaphore, as ledger does on a lock. It checks that
//
//   - nobody believes in a slot beside another who believes in it, so that there are never more
//     holders than slots, and that each slot is below the limit;
//   - the tokens of each slot rise.
//
// It is pure, and its caller must do what the caller of a ledger must.
type permitLedger struct {
	limit  int
	open   map[int]permitBelief // by number of the grant
	next   int
	tokens map[int]uint64 // the greatest of each slot

	grants   int
	atOnce   int // the most holders that believed at one instant
	beside   int // grants of a slot in which another believed, or that does not exist
	disorder int // tokens that are not above the one before of their slot
}

type permitBelief struct {
	slot  int
	until func() time.Time
}

// granted tells that somebody got a slot at now. The number it returns is for ended. Of a grant that is
// told after its lease has ended nothing follows: others may have come since.
func (l *permitLedger) granted(slot int, token uint64, now time.Time, until func() time.Time) (number int) {
	l.grants++
	if !until().After(now) {
		return -1
	}
	if slot < 0 || slot >= l.limit {
		l.beside++
	}
	holders := 1
	for _, b := range l.open {
		if b.until().After(now) {
			holders++
			if b.slot == slot {
				l.beside++
			}
		}
	}
	l.atOnce = max(l.atOnce, holders)
	if l.open == nil {
		l.open, l.tokens = map[int]permitBelief{}, map[int]uint64{}
	}
	if token <= l.tokens[slot] {
		l.disorder++
	}
	l.tokens[slot] = max(l.tokens[slot], token)
	l.next++
	l.open[l.next] = permitBelief{slot, until}
	return l.next
}

// ended tells that who got a slot with that number believes nothing from now on.
func (l *permitLedger) ended(number int) { delete(l.open, number) }
