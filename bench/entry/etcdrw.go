package entry

import (
	"context"

	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
)

// etcdReadWrite uses the RWMutex of the recipes, with a session per caller as for the mutex. The
// recipe takes no context. A caller that gives up leaves a goroutine behind, which unlocks as soon
// as it gets the lock.
type etcdReadWrite struct{ l *etcdLocker }

func (e etcdReadWrite) Close() { e.l.Close() }

func (e etcdReadWrite) Acquire(ctx context.Context, name string) (Held, error) {
	return e.acquire(ctx, name, (*recipe.RWMutex).Lock, (*recipe.RWMutex).Unlock)
}

func (e etcdReadWrite) AcquireShared(ctx context.Context, name string) (Held, error) {
	return e.acquire(ctx, name, (*recipe.RWMutex).RLock, (*recipe.RWMutex).RUnlock)
}

func (e etcdReadWrite) acquire(ctx context.Context, name string, lock, unlock func(*recipe.RWMutex) error) (Held, error) {
	s, err := e.l.session()
	if err != nil {
		return nil, err
	}
	h := etcdReadWriteHeld{e.l, s, recipe.NewRWMutex(s, name), unlock}
	got := make(chan error, 1)
	go func() { got <- lock(h.m) }() // ends with what blocks it, at the latest with that session
	select {
	case err := <-got:
		if err != nil {
			e.l.put(s)
			return nil, err
		}
		return h, nil
	case <-ctx.Done():
		go func() {
			if <-got == nil {
				_ = h.Release(context.Background())
			} else {
				e.l.put(s)
			}
		}()
		return nil, ctx.Err()
	}
}

type etcdReadWriteHeld struct {
	l      *etcdLocker
	s      *concurrency.Session
	m      *recipe.RWMutex
	unlock func(*recipe.RWMutex) error
}

func (h etcdReadWriteHeld) Release(context.Context) error {
	defer h.l.put(h.s)
	return h.unlock(h.m)
}
