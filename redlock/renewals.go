package redlock

import (
	"cmp"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
)

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
