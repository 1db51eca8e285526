package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
)

// Mutex is the exclusive lock of one name. It holds no state of its own: the *Lease that Lock
// returns is the owner, whichever goroutine has it. A Mutex is safe for concurrent use, and cheap
// to make.
type Mutex struct {
	c     *Client
	name  string
	terms terms
	as    string
}

// Mutex returns the mutex of a name. A name may have any bytes, up to Config.MaxName of them. Names
// that begin with "redquorum:" are reserved for the library. With Config.Interop, names that begin
// with "redisson_lock_token:" are reserved too. Lock and TryLock report mistakes in name and
// options. Without options, the client renews the lease until it is unlocked, as with
// AutoRenew(Config.TTL).
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	m := &Mutex{c: c, name: name, terms: terms{kind: KindMutex, ttl: c.cfg.TTL, renew: true, maxHold: c.cfg.MaxHold}}
	for _, o := range opts {
		o(&m.terms)
	}
	m.as = m.terms.as
	return m
}

// Lock waits until it gets the lock, until ctx ends, or until no majority of the members can be
// asked for Config.NoQuorumAfter. ctx bounds this call and never the lease. Lease.Context inherits
// the values of ctx.
//
// Waiters are served in order of arrival. The members keep the request of a waiter and carry it out
// at the moment the lock is freed. Waiting costs each member one message every third of
// Config.Entry. While too many members are in quarantine, Lock waits for them.
//
// After an error, the client takes back whatever the call has left at the members. Errors:
//
//   - ErrHeld, ErrNoQuorum or ErrQuarantined, wrapped with ctx's error, if ctx ended first.
//   - ErrNoQuorum, if no majority could be asked for too long.
//   - ErrTooSlow, ErrForeignKey, ErrTokensExhausted, ErrClosed, ErrInput.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.traced(ctx, opLock, m.lock)
}

// TryLock asks once and does not wait for the lock. It takes one round trip, or at most
// Config.MemberTimeout if members are silent. Errors:
//
//   - ErrHeld, if another owner has the lock.
//   - ErrQuarantined, if too many members do not vote yet.
//   - Otherwise as for Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.traced(ctx, opTryLock, m.tryLock)
}

// Do runs fn while it holds the lock. The context that fn gets is a child of ctx and ends with the
// lease, so fn must stop when it ends. Give lease.Token to the storage. fn may unlock the lease
// early, or hand it off. Do returns fn's error, joined with any error of the lease or its release.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	if m.as != "" {
		lease = lease.user()
	}
	held, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
	defer func() { // also when fn panics
		stop()
		cancel(context.Canceled)
		end := lease.Err()
		if done := lease.spent.Load() || errors.Is(end, ErrReleased) || errors.Is(end, ErrHandedOff); !done { // by fn
			err = errors.Join(err, lease.Unlock(context.WithoutCancel(ctx)))
		}
	}()
	return fn(leaseContext{held, lease.whole(), cancel}, lease)
}

func (m *Mutex) check(op string, ctx context.Context) error {
	if ctx == nil {
		return badInput(op, "nil context")
	}
	if err := checkName(m.name, m.c.cfg); err != nil {
		return badInput(op, "%v", err)
	}
	if err := checkTTL(m.terms.ttl, m.c.cfg); err != nil {
		return badInput(op, "TTL: %v", err)
	}
	if m.c.isClosed() {
		return &keyError{op: op, key: m.name, err: ErrClosed}
	}
	return nil
}

// traced tells the tracer of an acquisition. The tracer's context is for its events alone: the lease has
// the values of the caller's.
func (m *Mutex) traced(ctx context.Context, op string, get func(ctx, in context.Context) (*Lease, result, error)) (*Lease, error) {
	if err := m.check(op, ctx); err != nil {
		return nil, err
	}
	if m.c.trace.Tracer == nil {
		lease, _, err := get(ctx, nil)
		return lease, err
	}
	start := time.Now()
	in := m.c.trace.AcquireStart(ctx, AcquireStart{Key: m.name, Kind: m.terms.kind, Try: op == opTryLock, TTL: m.terms.ttl})
	lease, res, err := get(ctx, in)
	e := AcquireEnd{
		Key: m.name, Kind: m.terms.kind, Err: err, Elapsed: clock.Elapsed(start, time.Now()),
		Votes: res.In.Len(), SecondRound: res.Raised, Waited: res.waited,
	}
	if err == nil {
		e.Token, e.Validity = lease.Token(), clock.Until(lease.ValidUntil(), time.Now())
	}
	m.c.trace.AcquireEnd(in, e)
	return lease, err
}

func (m *Mutex) tryLock(ctx, in context.Context) (*Lease, result, error) {
	if err := ctx.Err(); err != nil {
		return nil, result{}, m.failed(opTryLock, err, nil)
	}
	if l := m.c.owners.again(m); l != nil {
		return l, result{}, nil
	}
	l, res, err := m.c.obtain(ctx, in, opTryLock, m.name, m.terms, ballot.Past{Start: ballot.TryOnce})
	if err != nil && m.c.isClosed() {
		err = m.failed(opTryLock, ErrClosed, nil)
	}
	return l, res, err
}

func (m *Mutex) lock(ctx, in context.Context) (*Lease, result, error) {
	if err := ctx.Err(); err != nil {
		return nil, result{}, m.failed(opLock, err, nil)
	}
	if l := m.c.owners.again(m); l != nil {
		return l, result{}, nil
	}
	place, contended, err := m.c.lines.enter(ctx, m.name, m.c.closed)
	switch {
	case errors.Is(err, ErrClosed):
		return nil, result{}, m.failed(opLock, ErrClosed, nil)
	case err != nil:
		return nil, result{waited: true}, m.failed("lock: in line behind callers of this process:", ErrHeld, err)
	}
	defer m.c.lines.leave(m.name, place)
	if l := m.c.owners.again(m); l != nil { // another goroutine of the same owner was before us in line
		return l, result{}, nil
	}
	past := ballot.Past{Start: ballot.AskFirst}
	if contended {
		past.Start = ballot.WaitFirst
	}
	return m.c.obtain(ctx, in, opLock, m.name, m.terms, past)
}

func (m *Mutex) failed(op string, err, cause error) error {
	return &keyError{op: op, key: m.name, err: err, cause: cause}
}
