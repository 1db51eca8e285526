package demo

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/redlock"
)

// What a worker does with the lock takes 1 to 3 ms, and it wants it again soon after.
const (
	holdMin, holdMax   = time.Millisecond, 3 * time.Millisecond
	pauseMin, pauseMax = 100 * time.Microsecond, 500 * time.Microsecond
	// cleanUp bounds an unlock after the run has ended.
	cleanUp = 2 * time.Second
)

// worker stands for one service: it has a client of its own and shares nothing with the others but the
// members and the store.
type worker struct {
	i      int
	client *redlock.Client
	key    string
	board  *board
	store  *store

	stallTTL time.Duration
	keep     atomic.Bool   // set: hold on at the next hold
	stall    atomic.Bool   // set: stall at the next hold
	stalled  chan struct{} // closed when that is over
}

// run ends with ctx.
func (w *worker) run(ctx context.Context) {
	defer w.board.does(w.i, stopped)
	for ctx.Err() == nil {
		if w.keep.Load() {
			w.holdOn(ctx)
			continue
		}
		if w.stall.Load() {
			if w.oversleep(ctx) {
				w.stall.Store(false)
				close(w.stalled)
			}
			continue
		}
		w.hold(ctx)
		sleep(ctx, between(pauseMin, pauseMax))
	}
}

// hold is the main job, as a service should do it: take the lock, work while the lease's context
// lives, show the token to the store, unlock.
func (w *worker) hold(ctx context.Context) {
	lease := w.take(ctx)
	if lease == nil {
		return
	}
	defer w.unlock(ctx, lease)
	value, err := w.store.read(lease.Token())
	if err != nil {
		w.board.failed(w.i, err)
		return
	}
	if sleep(lease.Context(), between(holdMin, holdMax)); lease.Err() != nil {
		return
	}
	if err := w.store.write(w.i, lease.Token(), value+1); err != nil {
		w.board.failed(w.i, err)
	}
}

// holdOn holds the lock for longer than a lease, which the client renews meanwhile. The demo kills a member under it.
func (w *worker) holdOn(ctx context.Context) {
	lease := w.take(ctx, redlock.AutoRenew(w.stallTTL))
	if lease == nil {
		return
	}
	w.keep.Store(false)
	began := time.Now()
	w.board.say("worker %d holds on to token %d (lease of %v, renewed)", w.i+1, lease.Token(), w.stallTTL)
	sleep(lease.Context(), 2*w.stallTTL)
	if lease.Err() == nil {
		w.board.say("worker %d has held on for %d ms, and unlocks", w.i+1, time.Since(began).Milliseconds())
	}
	w.unlockLate(ctx, lease)
	w.board.larger(fmt.Sprintf("Worker %d holds on, and the client renews its lease", w.i+1), began)
}

// take waits for the lock; nil: there is nothing to unlock.
func (w *worker) take(ctx context.Context, opts ...redlock.LockOption) *redlock.Lease {
	w.board.does(w.i, waits)
	requested := time.Now()
	lease, err := w.client.Mutex(w.key, opts...).Lock(ctx)
	if err != nil {
		if ctx.Err() == nil {
			w.board.failed(w.i, err)
			sleep(ctx, 100*time.Millisecond)
		}
		return nil
	}
	w.board.granted(w.i, lease, requested)
	return lease
}

func (w *worker) unlock(ctx context.Context, lease *redlock.Lease) {
	w.board.ended(w.i)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	if err := lease.Unlock(ctx); err != nil {
		w.board.failed(w.i, err)
	}
}

// oversleep is the job gone wrong. The worker holds a lease of fixed length and stops, as a garbage
// collector or a hypervisor would stop it: it does not look at its lease, its context or a clock. It
// goes on only after a later holder has written, and then makes the write that it had in mind. It
// reports whether it came to that; otherwise it may be tried again.
func (w *worker) oversleep(ctx context.Context) bool {
	lease := w.take(ctx, redlock.TTL(w.stallTTL))
	if lease == nil {
		return false
	}
	value, err := w.store.read(lease.Token())
	if err != nil { // overslept already, and overtaken
		w.unlockLate(ctx, lease)
		return false
	}
	overtaken := w.store.watch(lease.Token())
	w.board.does(w.i, stalls)
	began := time.Now()
	w.board.say("worker %d stalls while it holds token %d (lease of %v)", w.i+1, lease.Token(), w.stallTTL)
	select {
	case by := <-overtaken:
		w.board.say("the lease ran out: worker %d wrote with token %d", by.worker+1, by.token)
	case <-ctx.Done():
		w.unlockLate(ctx, lease)
		return false
	}
	w.board.say("worker %d wakes up after %d ms and writes with token %d",
		w.i+1, time.Since(began).Milliseconds(), lease.Token())
	var stale *fence.StaleError
	switch err := w.store.write(w.i, lease.Token(), value+1); {
	case errors.As(err, &stale):
		w.board.refused(w.i, stale.Token, stale.Highest)
	case err == nil:
		w.board.say("VIOLATION: the store has accepted the stale write of worker %d", w.i+1)
	default:
		w.board.failed(w.i, err)
	}
	w.unlockLate(ctx, lease)
	w.board.larger(fmt.Sprintf("Worker %d stalls, and its late write is refused", w.i+1), began)
	return true
}

// unlockLate gives up a lease that has probably ended by itself.
func (w *worker) unlockLate(ctx context.Context, lease *redlock.Lease) {
	w.board.ended(w.i)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUp)
	defer cancel()
	var lost *redlock.LostError
	switch err := lease.Unlock(ctx); {
	case errors.As(err, &lost):
		w.board.say("worker %d unlocks and learns: lease lost (%s)", w.i+1, lost.Reason)
	case err != nil:
		w.board.failed(w.i, err)
	}
}

func between(low, high time.Duration) time.Duration { return low + rand.N(high-low) }

// sleep ends early with ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
