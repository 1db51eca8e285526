//go:build linux || darwin

package faults

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// The processes of the random application. Each is this test binary again, running TestApplicationProcess. It has
// seats, of which each is a client at a time, and workers at each seat that do at random what a program can
// do with locks. It tells all that it believes on its standard output, one event a line, and is told on its
// standard input what only the parent can arrange.

const appEnv = "REDQUORUM_APPLICATION"

type appOrders struct {
	Process int
	Seed    uint64
	Seats   []appSeat
	Steady  bool // the first client lives as long as the process
	Workers int  // at each seat
	Brisk   int  // of them: see act
	Hot     []string
	Warm    []string
	Long    []string
	Rare    []string
}

type appSeat struct {
	Seat    int
	URLs    []string
	MaxTTLs []time.Duration // one of them is drawn for each client
	Entries []time.Duration
}

// appEvent is what a process tells. Times are those of judge.Now.
type appEvent struct {
	Kind    string        `json:"k"`
	Seat    int           `json:"s"`
	Client  int           `json:"c,omitempty"` // how many clients the seat had before
	Attempt uint64        `json:"a,omitempty"`
	Name    string        `json:"n,omitempty"`
	At      int64         `json:"t"`
	Since   int64         `json:"b,omitempty"` // when what is told of began
	Until   int64         `json:"u,omitempty"` // validity
	Back    int64         `json:"r,omitempty"` // Unlock returned
	TTL     time.Duration `json:"d,omitempty"`
	Entry   time.Duration `json:"e,omitempty"`
	Token   uint64        `json:"o,omitempty"`
	Owner   string        `json:"h,omitempty"` // a hash
	Text    string        `json:"x,omitempty"`
	Error   string        `json:"f,omitempty"`
	Votes   uint32        `json:"v,omitempty"` // a bit for each member that votes
	Number  int64         `json:"i,omitempty"`
	Heap    uint64        `json:"m,omitempty"`
	Try     bool          `json:"y,omitempty"`
	Sort    string        `json:"g,omitempty"` // of the lock: see appSorts
	Shared  bool          `json:"w,omitempty"` // a reader's lease
	Names   []string      `json:"l,omitempty"` // of a set
	Was     uint64        `json:"p,omitempty"` // the attempt that a downgrade ends
	Value   string        `json:"z,omitempty"` // of a leader: see newLeader
	Fixed   bool          `json:"j,omitempty"` // the lease is not renewed
	Keep    time.Duration `json:"kd,omitempty"`
	Said    []string      `json:"q,omitempty"` // by each member, of a call that failed: see saidOf
}

type appCommand struct {
	Do       string // adopt, close, open, take, force, quit
	Seat     int
	Text     string        `json:",omitempty"` // of the handoff
	Name     string        `json:",omitempty"`
	Sort     string        `json:",omitempty"` // plain if it is empty
	TTL      time.Duration `json:",omitempty"`
	Hold     time.Duration `json:",omitempty"`
	Fixed    bool          `json:",omitempty"`
	Patience time.Duration `json:",omitempty"`
	MaxTTL   time.Duration `json:",omitempty"`
	Entry    time.Duration `json:",omitempty"`
}

type application struct {
	appOrders
	seats    []*seat
	attempts atomic.Uint64
	stalled  atomic.Int64 // in all, in nanoseconds: how late this process was in what it meant to do
	measured atomic.Int64 // until when stalled has all

	mu  sync.Mutex // of out
	out *bufio.Writer
	enc *json.Encoder
}

type seat struct {
	app *application
	appSeat
	turn sync.Mutex      // of who closes or opens
	told chan appCommand // close and open, in their order

	mu     sync.Mutex
	c      *redlock.Client
	n      int
	maxTTL time.Duration
	entry  time.Duration
	opened int64
	shut   bool // by the parent, who will open it

	refused map[refusedRequest]*refusedRequests
}

