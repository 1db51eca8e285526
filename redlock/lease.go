package redlock

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Lease is a lock that is held, until ValidUntil at the latest.
//
// A lease ends once: by Unlock, by Handoff, when a majority of the members no longer have it, or
// when its validity is over. A local timer watches the validity, whatever the network does. The
// client cancels the lease's context before another owner can get the lock, and Err says why. A
// lease that has ended never comes back. A Lease is safe for concurrent use.
//
// The nil Lease, as a call returns it beside an error, is a lease that has ended: its methods return
// ErrNotHeld, its context has ended, its Slot is -1, and all else is zero.
type Lease struct {
	c       *Client
	hold    *hold // its votes at the members
	key     string
	token   uint64
	as      string // owner for re-entry, or ""
	granted time.Time
	values  context.Context // the acquiring context: for its values, never for its end

	of    *Lease      // not nil: this is one user of that lease, Do's own
	spent atomic.Bool // with of: it is unlocked
	users int32       // Locks by the same owner that are still to be unlocked; guarded by mu, and here for its size

	mu      sync.Mutex // guards the fields below; never held around a call to a member
	term    core.Term  // its limit is the end of a fixed TTL, or MaxHold
	ttl     time.Duration
	renewAt time.Time // zero: not to be renewed (any more)
	ctx     context.Context
	cancel  context.CancelCauseFunc
	ties    *ties // to what ends with it, or what it ends with; nil: none
	renew   bool  // again and again, until limit; false: once at most, to the end of a fixed TTL

	// Guarded by keeper.mu.
	gone   bool  // never to be put there again
	queued bool  // to be renewed now
	pos    int32 // in the keeper's heap, -1: not in it
}

// lease makes a lease of a grant. If that fails, the attempt has released its hold.
func (a *attempt) lease(ctx context.Context, res result) (*Lease, error) {
	now := time.Now()
	a.mu.Lock()
	term, ok := a.b.Start(res.Grant, now)
	a.mu.Unlock()
	if !ok {
		a.abandon()
		return nil, &keyError{op: opAcquire, key: a.name(), err: ErrTooSlow}
	}
	l := newLease(ctx, &a.hold, term, res.waited, now)
	l.as = a.terms.as
	if !a.c.keeper.add(l) {
		a.abandon()
		return nil, &keyError{op: opAcquire, key: l.key, err: ErrClosed}
	}
	a.c.owners.put(l)
	if held := a.terms.kind.held; held != nil {
		held(l)
	}
	if a.c.log.Enabled(ctx, slog.LevelDebug) && l.Margin() == 0 && len(a.c.members) > 1 {
		a.c.log.Debug("redlock: held by a bare majority", "key", logged(l.key), "token", l.token)
	}
	return l, nil
}

// newLease makes a lease that nobody looks after yet.
func newLease(ctx context.Context, h *hold, term core.Term, waited bool, now time.Time) *Lease {
	t := h.terms
	l := &Lease{
		c: h.c, hold: h, key: h.name(), token: uint64(h.b.Lease()), granted: now,
		values: ctx, term: term, ttl: t.ttl, renew: t.renew, users: 1, pos: -1,
	}
	asked := t.ttl // what the votes in hand were granted for
	if waited {
		asked = h.b.Part()
	}
	switch {
	case t.renew:
		if t.maxHold > 0 {
			l.term.Bound(now.Add(t.maxHold))
			l.term.Shorten(l.term.Limit())
		}
		l.renewAt = now.Add(min(asked/3, clock.Until(l.term.Until(), now)/2))
	case asked < t.ttl: // granted for less while waiting: renewed once, to its end
		l.term.Bound(now.Add(t.ttl))
		l.renewAt = now.Add(min(asked/3, clock.Until(l.term.Until(), now)/2))
	}
	if l.term.Until().IsZero() && !l.renewAt.IsZero() { // to be confirmed
		l.renewAt = now.Add(asked / 3)
	}
	return l
}

// none reports whether l is no lease at all: what a call that has failed returns.
func (l *Lease) none() bool { return l == nil || l.c == nil }

// errNoLease is why the nil lease is not held.
var errNoLease = fmt.Errorf("redlock: nil lease: %w", ErrNotHeld)

func noLease(op string) error { return fmt.Errorf("redlock: %s: nil lease: %w", op, ErrNotHeld) }

// ofNoLease is the context of the nil lease.
var ofNoLease = sync.OnceValue(func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errNoLease)
	return ctx
})

// user is the part that Do has in a lease, if an owner may have several. Unlocking it twice gives
// up one part.
func (l *Lease) user() *Lease {
	return &Lease{c: l.c, hold: l.hold, key: l.key, token: l.token, as: l.as, granted: l.granted, values: l.values, of: l, pos: -1}
}

