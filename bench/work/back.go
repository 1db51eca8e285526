package work

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
)

const (
	tryEvery  = 3 * time.Millisecond
	backLimit = 60 * time.Second // how long a member may be away after the end of the slice
)

// back: a member is killed meanwhile, and comes back without data. One caller tries a free lock every tryEvery, until the slice
// has ended and every client says again that all members vote. Those that do not say so are stuck.
func (s *session) back(o *Order) (*Result, error) {
	for _, l := range s.lockers {
		if _, ok := l.(entry.Voter); !ok {
			return nil, errors.New("the entry does not tell how many members vote")
		}
	}
	votes := func(i int) bool { return s.lockers[i].(entry.Voter).Voting() == len(s.open.Members) }
	lost := func() (n int64) {
		for _, l := range s.lockers {
			n += l.(entry.Voter).Lost()
		}
		return n
	}
	r, c, name := &Result{}, s.callers[0], newNames(o.Prefix, 0)
	c.reset()
	before, away, seen := lost(), false, 0 // seen: clients that say that all members vote
	m := startMeter()
	end := m.began.Add(millis(o.SliceMS))
	for now := m.began; now.Before(end) || seen < len(s.lockers) && now.Before(end.Add(backLimit)); now = time.Now() {
		c.try(name.next())
		switch {
		case !away:
			away = !votes(0)
		case seen == 0 && votes(0):
			r.Back = time.Now().UnixNano()
			fallthrough
		case seen > 0:
			was := seen
			for seen < len(s.lockers) && votes(seen) {
				seen++
			}
			if was < seen {
				r.BackAll = time.Now().UnixNano()
			}
		}
		time.Sleep(tryEvery - time.Since(now))
	}
	m.stop(r)
	gather(r, s.callers)
	r.Stuck, r.Sessions = int64(len(s.lockers)-seen), lost()-before
	return r, nil
}

// try tries a free lock once. A try that fails is an error.
func (c *caller) try(name string) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*drain)
	defer cancel()
	t0 := time.Now()
	held, err := c.locker.(entry.Voter).Try(ctx, name)
	c.total = append(c.total, int64(time.Since(t0)))
	c.ops++
	c.all++
	if err == nil {
		err = held.Release(ctx)
	}
	if err != nil {
		c.failed(err)
	}
}
