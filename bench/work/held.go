package work

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/server"
)

// take acquires so many names of their own, with 64 callers.
func (s *session) take(prefix string, count int) ([]entry.Held, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	all := make([]entry.Held, count)
	var next atomic.Int64
	errs := make(chan error, 64)
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(count); i = next.Add(1) - 1 {
				h, err := s.lockers[0].Acquire(ctx, prefix+strconv.FormatInt(i, 10))
				if err != nil {
					errs <- err
					return
				}
				all[i] = h
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		release(all)
		return nil, fmt.Errorf("of %d leases: %w", count, err)
	default:
		return all, nil
	}
}

func release(all []entry.Held) (failed int64, sample []string) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var next, bad atomic.Int64
	var text atomic.Value
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(all)); i = next.Add(1) - 1 {
				if all[i] == nil {
					continue
				}
				if err := all[i].Release(ctx); err != nil {
					bad.Add(1)
					text.Store(err.Error())
				}
			}
		})
	}
	wg.Wait()
	if t, ok := text.Load().(string); ok {
		sample = []string{t}
	}
	return bad.Load(), sample
}

// renew: Count leases are held while the slice lasts. Entries that renew by themselves are watched; for
// the others the suite does what their user would have to: a goroutine per lease that extends it every
// third of the lease.
func (s *session) renew(o *Order) (*Result, error) {
	r := &Result{Renewer: "own"}
	held, err := s.take(o.Prefix, s.open.Count)
	if err != nil {
		return nil, err
	}
	var renewals, errs atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if _, ok := held[0].(entry.Extender); ok {
		r.Renewer = "suite"
		every := s.lease() / 3
		for i, h := range held {
			wg.Go(func() {
				// Spread over the period, as the moments of their acquisition would be.
				first := time.NewTimer(every * time.Duration(i) / time.Duration(len(held)))
				defer first.Stop()
				select {
				case <-first.C:
				case <-ctx.Done():
					return
				}
				tick := time.NewTicker(every)
				defer tick.Stop()
				for {
					if err := h.(entry.Extender).Extend(ctx); err == nil {
						renewals.Add(1)
					} else if ctx.Err() == nil {
						errs.Add(1)
					}
					select {
					case <-tick.C:
					case <-ctx.Done():
						return
					}
				}
			})
		}
	}
	count := renewals.Load
	if counter, ok := s.lockers[0].(entry.RenewCounter); ok {
		count = counter.Renewals
	} else if r.Renewer == "own" {
		// By what the servers saw: a command per lease and member.
		set, err := server.UseRedis(ctx, s.open.Members)
		if err != nil {
			cancel()
			return nil, err
		}
		count = func() int64 {
			now, err := set.Commands(ctx)
			if err != nil {
				errs.Add(1)
			}
			return server.Sent(nil, now, s.spec.Inner) / int64(len(s.open.Members))
		}
	}
	// A whole period first, so that the acquisitions are over.
	time.Sleep(s.lease() / 3)
	before := count()
	m := startMeter()
	time.Sleep(millis(o.SliceMS))
	m.stop(r)
	r.Renewals = count() - before
	cancel()
	wg.Wait()
	failed, sample := release(held)
	r.Errors, r.Samples = errs.Load()+failed, sample
	r.AllOps = int64(len(held))
	return r, nil
}

// heap is what is live, with the stacks, after a collection.
func heap() (bytes int64, goroutines int) {
	var m runtime.MemStats
	for range 3 {
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// sizes are the memory of this process and of the members, while nothing happens.
func (s *session) sizes(r *Result) error {
	if !s.open.Sizes {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	set, err := server.UseRedis(ctx, s.open.Members)
	if err != nil {
		return err
	}
	if r.MemberBytes, err = set.Memory(ctx); err != nil {
		return err
	}
	bytes, goroutines := heap()
	r.ClientBytes, r.Routines = bytes, int64(goroutines)
	return nil
}

// memory: what a held lease and a waiter cost in this process. The caller's own goroutine is taken off:
// as many goroutines that only wait on a channel are measured first.
func (s *session) memory(o *Order) (*Result, error) {
	r := &Result{Registered: -1, Elapsed: 1}
	n := s.open.Count

	base, _ := heap()
	held, err := s.take(o.Prefix+"lease:", n)
	if err != nil {
		return nil, err
	}
	after, _ := heap()
	r.LeaseBytes = float64(after-base) / float64(n)
	r.Errors, r.Samples = release(held)
	held = nil

	idle := func(wait func(context.Context) error) (bytes, goroutines float64, end func() error) {
		b0, g0 := heap()
		ctx, cancel := context.WithCancel(context.Background())
		var wg sync.WaitGroup
		var failed atomic.Int64
		var text atomic.Value
		for range n {
			wg.Go(func() {
				if err := wait(ctx); err != nil && ctx.Err() == nil {
					failed.Add(1)
					text.Store(err.Error())
				}
			})
		}
		time.Sleep(millis(o.SliceMS)) // so that all are asleep, and heartbeats ran
		b1, g1 := heap()
		return float64(b1-b0) / float64(n), float64(g1-g0) / float64(n), func() error {
			cancel()
			ended := make(chan struct{})
			go func() { wg.Wait(); close(ended) }()
			select {
			case <-ended:
			case <-time.After(60 * time.Second):
				return fmt.Errorf("waiters do not end")
			}
			if failed.Load() > 0 {
				return fmt.Errorf("%d waiters failed: %v", failed.Load(), text.Load())
			}
			return nil
		}
	}
	plainBytes, plainGoroutines, end := idle(func(ctx context.Context) error { <-ctx.Done(); return nil })
	if err := end(); err != nil {
		return nil, err
	}

	hot := o.Prefix + "hot"
	holder, err := s.lockers[0].Acquire(context.Background(), hot)
	if err != nil {
		return nil, err
	}
	var overtook atomic.Int64
	bytes, goroutines, end := idle(func(ctx context.Context) error {
		h, err := s.lockers[0].Acquire(ctx, hot)
		if err != nil {
			return err
		}
		overtook.Add(1) // while it is held by the holder
		return h.Release(context.WithoutCancel(ctx))
	})
	r.WaiterBytes, r.Goroutines = bytes-plainBytes, goroutines-plainGoroutines
	if c, ok := s.lockers[0].(entry.WaiterCounter); ok {
		if r.Registered, err = c.Registered(context.Background(), hot); err != nil {
			return nil, err
		}
	}
	r.Overlaps = overtook.Load()
	if err := end(); err != nil {
		r.Samples = append(r.Samples, err.Error())
		r.Errors++
	}
	if err := holder.Release(context.Background()); err != nil {
		r.Samples = append(r.Samples, err.Error())
		r.Errors++
	}
	r.AllOps = int64(n)
	return r, nil
}
