package work

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
)

// readWrite: callers of several clients read and write one name. A closed loop, in which only
// callers that only write pause. The longest hold of a reader and the round trips of the same slice
// say what a writer has to wait for.
func (s *session) readWrite(o *Order) (*Result, error) {
	for _, c := range s.callers {
		if _, ok := c.locker.(entry.ReadLocker); !ok {
			return nil, errors.New("the entry has no read lock")
		}
	}
	probe, err := s.probe()
	if err != nil {
		return nil, err
	}
	r, err := s.crowd(o, func(c *caller, ctx context.Context, store *Storage, began time.Time, d time.Duration) {
		c.readWrite(ctx, &s.open, o, store, began, d)
	})
	trips := probe()
	if err == nil {
		r.RoundTrip = trips
	}
	return r, err
}

// probe takes the time of a round trip to a majority of the members every 5 ms, until end is
// called.
func (s *session) probe() (end func() Histogram, _ error) {
	if s.spec.Kind != entry.Redis {
		return func() Histogram { return nil }, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p, err := entry.DialProbe(ctx, s.open.Members)
	if err != nil {
		cancel()
		return nil, err
	}
	h := NewHistogram()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(5 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			t0 := time.Now()
			if p.RoundTrip(ctx) == nil {
				_ = h.RecordValue(min(max(int64(time.Since(t0)), 1), Highest))
			}
		}
	})
	return func() Histogram {
		cancel()
		wg.Wait()
		p.Close()
		return Pairs(h)
	}, nil
}

func (c *caller) readWrite(ctx context.Context, open, o *Order, store *Storage, began time.Time, d time.Duration) {
	rng := rand.New(rand.NewPCG(uint64(o.Who+c.number), 7))
	nap, err := newSleeper()
	if err != nil {
		c.failed(err)
		return
	}
	defer nap.Close()
	name, reader := o.Prefix+"hot", c.locker.(entry.ReadLocker)
	hold, pause := time.Duration(open.HoldUS)*time.Microsecond, time.Duration(open.PauseUS)*time.Microsecond
	for {
		t0 := time.Since(began)
		if t0 >= d {
			return
		}
		read := c.number >= open.Writers && rng.IntN(100) < open.Reads
		acquire := c.locker.Acquire
		if read {
			acquire = reader.AcquireShared
		}
		held, err := acquire(ctx, name)
		t1 := time.Since(began)
		c.waitMax = max(c.waitMax, int64(t1-t0))
		if err != nil {
			if ctx.Err() != nil {
				if !read { // a lower bound: without it a writer that starves would not show
					c.writing = append(c.writing, int64(t1-t0))
				}
				return
			}
			c.failed(err)
			continue
		}
		var v Visit
		if read {
			v = store.EnterShared()
			nap.Sleep(hold)
			store.LeaveShared(&v)
			c.longestRead = max(c.longestRead, int64(time.Since(began)-t1))
			c.reading = append(c.reading, int64(t1-t0))
		} else {
			v = store.Enter(o.Who + c.number)
			nap.Sleep(hold)
			store.Leave(&v)
			c.writing = append(c.writing, int64(t1-t0))
			c.writes++
		}
		t2 := time.Since(began)
		err = held.Release(context.WithoutCancel(ctx))
		t3 := time.Since(began)
		if err != nil {
			c.failed(err)
		}
		c.all++
		c.waitSum += int64(t1 - t0)
		c.acquire = append(c.acquire, int64(t1-t0))
		c.release = append(c.release, int64(t3-t2))
		c.total = append(c.total, int64(t3-t0))
		if v.Overlap {
			c.overlaps++
		}
		if t3 <= d {
			c.ops++
		}
		if pause > 0 && c.number < open.Writers {
			nap.Sleep(pause)
		}
	}
}

// settle is how long readers get to be registered before the writer releases.
const settle = 60 * time.Millisecond

// letIn: the first caller writes, and all others ask for a read lock meanwhile. The writer releases
// when they wait. Times count from the start of that release: of each reader in Acquire, of the
// last one in Total. Readers stay until all of them are in. The next round begins when all have
// left.
func (s *session) letIn(o *Order) (*Result, error) {
	store, err := OpenStorage(o.Storage)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	r := &Result{}
	if o.WarmMS > 0 {
		for _, c := range s.callers {
			c.reset()
		}
		back := s.letInOnce(o, store, drain)
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
	for _, c := range s.callers {
		c.reset()
	}
	end := time.Now().Add(millis(o.SliceMS))
	m := startMeter()
	back := s.callers
	for round := 0; round == 0 || time.Now().Before(end) && len(back) == len(s.callers); round++ {
		back = s.letInOnce(o, store, max(time.Until(end), 0)+drain)
	}
	m.stop(r)
	gather(r, back)
	for _, c := range back {
		r.PerCaller = append(r.PerCaller, c.ops)
	}
	r.Stuck = int64(len(s.callers) - len(back))
	return r, nil
}

func (s *session) letInOnce(o *Order, store *Storage, limit time.Duration) (back []*caller) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	name, began, writer := o.Prefix+"hot", time.Now(), s.callers[0]
	held, err := writer.locker.Acquire(ctx, name)
	if err != nil {
		writer.failed(err)
		return s.callers
	}
	v := store.Enter(o.Who)
	var asked, in sync.WaitGroup
	asked.Add(len(s.callers) - 1)
	in.Add(len(s.callers) - 1)
	times := make([]time.Duration, len(s.callers)) // since began
	everybody := make(chan struct{})
	go func() { in.Wait(); close(everybody) }() // ends with the readers
	wait := join(s.callers, func(c *caller) {
		if c == writer {
			asked.Wait()
			time.Sleep(settle)
			store.Leave(&v)
			times[0] = time.Since(began)
			if err := held.Release(context.WithoutCancel(ctx)); err != nil {
				c.failed(err)
			}
			c.release = append(c.release, int64(time.Since(began)-times[0]))
			c.writes++
			return
		}
		asked.Done()
		held, err := c.locker.(entry.ReadLocker).AcquireShared(ctx, name)
		times[c.number] = time.Since(began)
		if err != nil {
			c.failed(err)
			in.Done()
			return
		}
		v := store.EnterShared()
		in.Done()
		select {
		case <-everybody:
		case <-ctx.Done():
		}
		store.LeaveShared(&v)
		if err := held.Release(context.WithoutCancel(ctx)); err != nil {
			c.failed(err)
		}
		c.ops++
		c.all++
		if v.Overlap {
			c.overlaps++
		}
		c.acquire = append(c.acquire, int64(times[c.number]-times[0]))
	})
	back = wait(time.After(limit + time.Second))
	if len(back) < len(s.callers) {
		return back
	}
	if v.Overlap {
		writer.overlaps++
	}
	var last time.Duration
	for _, t := range times[1:] {
		last = max(last, t)
	}
	writer.total = append(writer.total, int64(last-times[0]))
	return back
}