// TestApplicationProcess is no test of its own: it is what the processes of TestFaultsRandomApplication run.
func TestApplicationProcess(t *testing.T) {
	text := os.Getenv(appEnv)
	if text == "" {
		return
	}
	out := bufio.NewWriter(os.Stdout)
	app := &application{out: out, enc: json.NewEncoder(out)}
	require.NoError(t, json.Unmarshal([]byte(text), &app.appOrders))
	ctx, stop := context.WithCancel(context.Background())
	var work sync.WaitGroup
	rng := rand.New(rand.NewPCG(app.Seed, uint64(app.Process)))
	for _, s := range app.Seats {
		s := &seat{app: app, appSeat: s, told: make(chan appCommand, 64)}
		app.seats = append(app.seats, s)
		s.open(rng, appCommand{})
		work.Go(func() { s.watch(ctx) })
		work.Go(func() { s.turns(ctx) })
		for w := range app.Workers {
			rng := rand.New(rand.NewPCG(app.Seed, uint64(s.Seat)<<8+uint64(w)))
			work.Go(func() {
				for ctx.Err() == nil {
					s.act(ctx, rng, w < app.Brisk)
				}
			})
		}
	}
	work.Go(func() { app.measure(ctx) })
	app.obey(ctx, &work, rng) // until the parent closes the pipe, or says quit
	var closing sync.WaitGroup
	for _, s := range app.seats {
		closing.Go(s.close) // busy as it is
	}
	closing.Wait()
	stop()
	work.Wait()
	app.say(appEvent{Kind: "gone"})
}

// say writes an event at once: what was said before a SIGKILL is in the pipe.
func (app *application) say(e appEvent) {
	if e.At == 0 {
		e.At = judge.Now()
	}
	app.mu.Lock()
	defer app.mu.Unlock()
	_ = app.enc.Encode(e)
	_ = app.out.Flush()
}

func (app *application) obey(ctx context.Context, work *sync.WaitGroup, rng *rand.Rand) {
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		var x appCommand
		if err != nil || json.Unmarshal(line, &x) != nil || x.Do == "quit" {
			return
		}
		for _, s := range app.seats {
			if s.Seat != x.Seat {
				continue
			}
			if x.Do == "close" || x.Do == "open" {
				s.told <- x
				continue
			}
			mine := rand.New(rand.NewPCG(rng.Uint64(), 1))
			work.Go(func() {
				switch x.Do {
				case "adopt":
					s.adopt(ctx, mine, x.Text)
				case "force":
					if c, _ := s.client(); c != nil {
						s.force(ctx, c, x.Name)
					}
				case "take":
					_, longest := s.client()
					if x.TTL = min(x.TTL, longest); x.TTL == 0 {
						x.TTL = longest
					}
					if x.Patience == 0 {
						x.Patience = 10 * time.Second
					}
					if longest == 0 {
						return
					}
					var opts []redlock.LockOption
					if x.Fixed {
						opts = append(opts, redlock.TTL(x.TTL))
					}
					if h := s.lock(ctx, cmp.Or(x.Sort, plainLock), x.Name, x.TTL, x.Patience, false, opts...); h != nil {
						h.fixed = x.Fixed
						h.hold(ctx, x.Hold)
						h.unlock()
					}
				}
			})
		}
	}
}

// measure tells of stalls of this process, and of what it uses.
func (app *application) measure(ctx context.Context) {
	const beat = 10 * time.Millisecond
	tick := time.NewTicker(beat)
	defer tick.Stop()
	last, told := judge.Now(), int64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := judge.Now()
		if late := now - last - int64(beat); late > int64(20*time.Millisecond) {
			app.stalled.Add(late)
			app.say(appEvent{Kind: "stall", At: now, Since: last, Number: late})
		}
		last = now
		app.measured.Store(now)
		if now-told > int64(2*time.Second) {
			told = now
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			rss := uint64(0)
			if text, err := os.ReadFile("/proc/self/statm"); err == nil {
				if f := strings.Fields(string(text)); len(f) > 1 {
					pages, _ := strconv.ParseUint(f[1], 10, 64)
					rss = pages * uint64(os.Getpagesize())
				}
			}
			app.say(appEvent{Kind: "use", Number: int64(runtime.NumGoroutine()), Heap: m.HeapAlloc, Token: rss})
		}
	}
}

