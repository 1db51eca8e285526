package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
)

// leaderName is the one election of a slice.
const leaderName = "leader"

// lead campaigns once, and keeps leading.
func (s *session) lead(o *Order) (*Result, error) {
	l, ok := s.lockers[0].(entry.Elector)
	if !ok {
		return nil, errors.New("the entry has no election")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	_, err := l.Campaign(ctx, o.Prefix+leaderName, fmt.Sprintf("process %d", os.Getpid()))
	return &Result{}, err
}

// trips takes the time of round trips while nothing else happens.
func (s *session) trips() (take func(), all func() Histogram, end func(), _ error) {
	if s.spec.Kind != entry.Redis {
		return func() {}, func() Histogram { return nil }, func() {}, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	p, err := entry.DialProbe(ctx, s.open.Members)
	if err != nil {
		cancel()
		return nil, nil, nil, err
	}
	h := NewHistogram()
	return func() {
		for range 20 {
			t0 := time.Now()
			if p.RoundTrip(ctx) == nil {
				_ = h.RecordValue(min(max(int64(time.Since(t0)), 1), Highest))
			}
		}
	}, func() Histogram { return Pairs(h) }, func() { cancel(); p.Close() }, nil
}

// leader: half of the callers campaign, and the others observe. The leader resigns, or its process is killed,
// and another leads. Times count from then: until another leads in Acquire, and from then on until the
// last observer has heard of it in Told.
func (s *session) leader(o *Order) (*Result, error) {
	for _, c := range s.callers {
		if _, ok := c.locker.(entry.Elector); !ok {
			return nil, errors.New("the entry has no election")
		}
	}
	take, trips, end, err := s.trips()
	if err != nil {
		return nil, err
	}
	defer end()
	for _, c := range s.callers {
		c.reset()
	}
	r := &Result{}
	until := time.Now().Add(millis(o.SliceMS))
	m := startMeter()
	if s.open.Ask == AskCrash {
		for round := 0; round == 0 || time.Now().Before(until); round++ {
			if err := s.crash(fmt.Sprintf("%s%d:", o.Prefix, round), take); err != nil {
				return nil, err
			}
		}
	} else if err := s.resign(o.Prefix+leaderName, until, take); err != nil {
		return nil, err
	}
	m.stop(r)
	gather(r, s.callers)
	r.RoundTrip = trips()
	return r, nil
}

// council is the candidates and observers of one name.
type council struct {
	s       *session
	ctx     context.Context
	cancel  func()
	wg      sync.WaitGroup
	elected chan elected
	leaders atomic.Int32 // who believe to lead

	mu    sync.Mutex
	heard map[string]map[int]time.Time // by value and observer: when
	news  chan struct{}                // capacity 1
}

// elected is one candidate that leads. It resigns when it is told to, and says when it began.
type elected struct {
	value  string
	at     time.Time
	resign chan chan time.Time
}

// convene lets all observers observe, and half of the callers campaign as soon as begin is closed.
func (s *session) convene(name string, begin <-chan struct{}) *council {
	c := &council{s: s, elected: make(chan elected, len(s.callers)), heard: map[string]map[int]time.Time{}, news: make(chan struct{}, 1)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	half := len(s.callers) / 2
	for _, one := range s.callers[half:] {
		c.wg.Go(func() {
			err := one.locker.(entry.Elector).Observe(c.ctx, name, func(value string) {
				c.mu.Lock()
				if c.heard[value] == nil {
					c.heard[value] = map[int]time.Time{}
				}
				if _, before := c.heard[value][one.number]; !before {
					c.heard[value][one.number] = time.Now()
				}
				c.mu.Unlock()
				select {
				case c.news <- struct{}{}:
				default:
				}
			})
			if err != nil && c.ctx.Err() == nil {
				one.failed(err)
			}
		})
	}
	for _, one := range s.callers[:half] {
		c.wg.Go(func() {
			select {
			case <-begin:
			case <-c.ctx.Done():
			}
			for n := 0; c.ctx.Err() == nil; n++ {
				value := fmt.Sprintf("candidate %d, term %d", one.number, n)
				held, err := one.locker.(entry.Elector).Campaign(c.ctx, name, value)
				if err != nil {
					if c.ctx.Err() == nil {
						one.failed(err)
					}
					continue
				}
				e := elected{value, time.Now(), make(chan chan time.Time)}
				if c.leaders.Add(1) > 1 {
					one.overlaps++
				}
				c.elected <- e
				var told chan time.Time
				select {
				case told = <-e.resign:
				case <-c.ctx.Done():
				}
				c.leaders.Add(-1)
				t0 := time.Now()
				err = held.Release(context.WithoutCancel(c.ctx))
				if told != nil {
					told <- t0
				}
				one.release = append(one.release, int64(time.Since(t0)))
				if err != nil {
					one.failed(err)
				}
				one.ops++
				one.all++
			}
		})
	}
	return c
}

// close ends all of them.
func (c *council) close() {
	c.cancel()
	c.wg.Wait()
}

// next returns the next leader.
func (c *council) next(limit time.Duration) (elected, error) {
	select {
	case e := <-c.elected:
		return e, nil
	case <-time.After(limit):
		return elected{}, fmt.Errorf("nobody leads within %v", limit)
	}
}

// known waits until all observers have heard of a value, and returns when the last one did.
func (c *council) known(value string, limit time.Duration) (last time.Time, _ error) {
	over := time.After(limit)
	for {
		c.mu.Lock()
		n := len(c.heard[value])
		for _, at := range c.heard[value] {
			if at.After(last) {
				last = at
			}
		}
		c.mu.Unlock()
		if n == len(c.s.callers)-len(c.s.callers)/2 {
			return last, nil
		}
		select {
		case <-c.news:
		case <-over:
			return last, fmt.Errorf("%d observers heard of the leader within %v", n, limit)
		}
	}
}

// leaderLimit is how long a change of leader may take besides the lease.
const leaderLimit = 5 * time.Second

// rest is how long candidates get to be registered before the leader resigns.
const rest = 10 * time.Millisecond

// resign has leaders resign one after the other.
func (s *session) resign(name string, until time.Time, idle func()) error {
	begin := make(chan struct{})
	close(begin)
	c := s.convene(name, begin)
	defer s.clean(name)
	defer c.close()
	leader, err := c.next(s.lease() + leaderLimit)
	for round := 0; err == nil; round++ {
		if _, err := c.known(leader.value, s.lease()+leaderLimit); err != nil {
			return err
		}
		if round > 0 && !time.Now().Before(until) {
			return nil
		}
		time.Sleep(rest)
		idle()
		told := make(chan time.Time, 1)
		leader.resign <- told
		if leader, err = c.next(s.lease() + leaderLimit); err == nil {
			err = s.changed(c, <-told, leader)
		}
	}
	return err
}

// changed books a change of leader that began at t0.
func (s *session) changed(c *council, t0 time.Time, leader elected) error {
	last, err := c.known(leader.value, s.lease()+leaderLimit)
	if err != nil {
		return err
	}
	one := s.callers[len(s.callers)/2] // an observer: nobody else writes these
	one.acquire = append(one.acquire, int64(leader.at.Sub(t0)))
	one.told = append(one.told, int64(last.Sub(leader.at)))
	one.total = append(one.total, int64(last.Sub(t0)))
	return nil
}

// crash kills a leader that is a process of its own, while others wait to lead.
func (s *session) crash(prefix string, idle func()) error {
	first, err := s.leaderProcess(prefix)
	if err != nil {
		return err
	}
	defer first.kill()
	begin := make(chan struct{})
	c := s.convene(prefix+leaderName, begin)
	defer s.clean(prefix + leaderName)
	defer c.close()
	if _, err := c.known(fmt.Sprintf("process %d", first.cmd.Process.Pid), leaderLimit); err != nil {
		return err
	}
	close(begin)
	time.Sleep(settle)
	idle()
	if len(c.elected) > 0 {
		return errors.New("two leaders")
	}
	t0 := time.Now()
	first.kill()
	leader, err := c.next(2*s.lease() + leaderLimit)
	if err != nil {
		return err
	}
	return s.changed(c, t0, leader)
}

// process is a child of this one that leads.
type process struct {
	cmd  *exec.Cmd
	once sync.Once
}

// leaderProcess starts it, and returns when it leads.
func (s *session) leaderProcess(prefix string) (_ *process, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "child")
	cmd.Env = append(os.Environ(), "REDQUORUM_BENCH_CHILD=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd}
	defer func() {
		if err != nil {
			p.kill()
		}
	}()
	open := s.open
	open.Op, open.Entry, open.Callers, open.Clients, open.Profile = "open", s.spec.Name, 1, 1, ""
	orders, results := json.NewEncoder(in), json.NewDecoder(bufio.NewReader(out))
	for _, o := range []Order{open, {Op: "lead", Prefix: prefix}} {
		var r Result
		if err := errors.Join(orders.Encode(o), results.Decode(&r)); err != nil {
			return nil, fmt.Errorf("the process of the leader: %w", err)
		}
		if !r.OK {
			return nil, fmt.Errorf("the process of the leader: %s", r.Error)
		}
	}
	return p, nil
}

// kill ends it without a word to anybody.
func (p *process) kill() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
}
