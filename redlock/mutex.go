package redlock

import (
	"context"
	"errors"
	"math"

	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// Mutex is the exclusive lock of one name. It holds no state of its own: the *Lease that Lock
// returns is the owner, whichever goroutine has it. A Mutex is safe for concurrent use, and cheap
// to make.
type Mutex struct {
	c     *Client
	name  string
	terms terms
}

// Mutex returns the mutex of a name. A name may have any bytes, up to 131,072 of them. Names
// that begin with "redquorum:" are reserved for the library. With Config.Interop, names that begin
// with "redisson_lock_token:" are reserved too. Lock and TryLock report mistakes in name and
// options. Without options, the client renews the lease until it is unlocked, as with
// AutoRenew(Config.TTL).
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	return c.mutex(&exclusive, name, opts)
}

// mutex is one side of a lock.
func (c *Client) mutex(k *kind, name string, opts []LockOption) *Mutex {
	m := new(Mutex)
	m.init(c, k, name, opts)
	return m
}

// key is that of the lock at the members.
func (m *Mutex) key() string { return m.c.cfg.keyOf(m.name) }

// init is mutex for memory that is there.
func (m *Mutex) init(c *Client, k *kind, name string, opts []LockOption) {
	*m = Mutex{c: c, name: name, terms: terms{kind: k, ttl: c.cfg.TTL, renew: true, maxHold: c.cfg.MaxHold, extra: k.extra}}
	apply(&m.terms, opts)
}

// Lock waits until it gets the lock, until ctx ends, or until no majority of the members can be
// asked for Config.NoQuorumAfter. ctx bounds this call and never the lease. Lease.Context inherits
// the values of ctx.
//
// Waiters are served in order of arrival. The members keep the request of a waiter and carry it out
// at the moment the lock is freed. Waiting costs each member one message every third of
// Config.Entry. While too many members are in quarantine, Lock waits for them. Callers of one client pass
// the lock on among themselves as long as no other client waits, and no member is asked.
//
// After an error, the client takes back whatever the call has left at the members. Errors:
//
//   - ErrHeld, ErrNoQuorum or ErrQuarantined, wrapped with ctx's error, if ctx ended first. ctx's error alone,
//     if it had ended before the call.
//   - ErrNoQuorum, if no majority could be asked for too long.
//   - ErrNested or ErrUpgrade, if ctx ends with a lease of this lock: the call would wait for itself.
//   - ErrTooSlow, ErrForeignKey, ErrTokensExhausted, ErrClosed, ErrInput.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, opLock, false)
}

// TryLock asks once and does not wait for the lock. It takes one round trip, or at most
// Config.MemberTimeout if members are silent. It takes a second one at the first use of a counter: the
// members have 16,384 of them for all names. If connections have ended and members come back within
// Config.MemberTimeout, it asks once more. Errors:
//
//   - ErrHeld, if another owner has the lock. Callers that ask at the same instant may each get a part
//     of the votes, and all be refused: if one of them must win, take Lock with a short deadline.
//   - ErrQuarantined, if too many members do not vote yet.
//   - Otherwise as for Lock.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) {
	return m.acquire(ctx, opTryLock, true)
}

// Do runs fn while it holds the lock. The context that fn gets is a child of ctx and ends with the
// lease, so fn must stop when it ends. Give lease.Token to the storage. fn may unlock the lease
// early, or hand it off. Do returns fn's error, joined with any error of the lease or its release that
// fn has not returned already. If fn has run, an error of Do matches ErrRan, and fn's own, and ErrLost or
// ErrInDoubt if the lease ended badly. If fn has not run, the error is that of Lock and does not match ErrRan.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	return m.during(ctx, opLock, false, fn)
}

// TryDo runs fn as Do does if it gets the lock at once, as TryLock gets it, and says whether fn ran. If
// another owner has the lock, that is no error: ran is false then, and err is nil. So it is for a job
// that every process starts and one is to run. Callers that ask at the same instant may all be refused:
// see TryLock.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (ran bool, err error) {
	return m.duringTry(ctx, opTryLock, fn)
}

// want is what a caller asks for. try: without waiting.
func (m *Mutex) want(op string, try bool) want {
	return want{op: op, name: m.name, terms: &m.terms, try: try}
}

func (m *Mutex) acquire(ctx context.Context, op string, try bool) (*Lease, error) {
	w := m.want(op, try)
	return m.c.acquire(ctx, &w)
}

