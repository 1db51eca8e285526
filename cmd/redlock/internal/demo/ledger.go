package demo

import (
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/timeline"
)

// ledger keeps the books on one lock, or on the slots of one semaphore, as told by the holders on one
// clock. A belief lasts from the grant to the call of unlock, or to the end of the lease's validity if
// that is earlier. When it is over, the judge compares it with all others.
//
// It is pure: no clock and no lock. Its caller must tell of events in the order in which they happen,
// at instants that do not fall.
type ledger struct {
	name  string
	epoch time.Time
	open  map[int]belief // by number of the grant
	next  int

	judge    judge.Stream
	grants   int // of all
	reads    int // of readers
	overlaps int // beliefs beside others that they must not be beside
	disorder int // tokens that do not rise
}

// belief is what a worker thinks that it holds. The validity is asked for when it matters, because
// renewals move it; a lease past its validity never comes back.
type belief struct {
	judge.Hold
	until func() time.Time
}

func newLedger(name string) *ledger { return &ledger{name: name, open: map[int]belief{}} }

// at is an instant on the clock of the judge.
func (l *ledger) at(t time.Time) int64 { return int64(t.Sub(l.epoch)) }

// granted tells that a worker got a lease at now. slot is that of a permit, and shared says that it is a
// reader's. The number it returns is for ended. atOnce is how many readers, or how many others, believe in theirs now.
func (l *ledger) granted(worker, slot int, shared bool, token uint64, now time.Time, until func() time.Time) (number, atOnce int) {
	if l.next == 0 {
		l.epoch = now
	}
	if l.grants++; shared {
		l.reads++
	}
	l.next++
	b := belief{until: until, Hold: judge.Hold{
		Key: fmt.Sprint(l.name, " ", slot), Who: fmt.Sprint("worker ", worker+1), Token: token, Shared: shared, From: l.at(now),
	}}
	l.open[l.next] = b
	l.judge.Begin(b.Key, fmt.Sprint(l.next), b.From)
	for _, x := range l.open {
		if x.Shared == shared && x.until().After(now) {
			atOnce++
		}
	}
	return l.next, atOnce
}

// ended tells that who got a lease with that number is about to unlock, and from now on believes nothing.
// It returns what must not be.
func (l *ledger) ended(number int, now time.Time) (valid bool, wrong []string) {
	b, there := l.open[number]
	if !there {
		return false, nil
	}
	delete(l.open, number)
	end := b.until()
	valid = end.After(now)
	b.To = min(l.at(now), l.at(end))
	overlaps, regressions := l.judge.End(fmt.Sprint(number), b.Hold)
	l.overlaps += len(overlaps)
	l.disorder += len(regressions)
	return valid, append(overlaps, regressions...)
}

// handoffs are the times from the unlock of a holder to the next grant, if somebody was waiting at that
// unlock.
type handoffs struct {
	all        []time.Duration
	unlocked   time.Time // of the hold before the next grant, if it was unlocked while it was valid
	isUnlocked bool
}

// ended tells of an unlock of a lease that is valid.
func (h *handoffs) ended(now time.Time) { h.unlocked, h.isUnlocked = now, true }

// granted tells that somebody who asked at requested got the lock at now.
func (h *handoffs) granted(requested, now time.Time) {
	if h.isUnlocked && !requested.After(h.unlocked) {
		h.all = append(h.all, now.Sub(h.unlocked))
	}
	h.isUnlocked = false
}

// quantiles returns quantiles of the hand-offs, 0 where there are none. last bounds
// how many of the latest count; 0: all.
func (h *handoffs) quantiles(last int, qs ...float64) []time.Duration {
	sorted := h.all
	if last > 0 && len(sorted) > last {
		sorted = sorted[len(sorted)-last:]
	}
	sorted = slices.Sorted(slices.Values(sorted))
	out := make([]time.Duration, len(qs))
	for i, q := range qs {
		out[i] = timeline.Quantile(sorted, q)
	}
	return out
}
