package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
)

// lapsed says why the validity is over.
func (l *lease) lapsed() LostReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit := l.term.Limit(); l.renew && !limit.IsZero() && clock.Until(limit, l.term.Until()) <= clock.Drift(l.ttl, l.c.cfg.Drift) {
		return LostMaxHold
	}
	return LostExpired
}

// lose ends a lease that its holder did not end: its holder is told first, then the members, then
// the Logger and the Tracer, on a goroutine that holds up nobody else.
func (l *lease) lose(reason LostReason) {
	err, owed := l.over(reason)
	if owed.release != nil {
		owed.release.release(true).Free()
	}
	l.c.notifier.tell(slices.Repeat([]*LostError{err}, owed.losses)...)
}

// over ends the lease for its holder. What it owes is nothing if the lease had ended before. A lease that may lapse
// ends as it was asked to, as the permits of a rate limiter do: the Logger and the Tracer are not told.
func (l *lease) over(reason LostReason) (*LostError, debt) {
	err := &LostError{LockName: LockName{l.hold.terms.kind.name, l.key}, Token: l.token, Reason: reason, Until: l.validity()}
	owed, _ := l.end(err)
	if l.hold.terms.kind.lapses && reason == LostExpired && !l.renew {
		owed.losses = 0
	}
	if owed.lost != nil {
		err = owed.lost
	}
	return err, owed
}

// Unlock ends the lease and frees the lock. It returns when a majority of the members have
// answered: the next waiter can have the lock then. ctx bounds the wait for their answers, but not
// the release. The client sends the release in any case, and repeats it if it may not have arrived.
//
// Errors:
//   - ErrNotHeld if the lease was unlocked before.
//   - The *LostError if the lease was lost before, or a new one if a majority says so.
//   - ErrInDoubt if too few members answered.
func (l *Lease) Unlock(ctx context.Context) error {
	if ctx == nil {
		return badInput("unlock", "nil context")
	}
	if l.none() {
		return noLease("unlock")
	}
	if ctx.Value(ownLease{l.lease}) != nil { // it ends with the lease, that is, now
		ctx = context.WithoutCancel(ctx)
	}
	whole, owed, err := l.giveUp()
	switch {
	case whole == nil:
		return err
	case owed == nil:
		whole.tellReleased(nil)
		return nil
	}
	owed.traced.unlocking(ctx)
	r := owed.release(false)
	v, cause := r.Wait(ctx, r.Sent, l.c.cfg.MemberTimeout)
	return whole.unlocked(r, v, cause)
}

// Release is Unlock for a holder that goes on at once: it ends the lease, sends the release and returns before
// a member has answered. The next waiter can have the lock as soon as with Unlock, and the client repeats what
// may not have arrived, as there. But a holder that had lost the lock does not learn it: use Unlock, or Do, if
// somebody has to know.
//
// Tracer.Released hears what Unlock would have returned, when the members have decided it. A member that is
// silent has failed after Config.StallTimeout. The Logger hears of an error, too, and Tracer.Lost of a lease
// that was lost. Close waits for the decision, as it waits for calls.
//
// Errors:
//   - ErrNotHeld if the lease was unlocked before.
//   - The *LostError if the lease was lost before.
func (l *Lease) Release() error {
	if l.none() {
		return noLease("release")
	}
	whole, owed, err := l.giveUp()
	switch {
	case whole == nil:
		return err
	case owed == nil:
		whole.tellReleased(nil)
		return nil
	}
	u := unheard{owed, whole, whole.c.inflight.enter()}
	r := owed.releaseFor(u, false)
	if v := quorum.Decide(0, r.To.Len(), r.Need); v != quorum.Undecided { // few have anything of the lease
		u.Decided(r, v)
	}
	r.Free()
	return nil
}

// unheard is the judge of a release that nobody waits for: its answers are counted where they arrive.
type unheard struct {
	*hold
	l      *lease
	waited bool // Close waits for it
}