// whole is the lease that l is, or is a user of.
func (l *Lease) whole() *Lease {
	if l.of != nil {
		return l.of
	}
	return l
}

func sooner(x, y time.Time) time.Time {
	if clock.Until(y, x) < 0 {
		return y
	}
	return x
}

// Key returns the name of the lock.
func (l *Lease) Key() string {
	if l.none() {
		return ""
	}
	return l.key
}

// Token returns the fencing token: greater than that of every earlier lease of this name. Give it
// to the storage with each write, and let the storage refuse a lower one than it has seen (package
// fence).
func (l *Lease) Token() uint64 {
	if l.none() {
		return 0
	}
	return l.token
}

// ValidUntil returns the instant until which you can rely on the lease, as known now. Renewals move
// it. After the lease has ended, it is not later than that end. It is on the local clock and
// carries a monotonic reading.
func (l *Lease) ValidUntil() time.Time {
	if l.none() {
		return time.Time{}
	}
	l = l.whole()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.term.Err() != nil {
		return sooner(l.untilLocked(), l.term.Ended())
	}
	return l.untilLocked()
}

// validity is the one that the lease had, or has: LostError tells it.
func (l *Lease) validity() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.untilLocked()
}

// untilLocked is the end of the lease's validity.
func (l *Lease) untilLocked() time.Time {
	if s := l.shareLocked(); s != nil {
		return s.until()
	}
	return l.term.Until()
}

// Votes returns the number of members that have the lease, by their own last word. It still counts
// a member that has died or forgotten since the last renewal.
func (l *Lease) Votes() int {
	if l.none() {
		return 0
	}
	now := time.Now()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.hold.b.Votes(now)
}

// Margin returns how many members may forget the lease before another owner can get the lock: Votes
// less the majority, never below 0.
func (l *Lease) Margin() int {
	if l.none() {
		return 0
	}
	return max(0, l.Votes()-l.c.need)
}

// Context returns a context that ends with the lease. context.Cause says why: ErrReleased,
// ErrHandedOff or a *LostError. The context has the values of the context given to Lock, but not
// its end. Its Err and Done look at the clock, so they tell the end at once, even after a suspend.
// A context that is derived from it, and a goroutine that waits for its end, hear of the end a
// moment later.
func (l *Lease) Context() context.Context {
	if l.none() {
		return ofNoLease()
	}
	l = l.whole()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		inner, cancel := context.WithCancelCause(context.WithoutCancel(l.values))
		if err := l.term.Err(); err != nil {
			cancel(err)
		}
		l.ctx, l.cancel = leaseContext{inner, l, cancel}, cancel
	}
	return l.ctx
}

// ownLease is the key under which a context tells that it ends with the lease. Contexts of several
// leases may be children of each other, and end with all of them.
type ownLease struct{ l *Lease }

// leaseContext looks at the clock before it says that all is well: after a suspend, timers are
// late.
type leaseContext struct {
	context.Context
	l      *Lease
	cancel context.CancelCauseFunc // of the Context
}

// look ends the context if the lease has ended: who found that out may not have come to it yet.
func (c leaseContext) look() {
	if err := c.l.Err(); err != nil {
		c.cancel(err)
	}
}

// Value tells the lease, beside what the context of Lock has.
func (c leaseContext) Value(key any) any {
	switch key {
	case ownLease{c.l}, innermost{}:
		return c.l
	case around{}:
		return &enclosing{[]*Lease{c.l}, c.Context}
	}
	return c.Context.Value(key)
}

