package redlock

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Semaphore is a lock of one name that has numbered slots, from 0 to limit − 1. A lease has one of
// them, or several (Permits), and no slot is in two valid leases. So there are at most as many
// permits as slots, and the slot is a worker number: no other live holder has it.
//
// A semaphore, a mutex and an RWMutex of one name have nothing to do with each other. Like a Mutex,
// a Semaphore holds no state of its own. It is safe for concurrent use, and cheap to make.
//
// Waiters are served in order of arrival, but not strictly. Each waits for one slot before others, so
// a waiter whose slot is released sooner passes another. If the first in line has waited for three
// times as long as the other, and 20 ms, it gets the slot. A waiter for several slots is not passed by
// those behind it, so that it gets them.
//
// The limit is the caller's: each member gives a slot only if it is below the caller's limit, and if
// so many are not taken. Callers whose limits differ, as in a rolling deployment, have at most the
// greatest of them together. SetLimit changes it at run time.
//
// With Config.Interop, every call returns ErrInput: the semaphores of Redisson are others.
type Semaphore struct{ m Mutex }

// Semaphore returns the semaphore of a name with limit slots, from 1 to 4096. Names and options are
// those of Mutex, but for As and Fair, with which every call returns ErrInput. Acquire and
// TryAcquire report mistakes. Without options, the client renews a lease until it is unlocked, as
// with AutoRenew(Config.TTL). With TTL, a lease ends by itself, and its slots are free again.
func (c *Client) Semaphore(name string, limit int, opts ...LockOption) *Semaphore {
	t := terms{kind: &permitKind, ttl: c.cfg.TTL, renew: true, maxHold: c.cfg.MaxHold, extra: &permitTerms{limit: limit, n: 1, want: -1}}
	apply(&t, opts)
	return &Semaphore{Mutex{c: c, name: name, terms: t}}
}

// Permits asks a semaphore for n slots at once, from 1 to 64 and at most its limit: all of them or
// none. Several Acquires of one caller, one after the other, can wait for each other for ever beside
// another caller that does the same; one Acquire with Permits cannot.
func Permits(n int) LockOption {
	return func(t *terms) {
		asked, ok := t.extra.(*permitTerms)
		if !ok {
			t.unfit = "Permits"
			return
		}
		p := *asked
		p.n, t.extra = n, &p
	}
}

// Acquire waits until it gets a permit, until ctx ends, or until no majority of the members can be
// asked for Config.NoQuorumAfter. It does what Mutex.Lock does, and fails as that does. Up to 16
// callers of one client wait at the members at once for one name, and others behind them.
//
// If a limit is stored that is above 0 and below Permits, Acquire returns ErrLimit. It hears of such
// a limit within a third of Config.Entry, and keeps nobody waiting from then on.
func (s *Semaphore) Acquire(ctx context.Context) (*Lease, error) {
	return s.m.acquire(ctx, opAcquirePermit, false)
}

// TryAcquire does not wait for a permit. It takes one round trip, and a few more if it meets others
// at the same slots: it gets a permit while there are as many free slots as callers. It fails with
// ErrHeld if so many slots are taken, and also if others wait, and with ErrLimit as Acquire, or if the
// stored limit is 0. Otherwise it does what Mutex.TryLock does.
func (s *Semaphore) TryAcquire(ctx context.Context) (*Lease, error) {
	return s.m.acquire(ctx, opTryAcquirePermit, true)
}

// Do runs fn while it holds a permit, as Mutex.Do does with the lock.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	return s.m.during(ctx, opAcquirePermit, false, fn)
}

