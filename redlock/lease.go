package redlock

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// lease is what handles are of: votes that were won, and how long they are trusted.
type lease struct {
	own     Lease // the handle of its caller
	c       *Client
	hold    *hold // its votes at the members
	key     string
	token   uint64
	as      string // owner for re-entry, or ""
	granted time.Time

	users int32      // Locks by the same owner that are still to be unlocked; guarded by mu, as all that follow
	renew bool       // again and again, until limit; false: once at most, to the end of a fixed TTL
	mu    sync.Mutex // never held around a call to a member
	term  core.Term  // its limit is the end of a fixed TTL, or MaxHold
	plan
	ctx  context.Context // for its values, that of the acquisition; or, once it was asked for, the lease's own
	bond bond            // what it ends with, and what ends with it
	sets *[]ender        // that it is one of: they end with it; nil: none

	inKeeper // guarded by keeper.mu
}

// bond is what a lease ends with, and what ends with it. It is called under the mutex of the lease where it says so.
type bond interface {
	// until is how long the lease is trusted. It is called under the mutex.
	until(l *lease) time.Time
	// ended sees to what ends with the lease, and returns what is owed then.
	ended(l *lease, err error, over core.Ended) debt
	ties
}

// alone is the bond of a lease that has none. Its other methods are in bond.go.
type alone struct{}

func (alone) until(l *lease) time.Time { return l.term.Until() }

func (alone) ended(l *lease, _ error, over core.Ended) debt {
	l.hold.leaves(over)
	return debt{release: l.hold, losses: 1}
}

// newLease makes a lease that nobody looks after yet.
func newLease(ctx context.Context, h *hold, term core.Term, waited bool, now time.Time) *lease {
	t := h.terms
	l := &lease{
		c: h.c, hold: h, key: h.name(), token: uint64(h.b.Lease()), granted: now,
		ctx: ctx, term: term, plan: plan{ttl: t.ttl}, renew: t.renew, users: 1, bond: alone{}, inKeeper: inKeeper{pos: -1},
	}
	l.own.lease = l
	l.begins(&t, waited, now)
	return l
}

// ValidUntil returns the instant until which you can rely on the lease, as known now. Renewals move
// it. After the lease has ended, it is not later than that end. It is on the local clock and
// carries a monotonic reading.
func (l *Lease) ValidUntil() time.Time {
	if l.none() {
		return time.Time{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term.Err() != nil {
		return sooner(l.bond.until(l.lease), l.term.Ended())
	}
	return l.bond.until(l.lease)
}

// Context returns a context that ends with the lease. context.Cause says why: ErrReleased,
// ErrHandedOff or a *LostError. The context has the values of the context given to Lock, but not
// its end. Its Err and Done look at the clock, so they tell the end at once, even after a suspend.
// A context that is derived from it, and a goroutine that waits for its end, hear of the end a
// moment later.
func (l *Lease) Context() context.Context {
	if l.none() {
		return ofNoLease()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.context() == nil {
		inner, cancel := context.WithCancelCause(context.WithoutCancel(l.ctx))
		if err := l.term.Err(); err != nil {
			cancel(err)
		}
		l.ctx = &leaseContext{inner, l.lease, cancel, l.ctx}
	}
	return l.ctx
}

// context is the lease's own, nil if nobody has asked for it. Its mutex is held.
func (l *lease) context() *leaseContext {
	if own, ok := l.ctx.(*leaseContext); ok && own.l == l && own.values != nil {
		return own
	}
	return nil
}

// leaseContext looks at the clock before it says that all is well: after a suspend, timers are
// late.
type leaseContext struct {
	context.Context
	l      *lease
	cancel context.CancelCauseFunc // of the Context
	values context.Context         // of the acquisition; nil: it is not the one of the lease
}

// look ends the context if the lease has ended: who found that out may not have come to it yet.
func (c *leaseContext) look() {
	if err := c.l.err(); err != nil {
		c.cancel(err)
	}
}

// Err implements context.Context.
func (c *leaseContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Done implements context.Context.
func (c *leaseContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Err returns nil while the lease is held and valid. After that it returns ErrReleased,
// ErrHandedOff or a *LostError. It looks at the clock, so it is true at the instant of the call,
// even after a suspend.
func (l *Lease) Err() error {
	if l.none() {
		return errNoLease
	}
	return l.err()
}

// err is Err of each handle.
func (l *lease) err() error {
	l.mu.Lock()
	err, past := l.term.Err(), clock.Until(l.bond.until(l), time.Now()) <= 0
	l.mu.Unlock()
	if err == nil && past {
		l.bound().expire(l)
		return l.err()
	}
	return err
}

// alive reports whether the lease is held and valid at now.
func (l *lease) alive(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.Err() == nil && clock.Until(l.bond.until(l), now) > 0
}

// end makes err the lease's end, if it has none yet, and cancels its context.
func (l *lease) end(err error) (owed debt, ended bool) {
	l.mu.Lock()
	if l.term.Err() != nil {
		l.mu.Unlock()
		return debt{}, false
	}
	return l.endedLocked(l.term.End(err, time.Now())), true
}

// endedLocked does what follows from the end of the term, and unlocks.
func (l *lease) endedLocked(over core.Ended) debt {
	err, own, bond := l.term.Err(), l.context(), l.bond
	l.mu.Unlock()
	bond.forget(l)
	if own != nil {
		own.cancel(err)
	}
	l.endSets(err)
	return bond.ended(l, err, over)
}

// renewed takes a majority's confirmation in answer to what was sent. A lease past its validity stays dead, even if this was on
// its way in time: another may have held the lock in between.
func (l *lease) renewed(said *core.Count, sent time.Time, manual bool, now time.Time) bool {
	ttl := said.TTL()
	l.mu.Lock()
	if manual && !l.renew && l.term.Renewable(now) {
		l.term.Bound(sent.Add(ttl))
	}
	if !l.term.Renew(said, now) {
		l.mu.Unlock()
		_ = l.err()
		return false
	}
	l.plans(sent, ttl)
	until, bond := l.term.Until(), l.bond
	l.mu.Unlock()
	bond.renewed(until)
	return true
}

// Lease is a lock that is held, until ValidUntil at the latest.
//
// A lease ends once, for good: by Unlock, by Handoff, when a majority of the members no longer have it, or when its validity is
// over, which a local timer watches. The client cancels the lease's context before another owner can get the lock, and Err says
// why. A Lease is safe for concurrent use.
//
// The nil Lease, as a call returns it beside an error, is a lease that has ended: its methods return
// ErrNotHeld, its context has ended, its Slot is -1, and all else is zero.
type Lease struct {
	*lease             // nil: of none
	part   bool        // the part of one user, beside others: see user
	spent  atomic.Bool // of a part: it is unlocked
}

// none reports whether l is no lease at all: what a call that has failed returns.
func (l *Lease) none() bool { return l == nil || l.lease == nil }

// errNoLease is why the nil lease is not held.
var errNoLease = fmt.Errorf("redlock: nil lease: %w", ErrNotHeld)

// ofNoLease is the context of the nil lease.
var ofNoLease = sync.OnceValue(func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errNoLease)
	return ctx
})
