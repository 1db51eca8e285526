package guard

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Guard is the restart guard of one client: what its members know of one another. Each of them has a Seat in it.
type Guard struct {
	cfg Config

	mu      sync.Mutex // guards the fields below, and those of seats that say so; a leaf
	seats   []*Seat
	saw     bool          // a marker that this client did not make in a first deployment
	first   time.Time     // when this client began to mark a first deployment; zero: it did not
	q       time.Duration // the greatest MaxTTL known
	changed chan struct{} // closed and replaced when a contact or saw changes

	// met: a majority was told of our MaxTTL (docs/protocol.md, "Greater MaxTTL"). No member votes for this client before that: the
	// first to give a vote may have forgotten it, and been restored from others that had not learnt of the MaxTTL yet.
	met atomic.Bool
}

// contact is what the first look at a member found.
type contact uint8

const (
	notYet contact = iota
	unmarked
	marked
)

// New makes the guard for cfg.Members members.
func New(cfg Config) *Guard {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Guard{cfg: cfg, q: cfg.MaxTTL, changed: make(chan struct{})}
}

// Seat is the place of one member in its Guard. A member without a guard has a Seat, too, where
// nothing is asked of it: it votes whenever it is up.
type Seat struct {
	guard *Guard // nil: nobody guards the member
	host  Host
	terms Terms

	// guarded by Guard.mu
	contact contact
	told    bool // the client has read that this member knows of our MaxTTL
	known   bool // the client has seen or made a marker of this member: if it has none now, it forgot

	looked atomic.Pointer[time.Time] // when the last look was put in line, or a moment before
	watch  atomic.Pointer[Watch]     // of the session that is up
	slow   atomic.Int32              // answers in a row that askMarker did not wait for
	offset atomic.Pointer[Offset]    // of the member's clock

	home     atomic.Pointer[home] // at a master of a cluster; nil elsewhere, and until settle has chosen it
	masterID string               // of a master of a cluster; the supervisor's
}

// NewSeat makes a seat in g, which may be nil. Nobody else knows of it before Join.
func NewSeat(g *Guard, host Host, terms Terms) *Seat {
	s := &Seat{guard: g, host: host, terms: terms}
	s.looked.Store(new(time.Time))
	return s
}

// Join takes the seat. The host may be called from here on.
func (s *Seat) Join() {
	if g := s.guard; g != nil {
		g.mu.Lock()
		g.seats = append(g.seats, s)
		g.mu.Unlock()
	}
}

// alone reports whether the seat is that of a whole member, and not of one master of a cluster.
func (s *Seat) alone() bool { return s.terms.Shard == nil }

// place is where the marker is.
func (s *Seat) place() *home {
	if h := s.home.Load(); h != nil {
		return h
	}
	return plainHome
}

// Verdict is what a member of this standing is good for, while it is up or not.
func (s *Seat) Verdict(a Standing, up bool) Verdict {
	if s.guard == nil {
		return Verdict{Votes: up, Tag: a.marker.id}
	}
	return a.verdict(s.host.Name(), up, s.guard.met.Load(), time.Now())
}

// sawLocked reports whether the client has seen a marker of another client. Its own markers of a first deployment are no sign
// of an older one. That ends after a while, because others may have marked and used a member since that this client never came
// to mark.
func (g *Guard) sawLocked() bool {
	return g.saw || !g.first.IsZero() && clock.Elapsed(g.first, time.Now()) >= youngMarker
}

// marks books that this client marks a first deployment.
func (g *Guard) marks() {
	g.mu.Lock()
	if g.first.IsZero() {
		g.first = time.Now()
	}
	g.mu.Unlock()
}

// finds books what a look at the member found, and adopts a greater q.
func (s *Seat) finds(m marker) {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	g.q = max(g.q, m.q)
	was, saw := s.contact, g.saw
	if m.id != "" {
		s.known = true
		s.cover()
		g.saw = g.first.IsZero() || g.sawLocked()
	}
	switch {
	case was == notYet && m.id == "":
		s.contact = unmarked
	case was == notYet:
		s.contact = marked
	}
	if was != s.contact || saw != g.saw {
		g.wakeLocked()
	}
}

func (g *Guard) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.q
}

// view is what the client knows beside the member's marker.
func (s *Seat) view() view {
	g := s.guard
	g.mu.Lock()
	defer g.mu.Unlock()
	v := view{
		mode: g.cfg.Mode, fresh: g.cfg.Fresh, saw: g.sawLocked(), known: s.known || s.covered(), members: g.cfg.Members,
		q: g.q, lag: max(0, s.terms.Lag),
	}
	v.unmarked = g.groupsUnmarkedLocked()
	for _, o := range g.seats {
		if o.alone() && o.contact == unmarked {
			v.unmarked++
		}
	}
	return v
}

// tell books that the member knows of our MaxTTL.
func (s *Seat) tell() {
	s.guard.mu.Lock()
	s.told = true
	s.guard.mu.Unlock()
	s.guard.meet()
}

// meet has all members vote once a majority knows of our MaxTTL. A member that comes later is told before it votes.
func (g *Guard) meet() {
	if g.met.Load() {
		return
	}
	g.mu.Lock()
	told := g.groupsToldLocked()
	for _, s := range g.seats {
		if s.told && s.alone() && !s.host.Closing() {
			told++
		}
	}
	seats := slices.Clone(g.seats)
	g.mu.Unlock()
	if !enoughToVote(told, g.cfg.Members) || g.met.Swap(true) {
		return
	}
	for _, s := range seats {
		s.host.Publish(unedited)
	}
}

// unedited has the verdict made anew.
func unedited(*uint64, *Standing) {}

// others returns all seats that are taken.
func (g *Guard) others() []*Seat {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seats)
}