// open opens a client, with what is drawn where x does not say it.
func (s *seat) open(rng *rand.Rand, x appCommand) {
	s.turn.Lock()
	defer s.turn.Unlock()
	if c, _ := s.client(); c != nil {
		return
	}
	if x.MaxTTL == 0 {
		x.MaxTTL = s.MaxTTLs[rng.IntN(len(s.MaxTTLs))]
	}
	if x.Entry == 0 {
		x.Entry = s.Entries[rng.IntN(len(s.Entries))]
	}
	opened := judge.Now()
	config := redlock.Config{
		MaxTTL: x.MaxTTL, Entry: x.Entry, FreshMembers: true, Tracer: redlock.Tracer{Request: ears{s}.Request},
		// It notices within a second what it would notice within two or three by default.
		PingInterval: 100 * time.Millisecond, StallTimeout: 700 * time.Millisecond, DialTimeout: 2 * time.Second,
	}
	c, err := redlock.Open(context.Background(), s.URLs, config)
	if err != nil {
		s.app.say(appEvent{Kind: "not open", Seat: s.Seat, Error: kindOf(err)})
		return
	}
	s.mu.Lock()
	s.c, s.maxTTL, s.entry, s.opened = c, x.MaxTTL, x.Entry, opened
	s.n++
	n := s.n
	s.mu.Unlock()
	s.app.say(appEvent{Kind: "open", Seat: s.Seat, Client: n, Since: opened, TTL: x.MaxTTL, Entry: x.Entry})
}

func (s *seat) close() {
	s.turn.Lock()
	defer s.turn.Unlock()
	s.mu.Lock()
	c, n, opened := s.c, s.n, s.opened
	s.mu.Unlock()
	if c == nil {
		return
	}
	began := judge.Now()
	s.app.say(appEvent{Kind: "closing", Seat: s.Seat, Client: n, At: began})
	_ = c.Close()
	s.app.say(appEvent{Kind: "closed", Seat: s.Seat, Client: n, Since: began, Number: opened})
	rt.Locked(&s.mu, func() { s.c = nil })
}

func (s *seat) turns(ctx context.Context) {
	rng := rand.New(rand.NewPCG(s.app.Seed, uint64(s.Seat)<<8+254))
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-s.told:
			rt.Locked(&s.mu, func() { s.shut = x.Do == "close" })
			if x.Do == "close" {
				s.close()
			} else {
				s.open(rng, x)
			}
		}
	}
}

// client is the one at the seat now, nil between two.
func (s *seat) client() (*redlock.Client, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c, s.maxTTL
}

// now is the client, which of the seat's clients it is, its MaxTTL, and the Entry of its waiters.
func (s *seat) now() (c *redlock.Client, n int, maxTTL, entry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c, s.n, s.maxTTL, s.entry
}

// watch tells which members vote for this client, and opens the next one where opening failed.
func (s *seat) watch(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	rng := rand.New(rand.NewPCG(s.app.Seed, uint64(s.Seat)<<8+255))
	last, empty := uint32(0), 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.tellRefused()
		s.mu.Lock()
		shut := s.shut
		s.mu.Unlock()
		votes := uint32(0)
		c, _ := s.client()
		if empty++; c != nil || shut {
			empty = 0
		}
		if empty > 20 {
			s.open(rng, appCommand{})
		}
		if c != nil {
			for i, m := range c.Members() {
				if m.State == redlock.MemberVoting {
					votes |= 1 << i
				}
			}
		}
		if votes != last {
			last = votes
			s.app.say(appEvent{Kind: "votes", Seat: s.Seat, Votes: votes})
		}
	}
}

