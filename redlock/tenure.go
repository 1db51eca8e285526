package redlock

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// tenure is a hold with leases of callers: shares. It has a lease of its own, which is renewed, belongs
// to no caller, and ends with the last share. The readers of one client have one together:
// docs/protocol.md, "One read hold for a client". So the members see as many readers as there are
// clients, and not callers. Callers of a mutex have one after the other: see passing.go.
type tenure struct {
	alone   // see bond
	noExtra // of the terms of its lease

	c     *Client
	kind  *kind
	name  string
	ttl   time.Duration // of all shares: leases with another TTL are renewed apart
	shard *siteShard

	// Guarded by the shard's mutex. The first two never change once the tenure is formed.
	lease    *lease        // nil: it is being formed
	in       memberset.Set // members whose votes counted for it
	site     *site         // where callers find it; nil: there are no more shares
	out      []*share
	waiting  []*place      // callers, while it is being formed
	over     bool          // that lease has ended, or is about to
	recalled *hold         // that another owner was last heard to wait behind
	seen     time.Time     // when the last question was sent to which a majority answered that nobody waits
	asked    time.Time     // when a question was sent to which idle answered so
	idle     memberset.Set // members
	limit    time.Time     // before which no share that the keeper does not have ends by its own limit; zero: none does
	asking   chan struct{} // closed when the answers to a question are there; nil: none is asked
	passing
	stays
}

// passing is what a tenure has besides that has one share at a time. The shard's mutex guards it.
type passing struct {
	rests time.Time     // until when it may be without a share, for want of answers to a reservation; zero: it has one
	timer *time.Timer   // looks at it then; nil: it has never rested
	wakes time.Time     // when that will be; zero: never
	rtt   time.Duration // as it was measured last
	few   int64         // tokens, with which more are asked for
	more  bool          // the last reservation has brought tokens
}

// stays is what a tenure has besides that stays without a share. The shard's mutex guards it.
type stays struct {
	end  time.Time     // when it is given up; zero: as soon as it has no share
	kept bool          // it has no share, and is counted
	left chan struct{} // closed when its release is submitted; nil: it is not being given up

	heard atomic.Bool // a recall would be, as was asked when it last came to be kept after a look at it: see hears
}

// share is the part of one caller in a tenure: its lease.
type share struct {
	lease
	of   *tenure
	at   int           // in of.out, -1: not there any more; guarded by the shard's mutex
	put  atomic.Bool   // the keeper has it
	stay time.Duration // what is shared is kept for so long if it is the last one that is unlocked
}

// tenure finds the one of a kind with a TTL that callers may join, nil if there is none. mu is held.
func (s *site) tenure(k *kind, ttl time.Duration) *tenure {
	if i := slices.IndexFunc(s.open, func(t *tenure) bool { return t.kind == k && t.ttl == ttl }); i >= 0 {
		return s.open[i]
	}
	return nil
}

// openLocked has callers find the tenure.
func (t *tenure) openLocked() {
	t.site = t.shard.site(t.name)
	t.site.open = append(t.site.open, t)
}

// closeLocked has no caller find it any more.
func (t *tenure) closeLocked() {
	s := t.site
	if s == nil {
		return
	}
	t.site = nil
	i := slices.Index(s.open, t)
	s.open = slices.Delete(s.open, i, i+1)
	s.advance()
	t.shard.forget(t.name, s)
}

// joinLocked makes a share. If the tenure is over, the share has ended with it.
func (t *tenure) joinLocked(ctx context.Context, terms *terms, now time.Time) *share {
	s := &share{of: t, at: -1, stay: terms.keep, lease: lease{
		c: t.c, hold: t.lease.hold, key: t.lease.key, token: t.lease.token, as: terms.as, granted: now,
		ctx: ctx, users: 1, plan: plan{ttl: t.ttl}, renew: true, inKeeper: inKeeper{pos: -1},
	}}
	s.own.lease, s.bond = &s.lease, s
	if terms.maxHold > 0 {
		limit := now.Add(terms.maxHold)
		s.term = t.lease.term.Part(limit)
		t.limitLocked(s)
	}
	t.usedLocked()
	if !t.over {
		s.at = len(t.out)
		t.out = append(t.out, s)
	}
	return s
}

// usedLocked books that the tenure has a share, or has ended.
func (t *tenure) usedLocked() {
	if t.kept {
		t.kept = false
		sitesOf.of(t.c).kept.Add(-1)
	}
}

// recallLocked books that another owner waits behind the hold.
func (t *tenure) recallLocked(h *hold) {
	if sh := t.shard; t.kept && t.site != nil { // once, and not behind what the client itself has given up
		if sh.recalled == nil {
			sh.recalled = make(map[*kind]int)
		}
		sh.recalled[t.kind]++
	}
	if t.recalled = h; t.lease != nil {
		t.closeLocked()
	}
}

func (t *tenure) limitLocked(s *share) {
	if t.limit.IsZero() || clock.Until(s.term.Limit(), t.limit) < 0 {
		t.limit = s.term.Limit()
	}
}

// isKept reports whether the tenure is kept without a share.
func (t *tenure) isKept() bool {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	return t.kept
}

// doneLocked stops what would look at it later.
func (t *tenure) doneLocked() {
	if t.timer != nil {
		t.timer.Stop()
	}
}

// ended implements bond: the lease of the tenure has ended, and all shares end.
func (t *tenure) ended(l *lease, err error, over core.Ended) debt {
	l.hold.leaves(over)
	t.shard.mu.Lock()
	t.over = true
	t.closeLocked()
	out := t.out
	t.out = nil
	for _, s := range out {
		s.at = -1
	}
	if t.left == nil {
		t.usedLocked()
	}
	t.doneLocked()
	t.shard.mu.Unlock()
	owed := debt{release: l.hold}
	for _, s := range out {
		why := s.because(err)
		s.end(why)
		owed.losses++
		owed.lost, _ = why.(*LostError)
	}
	return owed
}

// because is why the share has ended, where its tenure has for that reason: what was lost has its own token.
func (s *share) because(err error) error {
	lost, ok := err.(*LostError)
	if !ok || lost.Token == s.token {
		return err
	}
	own := *lost
	own.Token = s.token
	return &own
}

// held implements bond: it counts the shares.
func (t *tenure) held(*lease) (n int, oldest time.Time) {
	t.shard.mu.Lock()
	defer t.shard.mu.Unlock()
	for _, s := range t.out {
		if oldest.IsZero() || s.granted.Before(oldest) {
			oldest = s.granted
		}
	}
	return len(t.out), oldest
}
