package demo

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// The second scene, beside the contention for the lock: a page that every worker reads and the first
// one rewrites, under a lock with readers. Reads last long enough to come beside each other.
const (
	readMin, readMax           = 10 * time.Millisecond, 30 * time.Millisecond
	readPauseMin, readPauseMax = 10 * time.Millisecond, 40 * time.Millisecond
	rewriteMin, rewriteMax     = time.Millisecond, 3 * time.Millisecond
	idleMin, idleMax           = 60 * time.Millisecond, 120 * time.Millisecond
)

// shared is a holder of a lock with readers, and writers.
type shared struct {
	w     *worker
	write bool
}

// scene runs until ctx ends.
func (d *demo) scene(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { shared{d.workers[0], true}.run(ctx) })
	for _, w := range d.workers {
		wg.Go(func() { shared{w, false}.run(ctx) })
	}
	wg.Wait()
}

func (s shared) run(ctx context.Context) {
	lock := s.w.client.RWMutex(s.w.key + ":page")
	take, hold, pause := lock.RLock, [2]time.Duration{readMin, readMax}, [2]time.Duration{readPauseMin, readPauseMax}
	if s.write {
		take, hold, pause = lock.Lock, [2]time.Duration{rewriteMin, rewriteMax}, [2]time.Duration{idleMin, idleMax}
	}
	for ctx.Err() == nil {
		requested := time.Now()
		lease, err := take(ctx)
		if err != nil {
			if ctx.Err() == nil {
				s.w.board.failed(s.w.i, err)
				sleep(ctx, 100*time.Millisecond)
			}
			continue
		}
		number := s.w.board.sharedGranted(s.w.i, s.write, lease, requested)
		sleep(lease.Context(), between(hold[0], hold[1]))
		s.w.board.sharedEnded(number)
		s.unlock(ctx, lease)
		sleep(ctx, between(pause[0], pause[1]))
	}
}

func (s shared) unlock(ctx context.Context, lease *redlock.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := lease.Unlock(ctx); err != nil {
		s.w.board.failed(s.w.i, err)
	}
}
