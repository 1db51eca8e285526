package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
)

// Leases are the leases of a Multi. They are held together: with the first that ends, the Context of
// Leases ends. The members keep the others until Unlock, or until their validity is over, but nobody
// renews them. So the holder has time to stop while it still excludes others. Leases are safe for
// concurrent use.
type Leases struct {
	all    []*Lease // in the order in which they were taken
	values context.Context
	spent  atomic.Bool // unlocked

	mu     sync.Mutex // guards the fields below; never held around a call of a Lease
	err    error      // why they are not held together any more
	ended  time.Time
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// none reports whether s are no leases at all: what a call that has failed returns.
func (s *Leases) none() bool { return s == nil || len(s.all) == 0 }

// newLeases makes a set of leases that are held.
func newLeases(ctx context.Context, all []*Lease) *Leases {
	s := &Leases{all: all, values: ctx}
	places := make([]struct { // of all leases, in one piece of memory
		all []ender
		one [1]ender
	}, len(all))
	for i, l := range all {
		l.mu.Lock()
		if l.sets == nil {
			places[i].all = places[i].one[:0]
			l.sets = &places[i].all
		}
		*l.sets = append(*l.sets, s)
		err := l.term.Err()
		l.mu.Unlock()
		if err != nil { // perhaps before it was in the set
			s.end(err)
		}
	}
	return s
}

// end makes err the end of the set, if it has none yet. What is left of it is not renewed any more,
// and not released either.
func (s *Leases) end(err error) {
	if !s.over(err) {
		return
	}
	for _, l := range s.all {
		l.stopRenewing()
	}
}

// over ends the set for its holder. It reports false if it had ended before.
func (s *Leases) over(err error) bool {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return false
	}
	s.err, s.ended = err, time.Now()
	cancel := s.cancel
	s.mu.Unlock()
	if cancel != nil {
		cancel(err)
	}
	for _, l := range s.all {
		l.mu.Lock()
		if l.sets != nil {
			*l.sets = slices.DeleteFunc(*l.sets, func(x ender) bool { return x == s })
		}
		l.mu.Unlock()
	}
	return true
}

// stopRenewing leaves a lease to its validity, unless it has other users than a set that has ended.
func (l *lease) stopRenewing() {
	l.mu.Lock()
	alone := l.term.Err() == nil && l.users == 1
	if alone {
		l.term.Bound(l.term.Until())
		l.renewAt, l.renew = time.Time{}, false
	}
	l.mu.Unlock()
	if alone {
		l.c.keeper.update(l)
	}
}

// Token returns the fencing token of a name: see Lease.Token. It is 0 if the name is not in the set.
// The tokens of two names cannot be compared.
func (s *Leases) Token(name string) uint64 {
	if l := s.Of(name); l != nil {
		return l.Token()
	}
	return 0
}

// Of returns the lease of a name, or nil. If several deployments have a lock of that name, it is the
// first of them. The set ends with the lease, so unlock the set and not the lease.
func (s *Leases) Of(name string) *Lease {
	if s.none() {
		return nil
	}
	if i := slices.IndexFunc(s.all, func(l *Lease) bool { return l.key == name }); i >= 0 {
		return s.all[i]
	}
	return nil
}

// All returns the leases, in the order in which they were taken.
func (s *Leases) All() []*Lease {
	if s.none() {
		return nil
	}
	return slices.Clone(s.all)
}

