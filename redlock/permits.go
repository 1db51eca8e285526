package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
	"github.com/redquorum/redquorum/slot"
)

const (
	// maxLimit is the greatest number of slots of a semaphore.
	maxLimit = 4096
	// maxPermits is the greatest number of permits of one lease.
	maxPermits = 64
	// permitWidth bounds how many callers of a client are at the members at once for one semaphore.
	permitWidth = 16
	// slotsOfName bounds how many slots are remembered for a name.
	slotsOfName = permitWidth
)

// permitKind is the kind of Semaphore.
var permitKind = kind{
	name: KindSemaphore, lock: script.Semaphore, rules: &wait.Permits, width: permitWidth, format: 2, space: ownNames + "s",
	lapses: true, extra: &permitTerms{want: -1}, own: true, hooks: permitHooks{},
}

var _ = register(&permitKind)

// permitHooks are those of Semaphore.
type permitHooks struct{ plain }

func (permitHooks) obtain(c *Client, ctx, in context.Context, w want) (*Lease, result, error) {
	return c.permit(ctx, in, w)
}

// permitTerms are what a caller asks of a semaphore. They never change: a copy has what differs.
type permitTerms struct {
	limit int         // how many slots there are
	n     int         // how many of them
	known int64       // the stored limit that the client knows; 0: none
	want  int         // the slot to try first; below 0: one that depends on the attempt
	once  bool        // want is for an acquire alone: see script.Asked
	gate  uint8       // see wait.Terms
	held  permit.List // what the lease has that was handed off
}

func (p *permitTerms) has() permit.List { return p.held }

func (p *permitTerms) with(held permit.List, slots int) extra {
	other := *p
	other.limit, other.n, other.held = slots, len(held), held
	return &other
}

func (p *permitTerms) slots() int { return p.limit }

func (p *permitTerms) wide(int) int { return min(p.limit, permitWidth) }

func (p *permitTerms) asks(l script.Lock) script.Lock {
	return l.Asking(&script.Asked{Want: p.want, Once: p.once, Limit: p.limit, Known: p.known, N: p.n})
}

func (p *permitTerms) bounds(b wait.Terms) wait.Terms {
	b.Slots, b.Gate = p.n, p.gate
	return b
}

func (p *permitTerms) fits(t *terms) error {
	switch {
	case p.limit < 1 || p.limit > maxLimit:
		return fmt.Errorf("the limit is %d, must be between 1 and %d", p.limit, maxLimit)
	case p.n < 1 || p.n > maxPermits:
		return fmt.Errorf("Permits is %d, must be between 1 and %d", p.n, maxPermits)
	case p.n > p.limit:
		return fmt.Errorf("Permits is %d, more than the limit of %d", p.n, p.limit)
	case t.as != "":
		return fmt.Errorf("a semaphore has no option As: ask for several permits with Permits")
	}
	return nil
}

// permit gets a permit by attempts of the caller's own. It asks first for the slot that this client
// has given back last, so processes settle on slots of their own. If it waits, it waits in the lane
// of any slot: else the lanes of some slots would stay longer than those of others.
//
// A call that does not wait, and lost although no majority refused it, met others at the same slots. After a
// pause it asks for another slot: those that it met may have left one. All pauses together last at most
// MemberTimeout, and it begins to ask no later than quorum.Patience of them after the call.
func (c *Client) permit(ctx, in context.Context, w want) (l *Lease, res result, err error) {
	t := *w.terms
	p := *t.extra.(*permitTerms)
	p.once = true
	p.gate = uint8(int(slot.Of(c.cfg.keyOf(w.name))) % len(c.members))
	t.extra, w.terms = &p, &t
	began := time.Now()
	for pause := time.Millisecond; ; pause *= 2 {
		if p.want = givenBackOf.of(c).take(w.name); p.want >= p.limit {
			p.want = -1
		}
		if p.want < 0 && w.try {
			p.want = givenBackOf.of(c).another(p.limit)
		}
		if p.n > 1 {
			l, res, err = c.several(ctx, in, &w)
		} else {
			p.known = limitsOf.of(c).get(w.name)
			l, res, err = c.byAttempts(ctx, in, &w)
		}
		if !res.met || pause > c.cfg.MemberTimeout/2 || clock.Elapsed(began, time.Now())+pause > quorum.Patience*c.cfg.MemberTimeout {
			break
		}
		c.pause(ctx, pause)
		if ctx.Err() != nil {
			var e *QuorumError
			if errors.As(err, &e) {
				e.cause = ctx.Err()
			}
			break
		}
	}
	return l, res, c.unlessNone(ctx, &w, err)
}