// Decided tells how the release ended, on the goroutine that has read the answer that decides.
func (u unheard) Decided(r *quorum.Round, v quorum.Verdict) {
	if u.waited {
		defer u.c.inflight.leave()
	}
	err := u.l.unlockError(v, r, nil)
	u.l.tellReleased(err)
	switch lost := (*LostError)(nil); {
	case errors.As(err, &lost):
		u.c.notifier.tell(lost)
	case err != nil:
		u.c.notifier.doubts(err)
	}
}

// giveUp ends the lease, or one user's part in it. If that ended the lease, giveUp returns it, and
// the hold that is to be released: nil if others have it.
func (l *Lease) giveUp() (*lease, *hold, error) {
	if l.part && !l.spent.CompareAndSwap(false, true) {
		return nil, nil, l.givenUp("unlock")
	}
	switch inner, ended, owed := l.leave(); {
	case inner:
		return nil, nil, nil
	case ended:
		return l.lease, owed, nil
	}
	return nil, nil, l.notHeld("unlock")
}

// unlocked tells how the release r ended, and frees it.
func (l *lease) unlocked(r *quorum.Round, v quorum.Verdict, cause error) error {
	defer r.Free()
	err := l.unlockError(v, r, cause)
	l.tellReleased(err)
	return err
}

func (l *lease) tellReleased(err error) {
	if l.c.trace.Released != nil {
		l.c.trace.Released(Released{LockName: LockName{l.hold.terms.kind.name, l.key}, Held: clock.Elapsed(l.granted, time.Now()), Err: err})
	}
}

// leave gives up one user. inner: it only undid a re-entry. ended: it was the last, and ended the
// lease. Neither: the lease had ended. All of that is one step, so that a re-entry comes before it
// or finds the lease ended. If owed is not nil, the caller owes its release.
func (l *lease) leave() (inner, ended bool, owed *hold) {
	now := time.Now()
	if !l.alive(now) {
		_ = l.err() // ends it if its validity is over
	}
	l.mu.Lock()
	switch {
	case l.term.Err() != nil:
		l.mu.Unlock()
		return false, false, nil
	case l.users > 1:
		l.users--
		l.mu.Unlock()
		return true, false, nil
	}
	return false, true, l.endedLocked(l.term.End(ErrReleased, now)).release
}

// unlockError judges a release by what the members said of it: done where a majority have nothing
// of ours any more, and lost where more had nothing before than a majority can do without.
func (l *lease) unlockError(v quorum.Verdict, r *quorum.Round, cause error) error {
	l.hold.mu.Lock()
	disowned := l.hold.b.NotOurs()
	l.hold.mu.Unlock()
	switch {
	case disowned > len(l.c.members)-l.c.need:
		return &LostError{LockName: LockName{l.hold.terms.kind.name, l.key}, Token: l.token, Reason: LostRefused, Until: l.validity()}
	case v == quorum.Won:
		return nil
	}
	q := quorum.Failure{Op: opRelease, Key: l.key, Need: l.c.need, Votes: r.Votes(l.c.members)}
	l.c.waited(&q, v, cause)
	nothing := 0 // members that have nothing of ours: they said so, or were never asked for anything
	for _, m := range q.Votes {
		if m.Vote == quorum.Yes || m.Vote == quorum.NotAsked {
			nothing++
		}
	}
	if nothing >= l.c.need {
		return nil
	}
	return &QuorumError{Failure: q, kind: ErrInDoubt, cause: cause}
}

// givenUp is the error when a user of a lease goes on with it after its Unlock: the rest of the
// lease is others'.
func (l *lease) givenUp(op string) error {
	return &keyError{op: op, key: l.key, err: ErrNotHeld, cause: ErrReleased}
}

// notHeld explains why an operation on a lease that has ended cannot be.
func (l *lease) notHeld(op string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.term.Err()
	if errors.Is(err, ErrLost) {
		return err
	}
	return &keyError{op: op, key: l.key, err: ErrNotHeld, cause: err}
}