// Err implements context.Context.
func (c leaseContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Done implements context.Context.
func (c leaseContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Done returns a channel that is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease is held and valid. After that it returns ErrReleased,
// ErrHandedOff or a *LostError. It looks at the clock, so it is true at the instant of the call,
// even after a suspend.
func (l *Lease) Err() error {
	if l.none() {
		return errNoLease
	}
	l = l.whole()
	l.mu.Lock()
	err, past := l.term.Err(), clock.Until(l.untilLocked(), time.Now()) <= 0
	l.mu.Unlock()
	if err == nil && past {
		l.expire()
		return l.Err()
	}
	return err
}

// alive reports whether the lease is held and valid at now.
func (l *Lease) alive(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.term.Err() == nil && clock.Until(l.untilLocked(), now) > 0
}

// debt is what the caller that has ended a lease owes.
type debt struct {
	release *hold // nil: there is nothing to release, because others have the hold
	losses  int   // how many leases have ended with it: if it was lost, each of them is told of
}

// end makes err the lease's end, if it has none yet, and cancels its context.
func (l *Lease) end(err error) (owed debt, ended bool) {
	l.mu.Lock()
	if l.term.Err() != nil {
		l.mu.Unlock()
		return debt{}, false
	}
	return l.endedLocked(l.term.End(err, time.Now())), true
}

// endedLocked does what follows from the end of the term, and unlocks.
func (l *Lease) endedLocked(over core.Ended) debt {
	err, cancel, s := l.term.Err(), l.cancel, l.shareLocked()
	var tied ties
	if l.ties != nil {
		tied, l.ties.sets = *l.ties, nil
	}
	l.mu.Unlock()
	if s == nil || s.kept.Load() {
		l.c.keeper.remove(l)
	}
	l.c.owners.remove(l)
	if cancel != nil {
		cancel(err)
	}
	for _, set := range tied.sets {
		set.end(err)
	}
	if s != nil {
		return s.left()
	}
	l.hold.leaves(over)
	if tied.all != nil {
		return debt{l.hold, tied.all.ended(err)}
	}
	return debt{l.hold, 1}
}

// ties are what a lease has to do with others. The lease's mutex guards them.
type ties struct {
	sets  []*Leases // that it is one of: they end with it
	all   *readHold // of which it is the lease: the shares end with it
	share *share    // that it is
}

// shareLocked is the share that the lease is, or nil.
func (l *Lease) shareLocked() *share {
	if l.ties == nil {
		return nil
	}
	return l.ties.share
}

func (l *Lease) share() *share {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.shareLocked()
}

// expire ends a lease whose validity is over.
func (l *Lease) expire() {
	if s := l.share(); s == nil || !s.endedWithHold() {
		l.lose(l.lapsed())
	}
}

// lapsed says why the validity is over.
func (l *Lease) lapsed() LostReason {
	l.mu.Lock()
	defer l.mu.Unlock()
	if limit := l.term.Limit(); l.renew && !limit.IsZero() && clock.Until(limit, l.term.Until()) <= clock.Drift(l.ttl, l.c.cfg.Drift) {
		return LostMaxHold
	}
	return LostExpired
}

// lose ends a lease that its holder did not end: its holder is told first, then the members, then
// the Logger and the Tracer, on a goroutine that holds up nobody else.
func (l *Lease) lose(reason LostReason) {
	err, owed := l.over(reason)
	if owed.release != nil {
		owed.release.release(true).Free()
	}
	l.c.teller.tell(slices.Repeat([]*LostError{err}, owed.losses)...)
}

// over ends the lease for its holder. What it owes is nothing if the lease had ended before. A permit of a fixed TTL that
// nobody gave back ends as it was asked to, as those of a rate limiter do: the Logger and the Tracer are not told.
func (l *Lease) over(reason LostReason) (*LostError, debt) {
	err := &LostError{Key: l.key, Kind: l.hold.terms.kind.name, Token: l.token, Reason: reason, Until: l.validity()}
	owed, _ := l.end(err)
	if err.Kind == KindSemaphore && reason == LostExpired && !l.renew {
		owed.losses = 0
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
	if ctx.Value(ownLease{l.whole()}) != nil { // it ends with the lease, that is, now
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
	owed.unlocking(ctx)
	r := owed.release(false)
	v, cause := r.Wait(ctx, r.Sent, l.c.cfg.MemberTimeout)
	return whole.unlocked(r, v, cause)
}

// giveUp ends the lease, or one user's part in it. If that ended the lease, giveUp returns it, and
// the hold that is to be released: nil if others have it.
func (l *Lease) giveUp() (*Lease, *hold, error) {
	if l.of != nil {
		if !l.spent.CompareAndSwap(false, true) {
			return nil, nil, l.givenUp("unlock")
		}
		l = l.of
	}
	switch inner, ended, owed := l.leave(); {
	case inner:
		return nil, nil, nil
	case ended:
		return l, owed, nil
	}
	return nil, nil, l.notHeld("unlock")
}

// unlocked tells how the release r ended, and frees it.
func (l *Lease) unlocked(r *quorum.Round, v quorum.Verdict, cause error) error {
	defer r.Free()
	err := l.unlockError(v, r, cause)
	l.tellReleased(err)
	return err
}

func (l *Lease) tellReleased(err error) {
	if l.c.trace.release != nil {
		l.c.trace.release.Released(Released{Key: l.key, Kind: l.hold.terms.kind.name, Held: clock.Elapsed(l.granted, time.Now()), Err: err})
	}
}

// leave gives up one user. inner: it only undid a re-entry. ended: it was the last, and ended the
// lease. Neither: the lease had ended. All of that is one step, so that a re-entry comes before it
// or finds the lease ended. If owed is not nil, the caller owes its release.
func (l *Lease) leave() (inner, ended bool, owed *hold) {
	now := time.Now()
	if !l.alive(now) {
		_ = l.Err() // ends it if its validity is over
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
func (l *Lease) unlockError(v quorum.Verdict, r *quorum.Round, cause error) error {
	l.hold.mu.Lock()
	disowned := l.hold.b.Disowned()
	l.hold.mu.Unlock()
	switch {
	case disowned > len(l.c.members)-l.c.need:
		return &LostError{Key: l.key, Kind: l.hold.terms.kind.name, Token: l.token, Reason: LostRefused, Until: l.validity()}
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
func (l *Lease) givenUp(op string) error {
	return &keyError{op: op, key: l.key, err: ErrNotHeld, cause: ErrReleased}
}

// notHeld explains why an operation on a lease that has ended cannot be.
func (l *Lease) notHeld(op string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	err := l.term.Err()
	if errors.Is(err, ErrLost) {
		return err
	}
	return &keyError{op: op, key: l.key, err: ErrNotHeld, cause: err}
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
	if err := checkTTL(ttl, l.c.cfg); err != nil {
		return badInput("extend", "TTL: %v", err)
	}
	if l.spent.Load() {
		return l.givenUp("extend")
	}
	l = l.whole()
	if l.Err() != nil {
		return l.notHeld("extend")
	}
	if s := l.share(); s != nil {
		return s.extend(ctx, ttl)
	}
	return l.c.keeper.extend(ctx, l, ttl)
}

// clamp shortens the local validity. It reports false if it is shorter already.
func (l *Lease) clamp(until time.Time) bool {
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

// renewed takes a majority's confirmation in answer to what was sent. A lease past its validity stays dead, even if this was on
// its way in time: another may have held the lock in between.
func (l *Lease) renewed(said *core.Count, sent time.Time, manual bool, now time.Time) bool {
	ttl := said.TTL()
	l.mu.Lock()
	if manual && !l.renew && l.term.Renewable(now) {
		l.term.Bound(sent.Add(ttl))
	}
	if !l.term.Renew(said, sent, now) {
		l.mu.Unlock()
		_ = l.Err()
		return false
	}
	switch limit := l.term.Limit(); {
	case !l.renew, !limit.IsZero() && clock.Until(limit, sent) <= ttl:
		l.renewAt = time.Time{} // this was the last
	default:
		l.renewAt = sent.Add(ttl / 3)
	}
	var all *readHold
	if l.ties != nil {
		all = l.ties.all
	}
	until := l.term.Until()
	l.mu.Unlock()
	if all != nil {
		all.limits(until)
	}
	return true
}

// owners finds the leases that may be entered again (As).
type owners struct {
	mu sync.Mutex
	m  map[[2]string]*Lease
}

// again counts a re-entry, if an owner (As) holds the lock of a name through this client. If that
// lease is held beside others, and the owner asks for one that is not, held is true without a
// lease.
func (o *owners) again(name, as string, together bool) (l *Lease, held bool) {
	if as == "" {
		return nil, false
	}
	o.mu.Lock()
	l = o.m[[2]string{name, as}]
	o.mu.Unlock()
	if l == nil || l.Err() != nil {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.term.Err() != nil:
		return nil, false
	case l.hold.terms.kind.together && !together:
		return nil, true
	}
	l.users++
	return l, true
}

func (o *owners) put(l *Lease) {
	if l.as == "" {
		return
	}
	o.mu.Lock()
	o.setLocked([2]string{l.key, l.as}, l)
	o.mu.Unlock()
	o.unlessEnded(l)
}

func (o *owners) setLocked(k [2]string, l *Lease) {
	if o.m == nil {
		o.m = make(map[[2]string]*Lease)
	}
	o.m[k] = l
}

// unlessEnded removes a lease that had perhaps ended before it was put.
func (o *owners) unlessEnded(l *Lease) {
	if l.Err() != nil {
		o.remove(l)
	}
}

// enter is put, unless the owner has a lease of that name: then it enters that one.
func (o *owners) enter(l *Lease) *Lease {
	if l.as == "" {
		return l
	}
	for k := [2]string{l.key, l.as}; ; {
		if first, _ := o.again(l.key, l.as, true); first != nil {
			return first
		}
		o.mu.Lock()
		first := o.m[k]
		if first == nil {
			o.setLocked(k, l)
		}
		o.mu.Unlock()
		if first == nil {
			o.unlessEnded(l)
			return l
		}
		if first.Err() != nil {
			o.remove(first)
		}
	}
}

// behind returns a name after the given one, in the order of bytes, that an owner (As) holds.
func (o *owners) behind(name, as string) (held string, ok bool) {
	if as == "" {
		return "", false
	}
	var all []*Lease
	o.mu.Lock()
	for k, l := range o.m {
		if k[1] == as && k[0] > name {
			all = append(all, l)
		}
	}
	o.mu.Unlock()
	now := time.Now()
	for _, l := range all {
		if l.alive(now) {
			return l.key, true
		}
	}
	return "", false
}

func (o *owners) remove(l *Lease) {
	if l.as == "" {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if k := [2]string{l.key, l.as}; o.m[k] == l {
		delete(o.m, k)
	}
}
