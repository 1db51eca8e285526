package redlock

import (
	"context"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// The readers of one client share one hold: docs/protocol.md, "One read hold for a client". So the
// members see as many readers as there are clients, and not callers.

var readsOf = keep[reads]()

// reads finds the hold that the next reader of a name shares. It is sharded, because every reader
// passes here.
type reads struct {
	once   sync.Once
	seed   maphash.Seed
	shards [32]readShard
}

// readShard guards its map, and what it says of every hold in it.
type readShard struct {
	mu sync.Mutex
	m  map[readName]*readHold
}

// readName is what a hold is shared by: leases with another TTL are renewed apart.
type readName struct {
	name string
	ttl  time.Duration
}

// readHold is a hold that readers share. Its lease is renewed, belongs to no caller, and ends with
// the last share.
type readHold struct {
	alone   // see bond
	noExtra // of the terms of its lease

	c     *Client
	at    readName
	shard *readShard

	// Guarded by the shard's mutex. The first two never change once the hold is formed.
	lease   *lease        // nil: it is being formed
	in      memberset.Set // members whose votes counted for it
	shares  []*share
	waiting []*reader     // callers, while it is being formed
	over    bool          // that lease has ended, or is about to: there are no more shares
	warned  *hold         // that a writer was last heard to wait behind
	seen    time.Time     // when the last question was sent to which a majority answered that nobody waits
	asked   time.Time     // when a question was sent to which idle answered so
	idle    memberset.Set // members
	limit   time.Time     // before which no share that the keeper does not have ends by its own limit; zero: none does
	asking  chan struct{} // closed when the answers to a question are there; nil: none is asked
}

// share is the part of one user in a hold.
type share struct {
	lease
	of  *readHold
	at  int         // in of.shares, -1: not there any more; guarded by the shard's mutex
	put atomic.Bool // the keeper has it
}

// reader is a caller that waits until a hold is formed.
type reader struct {
	w     want
	ctx   context.Context
	ready chan struct{} // closed with either of these set
	share *share        // it has its part
	next  bool          // it is its turn to form the hold
}

func (r *reads) shard(name string) *readShard {
	r.once.Do(func() { r.seed = maphash.MakeSeed() })
	return &r.shards[maphash.String(r.seed, name)%uint64(len(r.shards))]
}

// share gets a read lock: a part in the hold that there is, or in one that the caller, or another
// before it, forms. A lease with a fixed TTL is not renewed, so it is not shared.
func (c *Client) share(ctx, in context.Context, w want) (*Lease, result, error) {
	if !w.terms.renew {
		return c.byAttempts(ctx, in, w)
	}
	at, sh := readName{w.name, w.terms.ttl}, readsOf.of(c).shard(w.name)
	for {
		now := time.Now()
		sh.mu.Lock()
		h := sh.m[at]
		switch {
		case h != nil && h.lease != nil && clock.Elapsed(h.seen, now) < c.cfg.Entry/3:
			s := h.joinLocked(ctx, &w, now)
			sh.mu.Unlock()
			if l, ok := s.begin(now); ok {
				return l, result{Grant: wait.Grant{In: h.in}}, nil
			}
		case h != nil && h.lease != nil:
			if err := h.askLocked(ctx, &w, now); err != nil {
				return nil, result{}, err
			}
		case w.try: // there is none, or it may take long: it is not waited for
			sh.mu.Unlock()
			return c.form(ctx, in, &w, &readHold{c: c, at: at, shard: sh})
		case h != nil:
			return h.waitLocked(ctx, in, &w)
		default:
			h = &readHold{c: c, at: at, shard: sh}
			sh.putLocked(h)
			sh.mu.Unlock()
			return c.form(ctx, in, &w, h)
		}
	}
}

// form gets what is to be shared, by attempts of the caller's own.
func (c *Client) form(ctx, in context.Context, w *want, h *readHold) (*Lease, result, error) {
	t, began := *w.terms, time.Now()
	t.as, t.maxHold, t.extra = "", -1, h
	err := ctx.Err()
	var l *Lease
	var res result
	if err == nil {
		l, res, err = c.byAttempts(ctx, in, want{op: w.op, name: w.name, terms: &t, try: w.try})
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

// formed books the lease of the hold, and gives a share to the caller and to all that wait for it.
func (h *readHold) formed(ctx context.Context, w *want, l *lease, res result, began, now time.Time) *share {
	l.mu.Lock()
	l.bond, l.ctx = h, context.Background()
	lost := l.term.Err()
	l.mu.Unlock()
	sh := h.shard
	sh.mu.Lock()
	defer sh.mu.Unlock()
	h.lease, h.in = l, res.In
	h.over = h.over || lost != nil // perhaps before it was known to be shared
	if !res.waited {               // nobody waits where a vote was given at once
		h.seen = began
	}
	s := h.joinLocked(ctx, w, now)
	for _, r := range h.waiting {
		r.share = h.joinLocked(r.ctx, &r.w, now)
		close(r.ready)
	}
	h.waiting = nil
	switch {
	case h.over || h.warned == l.hold:
		sh.removeLocked(h)
	case sh.m[h.at] == nil: // what TryRLock got
		sh.putLocked(h)
	}
	return s
}

// failed leaves the forming of the hold to the next caller that waits for it.
func (h *readHold) failed() {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	if len(h.waiting) == 0 {
		h.shard.removeLocked(h)
		return
	}
	next := h.waiting[0]
	h.waiting = slices.Delete(h.waiting, 0, 1)
	next.next = true
	close(next.ready)
}

// waitLocked waits until the hold is formed, unlocks the shard meanwhile, and does not lock it again.
func (h *readHold) waitLocked(ctx, in context.Context, w *want) (*Lease, result, error) {
	r := &reader{w: *w, ctx: ctx, ready: make(chan struct{})}
	h.waiting = append(h.waiting, r)
	h.shard.mu.Unlock()
	var err error
	select {
	case <-r.ready:
	case <-ctx.Done():
		err = waitsForReader(w, ctx.Err())
	case <-h.c.closed:
		err = &keyError{op: w.op, key: w.name, err: ErrClosed}
	}
	h.shard.mu.Lock()
	if i := slices.Index(h.waiting, r); i >= 0 {
		h.waiting = slices.Delete(h.waiting, i, i+1)
	}
	h.shard.mu.Unlock()
	switch {
	case r.share != nil: // also if ctx has ended since
		l, err := r.share.get(w, time.Now())
		return l, result{Grant: wait.Grant{In: h.in}, waited: true}, err
	case r.next:
		return h.c.form(ctx, in, w, h)
	}
	return nil, result{waited: true}, err
}

func waitsForReader(w *want, cause error) error {
	return &keyError{op: w.op + ": behind a reader of this process:", key: w.name, err: ErrHeld, cause: cause}
}

// askLocked asks the members whether a writer waits, and unlocks the shard. Those that want to know
// it at the same time wait for the same answers. If no majority says in time that nobody waits, the
// hold takes no more shares.
func (h *readHold) askLocked(ctx context.Context, w *want, now time.Time) error {
	if answered := h.asking; answered != nil {
		h.shard.mu.Unlock()
		select {
		case <-answered:
		case <-ctx.Done():
			return waitsForReader(w, ctx.Err())
		case <-h.c.closed:
			return &keyError{op: w.op, key: w.name, err: ErrClosed}
		}
		return nil
	}
	answered, seen := make(chan struct{}), h.seen
	h.asking = answered
	h.shard.mu.Unlock()
	_ = h.c.keeper.confirm(ctx, h.lease, h.at.ttl, now) // the answers come to readWord
	h.shard.mu.Lock()
	if h.asking = nil; h.seen.Equal(seen) && ctx.Err() == nil {
		h.shard.removeLocked(h)
	}
	h.shard.mu.Unlock()
	close(answered)
	if ctx.Err() != nil {
		return waitsForReader(w, ctx.Err())
	}
	return nil
}

// joinLocked makes a share. If the hold is over, the share has ended with it.
func (h *readHold) joinLocked(ctx context.Context, w *want, now time.Time) *share {
	s := &share{of: h, at: -1, lease: lease{
		c: h.c, hold: h.lease.hold, key: h.lease.key, token: h.lease.token, as: w.terms.as, granted: now,
		ctx: ctx, users: 1, plan: plan{ttl: h.at.ttl}, renew: true, inKeeper: inKeeper{pos: -1},
	}}
	s.own.lease, s.bond = &s.lease, s
	if w.terms.maxHold > 0 {
		limit := now.Add(w.terms.maxHold)
		s.term = h.lease.term.Part(limit)
		h.limitLocked(s)
	}
	if !h.over {
		s.at = len(h.shares)
		h.shares = append(h.shares, s)
	}
	return s
}

// begin gives the share to its user, or the lease that its owner (As) has got meanwhile. It reports
// false if the share has ended.
func (s *share) begin(now time.Time) (*Lease, bool) {
	l := &s.lease
	if !l.alive(now) && l.err() != nil || s.limited() && !s.keep() {
		return &l.own, false
	}
	first := l.c.owners.enter(l)
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
func (h *readHold) renewed(until time.Time) {
	h.shard.mu.Lock()
	if h.limit.IsZero() || clock.Until(h.limit, until) > 0 {
		h.shard.mu.Unlock()
		return
	}
	h.limit = time.Time{}
	var due []*share
	for _, s := range h.shares {
		switch {
		case s.term.Limit().IsZero() || s.put.Load():
		case clock.Until(s.term.Limit(), until) <= 0:
			due = append(due, s)
		default:
			h.limitLocked(s)
		}
	}
	h.shard.mu.Unlock()
	for _, s := range due {
		s.keep()
	}
}

func (h *readHold) limitLocked(s *share) {
	if h.limit.IsZero() || clock.Until(s.term.Limit(), h.limit) < 0 {
		h.limit = s.term.Limit()
	}
}

// extend implements bond: it lengthens what all share.
func (s *share) extend(ctx context.Context, _ *lease, ttl time.Duration) error {
	now, all := time.Now(), s.of.lease
	if clock.Until(all.validity(), now.Add(clock.Validity(ttl, s.c.cfg.Drift))) >= 0 {
		return nil
	}
	err := s.c.keeper.confirm(ctx, all, ttl, now)
	if s.err() != nil {
		return s.notHeld(opExtend)
	}
	return err
}

// ended implements bond. The last share ends the lease of the hold.
func (s *share) ended(*lease, error, core.Ended) debt {
	h := s.of
	h.shard.mu.Lock()
	if s.at < 0 { // the hold has ended, and sees to it
		h.shard.mu.Unlock()
		return debt{}
	}
	end := len(h.shares) - 1
	h.shares[s.at] = h.shares[end]
	h.shares[s.at].at = s.at
	h.shares[end] = nil
	h.shares = h.shares[:end]
	s.at = -1
	last := end == 0
	if last {
		h.over = true
		h.shard.removeLocked(h)
	}
	h.shard.mu.Unlock()
	if !last {
		return debt{nil, 1}
	}
	owed, _ := h.lease.end(ErrReleased)
	return debt{owed.release, 1}
}

// ended implements bond: the lease of the hold has ended, and all shares end.
func (h *readHold) ended(l *lease, err error, over core.Ended) debt {
	l.hold.leaves(over)
	h.shard.mu.Lock()
	h.over = true
	h.shard.removeLocked(h)
	shares := h.shares
	h.shares = nil
	for _, s := range shares {
		s.at = -1
	}
	h.shard.mu.Unlock()
	for _, s := range shares {
		s.end(err)
	}
	return debt{l.hold, len(shares)}
}

// expire implements bond: the lease of the hold has ended, or the time of the share is over.
func (s *share) expire(l *lease) {
	err := s.of.lease.err()
	if err == nil {
		alone{}.expire(l)
		return
	}
	owed, _ := s.end(err)
	var lost *LostError
	if errors.As(err, &lost) {
		s.c.notifier.tell(slices.Repeat([]*LostError{lost}, owed.losses)...)
	}
}

// Each of these is a sign that a writer waits: the hold takes no more shares. Those that it has go
// on.

// readBehind is told of a writer by a push, or by the answer that grants a vote.
func readBehind(h *hold) {
	all, shared := h.terms.extra.(*readHold)
	if !shared {
		return
	}
	all.shard.mu.Lock()
	defer all.shard.mu.Unlock()
	if all.warned = h; all.lease != nil {
		all.shard.removeLocked(all)
	}
}

// readWord is told what a member says in a renewal.
func readWord(h *hold, member int, word int64, sent time.Time) {
	if word == script.NotDowngraded {
		h.downgradeAt(member)
		return
	}
	all, shared := h.terms.extra.(*readHold)
	if !shared {
		return
	}
	all.shard.mu.Lock()
	defer all.shard.mu.Unlock()
	if word == script.Closed {
		if all.warned = h; all.lease != nil {
			all.shard.removeLocked(all)
		}
		return
	}
	switch since := clock.Until(sent, all.asked); {
	case all.asked.IsZero() || since > 0:
		all.asked, all.idle = sent, 0
	case since < 0:
		return // of an earlier question
	}
	if all.idle = all.idle.With(member); all.idle.Len() >= all.c.need && clock.Until(sent, all.seen) > 0 {
		all.seen = sent
	}
}

func (sh *readShard) putLocked(h *readHold) {
	if sh.m == nil {
		sh.m = make(map[readName]*readHold)
	}
	sh.m[h.at] = h
}

func (sh *readShard) removeLocked(h *readHold) {
	if sh.m[h.at] == h {
		delete(sh.m, h.at)
	}
}

// forget implements bond.
func (s *share) forget(l *lease) {
	if s.put.Load() {
		s.c.keeper.remove(l)
	}
	s.c.owners.remove(l)
}

// renewed implements bond: the term of a share is never renewed.
func (s *share) renewed(time.Time) {}

// apart implements bond.
func (s *share) apart() error {
	return badInput("handoff", "readers of this client share what they hold: ask for a fixed TTL to hand a read lease off")
}

// held implements bond: those of what all share are counted.
func (s *share) held(*lease) (int, time.Time) { return 0, time.Time{} }

// held implements bond: it counts the shares.
func (h *readHold) held(*lease) (n int, oldest time.Time) {
	h.shard.mu.Lock()
	defer h.shard.mu.Unlock()
	for _, s := range h.shares {
		if oldest.IsZero() || s.granted.Before(oldest) {
			oldest = s.granted
		}
	}
	return len(h.shares), oldest
}
