package work

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
)

// names makes names that nobody else uses. They are cut from pieces of a thousand, the first of which is
// there before it begins, so that making them does not show in the allocations per operation.
type names struct {
	prefix string
	warm   int
	piece  int
	all    []string
	i      int
}

func newNames(prefix string, warm int) *names {
	n := &names{prefix: prefix, warm: warm, piece: max(1, min(1024, 1<<17/len(prefix)))}
	if warm == 0 {
		n.all = make([]string, n.piece)
		n.fill()
		return n
	}
	n.all = make([]string, warm)
	for i := range n.all {
		n.all[i] = prefix + strconv.Itoa(i)
	}
	return n
}

// fill makes the next piece.
func (n *names) fill() {
	size := len(n.prefix) + 10
	b := make([]byte, 0, size*n.piece)
	for i := range n.piece {
		b = strconv.AppendInt(append(b, n.prefix...), int64(1_000_000_000+n.i+i), 10)
	}
	all := string(b)
	for i := range n.all {
		n.all[i] = all[i*size : (i+1)*size]
	}
}

func (n *names) next() string {
	if n.warm > 0 {
		n.i++
		return n.all[n.i%n.warm]
	}
	k := n.i % n.piece
	if k == 0 && n.i > 0 {
		n.fill()
	}
	n.i++
	return n.all[k]
}

