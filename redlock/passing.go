package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Callers of one client that want one mutex pass what they hold on among themselves, while nobody else
// waits: docs/protocol/passing.md.

const (
	// shutFor is how long no tenure of a name begins after members had no tokens for one.
	shutFor = 100 * time.Millisecond
	// leastRest is how long answers to a reservation are waited for at least.
	leastRest = 5 * time.Millisecond
)

// won is told that a caller has the lock: it leaves the line. If another caller may come to want it
// soon, or if it may be kept, and nobody is known to wait at the members, what is held is to be passed
// on, and won returns the tenure that is to be formed.
func (c *Client) won(w *want, h *hold) (t *tenure) {
	if !w.passes(&c.cfg) || w.turn != hasTurn && !w.terms.keeps {
		return nil
	}
	sh := sitesOf.of(c).shard(w.name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.site(w.name)
	if s.tenure(w.terms.kind, w.terms.ttl) == nil && (s.wanted(w.terms) || w.terms.keeps && !s.wanders(time.Now())) && !h.waitedFor() {
		t = &tenure{c: c, kind: w.terms.kind, name: w.name, ttl: w.terms.ttl, shard: sh}
		t.openLocked()
	}
	if w.turn == hasTurn {
		w.turn = leftLine
		s.busy--
	}
	s.advance()
	sh.forget(w.name, s)
	return t
}

// wanted reports whether what a caller has just got with these terms may soon be passed on.
func (s *site) wanted(t *terms) bool {
	next := len(s.places) > 0 && s.places[0].terms != nil && s.places[0].terms.ttl == t.ttl
	if !next && s.met.IsZero() {
		return false
	}
	now := time.Now()
	if !s.shut.IsZero() && clock.Elapsed(s.shut, now) < shutFor {
		return false
	}
	return next || clock.Elapsed(s.met, now) < contendedFor
}

// begun books the lease of the tenure, and gives the first share to its caller.
func (t *tenure) begun(ctx context.Context, terms *terms, l *lease, res result, now time.Time) *share {
	l.hold.opens(t)
	waited := l.hold.waitedFor() // after that: who comes since is told to the tenure
	l.hold.mu.Lock()
	rtt := l.hold.b.RoundTrip()
	l.hold.mu.Unlock()
	t.shard.mu.Lock()
	t.lease, t.in, t.rtt = l, res.In, rtt
	s := t.joinLocked(ctx, terms, now)
	if waited || t.recalled == l.hold {
		t.closeLocked()
	}
	asks := t.asksLocked(now)
	t.shard.mu.Unlock()
	if asks {
		t.reserve(false)
	}
	return s
}

// fails is told that no lease has come of it.
func (t *tenure) fails() {
	if t == nil {
		return
	}
	t.shard.mu.Lock()
	t.overLocked()
	t.shard.mu.Unlock()
}

// waitedFor reports whether somebody is known to wait behind the hold.
func (h *hold) waitedFor() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.Hint() != ""
}

// recalled is told that another owner waits behind the hold.
func (h *hold) recalled() {
	h.mu.Lock()
	var t *tenure
	if h.open != nil {
		t, _ = h.open.to.(*tenure)
	}
	h.mu.Unlock()
	if t != nil {
		t.recall(h)
	}
}

// recall has the tenure end with the share that it has, or at once.
func (t *tenure) recall(h *hold) {
	t.shard.mu.Lock()
	t.recallLocked(h)
	ends := t.settleLocked(time.Now())
	t.shard.mu.Unlock()
	if ends {
		t.giveBack(true)
	}
}

// standLocked has a caller stand in line until it is to go on, and unlocks the shard. If there is a tenure that may be passed to it,
// and there are too few tokens, it asks for some. An error is ctx's, or ErrClosed.
func (sh *siteShard) standLocked(s *site, p *place, closed <-chan struct{}) error {
	t := s.passing(p.terms)
	s.places = append(s.places, p)
	asks, kept := t != nil && t.asksLocked(time.Now()), t != nil && t.kept
	sh.mu.Unlock()
	if asks {
		t.reserve(false)
	}
	if kept {
		t.settle()
	}
	return p.wait(p.ctx, closed)
}

// wait waits until the caller is to go on. An error is ctx's, or ErrClosed.
func (p *place) wait(ctx context.Context, closed <-chan struct{}) error {
	select {
	case <-p.turn:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-closed:
		return ErrClosed
	}
}

// asksLocked reports whether a reservation is to be sent, which is booked then: somebody stands in line,
// or the tenure is kept, and there are few tokens, or it is long since members said that nobody waits. One that has brought
// nothing is not repeated for as long.
func (t *tenure) asksLocked(now time.Time) bool {
	if t.site == nil || t.lease == nil || t.kind.together || len(t.site.places) == 0 && !t.kept {
		return false
	}
	left, asking := t.lease.hold.tokensLeft(now)
	again := t.c.cfg.Entry / 6
	switch {
	case asking, !t.asked.IsZero() && !t.more && clock.Elapsed(t.asked, now) < again:
		return false
	case left > t.few && clock.Elapsed(t.seen, now) < again:
		return false
	}
	t.asked, t.more = now, false
	return true
}

// reserve sends a reservation: its answers come to reserved.
func (t *tenure) reserve(late bool) {
	t.lease.mu.Lock()
	term := t.lease.term
	t.lease.mu.Unlock()
	t.lease.hold.reserveMore(term, late)
}