type held struct {
	s       *seat
	attempt uint64
	name    string
	lease   *redlock.Lease
	grip    grip    // the lease, or the set
	parts   []*held // of a set
	sort    string
	leads   *leader // what it leads
	ttl     time.Duration
	fixed   bool         // it is not renewed
	until   int64        // as it was told last
	over    bool         // its end was told
	undated bool         // it had ended when the call returned that gave it
	ended   atomic.Int64 // when its context ended; 0: it has not
}

func kindOf(err error) string {
	for _, x := range []struct {
		err  error
		name string
	}{
		{redlock.ErrHeld, "held"}, {redlock.ErrQuarantined, "quarantined"}, {redlock.ErrTooSlow, "too slow"},
		{redlock.ErrInDoubt, "in doubt"}, {redlock.ErrClosed, "closed"}, {redlock.ErrLost, "lost"},
		{redlock.ErrNotHeld, "not held"}, {redlock.ErrOrder, "order"}, {redlock.ErrUpgrade, "upgrade"},
		{redlock.ErrNoQuorum, "no quorum"}, {redlock.ErrInput, "input"},
		{redlock.ErrLimit, "limit"}, {redlock.ErrPassed, "passed"}, {redlock.ErrConflict, "conflict"},
		{context.DeadlineExceeded, "deadline"}, {context.Canceled, "canceled"},
	} {
		if errors.Is(err, x.err) {
			return x.name
		}
	}
	if err != nil {
		return "unknown: " + err.Error()
	}
	return ""
}

// lock takes a lock, renewed if there are no options; nil: it has not got it.
func (s *seat) lock(ctx context.Context, sort, name string, ttl, patience time.Duration, try bool,
	opts ...redlock.LockOption) *held {
	c, n, _, entry := s.now()
	if c == nil {
		pause(ctx, 10*time.Millisecond)
		return nil
	}
	h := &held{s: s, attempt: s.app.attempts.Add(1), name: name, ttl: ttl, sort: sort}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ask := h.event("ask", n)
	ask.Entry, ask.Try = entry, try
	s.app.say(ask)
	if len(opts) == 0 {
		opts = renewed(sort, name, ttl)
	}
	m := lockerOf(c, sort, name, opts...)
	h.leads, _ = m.(*leader)
	lock := m.Lock
	if try {
		lock = m.TryLock
	}
	lease, err := lock(ctx)
	if err != nil {
		h.failed(n, err)
		if !errors.Is(err, redlock.ErrHeld) {
			pause(ctx, 20*time.Millisecond)
		}
		return nil
	}
	h.granted(lease, "", n)
	return h
}

// event is one about this lease, or the call that may get it.
func (h *held) event(kind string, client int) appEvent {
	return appEvent{Kind: kind, Seat: h.s.Seat, Client: client, Attempt: h.attempt, Name: h.name, TTL: h.ttl, Sort: h.sort, Fixed: h.fixed,
		Keep: keepFor(h.sort, h.name, h.ttl)}
}

func (h *held) failed(client int, err error) {
	e := h.event("fail", client)
	e.TTL, e.Error, e.Said = 0, kindOf(err), saidOf(err)
	h.s.app.say(e)
}

func (h *held) granted(lease *redlock.Lease, how string, client int) {
	now := judge.Now()
	h.take(lease)
	e := h.event("grant", client)
	e.At, e.Until, e.Token, e.Owner, e.Text = now, h.until, lease.Token(), lease.Owner(), how
	e.Shared = lease.Shared()
	if h.leads != nil {
		e.Value = h.leads.who
	}
	h.s.app.say(e)
}

func (h *held) take(lease *redlock.Lease) {
	h.lease = lease
	h.watch(lease)
}

// watch keeps until when a lease or a set is valid, and when its context ends.
func (h *held) watch(g grip) {
	h.grip, h.until, h.undated = g, judge.At(g.ValidUntil()), g.Err() != nil
	context.AfterFunc(g.Context(), func() { h.ended.Store(judge.Now()) })
}