// uncontended: every caller locks and unlocks names that nobody else wants. A closed loop; with a Rate,
// operations arrive on a schedule and their time counts from the arrival, so that those that had to wait
// for a slow one show it (no coordinated omission).
func (s *session) uncontended(o *Order) (*Result, error) {
	if err := s.canAsk(); err != nil {
		return nil, err
	}
	if s.open.Ask == AskFurther || s.open.Ask == AskAgain {
		return s.again(o)
	}
	r := &Result{}
	if s.open.Held {
		held, err := s.take(o.Prefix+"held:", s.open.Count)
		if err != nil {
			return nil, err
		}
		r.AllOps += int64(len(held))
		defer func() {
			failed, texts := release(held)
			r.Errors, r.Samples = r.Errors+failed, append(r.Samples, texts...)
		}()
	}
	if s.open.Limit > 0 {
		release, taken, err := s.fill(o.Prefix + permitName)
		if err != nil {
			return nil, err
		}
		defer release()
		r.AllOps += taken // the suite looks at the servers before and after
	}
	warm := make([]int, len(s.callers))
	for i := range warm {
		if s.open.Warm > 0 {
			warm[i] = max(1, s.open.Warm/len(s.callers))
		}
	}
	name := make([]*names, len(s.callers))
	for i := range name {
		prefix := o.Prefix + strconv.Itoa(i) + ":"
		prefix += strings.Repeat("n", max(0, s.open.Length-len(prefix)-10))
		name[i] = newNames(prefix, warm[i])
		if s.open.Limit > 0 {
			name[i] = &names{warm: 1, all: []string{o.Prefix + permitName}}
		}
	}
	pass := func(name []*names, d time.Duration) (back []*caller, m *meter) {
		for _, c := range s.callers {
			c.reset()
		}
		m = startMeter()
		ctx, cancel := context.WithDeadline(context.Background(), m.began.Add(d+drain))
		defer cancel()
		run := func(c *caller) { c.loop(ctx, &s.open, name[c.number], m.began, d) }
		if s.open.Rate > 0 {
			var arrivals atomic.Int64
			gap := time.Second / time.Duration(s.open.Rate)
			run = func(c *caller) { c.scheduled(ctx, &s.open, name[c.number], m.began, d, gap, &arrivals) }
		}
		wait := join(s.callers, run)
		return wait(time.After(d + drain + time.Second)), m
	}
	var before, beforeSecond int64
	if o.WarmMS > 0 {
		back, _ := pass(s.warmNames(o.Prefix, name), millis(o.WarmMS))
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
	count := func() int64 { return -1 }
	if s.open.Runs {
		count = futexes()
	}
	back, m := pass(name, millis(o.SliceMS))
	m.stop(r)
	r.Futexes = count()
	r.Elapsed = max(int64(millis(o.SliceMS)), 1)
	if counts {
		r.Acquired, r.Second = counter.Rounds()
		r.Acquired, r.Second = r.Acquired-before, r.Second-beforeSecond
	}
	gather(r, back)
	r.Stuck = int64(len(s.callers) - len(back))
	if s.open.Runs && r.Stuck == 0 {
		err := traced(r, func() []*caller { back, _ := pass(name, min(millis(o.SliceMS), tracedFor)); return back })
		if err != nil {
			return nil, err
		}
	}
	return r, s.sizes(r)
}

// warmNames are what the callers use in the warm-up: few names each, so that to new servers what is
// measured is the first use of nearly all.
func (s *session) warmNames(prefix string, name []*names) []*names {
	if s.open.Warm > 0 || s.open.Limit > 0 {
		return name
	}
	few := make([]*names, len(name))
	for i := range few {
		few[i] = newNames(prefix+"warm"+strconv.Itoa(i)+":", max(1, s.open.Names))
	}
	return few
}

func (c *caller) loop(ctx context.Context, open *Order, n *names, began time.Time, d time.Duration) {
	for t0 := time.Since(began); t0 < d && (open.Ops == 0 || c.all+c.errs < int64(open.Ops)); t0 = time.Since(began) {
		c.one(ctx, open, n, began, t0, d)
	}
}

// scheduled takes the next arrival off the schedule and waits for its time. There are enough callers for
// a burst; when all are busy, arrivals wait, and their waiting counts.
func (c *caller) scheduled(ctx context.Context, open *Order, n *names, began time.Time, d, gap time.Duration, arrivals *atomic.Int64) {
	for {
		due := time.Duration(arrivals.Add(1)-1) * gap
		if due >= d {
			return
		}
		if ahead := due - time.Since(began); ahead > 0 {
			time.Sleep(ahead)
		}
		c.one(ctx, open, n, began, due, d)
	}
}

func (c *caller) one(ctx context.Context, open *Order, n *names, began time.Time, t0, d time.Duration) {
	var held entry.Held
	var err error
	switch {
	case open.Names > 0:
		c.set = c.set[:0]
		for range open.Names {
			c.set = append(c.set, n.next())
		}
		held, err = c.locker.(entry.SetLocker).AcquireAll(ctx, c.set)
	case open.Limit > 0:
		held, err = c.locker.(entry.PermitLocker).AcquirePermit(ctx, n.next(), open.Limit)
	case open.Ask == AskRead:
		held, err = c.locker.(entry.ReadLocker).AcquireShared(ctx, n.next())
	default:
		held, err = c.locker.Acquire(ctx, n.next())
	}
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

// canAsk reports why the entry cannot do what is asked for.
func (s *session) canAsk() error {
	if _, ok := s.lockers[0].(entry.SetLocker); s.open.Names > 0 && !ok {
		return errors.New("the entry has no sets of names")
	}
	if _, ok := s.lockers[0].(entry.ReadLocker); (s.open.Ask == AskRead || s.open.Ask == AskFurther) && !ok {
		return errors.New("the entry has no read lock")
	}
	if _, ok := s.lockers[0].(entry.PermitLocker); s.open.Limit > 0 && !ok {
		return errors.New("the entry has no permits")
	}
	return nil
}

// againPiece is how many operations follow one another for each look at the clock.
const againPiece = 64

// again: every caller asks for one name, which its client reads meanwhile (AskFurther) or has just had. If the
// library serves that by itself, a look at the clock costs as much. So latencies are those of one
// operation in againPiece then.
func (s *session) again(o *Order) (*Result, error) {
	ctx, cancel := context.WithTimeout(context.Background(), millis(o.WarmMS+o.SliceMS)+2*drain)
	defer cancel()
	name := o.Prefix + "again"
	if s.open.Ask == AskFurther {
		for _, l := range s.lockers {
			held, err := l.(entry.ReadLocker).AcquireShared(ctx, name)
			if err != nil {
				return nil, err
			}
			defer func() { _ = held.Release(context.WithoutCancel(ctx)) }()
		}
	}
	r := &Result{}
	pass := func(d time.Duration) ([]*caller, *meter) {
		for _, c := range s.callers {
			c.reset()
		}
		m := startMeter()
		wait := join(s.callers, func(c *caller) { c.again(ctx, s, name, m.began, d) })
		return wait(time.After(d + drain + time.Second)), m
	}
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
	back, m := pass(millis(o.SliceMS))
	m.stop(r)
	gather(r, back)
	r.Stuck = int64(len(s.callers) - len(back))
	return r, nil
}

func (c *caller) again(ctx context.Context, s *session, name string, began time.Time, d time.Duration) {
	next := c.number
	once := func() {
		l := s.lockers[next%len(s.lockers)]
		next++
		var held entry.Held
		var err error
		if s.open.Ask == AskFurther {
			held, err = l.(entry.ReadLocker).AcquireShared(ctx, name)
		} else {
			held, err = l.Acquire(ctx, name)
		}
		if err == nil {
			c.all++
			err = held.Release(ctx)
		}
		if err != nil {
			c.failed(err)
		}
	}
	for t0 := time.Since(began); t0 < d && ctx.Err() == nil; t0 = time.Since(began) {
		once()
		t1 := time.Since(began)
		c.total = append(c.total, int64(t1-t0))
		for i := 1; i < againPiece && t1-t0 < 100*time.Microsecond; i++ { // one that takes a round trip stands alone
			once()
		}
	}
	c.ops = c.all // the clock goes on with them: Elapsed is measured
}