// several gets several permits for a caller. While a limit below them is in force, nobody can give
// them, and at the head of the line the caller would keep all others out: so it leaves. It does that
// by the word of a majority, because a member that was away may tell a limit that was raised since.
func (c *Client) several(ctx, in context.Context, w *want) (*Lease, result, error) {
	p := w.terms.extra.(*permitTerms)
	for {
		p.known = limitsOf.of(c).get(w.name)
		if tooLow(p.known, p.n) {
			said, err := c.askLimit(ctx, w.op, w.name, p.known)
			switch {
			case err == nil && tooLow(said.greatest, p.n):
				_, limit, _ := script.LimitOf(said.greatest)
				return nil, result{}, &keyError{
					op: w.op, key: w.name, err: ErrLimit, cause: fmt.Errorf("Permits is %d, and the limit in force is %d", p.n, limit),
				}
			case err == nil:
				p.known = said.greatest
			case w.try || ctx.Err() != nil || c.isClosed():
				return nil, result{}, err
			default:
				c.rest(ctx)
				p.known = 0 // so that members tell it again
			}
		}
		within, done := limitsOf.of(c).within(ctx, w.name, p.n)
		l, res, err := c.byAttempts(within, in, w)
		heard := within.Err() != nil && ctx.Err() == nil // the limit may have been raised since
		left := err != nil && (heard || w.try && tooLow(limitsOf.of(c).get(w.name), p.n))
		done()
		if !left {
			return l, res, err
		}
	}
}

// held has the slots of a new lease asked for at the members that have not given them, after
// two round trips. Otherwise the attempt is in line there still, and is given slots that it does not
// use; and slots that are held elsewhere are given to others, who cannot have them.
func (permitHooks) held(l *lease) {
	h := l.hold
	h.mu.Lock()
	lacking, pause := h.b.Lacking(), max(time.Millisecond, 2*h.b.RoundTrip())
	h.mu.Unlock()
	if lacking != 0 {
		time.AfterFunc(pause, l.gather)
	}
}

// gather asks for the slots of a lease that is held wherever they are not given.
func (l *lease) gather() {
	c, h := l.c, l.hold
	if !c.inflight.enter() {
		return
	}
	defer c.inflight.leave()
	if !l.alive(time.Now()) {
		return
	}
	states := c.statesOf(h.wire.Slot())
	to := memberset.Set(0)
	h.mu.Lock()
	for i := range states {
		if h.b.Lacking().Has(i) && states[i].Votes {
			to = to.With(i)
			h.b.Submitted(i)
		}
	}
	h.mu.Unlock()
	if to != 0 {
		h.regain(to, h.terms.ttl, h.terms.ttl)
	}
}

// mend has members free what they have given beside the lease. It waits for nothing.
func (permitHooks) mend(h *hold, to memberset.Set, _ time.Time) {
	h.regain(to, h.terms.ttl, 0)
}

// heard notes a stored limit that a member has told.
func (permitHooks) heard(h *hold, r report) { limitsOf.of(h.c).put(h.name(), r.limit) }

// left notes which slot the client gives back.
func (permitHooks) left(h *hold) {
	h.mu.Lock()
	p := h.b.Permits()
	h.mu.Unlock()
	if len(p) > 0 {
		givenBackOf.of(h.c).put(h.name(), p[0].Slot)
	}
}

var givenBackOf = keep[slots]()

// slots are those that this client has given back, by the name of the semaphore: the last first.
type slots struct {
	mu   sync.Mutex
	m    map[string][]int
	turn uint32 // how far the client has come round all slots, in parts of 2^32
}

func (s *slots) put(name string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[string][]int)
	}
	all, known := s.m[name]
	switch {
	case len(all) == slotsOfName:
		copy(all, all[1:])
		all[len(all)-1] = n
		return
	case !known && len(s.m) == slotNames: // any other makes room
		for other := range maps.Keys(s.m) {
			delete(s.m, other)
			break
		}
	}
	s.m[name] = append(all, n)
}

// take returns the slot that was given back last, and forgets it; -1: there is none.
func (s *slots) take(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.m[name]
	if len(all) == 0 {
		return -1
	}
	s.m[name] = all[:len(all)-1]
	return all[len(all)-1]
}

// another returns a slot for a call that asks once. Turns by the golden ratio spread any number of calls in a row over all slots,
// so few of those meet that a client makes at the same time. Clients begin anywhere.
func (s *slots) another(limit int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.turn == 0 {
		s.turn = rand.Uint32()
	}
	s.turn += 2654435769
	return int(uint64(s.turn) * uint64(limit) >> 32)
}