func (h *held) valid() {
	for _, part := range h.parts {
		part.valid()
	}
	if h.lease == nil {
		return
	}
	if until := judge.At(h.lease.ValidUntil()); until > h.until+int64(time.Millisecond) {
		h.until = until
		h.s.app.say(appEvent{Kind: "valid", Seat: h.s.Seat, Attempt: h.attempt, Name: h.name, Until: until})
	}
}

// hold holds for d, or until the lease ends; and looks whether its context ends in time.
func (h *held) hold(ctx context.Context, d time.Duration) {
	if h.over {
		return
	}
	done := h.grip.Done()
	timer := time.NewTimer(d)
	defer timer.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	began := h.s.app.stalled.Load()
	slack := int64(h.ttl/100 + 2*time.Millisecond)
	for {
		select {
		case <-done: // perhaps long ago, while the lease was extended
			now := judge.Now()
			if ended := h.ended.Load(); ended > 0 {
				now = ended
			}
			var lost *redlock.LostError
			if !h.undated && errors.As(h.grip.Err(), &lost) {
				h.late(ctx, now, judge.At(lost.Until), slack, began, "ended")
			}
			return
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-tick.C:
			h.valid()
			until := judge.At(h.grip.ValidUntil()) // read first: it can only be later than at now
			if now := judge.Now(); now > until+slack+int64(300*time.Millisecond) && going(done) {
				h.late(ctx, now, until, slack, began, "open")
				return
			}
		}
	}
}

// late tells of a context that ended, or is open, after its validity. After a stall it may come to its turn before the
// stall has been measured.
func (h *held) late(ctx context.Context, now, until, slack, began int64, how string) {
	if late := now - until - slack; late > 0 {
		for app := h.s.app; app.measured.Load() < now && ctx.Err() == nil; {
			pause(ctx, time.Millisecond)
		}
		e := h.event("late", 0)
		e.At, e.Until, e.Number, e.Since, e.Text = now, until, late, h.s.app.stalled.Load()-began, how
		h.s.app.say(e)
	}
}

func (h *held) unlock() {
	if h == nil || h.over {
		return
	}
	h.over = true
	end := h.lease.Unlock
	if h.leads != nil && h.attempt%2 == 0 {
		end = h.resign
	}
	h.s.endAll([]*held{h}, end)
}

// ending tells what is believed no more, before any member hears of it: the process may be killed in between.
func (h *held) ending(e appEvent) {
	e.Kind = "ending"
	h.s.app.say(e)
}

// handoff gives the lease to the parent, which gives it to another process.
func (h *held) handoff() {
	if h.over {
		return
	}
	h.valid()
	e := appEvent{Kind: "end", Seat: h.s.Seat, Attempt: h.attempt, Name: h.name, TTL: h.ttl, Text: "handoff"}
	e.Until = judge.At(h.lease.ValidUntil())
	e.At = min(judge.Now(), e.Until)
	h.ending(e)
	x, err := h.lease.Handoff()
	if err != nil {
		h.unlock()
		return
	}
	h.over = true
	e.Back = judge.Now()
	h.s.app.say(e)
	h.s.app.say(appEvent{Kind: "handoff", Seat: h.s.Seat, Attempt: h.attempt, Name: h.name, Text: x.Secret()})
}

func (s *seat) adopt(ctx context.Context, rng *rand.Rand, text string) {
	x, err := redlock.ParseHandoff(text)
	if err != nil {
		return
	}
	c, n, ttl, _ := s.now()
	if c == nil {
		return
	}
	h := &held{s: s, attempt: s.app.attempts.Add(1), name: x.Key(), ttl: ttl, sort: sortOf(x)}
	s.app.say(h.event("adopting", n))
	lease, err := c.Adopt(ctx, x)
	if err != nil {
		e := h.event("not adopted", n)
		e.Error = kindOf(err)
		s.app.say(e)
		return
	}
	h.granted(lease, "adopted", n)
	h.use(ctx, rng, upTo(rng, time.Second)).unlock()
}

