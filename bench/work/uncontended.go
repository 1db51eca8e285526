package work

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// names makes names that nobody else uses. They are cut from pieces of a thousand, so that making them
// does not show in the allocations per operation.
type names struct {
	prefix string
	warm   int
	all    []string
	i      int
}

const namesAtOnce = 1024

func newNames(prefix string, warm int) *names {
	n := &names{prefix: prefix, warm: warm}
	if warm > 0 {
		n.all = make([]string, warm)
		for i := range n.all {
			n.all[i] = prefix + strconv.Itoa(i)
		}
	}
	return n
}

func (n *names) next() string {
	if n.warm > 0 {
		n.i++
		return n.all[n.i%n.warm]
	}
	k := n.i % namesAtOnce
	if k == 0 {
		var b strings.Builder
		for i := range namesAtOnce {
			b.WriteString(n.prefix)
			b.WriteString(strconv.Itoa(1_000_000_000 + n.i + i))
		}
		all := b.String()
		size := len(n.prefix) + 10
		if n.all == nil {
			n.all = make([]string, namesAtOnce)
		}
		for i := range n.all {
			n.all[i] = all[i*size : (i+1)*size]
		}
	}
	n.i++
	return n.all[k]
}

// uncontended: every caller locks and unlocks names that nobody else wants. A closed loop; with a Rate,
// operations arrive on a schedule and their time counts from the arrival, so that those that had to wait
// for a slow one show it (no coordinated omission).
func (s *session) uncontended(o *Order) (*Result, error) {
	r := &Result{}
	warm := make([]int, len(s.callers))
	for i := range warm {
		if s.open.Warm > 0 {
			warm[i] = max(1, s.open.Warm/len(s.callers))
		}
	}
	name := make([]*names, len(s.callers))
	for i := range name {
		name[i] = newNames(o.Prefix+strconv.Itoa(i)+":", warm[i])
	}
	pass := func(d time.Duration) (back []*caller, m *meter) {
		for _, c := range s.callers {
			c.reset()
		}
		m = startMeter()
		ctx, cancel := context.WithDeadline(context.Background(), m.began.Add(d+drain))
		defer cancel()
		run := func(c *caller) { c.loop(ctx, name[c.number], m.began, d) }
		if s.open.Rate > 0 {
			var arrivals atomic.Int64
			gap := time.Second / time.Duration(s.open.Rate)
			run = func(c *caller) { c.scheduled(ctx, name[c.number], m.began, d, gap, &arrivals) }
		}
		wait := join(s.callers, run)
		return wait(time.After(d + drain + time.Second)), m
	}
	var before, beforeSecond int64
	if o.WarmMS > 0 {
		back, _ := pass(millis(o.WarmMS))
		for _, c := range back {
			r.AllOps += c.all
		}
		if len(back) < len(s.callers) {
			r.Stuck = int64(len(s.callers) - len(back))
			r.Samples = []string{"stuck in the warm-up"}
			return r, nil
		}
	}
	counter, counts := s.lockers[0].(interface{ Rounds() (int64, int64) })
	if counts {
		before, beforeSecond = counter.Rounds()
	}
	back, m := pass(millis(o.SliceMS))
	m.stop(r)
	r.Elapsed = max(int64(millis(o.SliceMS)), 1)
	if counts {
		r.Acquired, r.Second = counter.Rounds()
		r.Acquired, r.Second = r.Acquired-before, r.Second-beforeSecond
	}
	gather(r, back)
	r.Stuck = int64(len(s.callers) - len(back))
	return r, nil
}

func (c *caller) loop(ctx context.Context, n *names, began time.Time, d time.Duration) {
	for t0 := time.Since(began); t0 < d; t0 = time.Since(began) {
		c.one(ctx, n.next(), began, t0, d)
	}
}

// scheduled takes the next arrival off the schedule and waits for its time. There are enough callers for
// a burst; when all are busy, arrivals wait, and their waiting counts.
func (c *caller) scheduled(ctx context.Context, n *names, began time.Time, d, gap time.Duration, arrivals *atomic.Int64) {
	for {
		due := time.Duration(arrivals.Add(1)-1) * gap
		if due >= d {
			return
		}
		if ahead := due - time.Since(began); ahead > 0 {
			time.Sleep(ahead)
		}
		c.one(ctx, n.next(), began, due, d)
	}
}

func (c *caller) one(ctx context.Context, name string, began time.Time, t0, d time.Duration) {
	held, err := c.locker.Acquire(ctx, name)
	t1 := time.Since(began)
	c.acquire = append(c.acquire, int64(t1-t0))
	if err != nil {
		c.failed(err)
		c.total = append(c.total, int64(t1-t0)) // a lower bound
		return
	}
	if err := held.Release(ctx); err != nil {
		c.failed(err)
	}
	t2 := time.Since(began)
	c.release = append(c.release, int64(t2-t1))
	c.total = append(c.total, int64(t2-t0))
	c.all++
	if t2 <= d {
		c.ops++
	}
}
