//go:build linux || darwin

package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/redlock"
)

// The kinds of lock that the random application takes, all of them on the same names.

// The sorts of grants, as events tell them.
const (
	plainLock  = "plain"
	fairLock   = "fair"
	writeLock  = "write"
	readLock   = "read"
	downgraded = "downgraded" // a writer's lease that became a reader's
	setOfLocks = "set"        // several names, all or none
)

var appSorts = []string{plainLock, fairLock, writeLock, readLock, downgraded, setOfLocks, leaderLock, permitLock}

// appRates is how many locks of each sort the application must get a second, at least.
var appRates = map[string]float64{
	plainLock: 1.5, fairLock: 0.5, writeLock: 0.75, readLock: 1.5, downgraded: 0.25, setOfLocks: 0.25,
	leaderLock: 0.25, permitLock: 1.5,
}

type locker interface {
	Lock(ctx context.Context) (*redlock.Lease, error)
	TryLock(ctx context.Context) (*redlock.Lease, error)
	Do(ctx context.Context, fn func(ctx context.Context, lease *redlock.Lease) error) error
}

type readers struct{ m *redlock.RWMutex }

func (r readers) Lock(ctx context.Context) (*redlock.Lease, error)    { return r.m.RLock(ctx) }
func (r readers) TryLock(ctx context.Context) (*redlock.Lease, error) { return r.m.TryRLock(ctx) }
func (r readers) Do(ctx context.Context, fn func(ctx context.Context, lease *redlock.Lease) error) error {
	return r.m.RDo(ctx, fn)
}

func lockerOf(c *redlock.Client, sort, name string, opts ...redlock.LockOption) locker {
	switch sort {
	case fairLock:
		return c.Mutex(name, append(slices.Clip(opts), redlock.Fair())...)
	case writeLock:
		return c.RWMutex(name, opts...)
	case readLock:
		return readers{c.RWMutex(name, opts...)}
	case leaderLock:
		return newLeader(c, name, opts...)
	}
	return c.Mutex(name, opts...)
}

func sortDrawn(rng *rand.Rand) string {
	switch n := rng.IntN(100); {
	case n < 28:
		return plainLock
	case n < 35:
		return leaderLock
	case n < 45:
		return fairLock
	case n < 65:
		return writeLock
	default:
		return readLock
	}
}

// keepFor is how long a client keeps a lock that nobody wants: those of half of the names, of the sorts that can be kept.
func keepFor(sort, name string, ttl time.Duration) time.Duration {
	kept := sort == plainLock || sort == writeLock || sort == readLock
	if !kept || (name[len(name)-1]-'0')%2 == 0 {
		return 0
	}
	return ttl // the longest that there may be
}

func renewed(sort, name string, ttl time.Duration) []redlock.LockOption {
	opts := []redlock.LockOption{redlock.AutoRenew(ttl)}
	if d := keepFor(sort, name, ttl); d > 0 {
		opts = append(opts, redlock.Keep(d))
	}
	return opts
}

// own takes the lock of the seat's own name again and again, which its client keeps meanwhile; or that of another's.
func (s *seat) own(ctx context.Context, rng *rand.Rand, sort string, ttl time.Duration) {
	name, once := appOwn[s.Seat], rng.IntN(24) == 0
	if once {
		name = drawn(rng, appOwn)
	}
	for n := rng.IntN(16); n >= 0; n-- {
		h := s.lock(ctx, sort, name, ttl, 100*time.Millisecond+upTo(rng, 3*time.Second), rng.IntN(4) == 0)
		if h == nil {
			return
		}
		h.use(ctx, rng, upTo(rng, 3*time.Millisecond)).unlock()
		if once || ctx.Err() != nil {
			return
		}
		pause(ctx, upTo(rng, 30*time.Millisecond))
	}
	if rng.IntN(4) == 0 { // in another way than it is kept
		if x := s.lockSet(ctx, []string{name, drawn(rng, appRare)}, ttl, time.Second, false, redlock.AutoRenew(ttl)); x != nil {
			s.endAll(x.parts, x.leases.Unlock)
		}
	}
}