// TryDo runs fn as Do does if it gets a permit at once, and says whether fn ran: see Mutex.TryDo.
func (s *Semaphore) TryDo(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (ran bool, err error) {
	return s.m.duringTry(ctx, opTryAcquirePermit, fn)
}

// What callers of a Semaphore ask for.
const (
	opAcquirePermit    = "acquire permit"
	opTryAcquirePermit = "try acquire permit"
)

// Slot is a slot of a semaphore that a lease has.
type Slot struct {
	Number int    // from 0 to the limit − 1: no other valid lease of the semaphore has it
	Token  uint64 // greater than that of every earlier lease that had this slot
}

// Slot returns the number of the lease's slot, of several the lowest. It is -1 for a lease of a lock
// that has no slots, and for the nil lease.
func (l *Lease) Slot() int {
	if l.none() {
		return -1
	}
	if p := l.hold.b.Permits(); len(p) > 0 {
		return p[0].Slot
	}
	return -1
}

// Slots returns all slots of the lease, in order of their numbers: none for a lock that has no
// slots. Token is that of the first. Tokens of different slots cannot be compared, so a storage keeps
// the greatest for each resource and slot.
func (l *Lease) Slots() []Slot {
	if l.none() {
		return nil
	}
	return slotsOf(l.hold.b.Permits())
}

func slotsOf(l permit.List) []Slot {
	out := make([]Slot, len(l))
	for i := range l {
		out[i] = Slot{Number: l[i].Slot, Token: uint64(l[i].Token)}
	}
	return out
}

// SetLimit stores a limit at the members, from 0 to 4096. It takes the place of the limit of every
// caller, of this client and of others, until another SetLimit or ClearLimit. It has no end.
//
// An attempt that begins after SetLimit(n) has returned gets no slot from n on. Permits that are held
// stay with their holders. If more are held than n, as many must end as are above it before anybody
// gets one. With n = 0, nobody does: Inspect then shows when all have ended.
//
// Who waits for more permits at once than n, and n is above 0, gets ErrLimit: see Acquire.
//
// SetLimit returns when a majority of the members have stored the limit, and fails if ctx ends
// first. It waits at most Config.MemberTimeout for members that do not answer. After an error, some
// members may have stored it: call it again. Of two calls at the same time, one comes after the other.
//
// Errors: ErrNoQuorum, ErrQuarantined, ErrClosed, ErrInput.
func (s *Semaphore) SetLimit(ctx context.Context, n int) error {
	if n < 0 || n > maxLimit {
		return badInput(opSetLimit, "the limit is %d, must be between 0 and %d", n, maxLimit)
	}
	return s.storeLimit(ctx, opSetLimit, n)
}

// ClearLimit undoes SetLimit: the limit of each caller is its own again. It returns and fails as
// SetLimit does.
//
// Members remember for good that it was cleared: a client that was away may still tell the limit of
// before. So each name that ever had a stored limit takes about 130 bytes at each member.
func (s *Semaphore) ClearLimit(ctx context.Context) error {
	return s.storeLimit(ctx, opClearLimit, script.NoLimit)
}

// Limit returns the limit in force: the stored one, and else that of this Semaphore. It asks the
// members, and fails as SetLimit does.
func (s *Semaphore) Limit(ctx context.Context) (int, error) {
	if err := s.checkLimit(ctx, opLimit); err != nil {
		return 0, err
	}
	stored, err := s.m.c.askLimit(ctx, opLimit, s.m.name, 0)
	if err != nil {
		return 0, err
	}
	if _, n, set := script.LimitOf(stored.greatest); set {
		return n, nil
	}
	return s.m.terms.extra.(*permitTerms).limit, nil
}

func (s *Semaphore) checkLimit(ctx context.Context, op string) error {
	if err := s.m.c.check(ctx, op, s.m.name, s.m.terms.ttl); err != nil {
		return err
	}
	if err := s.m.terms.check(&s.m.c.cfg); err != nil {
		return badInput(op, "%v", err)
	}
	return nil
}

// storeLimit stores a limit whose version is above all that a majority or this client knows. If
// others store one meanwhile, it begins again, so that what it returns for was in force.
func (s *Semaphore) storeLimit(ctx context.Context, op string, n int) error {
	if err := s.checkLimit(ctx, op); err != nil {
		return err
	}
	c, name := s.m.c, s.m.name
	known, err := c.askLimit(ctx, op, name, 0)
	for err == nil {
		mine := script.StoredLimit(laterLimit(max(known.greatest, limitsOf.of(c).get(name)), known.clocks, time.Now()), n)
		if known, err = c.askLimit(ctx, op, name, mine); err == nil && known.greatest == mine {
			return nil
		}
	}
	return err
}

// What is asked of members about a stored limit.
const (
	opSetLimit   = "set limit"
	opClearLimit = "clear limit"
	opLimit      = "limit"
)