// ValidUntil returns the instant until which you can rely on all leases, as known now: the earliest
// end of any. See Lease.ValidUntil.
func (s *Leases) ValidUntil() time.Time {
	var until time.Time
	if s.none() {
		return until
	}
	for i, l := range s.all {
		if at := l.ValidUntil(); i == 0 || clock.Until(at, until) < 0 {
			until = at
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return sooner(until, s.ended)
	}
	return until
}

// Votes returns the least number of members that have any of the leases: see Lease.Votes.
func (s *Leases) Votes() int {
	if s.none() {
		return 0
	}
	n := s.all[0].Votes()
	for _, l := range s.all[1:] {
		n = min(n, l.Votes())
	}
	return n
}

// Err returns nil while all leases are held and valid. After that it returns ErrReleased, or why the
// first of them ended: a *LostError, whose Key is its name. It looks at the clock, as Lease.Err does.
func (s *Leases) Err() error {
	if s.none() {
		return errNoLease
	}
	for _, l := range s.all {
		if err := l.Err(); err != nil { // it may have been here before the set was told
			s.end(err)
		}
		if l.part && l.spent.Load() {
			s.end(ErrReleased)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Context returns a context that ends with the first lease that ends: see Lease.Context.
func (s *Leases) Context() context.Context {
	if s.none() {
		return ofNoLease()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ctx == nil {
		inner, cancel := context.WithCancelCause(context.WithoutCancel(s.values))
		if s.err != nil {
			cancel(s.err)
		}
		s.ctx, s.cancel = setContext{inner, s, cancel}, cancel
	}
	return s.ctx
}

// Done returns a channel that is closed when the first lease has ended.
func (s *Leases) Done() <-chan struct{} { return s.Context().Done() }

// setContext is the leaseContext of several leases.
type setContext struct {
	context.Context
	s      *Leases
	cancel context.CancelCauseFunc // of the Context
}

func (c setContext) look() {
	if err := c.s.Err(); err != nil {
		c.cancel(err)
	}
}

// Value tells the leases, beside what the context of Lock has.
func (c setContext) Value(key any) any {
	if own, ok := key.(ownLease); ok && slices.ContainsFunc(c.s.all, func(l *Lease) bool { return l.lease == own.l }) {
		return &own.l.own
	}
	switch key {
	case innermost{}:
		return nil // several
	case around{}:
		return &enclosing{c.s.all, c.Context}
	}
	return c.Context.Value(key)
}

// Err implements context.Context.
func (c setContext) Err() error {
	c.look()
	return c.Context.Err()
}

// Done implements context.Context.
func (c setContext) Done() <-chan struct{} {
	c.look()
	return c.Context.Done()
}

// Unlock ends all leases and frees the locks, with one release for each member. It returns when a
// majority of the members have answered for each lease. ctx bounds the wait for their answers, but
// not the releases: see Lease.Unlock. The errors of the leases are joined. ErrNotHeld says that the
// set was unlocked before.
func (s *Leases) Unlock(ctx context.Context) error {
	if ctx == nil {
		return badInput("unlock", "nil context")
	}
	if s.none() {
		return noLease("unlock")
	}
	return errors.Join(s.unlock(ctx)...)
}

// unlock is Unlock with the error of each lease.
func (s *Leases) unlock(ctx context.Context) []error {
	if !s.spent.CompareAndSwap(false, true) {
		return []error{&keyError{op: "unlock", key: s.all[0].key, err: ErrNotHeld, cause: ErrReleased}}
	}
	for _, l := range s.all {
		if ctx.Value(ownLease{l.lease}) != nil { // it ends with the lease, that is, now
			ctx = context.WithoutCancel(ctx)
			break
		}
	}
	_ = s.Err() // the cause of the end is that of a lease, if one has ended
	s.over(ErrReleased)
	errs := make([]error, len(s.all))
	owed := make([]*hold, len(s.all))
	for i, l := range s.all {
		whole, h, err := l.giveUp()
		switch {
		case whole != nil:
			h.traced.unlocking(ctx)
			owed[i] = h
		case !errors.Is(err, ErrNotHeld): // else the caller has unlocked it, or handed it off, by itself
			errs[i] = err
		}
	}
	s.answered(ctx, s.releaseAll(owed), errs)
	return errs
}

// releaseAll releases holds of these leases, with one group for each member. It returns a round for
// each of them, and nil where there is no hold.
func (s *Leases) releaseAll(owed []*hold) []*quorum.Round {
	rounds := make([]*quorum.Round, len(owed))
	for i, h := range owed {
		if h == nil || rounds[i] != nil {
			continue
		}
		holds, of := make([]*hold, 0, len(owed)-i), make([]int, 0, len(owed)-i)
		for k := i; k < len(owed); k++ {
			if owed[k] != nil && owed[k].c == h.c {
				holds, of = append(holds, owed[k]), append(of, k)
			}
		}
		for k, r := range h.c.releaseAll(holds, false) {
			rounds[of[k]] = r
		}
	}
	return rounds
}

// answered waits for the answers to releases, for one MemberTimeout in all, and notes in errs what
// they come to. The last one is answered last. So the caller wakes once, and not once for each.
func (s *Leases) answered(ctx context.Context, rounds []*quorum.Round, errs []error) {
	type outcome struct {
		verdict quorum.Verdict
		cause   error
	}
	outcomes := make([]outcome, len(rounds))
	began := time.Now()
	for i, r := range slices.Backward(rounds) {
		if r != nil {
			now := time.Now()
			left := s.all[i].c.cfg.MemberTimeout - clock.Elapsed(began, now)
			outcomes[i].verdict, outcomes[i].cause = r.Wait(ctx, now, max(left, 1)) // 0 is no bound
		}
	}
	for i, r := range rounds {
		if r != nil {
			errs[i] = s.all[i].unlocked(r, outcomes[i].verdict, outcomes[i].cause)
		}
	}
}

// Extend asks the members to keep all leases for ttl from now, and moves ValidUntil: see
// Lease.Extend. Leases of one client travel in one command. If some leases are not extended, the
// error has a cause for each of them, and the others are.
func (s *Leases) Extend(ctx context.Context, ttl time.Duration) error {
	if ctx == nil {
		return badInput("extend", "nil context")
	}
	if s.none() {
		return noLease("extend")
	}
	for _, l := range s.all {
		if err := l.checkTTL(ttl); err != nil {
			return err
		}
	}
	if s.Err() != nil {
		for _, l := range s.all {
			if err := l.err(); err != nil {
				return l.notHeld("extend")
			}
		}
		return s.all[0].givenUp("extend")
	}
	now := time.Now()
	items := make(map[*Client][]renewItem)
	for _, l := range s.all {
		if !l.clamp(now.Add(clock.Validity(ttl, l.c.cfg.Drift))) {
			items[l.c] = append(items[l.c], l.toRenew(ttl))
		}
	}
	var errs []error
	for c, of := range items {
		for _, e := range c.keeper.extendAll(ctx, of) {
			errs = append(errs, e)
		}
	}
	for _, l := range s.all {
		if l.Err() != nil {
			errs = append(errs, l.notHeld("extend"))
		}
	}
	return errors.Join(errs...)
}
