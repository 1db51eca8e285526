package redlock

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// Mutex is the exclusive lock of one name. It holds no state of its own: the *Lease that Lock returns
// is the owner, whichever goroutine has it. Safe for concurrent use, and cheap to make.
type Mutex struct {
	c     *Client
	name  string
	terms terms
	as    string
}

// Mutex names a lock. Any bytes will do, up to Config.MaxName of them; mistakes in name and options are
// reported by Lock. Without options the lease is renewed until it is unlocked (AutoRenew(Config.TTL)).
func (c *Client) Mutex(name string, opts ...MutexOption) *Mutex {
	m := &Mutex{c: c, name: name, terms: terms{ttl: c.cfg.TTL, renew: true, maxHold: c.cfg.MaxHold}}
	for _, o := range opts {
		o(&m.terms)
	}
	m.as = m.terms.as
	return m
}

// Lock waits until the lock is held, or ctx ends, or no majority of the members can be asked for
// Config.NoQuorumAfter. ctx bounds this call and never the lease; its values go into Lease.Context.
//
// Waiting is in order of arrival, and costs one message a second: the members keep the request and
// carry it out the moment the lock is freed.
//
// Errors: ErrHeld, ErrNoQuorum or ErrQuarantined with ctx's error when it ended first; ErrNoQuorum,
// ErrTooSlow, ErrForeignKey, ErrClosed, ErrInput. While members are in quarantine it waits. Nothing of the call stays at the members after an error.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.traced(ctx, false, m.lock)
}

// TryLock asks once and returns: ErrHeld if the lock is another's, ErrQuarantined if too many members do
// not vote yet, otherwise as Lock. It takes one
// round trip, or Config.MemberTimeout at most when members are silent.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.traced(ctx, true, m.tryLock)
}

// Do runs fn while holding the lock. The context given to fn is ctx's child and ends with the lease, so
// fn must stop when it ends; the storage must be given lease.Token. fn may unlock early, or hand the lease off. Do
// returns fn's error, joined with what went wrong with the lease or its release.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (err error) {
	lease, err := m.Lock(ctx)
	if err != nil {
		return err
	}
	if m.as != "" {
		lease = lease.hold()
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
	switch {
	case ctx == nil:
		return badInput(op, "nil context")
	case m.name == "":
		return badInput(op, "the name of a lock must not be empty")
	case strings.HasPrefix(m.name, "redquorum:"):
		return badInput(op, "names that begin with redquorum: are the library's own keys")
	case len(m.name) > m.c.cfg.MaxName:
		return badInput(op, "the name has %d bytes, at most %d (Config.MaxName)", len(m.name), m.c.cfg.MaxName)
	}
	if err := checkTTL(m.terms.ttl, m.c.cfg); err != nil {
		return badInput(op, "TTL: %v", err)
	}
	if m.c.isClosed() {
		return &keyError{op: op, key: m.name, err: ErrClosed}
	}
	return nil
}

// result is a grant with the story of how it was come by.
type result struct {
	grant
	waited bool
}

// traced tells the tracer of an acquisition. The tracer's context is for its events alone: the lease has
// the values of the caller's.
func (m *Mutex) traced(ctx context.Context, try bool, get func(ctx, in context.Context) (*Lease, result, error)) (*Lease, error) {
	op := "lock"
	if try {
		op = "try lock"
	}
	if err := m.check(op, ctx); err != nil {
		return nil, err
	}
	if m.c.trace.Tracer == nil {
		lease, _, err := get(ctx, nil)
		return lease, err
	}
	start := time.Now()
	in := m.c.trace.AcquireStart(ctx, AcquireStart{Key: m.name, Try: try, TTL: m.terms.ttl})
	lease, res, err := get(ctx, in)
	e := AcquireEnd{
		Key: m.name, Err: err, Elapsed: clock.Elapsed(start, time.Now()),
		Votes: res.votes, SecondRound: res.raised, Waited: res.waited,
	}
	if err == nil {
		e.Token, e.Validity = lease.Token(), clock.Until(lease.ValidUntil(), time.Now())
	}
	m.c.trace.AcquireEnd(in, e)
	return lease, err
}

func (m *Mutex) tryLock(ctx, in context.Context) (*Lease, result, error) {
	if err := ctx.Err(); err != nil {
		return nil, result{}, &keyError{op: "try lock", key: m.name, err: err}
	}
	if l := m.c.owners.again(m); l != nil {
		return l, result{}, nil
	}
	a := m.c.newAttempt(m.c.cfg.keysOf(m.name), m.terms, in)
	if a == nil {
		return nil, result{}, &keyError{op: "try lock", key: m.name, err: ErrClosed}
	}
	g, err := a.try(ctx)
	if err != nil {
		a.abandon()
		var s spent
		if errors.As(err, &s) {
			err = s.error
		}
		if m.c.isClosed() {
			err = &keyError{op: "try lock", key: m.name, err: ErrClosed}
		}
		return nil, result{}, err
	}
	l, err := m.hold(ctx, a, g, false)
	return l, result{grant: g}, err
}