func sortOf(x redlock.Handoff) string {
	switch x.Kind() {
	case redlock.KindFair:
		return fairLock
	case redlock.KindWrite:
		return writeLock
	case redlock.KindRead:
		return readLock
	case redlock.KindElection:
		return leaderLock
	}
	return plainLock
}

// use holds a lease for d. One writer in three becomes a reader on the way. Returned is the lease
// that is held at the end, which is not unlocked.
func (h *held) use(ctx context.Context, rng *rand.Rand, d time.Duration) *held {
	if h.leads != nil && d > 0 && rng.IntN(2) == 0 {
		h.proclaim(ctx, rng, d)
		return h
	}
	if h.sort != writeLock || rng.IntN(3) > 0 || d <= 0 {
		h.hold(ctx, d)
		return h
	}
	h.hold(ctx, upTo(rng, d)/2)
	h = h.downgrade(ctx)
	h.hold(ctx, upTo(rng, d))
	return h
}

// downgrade makes a writer's lease a reader's, and returns that. If it cannot, the lease is
// unlocked. The reader's belief begins where that of the writer ends, since the lock is held
// throughout.
func (h *held) downgrade(ctx context.Context) *held {
	h.valid()
	_, n, _, _ := h.s.now()
	until := judge.At(h.lease.ValidUntil())
	e := h.event("ending", n)
	e.At, e.Until = min(judge.Now(), until), until
	h.s.app.say(e)
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lease, err := h.lease.Downgrade(ctx)
	if err != nil {
		h.unlock()
		return h
	}
	h.over = true // told with what comes of it
	g := &held{s: h.s, attempt: h.s.app.attempts.Add(1), name: h.name, ttl: h.ttl, sort: downgraded, fixed: h.fixed}
	g.take(lease)
	x := g.event("downgraded", n)
	x.At, x.Back, x.Was = e.At, judge.Now(), h.attempt
	x.Until, x.Token, x.Owner, x.Shared = g.until, lease.Token(), lease.Owner(), lease.Shared()
	h.s.app.say(x)
	return g
}

func (s *seat) crowdOfReaders(ctx context.Context, rng *rand.Rand, name string, ttl time.Duration) {
	var users sync.WaitGroup
	patience := 100*time.Millisecond + upTo(rng, 3*time.Second)
	for range 2 + rng.IntN(4) {
		d := upTo(rng, 100*time.Millisecond)
		users.Go(func() {
			if h := s.lock(ctx, readLock, name, ttl, patience, false); h != nil {
				h.hold(ctx, d)
				h.unlock()
			}
		})
	}
	users.Wait()
}

// upgrade asks for a writer's lease while it holds a reader's, which must fail at once.
func (s *seat) upgrade(ctx context.Context, c *redlock.Client, name string, ttl time.Duration) {
	h := s.lock(ctx, readLock, name, ttl, 3*time.Second, false)
	if h == nil {
		return
	}
	defer h.unlock()
	inside, cancel := context.WithTimeout(h.lease.Context(), time.Second)
	defer cancel()
	lease, err := c.RWMutex(name).Lock(inside)
	switch {
	case err == nil:
		_ = lease.Unlock(context.Background())
	case errors.Is(err, redlock.ErrUpgrade), errors.Is(err, redlock.ErrClosed), h.lease.Err() != nil:
		return
	}
	e := h.event("wrong", 0)
	e.Text = fmt.Sprintf("a reader's Lock for writing: %v", err)
	s.app.say(e)
}

type grip interface {
	Context() context.Context
	Done() <-chan struct{}
	Err() error
	ValidUntil() time.Time
}

// set is several locks that are held together. What is believed is told name by name.
type set struct {
	held
	leases *redlock.Leases
}

