package entry

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"

	"github.com/redquorum/redquorum/redlock"
)

// These entries are what this library's kinds of locks are compared with.
func init() {
	register(Spec{
		Name: "redquorum-mutex", Kind: Redis, Level: true, Inner: ourInner,
		Note:   "this library's Mutex as a yardstick: for readers as for writers (W9), in its own order (W3f), for one name of all (W10), for a permit (W11)",
		Shapes: []string{InOrder, ReadWrite, Sets, Room},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			l, err := dialRedquorum(ctx, env)
			if err != nil {
				return nil, err
			}
			return &redquorumMutex{redquorum: l}, nil
		},
	})
	register(Spec{
		Name: "redquorum-each", Kind: Redis, Level: true, Inner: ourInner,
		Note:   "this library's Mutex, one name after the other",
		Shapes: []string{Sets},
		Open: func(ctx context.Context, env Env) (Locker, error) {
			l, err := dialRedquorum(ctx, env)
			if err != nil {
				return nil, err
			}
			return redquorumEach{l}, nil
		},
	})
}

type redquorumMutex struct {
	*redquorum
	permits atomic.Uint64
}

func (l *redquorumMutex) AcquireShared(ctx context.Context, name string) (Held, error) {
	return l.Acquire(ctx, name)
}

func (l *redquorumMutex) AcquireAll(ctx context.Context, names []string) (Held, error) {
	return l.Acquire(ctx, names[0])
}

// AcquirePermit locks a name that nobody else wants.
func (l *redquorumMutex) AcquirePermit(ctx context.Context, name string, _ int) (Held, error) {
	return l.Acquire(ctx, name+":"+strconv.FormatUint(l.permits.Add(1), 10))
}

type redquorumEach struct{ *redquorum }

func (l redquorumEach) AcquireAll(ctx context.Context, names []string) (Held, error) {
	all := make(heldEach, 0, len(names))
	for _, name := range names {
		h, err := l.Acquire(ctx, name)
		if err != nil {
			return nil, errors.Join(err, all.Release(context.WithoutCancel(ctx)))
		}
		all = append(all, h)
	}
	return all, nil
}

type heldEach []Held

func (all heldEach) Release(ctx context.Context) (err error) {
	for _, h := range all {
		err = errors.Join(err, h.Release(ctx))
	}
	return err
}

type redquorumSets struct{ *redquorum }

func (l redquorumSets) AcquireAll(ctx context.Context, names []string) (Held, error) {
	leases, err := l.client.Multi(names, l.options...).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return heldSet{leases}, nil
}

type heldSet struct{ leases *redlock.Leases }

func (h heldSet) Release(ctx context.Context) error { return h.leases.Unlock(ctx) }

// redquorumReadWrite makes an RWMutex for each operation, as the other shapes make a Mutex. If
// callers read together, it keeps the RWMutex of the last name, as a program does that reads often.
type redquorumReadWrite struct {
	*redquorum
	keep bool
	last atomic.Pointer[namedRWMutex]
}

type namedRWMutex struct {
	name string
	*redlock.RWMutex
}

func (l *redquorumReadWrite) lock(name string) *redlock.RWMutex {
	if !l.keep {
		return l.client.RWMutex(name, l.options...)
	}
	m := l.last.Load()
	if m == nil || m.name != name {
		m = &namedRWMutex{name, l.client.RWMutex(name, l.options...)}
		l.last.Store(m)
	}
	return m.RWMutex
}

func (l *redquorumReadWrite) Acquire(ctx context.Context, name string) (Held, error) {
	return heldLease(l.lock(name).Lock(ctx))
}

func (l *redquorumReadWrite) AcquireShared(ctx context.Context, name string) (Held, error) {
	return heldLease(l.lock(name).RLock(ctx))
}

func heldLease(lease *redlock.Lease, err error) (Held, error) {
	if err != nil {
		return nil, err
	}
	return redquorumHeld{lease}, nil
}