func (m *Mutex) lock(ctx, in context.Context) (*Lease, result, error) {
	if err := ctx.Err(); err != nil {
		return nil, result{}, &keyError{op: "lock", key: m.name, err: err}
	}
	if l := m.c.owners.again(m); l != nil {
		return l, result{}, nil
	}
	place, contended, err := m.c.lines.enter(ctx, m.name, m.c.closed)
	if err != nil {
		if errors.Is(err, ErrClosed) {
			return nil, result{}, &keyError{op: "lock", key: m.name, err: ErrClosed}
		}
		return nil, result{waited: true}, &keyError{op: "lock: in line behind callers of this process:", key: m.name, err: ErrHeld, cause: err}
	}
	defer m.c.lines.leave(m.name, place)
	if l := m.c.owners.again(m); l != nil { // another goroutine of the same owner was before us in line
		return l, result{}, nil
	}
	k := m.c.cfg.keysOf(m.name)
	const tries = 3     // attempts that had a majority and were too slow to use it
	var since time.Time // of the first that had one, and could not confirm its token
	var back retreat
	for slow := 0; ; {
		a := m.c.newAttempt(k, m.terms, in)
		if a == nil {
			return nil, result{}, &keyError{op: "lock", key: m.name, err: ErrClosed}
		}
		back.tell(&a.b)
		res, err := m.one(ctx, a, contended)
		if err == nil {
			l, err := m.hold(ctx, a, res.grant, res.waited)
			return l, res, err
		}
		a.abandon()
		contended = true
		var s spent
		if !errors.As(err, &s) {
			return nil, res, err
		}
		now, dark := time.Now(), false
		switch {
		case s.back:
			back = back.again(&a.b, s.vain, now)
			continue
		case errors.Is(err, ErrTooSlow):
			slow++
		case since.IsZero():
			since = now
		default:
			dark = m.c.cfg.NoQuorumAfter >= 0 && clock.Elapsed(since, now) >= m.c.cfg.NoQuorumAfter
		}
		if slow == tries || dark || ctx.Err() != nil {
			return nil, res, s.error
		}
	}
}

// retreat is what an attempt that stood back leaves to the next one.
type retreat struct {
	times  int        // in a row, because of them
	vain   quorum.Set // members that could be asked, and failed
	notYet time.Time
	dark   time.Time
}

// again is the retreat after one more. Only asking tells that a member which failed does so no more, and who asks may
// have a vote for MemberTimeout that others want: so seldom, and more seldom from one time to the next.
func (r retreat) again(b *ballot, vain quorum.Set, now time.Time) retreat {
	out := retreat{vain: vain, dark: b.darkSince}
	if vain != 0 {
		out.times = r.times + 1
		out.notYet = now.Add(min(b.timeout<<min(r.times, 10), max(b.timeout, time.Second)))
	}
	return out
}

func (r retreat) tell(b *ballot) { b.doubt, b.notYet, b.darkSince = r.vain, r.notYet, r.dark }

// one carries an attempt through: it asks first, unless the lock is known to be contended, and waits
// where it is refused, keeping what votes it got.
func (m *Mutex) one(ctx context.Context, a *attempt, contended bool) (res result, err error) {
	if !contended {
		for res.grant, err = a.try(ctx); err != nil && a.crowdedOut(ctx); {
			res.grant, err = a.try(ctx)
		}
		if err == nil {
			return res, nil
		}
		var s spent
		if errors.As(err, &s) || errors.Is(err, ErrForeignKey) {
			return res, err
		}
		if cause := ctx.Err(); cause != nil { // perhaps only now: the refusal does not tell
			return res, a.failure(opAcquire, a.reason(), cause)
		}
	}
	res.waited = true
	res.grant, err = a.wait(ctx)
	return res, err
}

// hold makes a lease of a grant.
func (m *Mutex) hold(ctx context.Context, a *attempt, g grant, waited bool) (*Lease, error) {
	l := newLease(ctx, a, g, waited, time.Now())
	l.as = m.as
	if clock.Until(l.until, time.Now()) <= 0 {
		a.abandon()
		return nil, &keyError{op: opAcquire, key: m.name, err: ErrTooSlow}
	}
	if !m.c.keeper.add(l) {
		a.abandon()
		return nil, &keyError{op: opAcquire, key: m.name, err: ErrClosed}
	}
	m.c.owners.put(l)
	if m.c.log.Enabled(ctx, slog.LevelDebug) && l.Margin() == 0 && len(m.c.members) > 1 {
		m.c.log.Debug("redlock: held by a bare majority", "key", member.Quote(m.name), "token", l.token)
	}
	return l, nil
}
