package work

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
)

// latch: half of the callers wait for a latch, and the others arrive until it opens, Count times in all. Times
// count from the start of the last arrival: of each waiter in Acquire, of the last one in Total. A waiter
// that returns before is an overlap. The next round has another latch.
func (s *session) latch(o *Order) (*Result, error) {
	for _, c := range s.callers {
		if _, ok := c.locker.(entry.Latcher); !ok {
			return nil, errors.New("the entry has no latch")
		}
	}
	r := &Result{}
	var active time.Duration
	if o.WarmMS > 0 {
		for _, c := range s.callers {
			c.reset()
		}
		back, _ := s.latchOnce(o.Prefix+"warm", max(s.open.Count/10, len(s.callers)))
		for _, c := range back {
			r.AllOps += c.all
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
	trips, err := s.probe()
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(millis(o.SliceMS))
	m := startMeter()
	back := s.callers
	for round := 0; round == 0 || time.Now().Before(until) && len(back) == len(s.callers); round++ {
		var d time.Duration
		back, d = s.latchOnce(fmt.Sprintf("%slatch:%d", o.Prefix, round), s.open.Count)
		active += d
	}
	m.stop(r)
	r.Elapsed = max(int64(active), 1)
	gather(r, back)
	r.RoundTrip = trips()
	r.Stuck = int64(len(s.callers) - len(back))
	return r, nil
}

// latchLimit is how long a round may take.
const latchLimit = 15 * time.Second

func (s *session) latchOnce(name string, count int) (back []*caller, active time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), latchLimit)
	defer cancel()
	defer func() {
		time.Sleep(settle) // members that are behind hear that it is open
		s.clean(name)
	}()
	half := len(s.callers) / 2
	began := time.Now()
	open := make([]time.Duration, len(s.callers)) // since began
	last := make([]time.Duration, half)           // the start of a caller's last arrival
	var invoked atomic.Int64
	begin := make(chan struct{})
	wait := join(s.callers, func(c *caller) {
		l, err := c.locker.(entry.Latcher).Latch(ctx, name, count)
		if err != nil {
			c.failed(err)
			return
		}
		if c.number >= half {
			if err := l.Await(ctx); err != nil {
				c.failed(err)
				return
			}
			open[c.number] = time.Since(began)
			if invoked.Load() < int64(count) {
				c.overlaps++
			}
			return
		}
		<-begin
		n := count / half
		if c.number < count%half {
			n++
		}
		for range n {
			invoked.Add(1)
			t0 := time.Since(began)
			last[c.number] = t0
			if err := l.Arrive(ctx); err != nil {
				c.failed(err)
				continue
			}
			c.release = append(c.release, int64(time.Since(began)-t0))
			c.ops++
			c.all++
		}
	})
	time.Sleep(settle)
	t0 := time.Since(began)
	close(begin)
	back = wait(time.After(latchLimit + time.Second))
	active = time.Since(began) - t0
	if len(back) < len(s.callers) {
		return back, active
	}
	var lastStart, lastOpen time.Duration
	for _, t := range last {
		lastStart = max(lastStart, t)
	}
	for _, c := range s.callers[half:] {
		if open[c.number] > 0 {
			c.acquire = append(c.acquire, int64(open[c.number]-lastStart))
			lastOpen = max(lastOpen, open[c.number])
		}
	}
	if lastOpen > 0 {
		s.callers[half].total = append(s.callers[half].total, int64(lastOpen-lastStart))
	}
	return back, active
}