func going(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func upTo(rng *rand.Rand, d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }

func drawn[T any](rng *rand.Rand, list []T) T { return list[rng.IntN(len(list))] }

// act does one thing that programs do. Who is brisk does what takes no time.
func (s *seat) act(ctx context.Context, rng *rand.Rand, brisk bool) {
	c, maxTTL := s.client()
	if c == nil {
		pause(ctx, 10*time.Millisecond)
		return
	}
	app := s.app
	names := drawn(rng, [][]string{app.Hot, app.Warm, app.Warm, app.Long, app.Long, app.Rare})
	name := drawn(rng, names)
	ttl := min(maxTTL, 300*time.Millisecond+upTo(rng, maxTTL))
	if rng.IntN(3) == 0 {
		ttl = maxTTL
	}
	sort := sortDrawn(rng)
	switch dice := rng.IntN(1000); {
	case rng.IntN(8) == 0:
		s.permit(ctx, rng)
	case rng.IntN(16) == 0:
		s.latchAct(ctx, rng)
	case rng.IntN(20) == 0:
		s.own(ctx, rng, sort, maxTTL)
	case rng.IntN(32) == 0:
		s.observe(ctx, rng, drawn(rng, [][]string{app.Hot, names}))
	case (brisk || dice < 700) && rng.IntN(12) == 0:
		s.setAct(ctx, rng, ttl)
		pause(ctx, upTo(rng, 90*time.Millisecond))
	case (brisk || dice < 700) && rng.IntN(20) == 0:
		s.crowdOfReaders(ctx, rng, drawn(rng, app.Hot), ttl)
	case brisk, dice < 700: // what most programs do all the time
		patience := 100*time.Millisecond + upTo(rng, 3*time.Second)
		if h := s.lock(ctx, sort, drawn(rng, app.Hot), ttl, patience, false); h != nil {
			h.use(ctx, rng, upTo(rng, 2*time.Millisecond)).unlock()
		}
		pause(ctx, upTo(rng, 90*time.Millisecond))
	case dice < 840:
		h := s.lock(ctx, sort, drawn(rng, app.Warm), ttl, upTo(rng, 8*time.Second)+1, false)
		if h != nil {
			h.use(ctx, rng, upTo(rng, 200*time.Millisecond)).unlock()
		}
	case dice < 880: // held for long, renewed
		if h := s.lock(ctx, sort, drawn(rng, app.Long), ttl, upTo(rng, 15*time.Second)+1, false); h != nil {
			h.use(ctx, rng, upTo(rng, 5*time.Second)).unlock()
		}
	case dice < 900: // a fixed length, extended now and then, and left to its end now and then
		if h := s.lock(ctx, sort, name, ttl, upTo(rng, 5*time.Second)+1, false, redlock.TTL(ttl)); h != nil {
			h.fixed = true
			h.hold(ctx, upTo(rng, ttl))
			if rng.IntN(2) == 0 {
				longer := min(maxTTL, 100*time.Millisecond+upTo(rng, maxTTL))
				h.ttl = max(h.ttl, longer)
				app.say(appEvent{Kind: "extend", Seat: s.Seat, Attempt: h.attempt, Name: name, TTL: longer})
				extending, cancel := context.WithTimeout(ctx, time.Second)
				_ = h.lease.Extend(extending, longer)
				cancel()
				h = h.use(ctx, rng, upTo(rng, 2*maxTTL))
			}
			h.unlock()
		}
	case dice < 925:
		if h := s.lock(ctx, sort, name, ttl, time.Second, true); h != nil {
			h.use(ctx, rng, upTo(rng, 20*time.Millisecond)).unlock()
		}
	case dice < 955: // callers that lose their patience
		s.lock(ctx, sort, name, ttl, upTo(rng, 30*time.Millisecond)+1, false).unlock()
	case dice < 970:
		s.again(ctx, rng, c, sort, name, ttl)
	case dice < 980:
		if h := s.lock(ctx, sort, drawn(rng, app.Long), ttl, 5*time.Second, false); h != nil {
			h.use(ctx, rng, upTo(rng, time.Second)).handoff()
		}
	case dice < 990:
		s.do(ctx, rng, c, sort, name, ttl)
	case dice < 992:
		s.force(ctx, c, drawn(rng, app.Long))
	case dice < 994 && !app.Steady: // with all that is going on
		s.close()
		pause(ctx, upTo(rng, 300*time.Millisecond))
		s.open(rng, appCommand{})
	default:
		s.upgrade(ctx, c, name, ttl)
	}
}

func (s *seat) again(ctx context.Context, rng *rand.Rand, c *redlock.Client, sort, name string, ttl time.Duration) {
	if sort == leaderLock { // a leader is not elected again
		sort = plainLock
	}
	as := redlock.As(fmt.Sprint("worker ", s.app.attempts.Add(1)))
	h := s.lock(ctx, sort, name, ttl, 3*time.Second, false, redlock.AutoRenew(ttl), as)
	if h == nil {
		return
	}
	defer h.unlock()
	h.hold(ctx, upTo(rng, 20*time.Millisecond))
	patience, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if sort == writeLock && rng.IntN(2) == 0 {
		sort = readLock // which gives a writer its own lease
	}
	inner, err := lockerOf(c, sort, name, redlock.AutoRenew(ttl), as).TryLock(patience)
	switch {
	case err != nil: // the lease was lost meanwhile
		return
	case inner != h.lease: // it was lost, and this is another one
		h.unlock()
		g := &held{s: s, attempt: s.app.attempts.Add(1), name: name, ttl: ttl, sort: sort}
		_, n, _, _ := s.now()
		g.granted(inner, "again", n)
		g.unlock()
		return
	}
	h.hold(ctx, upTo(rng, 20*time.Millisecond))
	if err := inner.Unlock(ctx); err == nil && errors.Is(h.lease.Err(), redlock.ErrReleased) {
		e := h.event("wrong", 0)
		e.Text = "the inner Unlock ended the lease"
		s.app.say(e)
	}
}

// do uses Do, or RDo. What the function does with its context is looked at: it ends with the lease.
func (s *seat) do(ctx context.Context, rng *rand.Rand, c *redlock.Client, sort, name string, ttl time.Duration) {
	_, n, _, entry := s.now()
	h := &held{s: s, attempt: s.app.attempts.Add(1), name: name, ttl: ttl, sort: sort}
	patience, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	ask := h.event("ask", n)
	ask.Entry = entry
	s.app.say(ask)
	m := lockerOf(c, sort, name, renewed(sort, name, ttl)...)
	h.leads, _ = m.(*leader)
	err := m.Do(patience, func(inner context.Context, lease *redlock.Lease) error {
		h.granted(lease, "do", n)
		// fn may unlock early, and only so is the end of what it believes known.
		h.use(inner, rng, upTo(rng, 100*time.Millisecond)).unlock()
		return nil
	})
	if h.lease == nil {
		h.failed(n, err)
	}
}

func (s *seat) force(ctx context.Context, c *redlock.Client, name string) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	seen, err := c.Inspect(ctx, name)
	if err != nil {
		return
	}
	owners := map[string]bool{}
	holder := ""
	for _, h := range seen.Holders {
		holder, owners[h.Owner] = h.Owner, true
	}
	for _, m := range seen.Members {
		for _, v := range m.Votes {
			if holder == "" {
				owners[v.Owner] = true
			}
		}
	}
	if len(owners) == 0 {
		return
	}
	var list []string
	for owner := range owners {
		list = append(list, owner)
	}
	e := appEvent{Kind: "forcing", Seat: s.Seat, Attempt: s.app.attempts.Add(1), Name: name, Text: strings.Join(list, " ")}
	s.app.say(e)
	freed, err := c.ForceUnlockSeen(ctx, seen)
	if len(seen.Holders) > 1 {
		holder = "" // freed does not say of how many members each reader had the vote
	}
	e.Kind, e.At, e.Number, e.Error, e.Owner = "forced", judge.Now(), int64(freed), kindOf(err), holder
	s.app.say(e)
}
