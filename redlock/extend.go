package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// extend renews one lease for its holder and waits for the decision.
func (k *keeper) extend(ctx context.Context, l *lease, ttl time.Duration) error {
	now := time.Now()
	if l.clamp(now.Add(clock.Validity(ttl, k.c.cfg.Drift))) {
		return nil
	}
	once, err := retry{began: now}, k.confirm(ctx, l, ttl, now)
	for err != nil && k.c.comesBack(ctx, l.hold.wire.Slot(), err, &once) {
		err = k.confirm(ctx, l, ttl, time.Now())
	}
	return err
}

// confirm asks all members to keep one lease, and waits for the decision.
func (k *keeper) confirm(ctx context.Context, l *lease, ttl time.Duration, now time.Time) error {
	l.hold.asks(ttl)
	n := &renewal{items: []renewItem{l.toRenew(ttl)}, manual: true, ctx: ctx}
	r := k.renew(n, now)
	defer r.Free()
	v, cause := r.Wait(ctx, now, k.c.cfg.MemberTimeout)
	n.settle()
	if l.err() != nil {
		return l.notHeld(opExtend)
	}
	if v == quorum.Won {
		return nil
	}
	e := &QuorumError{Failure: quorum.Failure{Op: opExtend, Key: l.key, Need: k.c.need, Votes: r.Votes(k.c.members)}, kind: ErrNoQuorum, cause: cause}
	k.c.waited(&e.Failure, v, cause)
	return e
}

// extendAll renews several leases for their holder, each for its own TTL, and waits until all are
// decided, until every member has been heard, or until ctx or MemberTimeout ends. Leases that may
// travel together share a call. It returns those that were not renewed, with what the members said
// of each.
func (k *keeper) extendAll(ctx context.Context, items []renewItem) (failed []*QuorumError) {
	now := time.Now()
	for i := range items {
		items[i].l.hold.asks(items[i].TTL())
	}
	slices.SortStableFunc(items, k.apart)
	var calls []*extension
	for rest := items; len(rest) > 0; {
		size := k.together(rest[:callSize(rest)])
		e := &extension{renewal: renewal{items: rest[:size:size], manual: true, ctx: ctx}, all: make(chan struct{}, 1)}
		k.start(&e.renewal, e, now).Free()
		calls = append(calls, e)
		rest = rest[size:]
	}
	timeout := time.NewTimer(k.c.cfg.MemberTimeout)
	defer timeout.Stop()
	var cause error
	for _, e := range calls {
		if cause == nil {
			select {
			case <-e.all:
			case <-timeout.C:
				cause = context.DeadlineExceeded
			case <-ctx.Done():
				cause = ctx.Err()
			}
		}
		failed = append(failed, e.undecided()...)
	}
	if ctx.Err() != nil {
		for _, e := range failed {
			e.cause = ctx.Err()
		}
	}
	return failed
}

// extension is a renewal whose caller waits for all of its leases.
type extension struct {
	renewal
	all  chan struct{} // capacity 1: all leases are decided, or all members have been heard
	ears memberset.Set // the members that have been; guarded by the renewal's mutex
}

// Judge implements quorum.Judge.
func (e *extension) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	v := e.renewal.Judge(r, c)
	e.mu.Lock()
	e.ears = e.ears.With(c.Index)
	open := slices.ContainsFunc(e.items, func(it renewItem) bool { return !it.Done })
	complete := !open || e.ears.Len() == len(e.k.c.members)
	e.mu.Unlock()
	if complete {
		signal(e.all)
	}
	return v
}

// undecided returns an error for each lease that a majority has neither renewed nor refused.
func (n *renewal) undecided() (all []*QuorumError) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range n.items {
		it := &n.items[i]
		if it.Verdict() != quorum.Undecided {
			continue
		}
		votes := make([]quorum.MemberVote, len(n.k.c.members))
		for m := range votes {
			votes[m] = quorum.MemberVote{Member: n.k.c.members[m].Name(), Vote: it.Vote(m)}
		}
		all = append(all, &QuorumError{
			Failure: quorum.Failure{Op: opExtend, Key: it.l.key, Need: n.k.c.need, Votes: votes}, kind: ErrNoQuorum,
		})
	}
	return all
}

// Extend asks the members to keep the lease for ttl from now, and moves ValidUntil. If ttl is less
// than what is left, it shortens only what this process relies on, never what the members keep. A
// lease with a fixed TTL has its new end then. The client goes on renewing an auto-renewed lease
// until its MaxHold, and no Extend moves the end beyond that. Readers of one
// client share what they hold (RWMutex.RLock): Extend extends it for all of them, and never
// shortens it.
//
// Errors:
//   - ErrNotHeld or a *LostError if the lease has ended.
//   - ErrNoQuorum if too few members confirmed it: the old validity stands.
//   - ErrInput.
func (l *Lease) Extend(ctx context.Context, ttl time.Duration) error {
	if ctx == nil {
		return badInput("extend", "nil context")
	}
	if l.none() {
		return noLease("extend")
	}
	if err := l.checkTTL(ttl); err != nil {
		return err
	}
	if l.spent.Load() {
		return l.givenUp("extend")
	}
	if l.Err() != nil {
		return l.notHeld("extend")
	}
	return l.bound().extend(ctx, l.lease, ttl)
}

