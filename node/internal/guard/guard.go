package guard

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// Config is what all members of a client share. All clients of one deployment use the same Mode.
type Config struct {
	Members int
	MaxTTL  time.Duration // the longest lease this client asks for: its q
	Mode    Mode
	// Fresh says that nothing was held at these members before, so that a first deployment needs no
	// quarantine. Only a person can know that.
	Fresh  bool
	Logger *slog.Logger
	// Event hears of each step, for tracing. It may be nil.
	Event func(Event)
}

// Event is one step of the restart guard at one member.
type Event struct {
	Member string
	Step   string // "marked", "forgot", "quarantined", "lifted", "restored", "tokens_by_clock"
	Until  time.Time
}

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

// Host publishes what a Seat finds, and tells it how its member is. Its methods may be called from
// any goroutine, and none but Ask waits. The guard calls Now, Closing and the functions of Shard under
// its mutex, so these must not call the guard.
type Host interface {
	// Name identifies the member in errors and logs.
	Name() string
	// Now is what the member is good for at this moment.
	Now() Present
	// Publish edits the standing and the generation. Then it asks Seat.Verdict anew. When the host
	// is closing, Publish does nothing. edit must not block.
	Publish(edit func(gen *uint64, s *Standing))
	// Ask puts one command to the member, on whichever session is up. No bound of callers bounds it.
	Ask(ctx context.Context, cmd []byte) (member.Reply, error)
	// Recheck compares the memory that the inbox stands at with the one that commands go to.
	Recheck()
	// Suspect has Watch.Suspected called: the member may not be what it was.
	Suspect()
	// Closing reports whether the host takes no more calls.
	Closing() bool
	// Context ends when the host gives up everything.
	Context() context.Context
}

// Session is one connection to a member.
type Session interface {
	// Ask puts commands to the member and waits. An error says that not all were answered or
	// refused.
	Ask(ctx context.Context, cmds [][]byte) ([]member.Call, error)
	// Queue puts a call behind those in line and does not wait. After an error the call is still
	// the caller's.
	Queue(c *member.Call) error
	// Hold keeps a call until one comes from outside that is not Unlooked, and queues it right before that. It calls
	// queued when it does, which must not block. After an error the call is still the caller's.
	Hold(c *member.Call, queued func()) error
	// Send queues what Hold keeps, if that is not queued already.
	Send()
	// Pause waits for news, for d, or for the end of the session or of its host, which is an error.
	Pause(news <-chan struct{}, d time.Duration) error
}

// Present is what a member is good for at one moment.
type Present struct {
	State    member.State
	Standing Standing
	Session  Session // nil while the member is not up
}

// Terms are what a Seat is told of its member.
type Terms struct {
	Ping     time.Duration // how old the last look at the marker may be when a vote counts
	Patience time.Duration // for one answer, and for the first answers of the other members
	Lag      time.Duration // how long a master that was replaced may go on granting
	Logger   *slog.Logger
	Shard    *Shard // not nil for a master of a cluster
	// Replicated says that a replica may take the server's place with a part of its memory.
	Replicated bool
}

// lookPings is how many pings a look is apart from the one before it, if no call takes it along.
const lookPings = 10

// learn is how long another client may take to learn of a raised q: one ping more is for the look and its answer. Where
// a replica may take over, everybody looks at each ping: nothing but a look tells of that.
func (t *Terms) learn() time.Duration {
	if t.Replicated {
		return t.Ping
	}
	return (lookPings + 1) * t.Ping
}

// Shard makes a member one master of a Redis Cluster, which is one member together with the others.
// What a plain member keeps once, a master keeps per slot it serves, so that it moves with the
// slot:
//
//	member.TokensKey:{t}              the slot's counters, and `id`, the marker id it was stamped with
//	member.MarkerKey:{t}:<node id>    the master's marker, in one of its slots (its home)
//	redquorum:quarantine:{t}:<node id>
//
// t is slot.TagOf the slot. The memory of a master is that of its process and of its replication
// id: a promotion changes the latter.
type Shard struct {
	// Group is the member's, shared by its masters.
	Group *Group
	// Slots returns the slots that the master is known to serve, ascending. It returns nil while
	// that is not known.
	Slots func() []uint16
	// Unknown is called when the guard cannot tell what the master is good for: Slots knows nothing
	// of it, or the server disagrees. It must not block.
	Unknown func()
}

func (s *Shard) group() *Group {
	if s == nil {
		return nil
	}
	return s.Group
}

// Group is what the masters of one Redis Cluster share.
type Group struct {
	era    atomic.Uint64 // generation of the member: grows before any master of it begins a new one
	epochs atomic.Uint64 // connections, so that no two masters have the same epoch
	// Changed is called when the era has grown: inboxes of earlier ones count for nothing.
	Changed func()
	// Masters is how many masters serve slots, 0 while that is not known.
	Masters func() int

	mu      sync.Mutex       // a leaf
	covered [slot.Count]bool // slots of masters that had a marker
	lonely  time.Time        // since when too few members tell how long a slot must rest; zero: enough did
	last    time.Time        // when that was found last
}

// Era is the generation of the member.
func (g *Group) Era() uint64 { return g.era.Load() }

// patient reports whether other members are still waited for: for a ping, as at a restore.
func (g *Group) patient(ping time.Duration) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.lonely.IsZero() || time.Since(g.last) > 10*ping {
		g.lonely = time.Now()
	}
	g.last = time.Now()
	return time.Since(g.lonely) < ping
}

