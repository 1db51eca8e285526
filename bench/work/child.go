package work

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	hdr "github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/bench/entry"
)

// Serve is the main function of a child process. It carries out orders until close or the end of
// input.
func Serve(in io.Reader, out io.Writer) error {
	orders, results := json.NewDecoder(bufio.NewReader(in)), json.NewEncoder(out)
	var s session
	defer s.close()
	for {
		var o Order
		if err := orders.Decode(&o); err != nil {
			return nil // the suite is gone
		}
		if o.Op == "close" {
			s.close()
			return results.Encode(Result{OK: true})
		}
		r, err := s.do(&o)
		if err != nil {
			r = &Result{Error: err.Error()}
		}
		r.OK = err == nil
		if err := results.Encode(r); err != nil {
			return err
		}
	}
}

// session is one open entry.
type session struct {
	open    Order
	spec    *entry.Spec
	lockers []entry.Locker // one, or one per caller
	callers []*caller      // kept from slice to slice, for their room
	profile *os.File       // being written; nil without Order.Profile
}

func (s *session) do(o *Order) (*Result, error) {
	switch o.Op {
	case "open":
		return s.start(o)
	case "slice":
		if s.spec == nil {
			return nil, fmt.Errorf("slice before open")
		}
		switch s.open.Work {
		case Uncontended:
			return s.uncontended(o)
		case Contended:
			return s.contended(o)
		case ReadWrite:
			return s.readWrite(o)
		case LetIn:
			return s.letIn(o)
		case Burst:
			return s.burst(o)
		case Renew:
			return s.renew(o)
		case Memory:
			return s.memory(o)
		case Permits:
			return s.permits(o)
		case Latch:
			return s.latch(o)
		case Leader:
			return s.leader(o)
		case Back:
			return s.back(o)
		}
		return nil, fmt.Errorf("no work %q", s.open.Work)
	case "lead":
		return s.lead(o)
	}
	return nil, fmt.Errorf("no order %q", o.Op)
}

func (s *session) start(o *Order) (*Result, error) {
	spec, err := entry.Find(o.Entry)
	if err != nil {
		return nil, err
	}
	s.open, s.spec = *o, spec
	n := max(o.Clients, 1)
	if err := s.dialAll(n); err != nil {
		return nil, err
	}
	for i := range o.Callers {
		s.callers = append(s.callers, &caller{number: i, locker: s.lockers[i%n]})
	}
	if o.Profile != "" {
		if s.profile, err = os.Create(o.Profile); err != nil {
			return nil, err
		}
		if err := pprof.StartCPUProfile(s.profile); err != nil {
			return nil, err
		}
	}
	return &Result{Version: versionOf(spec)}, nil
}

// dialAll opens so many clients, sixteen at a time.
func (s *session) dialAll(n int) error {
	s.lockers = make([]entry.Locker, n)
	errs := make([]error, n)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, 16) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				s.lockers[i], errs[i] = s.dial()
			}
		})
	}
	wg.Wait()
	s.lockers = slices.DeleteFunc(s.lockers, func(l entry.Locker) bool { return l == nil })
	return errors.Join(errs...)
}

func (s *session) dial() (entry.Locker, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	defer cancel()
	return s.spec.Open(ctx, entry.Env{Members: s.open.Members, Lease: s.lease(), Shape: s.open.Shape, Renew: s.open.Work == Renew || s.open.Held, Slow: s.open.Ops > 0})
}

func (s *session) lease() time.Duration { return time.Duration(s.open.LeaseMS) * time.Millisecond }

func (s *session) close() {
	if s.profile != nil {
		pprof.StopCPUProfile()
		if err := s.profile.Close(); err != nil {
			_, _ = fmt.Fprintln(os.Stderr, "profile:", err)
		}
		s.profile = nil
	}
	for _, l := range s.lockers {
		l.Close()
	}
	s.lockers = nil
}

func versionOf(spec *entry.Spec) string {
	if v := spec.Version(); v != "" {
		return v + ", " + runtime.Version()
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, b := range info.Settings {
			if b.Key == "vcs.revision" {
				return b.Value[:min(12, len(b.Value))] + ", " + runtime.Version()
			}
		}
	}
	return runtime.Version()
}

// caller is one goroutine of a workload. Its samples are kept plain while it runs and go into the
// histograms afterwards.
type caller struct {
	number                  int
	locker                  entry.Locker
	total, acquire, release []int64
	handoff, told           []int64
	reading, writing        []int64
	longestRead             int64
	set                     []string // names of one operation

	ops, all, errs int64
	samples        []string
	self, overlaps int64
	writes         int64
	waitSum        int64
	waitMax        int64
}

