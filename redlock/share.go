package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// begin gives the share to its user, or the lease that its owner (As) has got meanwhile. It reports
// false if the share has ended.
func (s *share) begin(now time.Time) (*Lease, bool) {
	l := &s.lease
	if !l.alive(now) && l.err() != nil || s.limited() && !s.keep() {
		return &l.own, false
	}
	first := ownersOf.of(l.c).enter(l)
	if first != l {
		if owed, _ := l.end(ErrReleased); owed.release != nil {
			owed.release.abandon()
		}
	}
	return &first.own, true
}

// get is begin for a caller who asks for nothing else if the share has ended.
func (s *share) get(w *want, now time.Time) (*Lease, error) {
	l, ok := s.begin(now)
	if !ok && s.c.isClosed() {
		return nil, &keyError{op: w.op, key: w.name, err: ErrClosed}
	}
	return l, nil
}

// until implements bond.
func (s *share) until(*lease) time.Time {
	all := s.of.lease
	all.mu.Lock()
	until := all.term.Until()
	if all.term.Err() != nil {
		until = sooner(until, all.term.Ended())
	}
	all.mu.Unlock()
	if limit := s.term.Limit(); !limit.IsZero() {
		until = sooner(until, limit)
	}
	return until
}

// limited reports whether the share ends by its own limit, as far as is known: then the keeper must
// end it. Later renewals of the hold may make it so: see limits.
func (s *share) limited() bool {
	return !s.term.Limit().IsZero() && clock.Until(s.term.Limit(), s.of.lease.validity()) <= 0
}

// keep has the keeper end the share at its limit; false: the client is closed.
func (s *share) keep() bool {
	s.put.Store(true)
	return s.c.keeper.add(&s.lease)
}

// renewed implements bond: the validity of the hold has moved to until. The keeper gets the shares that
// their limits end before that. It has no others, because they would come and go through its one
// mutex.
func (t *tenure) renewed(until time.Time) {
	t.shard.mu.Lock()
	if t.limit.IsZero() || clock.Until(t.limit, until) > 0 {
		t.shard.mu.Unlock()
		return
	}
	t.limit = time.Time{}
	var due []*share
	for _, s := range t.out {
		switch {
		case s.term.Limit().IsZero() || s.put.Load():
		case clock.Until(s.term.Limit(), until) <= 0:
			due = append(due, s)
		default:
			t.limitLocked(s)
		}
	}
	t.shard.mu.Unlock()
	for _, s := range due {
		s.keep()
	}
}

// extend implements bond: it lengthens what all share. What has one share at a time it may shorten, too.
func (s *share) extend(ctx context.Context, _ *lease, ttl time.Duration) error {
	now, all := time.Now(), s.of.lease
	if !s.of.kind.together {
		err := s.c.keeper.extend(ctx, all, ttl)
		if s.err() != nil {
			return s.notHeld(opExtend)
		}
		return err
	}
	if clock.Until(all.validity(), now.Add(clock.Validity(ttl, s.c.cfg.Drift))) >= 0 {
		return nil
	}
	err := s.c.keeper.confirm(ctx, all, ttl, now)
	if s.err() != nil {
		return s.notHeld(opExtend)
	}
	return err
}

// hears reports whether the pushes of a majority are heard, so that a recall would be. It is asked when a hold comes to be kept, and
// again after each look at it (wake), so that a waiter whose pushes are lost waits for less than twice the time for which it is kept.
func (t *tenure) hears() bool {
	c, n := t.c, 0
	for i := 0; i < len(c.members) && n < c.need; i++ {
		if st := c.stateOf(i, t.lease.hold.wire.Slot()); st.Votes && st.Inbox {
			n++
		}
	}
	t.heard.Store(n >= c.need)
	return n >= c.need
}

// ended implements bond. The last share ends the lease of the tenure, unless it is passed on.
func (s *share) ended(_ *lease, err error, _ core.Ended) debt {
	t, stay := s.of, time.Duration(0)
	if s.stay > 0 && (t.heard.Load() || t.hears()) {
		stay = s.stay
	}
	t.shard.mu.Lock()
	if s.at < 0 { // the tenure has ended, and sees to it
		t.shard.mu.Unlock()
		return debt{}
	}
	end := len(t.out) - 1
	t.out[s.at] = t.out[end]
	t.out[s.at].at = s.at
	t.out[end] = nil
	t.out = t.out[:end]
	s.at = -1
	last, asks := end == 0, false
	if last && err == ErrReleased && (t.kind.passes || stay > 0) {
		now := s.term.Ended()
		t.end = now.Add(stay)
		last = t.settleLocked(now)
		asks = !last && t.asksLocked(now)
	} else if last {
		t.overLocked()
	}
	t.shard.mu.Unlock()
	if asks {
		t.reserve(false)
	}
	if !last {
		return debt{losses: 1}
	}
	owed, _ := t.lease.end(ErrReleased)
	return debt{release: owed.release, losses: 1}
}

// expire implements bond: the lease of the tenure has ended, or the time of the share is over.
func (s *share) expire(l *lease) {
	err := s.of.lease.err()
	if err == nil {
		alone{}.expire(l)
		return
	}
	err = s.because(err)
	owed, _ := s.end(err)
	var lost *LostError
	if errors.As(err, &lost) {
		s.c.notifier.tell(slices.Repeat([]*LostError{lost}, owed.losses)...)
	}
}

// forget implements bond.
func (s *share) forget(l *lease) {
	if s.put.Load() {
		s.c.keeper.remove(l)
	}
	ownersOf.of(s.c).remove(l)
}

// renewed implements bond: the term of a share is never renewed.
func (s *share) renewed(time.Time) {}

// apart implements bond.
func (s *share) apart() error {
	if !s.of.kind.together {
		return nil
	}
	return badInput("handoff", "readers of this client share what they hold: ask for a fixed TTL to hand a read lease off")
}

// held implements bond: those of the tenure are counted.
func (s *share) held(*lease) (int, time.Time) { return 0, time.Time{} }