// asked books that other members were asked, and whether enough of them told.
func (g *Group) asked(enough bool) {
	if enough {
		g.mu.Lock()
		g.lonely = time.Time{}
		g.mu.Unlock()
	}
}

// cover notes that the master of these slots has a marker.
func (g *Group) cover(slots []uint16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range slots {
		g.covered[s] = true
	}
}

// covers reports whether a master of one of these slots had a marker: if there is none now, it
// forgot.
func (g *Group) covers(slots []uint16) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.ContainsFunc(slots, func(s uint16) bool { return g.covered[s] })
}

// Seat is the place of one member in its Guard. A member without a guard has a Seat, too, where
// nothing is asked of it: it votes whenever it is up.
type Seat struct {
	guard  *Guard // nil: nobody guards the member
	host   Host
	terms  Terms
	number int
	leave  sync.Once

	masterID string                 // of a master of a cluster; the supervisor's
	home     atomic.Pointer[home]   // at a master of a cluster; nil elsewhere, and until settle has chosen it
	offset   atomic.Pointer[Offset] // of the member's clock
	slow     atomic.Int32           // answers in a row that askMarker did not wait for
	blind    atomic.Bool            // the server does not say which process it is
}

// NewSeat makes a seat in g, which may be nil. Nobody else knows of it before Join.
func NewSeat(g *Guard, host Host, terms Terms) *Seat {
	return &Seat{guard: g, host: host, terms: terms}
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

// Leave gives the seat of a master back that is no longer one of its cluster, once. The host's
// goroutines have ended. Any other member keeps its seat.
func (s *Seat) Leave() {
	if s.terms.Shard == nil {
		return
	}
	s.leave.Do(func() {
		g := s.guard
		g.mu.Lock()
		defer g.mu.Unlock()
		g.free = append(g.free, s.number)
	})
}

// Verdict is what a member of this standing is good for, while it is up or not.
func (s *Seat) Verdict(a Standing, up bool) Verdict {
	if s.guard == nil {
		return Verdict{Votes: up, Tag: a.marker.id}
	}
	return a.verdict(s.host.Name(), up, s.guard.met.Load(), time.Now())
}

// HeardOffset is how far the member's clock is from ours by the last look at its marker. Without a
// guard ok is false.
func (s *Seat) HeardOffset() (o Offset, ok bool) {
	if heard := s.offset.Load(); heard != nil {
		return *heard, true
	}
	return Offset{}, false
}

// event tells Config.Event of a step.
func (s *Seat) event(step string, until time.Time) {
	if g := s.guard; g.cfg.Event != nil {
		g.cfg.Event(Event{Member: s.host.Name(), Step: step, Until: until})
	}
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
	if shard := g.seats[seat].terms.Shard; shard != nil && m.id != "" {
		shard.Group.cover(shard.Slots())
	}
	was, saw := g.contact[seat], g.saw
	if m.id == "" {
		if was == notYet {
			g.contact[seat] = unmarked
		}
	} else {
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
		mode: g.cfg.Mode, fresh: g.cfg.Fresh, saw: g.saw || !g.first.IsZero() && !g.markingNow(), known: g.known[seat],
		members: g.cfg.Members, q: g.q, uptime: uptime, waited: waited, patience: patience,
	}
	v.unmarked = g.unmarkedLocked()
	if shard := g.seats[seat].terms.Shard; shard != nil {
		v.known = v.known || shard.Group.covers(shard.Slots())
	}
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

// unmarkedLocked counts the members whose first look found no marker: of a cluster, those of all
// masters.
func (g *Guard) unmarkedLocked() (count int) {
	masters := make(map[*Group]int)
	for i, c := range g.contact {
		switch group := g.seats[i].terms.Shard.group(); {
		case group == nil && c == unmarked:
			count++
		case group != nil && c == unmarked && masters[group] >= 0:
			masters[group]++
		case group != nil && c == marked:
			masters[group] = -1
		}
	}
	for group, n := range masters {
		if want := group.Masters(); want > 0 && n >= want {
			count++
		}
	}
	return count
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

// toldLocked counts the members that know of our MaxTTL: a cluster, when all its masters do that
// serve slots and can be reached. A member that comes later is told before it votes.
func (g *Guard) toldLocked() (count int) {
	clusters := make(map[*Group]bool)
	for i, told := range g.told {
		s := g.seats[i]
		group := s.terms.Shard.group()
		switch all, met := clusters[group]; {
		case s.host.Closing():
		case group == nil && told:
			count++
		case group == nil:
		case told:
			clusters[group] = all || !met
		case len(s.terms.Shard.Slots()) > 0 && errors.Is(s.host.Now().State.Err, member.ErrConnecting):
			clusters[group] = false
		}
	}
	for _, all := range clusters {
		if all {
			count++
		}
	}
	return count
}

// enough is how many sources restore a member.
func (g *Guard) enough() int { return enoughSources(g.cfg.Members) }

// others returns all seats that were ever taken. Those that were left give no vote and are closing.
func (g *Guard) others() []*Seat {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.seats)
}

// masters are the seats of a cluster.
func (g *Guard) masters(of *Group) (out []*Seat) {
	for _, s := range g.others() {
		if s.terms.Shard.group() == of && !s.host.Closing() {
			out = append(out, s)
		}
	}
	return out
}
