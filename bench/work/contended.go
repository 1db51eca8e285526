package work

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// contended: all callers want one name. A closed loop with a critical section; waits that the end of the
// slice cuts short count for the longest wait.
func (s *session) contended(o *Order) (*Result, error) {
	return s.crowd(o, func(c *caller, ctx context.Context, store *Storage, began time.Time, d time.Duration) {
		c.contend(ctx, &s.open, o, store, began, d)
	})
}

// crowd runs all callers for the warm-up, and then for the slice.
func (s *session) crowd(o *Order, run func(*caller, context.Context, *Storage, time.Time, time.Duration)) (*Result, error) {
	store, err := OpenStorage(o.Storage)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	r := &Result{}
	pass := func(d time.Duration) ([]*caller, *meter) {
		for _, c := range s.callers {
			c.reset()
		}
		m := startMeter()
		ctx, cancel := context.WithDeadline(context.Background(), m.began.Add(d))
		defer cancel()
		wait := join(s.callers, func(c *caller) { run(c, ctx, store, m.began, d) })
		return wait(time.After(d + drain + time.Second)), m
	}
	if o.WarmMS > 0 {
		back, _ := pass(millis(o.WarmMS))
		for _, c := range back {
			r.AllOps += c.all
			r.Writes += c.writes
			r.Overlaps += c.overlaps
		}
		if len(back) < len(s.callers) {
			r.Stuck = int64(len(s.callers) - len(back))
			r.Samples = []string{"stuck in the warm-up"}
			return r, nil
		}
	}
	back, m := pass(millis(o.SliceMS))
	m.stop(r)
	r.Elapsed = int64(millis(o.SliceMS))
	gather(r, back)
	r.PerCaller = make([]int64, len(s.callers))
	for _, c := range back {
		r.PerCaller[c.number] = c.ops
	}
	r.Stuck = int64(len(s.callers) - len(back))
	return r, s.sizes(r)
}

func (c *caller) contend(ctx context.Context, open, o *Order, store *Storage, began time.Time, d time.Duration) {
	rng := rand.New(rand.NewPCG(uint64(o.Who+c.number), 7))
	pause := time.Duration(open.PauseUS) * time.Microsecond
	name, after := o.Prefix+"hot", context.Background() // made here, so that they do not show in the allocations
	for {
		t0 := time.Since(began)
		if t0 >= d {
			return
		}
		held, err := c.locker.Acquire(ctx, name)
		t1 := time.Since(began)
		c.waitMax = max(c.waitMax, int64(t1-t0))
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			c.failed(err)
			continue
		}
		v := store.Enter(o.Who + c.number)
		hold(rng, open)
		store.Leave(&v)
		err = held.Release(after)
		t2 := time.Since(began)
		if err != nil {
			c.failed(err)
		}
		c.all++
		c.writes++
		c.waitSum += int64(t1 - t0)
		c.acquire = append(c.acquire, int64(t1-t0))
		c.release = append(c.release, int64(t2-t1))
		c.total = append(c.total, int64(t2-t0))
		if v.Overlap {
			c.overlaps++
		}
		if v.Self {
			c.self++
		} else if v.Handoff >= 0 {
			c.handoff = append(c.handoff, int64(v.Handoff))
		}
		if t2 <= d {
			c.ops++
		}
		if pause > 0 {
			time.Sleep(pause)
		}
	}
}

// hold is the critical section.
func hold(rng *rand.Rand, open *Order) {
	us := int64(open.HoldUS)
	if us > 0 && open.Random {
		us = rng.Int64N(us)
	}
	if us > 0 {
		nap(time.Duration(us) * time.Microsecond)
	}
}

// burst: all callers, each with a client of its own, ask for one name at the same moment, once, and
// again after everybody was served and a pause. Times count from that moment (an open loop). Ops counts
// acquisitions, Elapsed the time from the moment to the last release.
func (s *session) burst(o *Order) (*Result, error) {
	store, err := OpenStorage(o.Storage)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	for _, c := range s.callers {
		c.reset()
	}
	r := &Result{PerCaller: make([]int64, len(s.callers))}
	end := time.Now().Add(millis(o.SliceMS))
	var active time.Duration
	m := startMeter()
	back := s.callers
	for round := 0; round == 0 || time.Now().Before(end) && len(back) == len(s.callers); round++ {
		limit := max(time.Until(end), 0) + drain
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		gate := make(chan struct{})
		var ready sync.WaitGroup
		ready.Add(len(s.callers))
		var began time.Time
		wait := join(s.callers, func(c *caller) {
			rng := rand.New(rand.NewPCG(uint64(o.Who+c.number), 7))
			ready.Done()
			<-gate
			c.once(ctx, rng, &s.open, o, store, began)
		})
		ready.Wait()
		began = time.Now()
		close(gate)
		back = wait(time.After(limit + time.Second))
		active += time.Since(began)
		cancel()
		time.Sleep(10 * time.Millisecond)
	}
	m.stop(r)
	r.Elapsed = int64(active)
	gather(r, back)
	for i, c := range back {
		r.PerCaller[i] = c.ops
	}
	r.Stuck = int64(len(s.callers) - len(back))
	return r, nil
}

func (c *caller) once(ctx context.Context, rng *rand.Rand, open, o *Order, store *Storage, began time.Time) {
	held, err := c.locker.Acquire(ctx, o.Prefix+"hot")
	t1 := time.Since(began)
	c.waitMax = max(c.waitMax, int64(t1))
	if err != nil {
		c.failed(err)
		return
	}
	v := store.Enter(o.Who + c.number)
	hold(rng, open)
	store.Leave(&v)
	if err := held.Release(context.WithoutCancel(ctx)); err != nil {
		c.failed(err)
	}
	c.ops++
	c.all++
	c.writes++
	c.waitSum += int64(t1)
	c.acquire = append(c.acquire, int64(t1))
	c.total = append(c.total, int64(time.Since(began)))
	if v.Overlap {
		c.overlaps++
	}
	if !v.Self && v.Handoff >= 0 {
		c.handoff = append(c.handoff, int64(v.Handoff))
	}
}
