package demo

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

// The third scene: a room with as many desks as half of the workers, each of which wants one. A desk is
// a slot of a semaphore.
const (
	deskMin, deskMax   = 5 * time.Millisecond, 20 * time.Millisecond
	standMin, standMax = 5 * time.Millisecond, 20 * time.Millisecond
)

// desks is how many permits there are.
func desks(workers int) int { return max(2, workers/2) }

// room runs until ctx ends.
func (d *demo) room(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range d.workers {
		wg.Go(func() { w.sit(ctx, desks(d.options.Workers)) })
	}
	wg.Wait()
}

// sit takes a desk again and again.
func (w *worker) sit(ctx context.Context, desks int) {
	room := w.client.Semaphore(w.key+":room", desks)
	for ctx.Err() == nil {
		requested := time.Now()
		lease, err := room.Acquire(ctx)
		if err != nil {
			if ctx.Err() == nil {
				w.board.failed(w.i, err)
				sleep(ctx, 100*time.Millisecond)
			}
			continue
		}
		number := w.board.permitGranted(w.i, lease, requested)
		sleep(lease.Context(), between(deskMin, deskMax))
		w.board.permitEnded(number)
		w.stand(ctx, lease)
		sleep(ctx, between(standMin, standMax))
	}
}

func (w *worker) stand(ctx context.Context, lease *redlock.Lease) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := lease.Unlock(ctx); err != nil {
		w.board.failed(w.i, err)
	}
}