// lockSet takes several locks, all or none; nil: it has not got them.
func (s *seat) lockSet(ctx context.Context, names []string, ttl, patience time.Duration, try bool,
	opts ...redlock.LockOption) *set {
	c, n, _, entry := s.now()
	if c == nil {
		pause(ctx, 10*time.Millisecond)
		return nil
	}
	x := &set{held: held{s: s, attempt: s.app.attempts.Add(1), name: names[0], ttl: ttl, sort: setOfLocks}}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ask := appEvent{Kind: "ask", Seat: s.Seat, Client: n, Attempt: x.attempt, Names: names, TTL: ttl, Entry: entry,
		Try: try, Sort: setOfLocks}
	s.app.say(ask)
	m := c.Multi(names, opts...)
	lock := m.Lock
	if try {
		lock = m.TryLock
	}
	leases, err := lock(ctx)
	if err != nil {
		ask.Kind, ask.At, ask.Error, ask.Entry, ask.Said = "fail", 0, kindOf(err), 0, saidOf(err)
		s.app.say(ask)
		if !errors.Is(err, redlock.ErrHeld) {
			pause(ctx, 20*time.Millisecond)
		}
		return nil
	}
	now := judge.Now()
	x.leases = leases
	for _, name := range names {
		h := &held{s: s, attempt: s.app.attempts.Add(1), name: name, ttl: ttl, sort: setOfLocks}
		h.take(leases.Of(name))
		e := h.event("grant", n)
		e.At, e.Until, e.Token, e.Owner = now, h.until, h.lease.Token(), h.lease.Owner()
		e.Text = "in a set"
		s.app.say(e)
		x.parts = append(x.parts, h)
	}
	ask.Kind, ask.At, ask.Entry = "all", now, 0
	s.app.say(ask)
	x.watch(leases)
	return x
}

// endAll tells the end of what was believed, part by part, and unlocks them all at once.
func (s *seat) endAll(parts []*held, unlock func(ctx context.Context) error) {
	_, n, _, _ := s.now()
	ends := make([]appEvent, len(parts))
	now := judge.Now()
	for i, h := range parts {
		h.valid()
		until := judge.At(h.lease.ValidUntil())
		e := h.event("end", n)
		e.At, e.Until, e.Text = min(now, until), until, "unlock"
		if ended := h.ended.Load(); ended > 0 { // this goroutine hears of it later, if it does not run
			e.At = min(e.At, ended)
		}
		h.ending(e)
		ends[i] = e
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := unlock(ctx)
	for i, e := range ends {
		if errors.Is(parts[i].lease.Err(), redlock.ErrLost) {
			e.Text = "lost"
		}
		e.Error, e.Back = kindOf(err), judge.Now()
		if lost := (*redlock.LostError)(nil); errors.As(parts[i].lease.Err(), &lost) && e.Error == "lost" {
			e.Error += ": " + string(lost.Reason)
		}
		s.app.say(e)
	}
}

// setAct takes a set, and holds it for a moment. Its names come in any order. Mostly they are those
// that all want.
func (s *seat) setAct(ctx context.Context, rng *rand.Rand, ttl time.Duration) {
	opts, fixed := []redlock.LockOption{redlock.AutoRenew(ttl)}, rng.IntN(4) == 0
	if fixed {
		opts = []redlock.LockOption{redlock.TTL(ttl)}
	}
	if rng.IntN(4) == 0 {
		opts = append(opts, redlock.Fair())
	}
	names := slices.Clone(s.app.Hot)
	// If sets wait for each other, they do so for as long as their callers wait.
	patience, hold := 3*time.Second+upTo(rng, 7*time.Second), upTo(rng, 10*time.Millisecond)
	switch rng.IntN(8) {
	case 0:
		patience = 1 + upTo(rng, 50*time.Millisecond)
	case 1: // others must not wait for long because some of these are held for long
		names = slices.Concat(names, s.app.Warm, s.app.Long, s.app.Rare)
		patience, hold = 1+upTo(rng, 500*time.Millisecond), upTo(rng, ttl*5/4)
	}
	rng.Shuffle(len(names), func(i, k int) { names[i], names[k] = names[k], names[i] })
	names = names[:2+rng.IntN(3)]
	if x := s.lockSet(ctx, names, ttl, patience, rng.IntN(6) == 0, opts...); x != nil {
		for _, h := range x.parts {
			h.fixed = fixed
		}
		x.hold(ctx, hold)
		s.endAll(x.parts, x.leases.Unlock)
	}
}