func (c *caller) reset() {
	*c = caller{number: c.number, locker: c.locker, total: c.total[:0], acquire: c.acquire[:0], release: c.release[:0], handoff: c.handoff[:0], told: c.told[:0],
		reading: c.reading[:0], writing: c.writing[:0], set: c.set[:0]}
}

func (c *caller) failed(err error) {
	c.errs++
	if len(c.samples) < 3 {
		c.samples = append(c.samples, err.Error())
	}
}

// meter measures what the process itself used.
type meter struct {
	began                        time.Time
	cpu, switches, reads, writes int64
	mem                          runtime.MemStats
}

// used is processor time, and how often threads were switched.
func used() (cpu, switches int64) {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano(), u.Nvcsw + u.Nivcsw
}

func startMeter() *meter {
	m := &meter{}
	runtime.ReadMemStats(&m.mem)
	m.reads, m.writes = calls()
	m.cpu, m.switches = used()
	m.began = time.Now()
	return m
}

func (m *meter) stop(r *Result) {
	r.Elapsed = int64(time.Since(m.began))
	cpu, switches := used()
	reads, writes := calls()
	r.CPU, r.Switches, r.ReadCalls, r.WriteCalls = cpu-m.cpu, switches-m.switches, reads-m.reads, writes-m.writes
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	r.Allocs, r.Bytes = int64(now.Mallocs-m.mem.Mallocs), int64(now.TotalAlloc-m.mem.TotalAlloc)
}

// Highest is the longest time that a histogram holds, in ns.
const Highest = int64(10 * time.Minute)

// NewHistogram makes a histogram of times from 1 ns on, with three digits.
func NewHistogram() *hdr.Histogram { return hdr.New(1, Highest, 3) }

// Pairs returns what the histogram counts, without empty values.
func Pairs(h *hdr.Histogram) (out Histogram) {
	for _, b := range h.Distribution() {
		if b.Count > 0 {
			out = append(out, [2]int64{b.To, b.Count})
		}
	}
	return out
}

// gather merges the callers' samples.
func gather(r *Result, callers []*caller) {
	merge := func(of func(*caller) []int64) Histogram {
		h := NewHistogram()
		for _, c := range callers {
			for _, v := range of(c) {
				_ = h.RecordValue(min(max(v, 1), Highest))
			}
		}
		return Pairs(h)
	}
	r.Total = merge(func(c *caller) []int64 { return c.total })
	r.Acquire = merge(func(c *caller) []int64 { return c.acquire })
	r.Release = merge(func(c *caller) []int64 { return c.release })
	r.Handoff = merge(func(c *caller) []int64 { return c.handoff })
	r.Told = merge(func(c *caller) []int64 { return c.told })
	r.Reading = merge(func(c *caller) []int64 { return c.reading })
	r.Writing = merge(func(c *caller) []int64 { return c.writing })
	for _, c := range callers {
		r.LongestRead = max(r.LongestRead, c.longestRead)
		r.Ops += c.ops
		r.Done += c.all
		r.AllOps += c.all
		r.Errors += c.errs
		r.Self += c.self
		r.Overlaps += c.overlaps
		r.Writes += c.writes
		r.WaitSum += c.waitSum
		r.WaitMax = max(r.WaitMax, c.waitMax)
		for _, t := range c.samples {
			if len(r.Samples) < 5 && !slices.Contains(r.Samples, t) {
				r.Samples = append(r.Samples, t)
			}
		}
	}
}

// drain is how long callers may take after the end of a slice before they count as stuck.
const drain = 3 * time.Second

// join waits for callers and tells how many are stuck. Those that are must not be looked at again.
func join(callers []*caller, run func(*caller)) (wait func(limit <-chan time.Time) (back []*caller)) {
	var wg sync.WaitGroup
	done := make(chan *caller, len(callers))
	for _, c := range callers {
		wg.Go(func() { run(c); done <- c })
	}
	return func(limit <-chan time.Time) (back []*caller) {
		for len(back) < len(callers) {
			select {
			case c := <-done:
				back = append(back, c)
			case <-limit:
				return back
			}
		}
		wg.Wait()
		return back
	}
}

func millis(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// Main is Serve on the process' own streams.
func Main() error { return Serve(os.Stdin, os.Stdout) }