// checkTTL explains why the lease cannot be extended by ttl.
func (l *lease) checkTTL(ttl time.Duration) error {
	if err := checkTTL(ttl, &l.c.cfg); err != nil {
		return badInput("extend "+printable.Quote(l.key), "TTL: %v", err)
	}
	return nil
}

// clamp shortens the local validity. It reports false if it is shorter already.
func (l *lease) clamp(until time.Time) bool {
	l.mu.Lock()
	shorter := l.term.Shorten(until)
	if shorter {
		if l.renew { // goes on being renewed: before the new end
			now := time.Now()
			l.renewAt = sooner(l.renewAt, now.Add(clock.Until(until, now)/3))
		} else {
			l.term.Bound(until)
			l.renewAt = time.Time{}
		}
	}
	l.mu.Unlock()
	if shorter {
		l.c.keeper.update(l)
	}
	return shorter
}

// renewing sends the renewals that are due. It is owned by the client as run is. It calls
// Tracer.RenewalStart: one that blocks ends leases, by their validity, and does not keep any alive.
func (k *keeper) renewing() {
	defer close(k.paused)
	var lacking []*lease // that may lack votes of the members in at
	var at memberset.Set
	for {
		select {
		case <-k.asked:
		case <-k.c.closed:
			return
		}
		k.mu.Lock()
		due, back := k.queue, k.back
		k.queue, k.back = nil, 0
		if back != 0 {
			lacking, at = lacking[:0], at|back
			for _, e := range k.leases {
				lacking = append(lacking, e.l)
			}
		}
		for _, l := range due {
			l.queued = false
		}
		k.mu.Unlock()
		if lacking = k.regain(lacking, at); len(lacking) == 0 {
			lacking, at = nil, 0
		}
		k.renewAll(due, time.Now())
	}
}

// regain asks some members for the votes that leases lack there, and returns the leases for which it will when others have
// been answered: a member's queue has room for a few thousand calls, and renewals need some of it.
func (k *keeper) regain(leases []*lease, back memberset.Set) (rest []*lease) {
	for n, l := range leases {
		if k.rejoins.Load() >= atOnce {
			return leases[n:]
		}
		ttl, now := l.regains(), time.Now()
		if ttl <= 0 {
			continue
		}
		to := memberset.Set(0)
		for i := range k.c.members {
			if back.Has(i) && k.c.briefOf(i, l.hold.wire.Slot()).Votes && l.hold.lacks(i, now) {
				to = to.With(i)
			}
		}
		if to != 0 {
			l.hold.regain(to, ttl, ttl)
		}
	}
	return nil
}

// regains is for how long the lease asks for votes that it lacks; 0: it does not.
func (l *lease) regains() time.Duration {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch limit := l.term.Limit(); {
	case !l.term.Held(now), l.renewAt.IsZero():
		return 0
	case !limit.IsZero():
		return min(l.ttl, clock.Until(limit, now))
	}
	return l.ttl
}

// renewAll renews those of some leases that are held, in calls for each script and, if a member is
// several servers, slot.
func (k *keeper) renewAll(due []*lease, now time.Time) {
	batch := make([]renewItem, 0, len(due))
	for _, l := range due {
		l.mu.Lock()
		ttl, held := l.ttl, l.term.Held(now)
		if limit := l.term.Limit(); !limit.IsZero() {
			ttl = min(ttl, clock.Until(limit, now))
		}
		l.mu.Unlock()
		if held && clock.Validity(ttl, k.c.cfg.Drift) > 0 {
			batch = append(batch, l.toRenew(ttl))
		}
	}
	slices.SortStableFunc(batch, k.apart)
	for len(batch) > 0 {
		n := k.together(batch[:callSize(batch)])
		k.renew(&renewal{items: batch[:n:n]}, now).Free()
		batch = batch[n:]
	}
}

// callSize is how many leases of the batch go into the next call: always one, then as many as the
// bounds allow.
func callSize(batch []renewItem) int {
	size := 0
	for n := range batch {
		if size += batch[n].l.hold.wire.RenewalBytes(); n > 0 && (n == perCall || size > bytesPerCall) {
			return n
		}
	}
	return len(batch)
}

// together is how many leases of the batch may travel in the call of the first.
func (k *keeper) together(batch []renewItem) int {
	for n := range batch {
		if k.apart(batch[0], batch[n]) != 0 {
			return n
		}
	}
	return len(batch)
}

// apart orders leases by the calls that can carry them: 0 means that one call can carry both. A
// call is that of one script. If a member is several servers, the keys of a call are in one slot.
func (k *keeper) apart(x, y renewItem) int {
	a, b := &x.l.hold.wire, &y.l.hold.wire
	if d := cmp.Compare(a.Extends().SHA, b.Extends().SHA); d != 0 {
		return d
	}
	if k.c.perSlot {
		return cmp.Compare(a.Bucket, b.Bucket)
	}
	return 0
}
