package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// What readers do with the tenure of their client: who joins it, and who forms it. A lease with a fixed
// TTL is not renewed, so it is not shared.

// share gets a read lock: a part in the hold that there is, or in one that the caller, or another
// before it, forms.
func (c *Client) share(ctx, in context.Context, w *want) (*Lease, result, error) {
	if !w.terms.renew {
		return c.byAttempts(ctx, in, w)
	}
	kind, ttl, sh := w.terms.kind, w.terms.ttl, sitesOf.of(c).shard(w.name)
	for asked := false; ; asked = true {
		now := time.Now()
		sh.mu.Lock()
		var t *tenure
		if s := sh.m[w.name]; s != nil {
			t = s.tenure(kind, ttl)
		}
		switch {
		case t != nil && t.lease != nil && clock.Elapsed(t.seen, now) < c.cfg.Entry/3 && (asked || !t.kept || t.lasts(now)):
			s := t.joinLocked(ctx, w.terms, now)
			sh.mu.Unlock()
			if l, ok := s.begin(now); ok {
				return l, result{Grant: wait.Grant{In: t.in}}, nil
			}
		case t != nil && t.lease != nil:
			if err := t.askLocked(ctx, w, now); err != nil {
				return nil, result{}, err
			}
		case w.try: // there is none, or it may take long: it is not waited for
			sh.mu.Unlock()
			return c.form(ctx, in, w, &tenure{c: c, kind: kind, name: w.name, ttl: ttl, shard: sh})
		case t != nil:
			return t.waitLocked(ctx, in, w)
		default:
			t = &tenure{c: c, kind: kind, name: w.name, ttl: ttl, shard: sh}
			t.openLocked()
			sh.mu.Unlock()
			return c.form(ctx, in, w, t)
		}
	}
}

// form gets what is to be shared, by attempts of the caller's own.
func (c *Client) form(ctx, in context.Context, w *want, h *tenure) (*Lease, result, error) {
	t, began := *w.terms, time.Now()
	t.as, t.maxHold, t.extra = "", -1, h
	err := ctx.Err()
	var l *Lease
	var res result
	if err == nil {
		l, res, err = c.byAttempts(ctx, in, &want{op: w.op, name: w.name, terms: &t, try: w.try})
	} else {
		err = waitsForReader(w, err)
	}
	if err != nil {
		h.failed()
		return nil, res, err
	}
	now := time.Now()
	l, err = h.formed(ctx, w, l.lease, res, began, now).get(w, now)
	return l, res, err
}

// formed books the lease of the tenure, and gives a share to the caller and to all that wait for it.
func (t *tenure) formed(ctx context.Context, w *want, l *lease, res result, began, now time.Time) *share {
	l.mu.Lock()
	l.bond, l.ctx = t, context.Background()
	lost := l.term.Err()
	l.mu.Unlock()
	sh := t.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	t.lease, t.in = l, res.In
	t.over = t.over || lost != nil // perhaps before it was known to be shared
	if !res.waited {               // nobody waits where a vote was given at once
		t.seen = began
	}
	s := t.joinLocked(ctx, w.terms, now)
	for _, p := range t.waiting {
		p.share = t.joinLocked(p.ctx, p.terms, now)
		close(p.turn)
	}
	t.waiting = nil
	switch {
	case t.over || t.recalled == l.hold:
		t.closeLocked()
	case t.site == nil && sh.site(t.name).tenure(t.kind, t.ttl) == nil: // what TryRLock got
		t.openLocked()
	}
	return s
}

// failed leaves the forming of the tenure to the next caller that waits for it.
func (t *tenure) failed() {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	if len(t.waiting) == 0 {
		t.closeLocked()
		return
	}
	next := t.waiting[0]
	t.waiting = slices.Delete(t.waiting, 0, 1)
	close(next.turn)
}

// waitLocked waits until the tenure is formed, unlocks the shard meanwhile, and does not lock it again.
func (t *tenure) waitLocked(ctx, in context.Context, w *want) (*Lease, result, error) {
	p := &place{terms: w.terms, ctx: ctx, turn: make(chan struct{})}
	t.waiting = append(t.waiting, p)
	t.shard.mu.Unlock()
	err := p.wait(ctx, t.c.closed)
	t.shard.mu.Lock()
	i := slices.Index(t.waiting, p)
	if i >= 0 {
		t.waiting = slices.Delete(t.waiting, i, i+1)
	}
	t.shard.mu.Unlock()
	switch {
	case p.share != nil: // also if ctx has ended since
		l, err := p.share.get(w, time.Now())
		return l, result{Grant: wait.Grant{In: t.in}, waited: true}, err
	case i < 0:
		return t.c.form(ctx, in, w, t)
	case errors.Is(err, ErrClosed):
		return nil, result{waited: true}, &keyError{op: w.op, key: w.name, err: ErrClosed}
	}
	return nil, result{waited: true}, waitsForReader(w, err)
}

func waitsForReader(w *want, cause error) error {
	return &keyError{op: w.op + ": behind a reader of this process:", key: w.name, err: ErrHeld, cause: cause}
}

// askLocked asks the members whether a writer waits, and unlocks the shard. Those that want to know
// it at the same time wait for the same answers. If no majority says in time that nobody waits, there
// are no more shares.
func (t *tenure) askLocked(ctx context.Context, w *want, now time.Time) error {
	if answered := t.asking; answered != nil {
		t.shard.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return waitsForReader(w, ctx.Err())
		case <-t.c.closed:
			return &keyError{op: w.op, key: w.name, err: ErrClosed}
		}
		return nil
	}
	answered, seen := make(chan struct{}), t.seen
	t.asking = answered
	t.shard.mu.Unlock()
	_ = t.c.keeper.confirm(ctx, t.lease, t.ttl, now) // the answers come to readWord
	err := ctx.Err()
	t.shard.mu.Lock()
	ends := false
	if t.asking = nil; t.seen.Equal(seen) && err == nil {
		t.closeLocked()
		ends = t.settleLocked(time.Now())
	}
	t.shard.mu.Unlock()
	if ends {
		t.giveBack(false)
	}
	close(answered)
	if err != nil {
		return waitsForReader(w, err)
	}
	return nil
}

// Each of these is a sign that a writer waits: there are no more shares. Those that there are go on, and what is kept ends.

// readBehind is told of a writer by a push, or by the answer that grants a vote.
func readBehind(h *hold) {
	if t, shared := h.terms.extra.(*tenure); shared {
		t.recall(h)
	}
}

// readWord is told what a member says in a renewal.
func readWord(h *hold, member int, word int64, sent time.Time) {
	if word == script.NotDowngraded {
		h.downgradeAt(member)
		return
	}
	t, shared := h.terms.extra.(*tenure)
	if !shared {
		return
	}
	if word == script.Closed {
		t.recall(h)
		return
	}
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	switch since := clock.Until(sent, t.asked); {
	case t.asked.IsZero() || since > 0:
		t.asked, t.idle = sent, 0
	case since < 0:
		return // of an earlier question
	}
	if t.idle = t.idle.With(member); t.idle.Len() >= t.c.need && clock.Until(sent, t.seen) > 0 {
		t.seen = sent
	}
}
