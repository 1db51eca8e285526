package redlock

import (
	"context"
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
// soon, and nobody is known to wait at the members, what is held is to be passed on, and won returns
// the tenure that is to be formed.
func (c *Client) won(w *want, h *hold) (t *tenure) {
	if w.turn != hasTurn || !w.passes(&c.cfg) {
		return nil
	}
	w.turn = leftLine
	sh := sitesOf.of(c).shard(w.name)
	sh.mu.Lock()
	defer sh.mu.Unlock()
	s := sh.m[w.name]
	if s.wanted(w.terms) && !h.waitedFor() {
		t = &tenure{c: c, kind: w.terms.kind, name: w.name, ttl: w.terms.ttl, shard: sh}
		t.openLocked()
	}
	s.busy--
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

// asksLocked reports whether a reservation is to be sent, which is booked then: somebody stands in line,
// and there are few tokens, or it is long since members said that nobody waits. One that has brought
// nothing is not repeated for as long.
func (t *tenure) asksLocked(now time.Time) bool {
	if t.site == nil || t.lease == nil || len(t.site.places) == 0 {
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
// until the answers to a reservation are there, or ends: then its lease is to be ended.
func (t *tenure) settleLocked(now time.Time) (ends bool) {
	if t.over || t.lease == nil || len(t.out) > 0 {
		return false
	}
	next := t.nextLocked(now)
	if next != nil {
		left, asking := t.lease.hold.tokensLeft(now)
		if left > 0 && clock.Elapsed(t.seen, now) < t.c.cfg.Entry/3 {
			t.passLocked(next, now)
			return false
		}
		if t.rests.IsZero() {
			t.rests = now.Add(max(4*t.rtt, leastRest))
		}
		if rest := clock.Until(t.rests, now); asking && rest > 0 {
			t.restLocked(rest)
			return false
		}
		if !t.more {
			t.site.shut = now
		}
	}
	t.overLocked()
	return true
}

// nextLocked is the first in line to whom the tenure may be passed, nil if there is none.
func (t *tenure) nextLocked(now time.Time) *place {
	if t.site == nil || t.site.busy > 0 || t.c.isClosed() || !t.lease.lasts(min(t.ttl, t.c.cfg.Entry)/2, now) {
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

// lasts reports whether the lease is held, and valid for so long.
func (l *lease) lasts(d time.Duration, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.Held(now) && clock.Until(l.term.Until(), now) >= d
}

// passLocked gives the next lease to a caller in line.
func (t *tenure) passLocked(p *place, now time.Time) {
	token, _ := t.lease.hold.nextToken()
	s := t.joinLocked(p.ctx, p.terms, now)
	s.token = uint64(token)
	p.share, t.rests = s, time.Time{}
	t.site.leaves(p)
	t.site.advance() // who is next may want it in another way
	close(p.turn)
}

// restLocked has somebody look at the tenure after a time.
func (t *tenure) restLocked(d time.Duration) {
	if t.timer == nil {
		t.timer = time.AfterFunc(d, t.wake)
	} else {
		t.timer.Reset(d)
	}
}

// wake looks what becomes of a tenure that has rested.
func (t *tenure) wake() {
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
	t.closeLocked()
}

// giveBack ends a tenure that has no share.
func (t *tenure) giveBack(late bool) {
	if owed, _ := t.lease.end(ErrReleased); owed.release != nil {
		owed.release.release(late).Free()
	}
}
