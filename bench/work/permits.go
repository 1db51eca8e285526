package work

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
)

// permitName is the one semaphore of a slice.
const permitName = "permits"

// clean deletes what an entry keeps of a name by design.
func (s *session) clean(name string) {
	if c, ok := s.lockers[0].(entry.Cleaner); ok {
		ctx, cancel := context.WithTimeout(context.Background(), drain)
		defer cancel()
		_ = c.Clean(ctx, name)
	}
}

// fill takes half of the permits of a name. taken is how many operations that takes, with those of release.
func (s *session) fill(name string) (release func(), taken int64, _ error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	var all []entry.Held
	release = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		for _, h := range all {
			_ = h.Release(ctx)
		}
		s.clean(name)
	}
	n, limit := s.open.Limit/2, s.open.Limit
	if f, ok := s.lockers[0].(entry.Filler); ok {
		held, err := f.Fill(ctx, name, limit, n)
		if err != nil {
			return nil, 0, err
		}
		all = append(all, held)
		return release, 1, nil
	}
	for range n {
		held, err := s.lockers[0].(entry.PermitLocker).AcquirePermit(ctx, name, limit)
		if err != nil {
			release()
			return nil, 0, err
		}
		all = append(all, held)
	}
	return release, int64(n), nil
}

// permits: all callers want one of the permits of one name. A closed loop with a critical section, in which
// so many may be as there are permits; waits that the end of the slice cuts short count for the longest
// wait.
func (s *session) permits(o *Order) (*Result, error) {
	for _, c := range s.callers {
		if _, ok := c.locker.(entry.PermitLocker); !ok {
			return nil, errors.New("the entry has no permits")
		}
	}
	defer s.clean(o.Prefix + permitName)
	slots := make([]atomic.Int32, s.open.Limit)
	return s.crowd(o, func(c *caller, ctx context.Context, store *Storage, began time.Time, d time.Duration) {
		c.permits(ctx, &s.open, o, store, slots, began, d)
	})
}

func (c *caller) permits(ctx context.Context, open, o *Order, store *Storage, slots []atomic.Int32, began time.Time, d time.Duration) {
	nap, err := newSleeper()
	if err != nil {
		c.failed(err)
		return
	}
	defer nap.Close()
	name, locker := o.Prefix+permitName, c.locker.(entry.PermitLocker)
	hold, pause := time.Duration(open.HoldUS)*time.Microsecond, time.Duration(open.PauseUS)*time.Microsecond
	for {
		t0 := time.Since(began)
		if t0 >= d {
			return
		}
		held, err := locker.AcquirePermit(ctx, name, open.Limit)
		t1 := time.Since(began)
		c.waitMax = max(c.waitMax, int64(t1-t0))
		if err != nil {
			if ctx.Err() != nil {
				return
			}
			c.failed(err)
			continue
		}
		v, slot := store.EnterPermit(open.Limit), -1
		if h, ok := held.(entry.Slotted); ok {
			if slot = h.Slot(); slot < 0 || slot >= len(slots) || slots[slot].Add(1) != 1 {
				v.Overlap = true
			}
		}
		nap.Sleep(hold)
		if slot >= 0 && slot < len(slots) {
			slots[slot].Add(-1)
		}
		store.LeavePermit()
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
		nap.Sleep(pause)
	}
}
