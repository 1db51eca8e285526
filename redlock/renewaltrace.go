package redlock

import (
	"context"
	"iter"
	"math/bits"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// renewalTrace is what a renewal collects for the tracer; nil: nobody wants to know.
type renewalTrace struct {
	c      *Client
	ctx    context.Context
	sent   time.Time
	leases []tracedLease // by item

	mu       sync.Mutex // guards the fields below; a leaf
	left     int        // calls that are not done, those of rejoin among them
	answered int        // members
	renewed  uint64     // by item, as those below
	refused  uint64
	decided  uint64
	end      time.Time // the earliest validity of a lease that was renewed
	told     bool
}

// tracedLease is a lease of a renewal.
type tracedLease struct {
	hold *hold
	end  time.Time // of its validity, if it is renewed
}

// traceRenewal tells that a renewal of n leases begins, if anybody wants to know. It returns the context for its calls.
func (c *Client) traceRenewal(ctx context.Context, sent time.Time, n int, lease func(i int) tracedLease) (*renewalTrace, context.Context) {
	start := c.trace.RenewalStart
	if start == nil && c.trace.RenewalEnd == nil {
		return nil, ctx
	}
	leases := make([]tracedLease, n)
	for i := range leases {
		leases[i] = lease(i)
	}
	t := &renewalTrace{c: c, ctx: ctx, sent: sent, leases: leases, left: len(c.members)}
	if t.ctx == nil {
		t.ctx = context.Background()
	}
	if start != nil {
		t.ctx = start(t.ctx, RenewalStart{Leases: len(leases), Each: func(yield func(LockName, context.Context) bool) {
			for _, l := range leases {
				if !yield(l.hold.lock(), l.hold.traced.of(opExtend)) {
					return
				}
			}
		}})
	}
	return t, t.ctx
}

// count books what was decided of some leases.
func (t *renewalTrace) count(renewed, lost, decided uint64) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.renewed |= renewed
	t.refused |= lost
	t.decided |= decided
	for j := range among(renewed) {
		if end := t.leases[j].end; t.end.IsZero() || end.Before(t.end) {
			t.end = end
		}
	}
}

// asks books one call more, of a rejoin.
func (t *renewalTrace) asks() {
	if t != nil {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.left++
	}
}

// heard is called when a call of the renewal is done, and everything that followed from it.
func (t *renewalTrace) heard(answered bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.left--
	if answered {
		t.answered++
	}
	decided := bits.OnesCount64(t.decided)
	tell := !t.told && (t.left == 0 || decided == len(t.leases))
	t.told = t.told || tell
	e := RenewalEnd{
		Leases: len(t.leases), Renewed: bits.OnesCount64(t.renewed), Refused: bits.OnesCount64(t.refused), Undecided: len(t.leases) - decided,
		Members: t.answered, Need: t.c.need,
	}
	end, renewed, which := t.end, t.renewed, t.decided
	t.mu.Unlock()
	if !tell || t.c.trace.RenewalEnd == nil {
		return
	}
	now := time.Now()
	if e.Elapsed = clock.Elapsed(t.sent, now); !end.IsZero() {
		e.Validity = max(0, clock.Until(end, now))
	}
	e.Each = func(yield func(LockName, bool) bool) {
		for j := range among(which) {
			if !yield(t.leases[j].hold.lock(), renewed&(1<<j) != 0) {
				return
			}
		}
	}
	t.c.trace.RenewalEnd(t.ctx, e)
}

// among ranges over the bits that are set.
func among(bitset uint64) iter.Seq[int] {
	return func(yield func(int) bool) {
		for ; bitset != 0; bitset &= bitset - 1 {
			if !yield(bits.TrailingZeros64(bitset)) {
				return
			}
		}
	}
}
