package redlock

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// plan is when a lease is renewed.
type plan struct {
	ttl     time.Duration
	renewAt time.Time // zero: not to be renewed (any more)
}

// inKeeper is where the keeper has a lease.
type inKeeper struct {
	gone   bool  // never to be put there again
	queued bool  // to be renewed now
	pos    int32 // in the keeper's heap, -1: not in it
}

// debt is what the caller that has ended a lease owes.
type debt struct {
	release *hold      // nil: there is nothing to release, because others have the hold
	losses  int        // how many leases have ended with it: if it was lost, each of them is told of
	lost    *LostError // as it is told; nil: as it was lost
}

// ties are what else follows from a bond.
type ties interface {
	// expire ends the lease, whose validity is over.
	expire(l *lease)
	// forget is called when the lease has ended: nobody finds it any more.
	forget(l *lease)
	// renewed is told of each renewal.
	renewed(until time.Time)
	// extend asks the members to keep the lease.
	extend(ctx context.Context, l *lease, ttl time.Duration) error
	// apart explains why the lease cannot leave the client.
	apart() error
	// held counts the leases of callers that there are, and says when the oldest was granted.
	held(l *lease) (n int, oldest time.Time)
}

// bound is its bond.
func (l *lease) bound() bond {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bond
}

// begins says when a new lease is renewed, and at which limit it ends.
func (l *lease) begins(t *terms, waited bool, now time.Time) {
	asked := t.ttl // what the votes in hand were granted for
	if waited {
		asked = l.hold.b.Part()
	}
	switch {
	case t.renew:
		if t.maxHold > 0 {
			l.term.Bound(now.Add(t.maxHold))
			l.term.Shorten(l.term.Limit())
		}
		l.renewAt = now.Add(min(asked/3, clock.Until(l.term.Until(), now)/2))
	case asked < t.ttl: // granted for less while waiting: renewed once, to its end
		l.term.Bound(now.Add(t.ttl))
		l.renewAt = now.Add(min(asked/3, clock.Until(l.term.Until(), now)/2))
	}
	if l.term.Until().IsZero() && !l.renewAt.IsZero() { // to be confirmed
		l.renewAt = now.Add(asked / 3)
	}
}

// plans says when a lease is renewed next, which was renewed by what was sent. Its mutex is held.
func (l *lease) plans(sent time.Time, ttl time.Duration) {
	switch limit := l.term.Limit(); {
	case !l.renew, !limit.IsZero() && clock.Until(limit, sent) <= ttl:
		l.renewAt = time.Time{} // this was the last
	default:
		l.renewAt = sent.Add(ttl / 3)
	}
}

// validity is the one that the lease had, or has: LostError tells it.
func (l *lease) validity() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.bond.until(l)
}

// ender is what a lease ends with its own end.
type ender interface{ end(err error) }

// endSets ends what the lease is one of.
func (l *lease) endSets(err error) {
	l.mu.Lock()
	in := l.sets
	l.sets = nil
	l.mu.Unlock()
	if in != nil {
		for _, set := range *in {
			set.end(err)
		}
	}
}
