package guard

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Guard is the restart guard of one client: what its members know of one another. Every member of
// the client has a Seat in the same Guard. The rules are in rules.go; the Seat carries them out,
// member by member.
type Guard struct {
	cfg Config

	mu      sync.Mutex // guards the fields below; a leaf
	seats   []*Seat
	free    []int // numbers of seats that were left
	contact []contact
	told    []bool        // the client has read that this member knows of our MaxTTL
	known   []bool        // the client has seen or made a marker of this member: if it has none now, it forgot
	saw     bool          // a marker that this client did not make in a first deployment
	first   time.Time     // when this client began to mark a first deployment; zero: it did not
	q       time.Duration // the greatest MaxTTL known
	changed chan struct{} // closed and replaced when contact or saw changes

	// met: a majority was told of our MaxTTL (docs/protocol.md, "Greater MaxTTL"). No member votes
	// for this client before that, and it costs nothing: there is no lock without a majority. A
	// vote that one member alone gave before would count in a lease which the others learn of only
	// when they give theirs; the first may have forgotten it by then, and been restored from others
	// that had not learnt of it yet.
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
	guard  *Guard // nil: nobody guards the member
	host   Host
	terms  Terms
	number int
	leave  sync.Once

	layout
	masterID string                    // of a master of a cluster; the supervisor's
	home     atomic.Pointer[home]      // at a master of a cluster; nil elsewhere, and until settle has chosen it
	offset   atomic.Pointer[Offset]    // of the member's clock
	slow     atomic.Int32              // answers in a row that askMarker did not wait for
	blind    atomic.Bool               // the server does not say which process it is
	looked   atomic.Pointer[time.Time] // when the last look was put in line, or a moment before
	watch    atomic.Pointer[Watch]     // of the session that is up
}

// NewSeat makes a seat in g, which may be nil. Nobody else knows of it before Join.
func NewSeat(g *Guard, host Host, terms Terms) *Seat {
	s := &Seat{guard: g, host: host, terms: terms}
	s.layout = layoutOf(s)
	s.looked.Store(new(time.Time))
	return s
}

// Join takes the seat. The host may be called from here on.
func (s *Seat) Join() {
	g := s.guard
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := len(g.free) - 1; last >= 0 {
		s.number = g.free[last]
		g.free = g.free[:last]
		g.seats[s.number], g.contact[s.number], g.known[s.number], g.told[s.number] = s, notYet, false, false
		return
	}
	s.number = len(g.seats)
	g.seats = append(g.seats, s)
	g.contact = append(g.contact, notYet)
	g.known = append(g.known, false)
	g.told = append(g.told, false)
}

// Verdict is what a member of this standing is good for, while it is up or not.
func (s *Seat) Verdict(a Standing, up bool) Verdict {
	if s.guard == nil {
		return Verdict{Votes: up, Tag: a.marker.id}
	}
	return a.verdict(s.host.Name(), up, s.guard.met.Load(), time.Now())
}

// markingNow reports whether this client marks a first deployment at this moment: its own markers
// are no sign of an older one. That ends after a while, because others may have marked and used a
// member since that this client never came to mark.
func (g *Guard) markingNow() bool {
	return !g.first.IsZero() && clock.Elapsed(g.first, time.Now()) < youngMarker
}

// marking books that this client marks a first deployment.
func (g *Guard) marking() {
	g.mu.Lock()
	if g.first.IsZero() {
		g.first = time.Now()
	}
	g.mu.Unlock()
}

// found books what a look at a member found, and adopts a greater q.
func (g *Guard) found(seat int, m marker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.q = max(g.q, m.q)
	was, saw := g.contact[seat], g.saw
	if m.id == "" {
		if was == notYet {
			g.contact[seat] = unmarked
		}
	} else {
		g.seats[seat].book()
		g.known[seat] = true
		if was == notYet {
			g.contact[seat] = marked
		}
		g.saw = g.saw || !g.markingNow()
	}
	if was != g.contact[seat] || saw != g.saw {
		close(g.changed)
		g.changed = make(chan struct{})
	}
}

// heard adopts a greater q that was read elsewhere.
func (g *Guard) heard(q time.Duration) {
	g.mu.Lock()
	g.q = max(g.q, q)
	g.mu.Unlock()
}

func (g *Guard) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.q
}

// news is closed when a look has found something new at any member.
func (g *Guard) news() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// view of a member at seat.
func (g *Guard) view(seat int, uptime, waited, patience time.Duration) view {
	g.mu.Lock()
	v := view{
		mode: g.cfg.Mode, fresh: g.cfg.Fresh, saw: g.saw || !g.first.IsZero() && !g.markingNow(), known: g.known[seat] || g.seats[seat].booked(),
		members: g.cfg.Members, q: g.q, uptime: uptime, waited: waited, patience: patience,
	}
	v.unmarked = g.unmarkedLocked()
	others := slices.Clone(g.seats)
	g.mu.Unlock()
	for i, o := range others {
		m := o.host.Now().Standing.marker
		if i != seat && m.id != "" && m.state == neverForgot && m.age+time.Since(m.arrived) < youngMarker {
			v.young = true
		}
	}
	return v
}

// unmarkedLocked counts the members whose first look found no marker.
func (g *Guard) unmarkedLocked() (count int) {
	for i, c := range g.contact {
		if c == unmarked && g.seats[i].alone() {
			count++
		}
	}
	return count + g.groupsUnmarkedLocked()
}

// tell books that a member knows of our MaxTTL.
func (g *Guard) tell(seat int) {
	if g.met.Load() {
		return
	}
	g.mu.Lock()
	g.told[seat] = true
	g.mu.Unlock()
	g.meet()
}

// Fell is told that the member is down. A majority of the others may have been met without it.
func (s *Seat) Fell() {
	if s.guard != nil {
		s.guard.meet()
	}
}

// meet has all members vote once a majority knows of our MaxTTL: when one was told, and when a
// master of a cluster was found to be down, for which the others need not wait any more.
func (g *Guard) meet() {
	if g.met.Load() {
		return
	}
	g.mu.Lock()
	met := enoughToVote(g.toldLocked(), g.cfg.Members)
	seats := slices.Clone(g.seats)
	g.mu.Unlock()
	if !met || g.met.Swap(true) {
		return
	}
	for _, s := range seats {
		s.host.Publish(unedited)
	}
}

// unedited has the verdict made anew.
func unedited(*uint64, *Standing) {}

// toldLocked counts the members that know of our MaxTTL. A member that comes later is told before it votes.
func (g *Guard) toldLocked() (count int) {
	for i, told := range g.told {
		if s := g.seats[i]; told && s.alone() && !s.host.Closing() {
			count++
		}
	}
	return count + g.groupsToldLocked()
}

// enough is how many sources restore a member.
func (g *Guard) enough() int { return enoughSources(g.cfg.Members) }

// others returns all seats that were ever taken. Those that were left give no vote and are closing.
func (g *Guard) others() []*Seat {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seats)
}