// duringTry is during for a call that does not wait. It reports whether fn ran.
func (m *Mutex) duringTry(ctx context.Context, op string, fn func(ctx context.Context, lease *Lease) error) (ran bool, err error) {
	if fn == nil {
		return false, badInput(op, "nil function")
	}
	err = m.during(ctx, op, true, func(ctx context.Context, lease *Lease) error { ran = true; return fn(ctx, lease) })
	return ran, unlessHeld(ctx, ran, err)
}

// unlessHeld is what TryDo returns: nil if fn did not run because another owner has the lock.
func unlessHeld(ctx context.Context, ran bool, err error) error {
	if !ran && ctx.Err() == nil && errors.Is(err, ErrHeld) {
		return nil
	}
	return err
}

// during runs fn while the caller holds what it wants.
func (m *Mutex) during(ctx context.Context, op string, try bool, fn func(ctx context.Context, lease *Lease) error) (err error) {
	if fn == nil {
		return badInput(op, "nil function")
	}
	lease, err := m.acquire(ctx, op, try)
	if err != nil {
		return err
	}
	if m.terms.as != "" {
		lease = lease.user()
	}
	return during(ctx, lease, fn)
}

// during runs fn while a lease is held, as Do does, and ends the lease.
func during(ctx context.Context, lease *Lease, fn func(ctx context.Context, lease *Lease) error) (err error) {
	held, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
	defer func() { // also when fn panics
		stop()
		cancel(context.Canceled)
		end := lease.Err()
		var said error
		if done := lease.spent.Load() || errors.Is(end, ErrReleased) || errors.Is(end, ErrHandedOff) || errors.Is(end, ErrDowngraded); !done { // by fn
			said = lease.Unlock(context.WithoutCancel(ctx))
		}
		err = afterwards(err, said)
	}()
	return fn(&leaseContext{held, lease.lease, cancel, nil}, lease)
}

// also joins err with the errors of an end. A function that returns the cause of its context has said
// them already, and nobody wants to read them twice.
func also(err error, ends ...error) error {
	for _, end := range ends {
		if end != nil && !errors.Is(err, end) {
			err = errors.Join(err, end)
		}
	}
	return err
}

// afterwards is also for the errors of leases, after the function of Do has run: whatever it returns matches ErrRan.
func afterwards(err error, ends ...error) error {
	if err = also(err, ends...); err == nil || errors.Is(err, ErrRan) {
		return err
	}
	return &ranError{err}
}

// exclusive is the kind of Client.Mutex.
var exclusive = kind{
	name: KindMutex, lock: script.Exclusive, rules: &besideReaders, width: 1, format: 1, shared: true, passes: true,
	extra: noExtra{}, hooks: mutexHooks{},
}

// mutexHooks have the callers of a client pass on what they hold.
type mutexHooks struct{ plain }

func (mutexHooks) heard(h *hold, r report) {
	if r.waiter != "" || r.readers {
		h.recalled()
	}
}

// The rules of kinds without readers, as they are if others have readers of the same name.
var (
	besideReaders     = wait.Beside(wait.Exclusive, script.ReadersFirst)
	fairBesideReaders = wait.Beside(wait.Fair, script.ReadersFirst)
)

// fair is the kind of Client.Mutex with Fair. The members order all callers, so each of them asks.
var fair = kind{
	name: KindFair, lock: script.Fair, rules: &fairBesideReaders, width: math.MaxInt, format: 2, extra: noExtra{}, hooks: plain{},
}

var _, _ = register(&exclusive), register(&fair)

// Fair has callers served strictly in order, over all clients: nobody gets the lock before a caller
// of Lock whose ticket a majority of the members had when the other called. Client.Mutex and
// Client.Multi take it. It is the same lock as without the option, and a Kind of its own to events
// and metrics.
//
// Without Fair, the waiting clients take turns, and each of them serves its callers in order. So a
// client with a thousand callers does not starve one with a single caller. With Fair it comes first
// with all callers that came first. Each waiting caller is registered at the members, and costs a
// heartbeat to each of them every third of Config.Entry.
//
// The order holds while a caller's heartbeats arrive and the members remember. All callers of a name
// must use the option: if some do not, or if some are readers, the locks exclude each other all the
// same, but the order is not strict. TryLock does not pass callers that wait: it returns ErrHeld while there are any. A lock
// that Redisson shares (Config.Interop) has no strict order, so there calls return ErrInput.
func Fair() LockOption {
	return func(t *terms) {
		switch t.kind {
		case &exclusive, &fair:
			t.kind = &fair
		default:
			t.unfit = "Fair"
		}
	}
}
