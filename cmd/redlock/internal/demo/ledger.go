package demo

import (
	"slices"
	"time"
)

// ledger keeps the books on one lock, as told by its holders on one clock. It checks that
//
//   - at most one holder believes in its lease at any instant. A belief lasts from the grant to the
//     call of unlock, or to the end of the lease's validity if that is earlier. An overlap begins
//     with a grant, so it is enough to look at every grant whether an earlier belief is still alive;
//   - tokens rise strictly in the order of the grants.
//
// Of a grant that is told after its lease has ended nothing follows but that its token is its own: its
// worker got no processor time in between, and others may have held the lock since.
//
// It is pure: no clock and no lock. Its caller must tell of events in the order in which they happen,
// at instants that do not fall.
type ledger struct {
	open   []belief // by worker; believing until unlock
	grants int

	overlaps int
	falling  int // tokens that are not above the one before
	highest  uint64

	// Of the hold before the next grant, if it was unlocked while it was valid.
	unlocked   time.Time
	isUnlocked bool
	handoffs   []time.Duration
}

// belief is what a worker thinks that it holds. The validity is asked for when it matters, because
// renewals move it; a lease past its validity never comes back.
type belief struct {
	held  bool
	until func() time.Time
}

func newLedger(workers int) *ledger { return &ledger{open: make([]belief, workers)} }

// granted tells that worker, who asked at requested, got the lock at now. It returns the hand-off: the
// time from the unlock of the holder before to this grant, if somebody was waiting at that unlock.
func (l *ledger) granted(worker int, token uint64, requested, now time.Time, until func() time.Time) (handoff time.Duration, ok bool) {
	l.grants++
	if token == l.highest {
		l.falling++
	}
	if !until().After(now) {
		l.highest = max(l.highest, token)
		l.open[worker] = belief{}
		return 0, false
	}
	for _, b := range l.open {
		if b.held && b.until().After(now) {
			l.overlaps++
		}
	}
	if token < l.highest {
		l.falling++
	}
	l.highest = max(l.highest, token)
	if l.isUnlocked && !requested.After(l.unlocked) {
		handoff, ok = now.Sub(l.unlocked), true
		l.handoffs = append(l.handoffs, handoff)
	}
	l.isUnlocked = false
	l.open[worker] = belief{held: true, until: until}
	return handoff, ok
}

// ended tells that worker is about to unlock, and from now on believes nothing.
func (l *ledger) ended(worker int, now time.Time) {
	b := &l.open[worker]
	if b.held && b.until().After(now) {
		l.unlocked, l.isUnlocked = now, true
	}
	*b = belief{}
}

// quantiles returns quantiles of the hand-offs, 0 where there are none. last bounds
// how many of the latest count; 0: all.
func (l *ledger) quantiles(last int, qs ...float64) []time.Duration {
	sorted := l.handoffs
	if last > 0 && len(sorted) > last {
		sorted = sorted[len(sorted)-last:]
	}
	sorted = slices.Sorted(slices.Values(sorted))
	out := make([]time.Duration, len(qs))
	for i, q := range qs {
		out[i] = quantile(sorted, q)
	}
	return out
}

// quantile is by nearest rank: the least value that a share q of the sorted values does not exceed.
func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(q * float64(len(sorted)))
	if float64(rank) < q*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// problems counts what must not be.
func (l *ledger) problems() int { return l.overlaps + l.falling }
