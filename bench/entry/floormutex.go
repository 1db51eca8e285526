package entry

import (
	"context"
	"sync"
)

func init() {
	register(Spec{
		Name: "floor-mutex", Kind: Redis, Floor: true,
		Note:   "a sync.Mutex of the process, which no other process sees: what no lock of several processes can reach",
		Shapes: []string{Again},
		Open:   func(context.Context, Env) (Locker, error) { return new(floorMutex), nil },
	})
}

// floorMutex is one lock for all names, and excludes the callers of one client.
type floorMutex struct{ sync.Mutex }

func (l *floorMutex) Close() {}

func (l *floorMutex) Acquire(context.Context, string) (Held, error) {
	l.Lock()
	return l, nil
}

func (l *floorMutex) Release(context.Context) error {
	l.Unlock()
	return nil
}
