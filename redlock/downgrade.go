package redlock

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// opDowngrade is the question of a downgrade, as the tracer names it.
const opDowngrade = "downgrade"

// Downgrade makes a lease of RWMutex.Lock one of a reader, and returns that. Nobody writes in
// between: the lock is held throughout, with the same token and the same validity. The write lease
// ends first, with ErrDowngraded, so whatever depends on its context stops before the first reader
// can come in. Readers that wait come in at once, writers after the last reader.
//
// Downgrade returns when a majority of the members have answered, when ctx ends, or after
// Config.MemberTimeout. It does not fail for that: at a member that it did not reach, the vote is a
// writer's still, which keeps readers out there. The client repeats it with each renewal.
//
// Errors:
//   - ErrNotHeld or a *LostError if the lease has ended.
//   - ErrInput if the lease is not one of RWMutex.Lock, or has been entered again (As).
//   - ErrClosed.
func (l *Lease) Downgrade(ctx context.Context) (*Lease, error) {
	if ctx == nil {
		return nil, badInput(opDowngrade, "nil context")
	}
	if l.none() {
		return nil, noLease(opDowngrade)
	}
	if l.spent.Load() {
		return nil, l.givenUp(opDowngrade)
	}
	to := l.hold.terms.kind.weaker
	if to == nil {
		return nil, badInput(opDowngrade, "only a lease of RWMutex.Lock can be downgraded, not one of kind %q", l.hold.terms.kind.name)
	}
	if !l.c.inflight.enter() {
		return nil, &keyError{op: opDowngrade, key: l.key, err: ErrClosed}
	}
	down, r, err := l.downgrade(to)
	if err != nil {
		l.c.inflight.leave()
		return nil, err
	}
	defer r.Free()
	if !l.c.keeper.add(down) {
		return nil, &keyError{op: opDowngrade, key: l.key, err: ErrClosed}
	}
	ownersOf.of(l.c).put(down)
	_, _ = r.Wait(ctx, r.Sent, l.c.cfg.MemberTimeout)
	return &down.own, nil
}

// downgrade turns the lease, and tells the members.
func (l *lease) downgrade(to *kind) (*lease, *quorum.Round, error) {
	down, err := l.turn(to)
	if err != nil {
		return nil, nil, err
	}
	h := down.hold
	h.mu.Lock()
	members := h.b.Owed()
	h.mu.Unlock()
	return down, h.submitDowngrade(members, h.terms.ttl, false), nil
}

// turn ends the lease, and returns one of another kind that goes on with its votes.
func (l *lease) turn(to *kind) (*lease, error) {
	_ = l.err() // ends it if its validity is over
	l.mu.Lock()
	switch {
	case l.term.Err() != nil:
		l.mu.Unlock()
		return nil, l.notHeld(opDowngrade)
	case l.users > 1:
		l.mu.Unlock()
		return nil, badInput(opDowngrade, "the owner (As) has entered the lease again: unlock that first")
	}
	term, over := l.term.Succeed(ErrDowngraded, time.Now())
	plan, values := l.plan, l.values()
	l.endedLocked(over)
	h := l.hold.succeed(to)
	down := newLease(values, h, term, false, l.granted)
	down.as, down.term, down.plan = l.as, term, plan
	return down, nil
}

// succeed leaves everything to another hold of the same owner, also what a call leaves that is still on its way to a member:
// see overtaken.
func (h *hold) succeed(to *kind) *hold {
	heir := &hold{c: h.c, wire: to.of(h.name(), &h.c.cfg, &h.terms), terms: h.terms, owner: h.owner, n: h.n, former: h.former}
	heir.terms.kind = to
	h.mu.Lock()
	h.ended.Store(true)
	heir.traced, heir.longest, heir.b = h.traced, h.longest, h.b.Successor(heir.ballotTerms())
	h.heir, heir.from = heir, h
	h.mu.Unlock()
	if h.n != 0 {
		h.c.holds.shard(h.n).put(h.n, heir)
	}
	h.leave()
	return heir
}

// downgradeAt repeats the downgrade at a member that says that it has not come there.
func (h *hold) downgradeAt(i int) {
	if h.ended.Load() {
		return
	}
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	h.submitDowngrade(memberset.Set(0).With(i), h.terms.ttl, true).Free()
	h.overtaken(i)
}

func (h *hold) submitDowngrade(to memberset.Set, ttl time.Duration, late bool) *quorum.Round {
	r := h.c.round()
	r.Question = quorum.Question{
		Op: opDowngrade, Sent: time.Now(), TTL: ttl, To: to, Need: h.b.Need(), Judge: downgraded{h},
		Command: h.wire.Downgrade(&r.Buf, h.owner, ttl), Delivery: member.Delivery{Late: late, Ended: &h.ended},
	}
	return r.Start()
}

// downgraded hears the answers to a downgrade.
type downgraded struct{ h *hold }

// Judge implements quorum.Judge. The answer names the writer that comes next.
func (d downgraded) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	h := d.h
	var ans wait.Answer
	h.decode(&ans, r, c)
	if ans.Next != "" {
		h.mu.Lock()
		h.b.Announced(c.Index, ans.Next, ans.At)
		h.mu.Unlock()
	}
	h.c.requested(h.traced.of(r.Op), h.lock(), r, c)
	return wait.VoteOf(ans.Outcome, ans.N > 0)
}