// reserved implements reserver.
func (t *tenure) reserved(said reserved) {
	if said.lost {
		t.lease.lose(LostRefused)
		return
	}
	now := time.Now()
	t.shard.mu.Lock()
	if said.alone && clock.Until(said.sent, t.seen) > 0 {
		t.seen = said.sent
	}
	if said.more {
		left, _ := t.lease.hold.tokensLeft(now)
		t.few, t.more, t.rtt = left/2, true, clock.Elapsed(said.sent, now)
	}
	if said.waits {
		t.recallLocked(t.lease.hold)
	}
	ends := t.settleLocked(now)
	asks := !ends && t.asksLocked(now)
	t.shard.mu.Unlock()
	switch {
	case ends:
		t.giveBack(true)
	case asks:
		t.reserve(true)
	}
}

// settleLocked says what becomes of a tenure without a share. It is passed to the first in line, rests
// until the answers to a reservation are there, is kept, or ends: then its lease is to be ended.
func (t *tenure) settleLocked(now time.Time) (ends bool) {
	if t.over || t.lease == nil || len(t.out) > 0 {
		return false
	}
	if next := t.nextLocked(now); next != nil {
		next.kept = t.kept
		if s := t.nextShareLocked(next.ctx, next.terms, now); s != nil {
			t.passLocked(next, s)
			return false
		}
		if t.rests.IsZero() {
			t.rests = now.Add(max(4*t.rtt, leastRest))
		}
		if clock.Until(t.rests, now) > 0 && t.lease.hold.reserving(now, t.asked) {
			t.restLocked(t.rests, now)
			return false
		}
		if !t.more {
			t.site.shut = now
		}
	} else if t.keepsLocked(now) {
		return false
	}
	t.overLocked()
	return true
}

// nextLocked is the first in line to whom the tenure may be passed, nil if there is none.
func (t *tenure) nextLocked(now time.Time) *place {
	if t.site == nil || len(t.site.places) == 0 || t.site.busy > 0 || t.c.isClosed() || !t.lasts(now) {
		return nil
	}
	for _, p := range t.site.places {
		if t.site.passing(p.terms) != t {
			return nil
		}
		select {
		case <-p.done: // it has not come to leave the line
		default:
			return p
		}
	}
	return nil
}

// lasts reports whether the hold is valid for long enough to begin another lease of it.
func (t *tenure) lasts(now time.Time) bool {
	l := t.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.Err() == nil && clock.Until(l.term.Until(), now) >= min(t.ttl, t.c.cfg.Entry)/2
}

// nextShareLocked makes the next lease, if members have said lately that nobody waits, and a token is left.
func (t *tenure) nextShareLocked(ctx context.Context, terms *terms, now time.Time) *share {
	if clock.Elapsed(t.seen, now) >= t.c.cfg.Entry/3 {
		return nil
	}
	token, ok := t.lease.hold.nextToken()
	if !ok {
		return nil
	}
	s := t.joinLocked(ctx, terms, now)
	s.token = uint64(token)
	return s
}

// passLocked gives the next lease to a caller in line.
func (t *tenure) passLocked(p *place, s *share) {
	p.share, t.rests = s, time.Time{}
	t.site.leaves(p)
	t.site.advance() // who is next may want it in another way
	close(p.turn)
}

// keepsLocked reports whether a tenure stays though nobody has a share. Somebody will look at it when its time is over.
func (t *tenure) keepsLocked(now time.Time) bool {
	s := t.site
	switch {
	case clock.Until(t.end, now) <= 0, s == nil:
		return false
	case s.busy > 0, len(s.places) > 0, s.wanders(now): // somebody wants the lock, and cannot be given this
		return false
	case !t.lasts(now), !t.kept && !sitesOf.of(t.c).keepsOne(t.c.cfg.KeepMost):
		return false
	}
	t.kept, t.rests = true, time.Time{}
	t.restLocked(t.end, now)
	return true
}

// restLocked has somebody look at the tenure at a time, or before.
func (t *tenure) restLocked(until, now time.Time) {
	if !t.wakes.IsZero() && clock.Until(t.wakes, until) <= 0 {
		return
	}
	t.wakes = until
	if d := clock.Until(until, now); t.timer == nil {
		t.timer = time.AfterFunc(d, t.wake)
	} else {
		t.timer.Reset(d)
	}
}

// wake looks what becomes of a tenure that has rested.
func (t *tenure) wake() {
	t.shard.mu.Lock()
	t.wakes = time.Time{}
	t.heard.Store(false)
	t.shard.mu.Unlock()
	t.settle()
}

// settle sees to a tenure that may have no share.
func (t *tenure) settle() {
	t.shard.mu.Lock()
	ends := t.settleLocked(time.Now())
	t.shard.mu.Unlock()
	if ends {
		t.giveBack(false)
	}
}

// overLocked has no lease begin any more.
func (t *tenure) overLocked() {
	t.over = true
	t.leavesLocked()
	t.closeLocked()
}

// leavesLocked has attempts of the client wait until giveBack has submitted the release of what was kept.
func (t *tenure) leavesLocked() {
	if !t.kept || t.left != nil {
		return
	}
	t.left = make(chan struct{})
	s := t.shard.site(t.name)
	s.leaving = append(s.leaving, t)
}

// leftNow is told that it has.
func (t *tenure) leftNow() {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	if t.left == nil {
		return
	}
	close(t.left)
	t.usedLocked()
	s := t.shard.m[t.name]
	i := slices.Index(s.leaving, t)
	s.leaving = slices.Delete(s.leaving, i, i+1)
	t.shard.forget(t.name, s)
}

// giveBack ends a tenure that has no share.
func (t *tenure) giveBack(late bool) {
	if owed, _ := t.lease.end(ErrReleased); owed.release != nil {
		owed.release.release(late).Free()
	}
	t.leftNow()
}
