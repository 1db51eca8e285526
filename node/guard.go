package node

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
)

// RestartGuard says what happens to a member that may have forgotten.
type RestartGuard uint8

const (
	// GuardQuarantine: it does not vote until every lease that may have counted its old votes has
	// ended, and its token counters are restored from members that know. The default.
	GuardQuarantine RestartGuard = iota
	// GuardStrict: as GuardQuarantine, and where too few members know the counters it stays out, instead
	// of going on from the servers' clocks.
	GuardStrict
	// GuardOff: a member that comes back with an old marker is believed to remember everything. For
	// members with appendfsync always. One without a marker has forgotten all the same, and so has a
	// replica that took over.
	GuardOff
)

// GuardConfig is what all members of a client share. All clients of one deployment use the same Mode.
type GuardConfig struct {
	Members int
	MaxTTL  time.Duration // the longest lease this client asks for: its q
	Mode    RestartGuard
	// Fresh: nothing was held at these members before, so that a first deployment needs no quarantine.
	// Only ever true by the word of a person.
	Fresh  bool
	Logger *slog.Logger
	// Event hears of each step, for tracing; may be nil.
	Event func(GuardEvent)
}

// GuardEvent is one step of the restart guard at one member.
type GuardEvent struct {
	Member string
	Step   string // "marked", "forgot", "quarantined", "lifted", "restored", "tokens_by_clock"
	Until  time.Time
}

// Guard is the restart guard of one client: what its members know of one another. Give the same one to
// every Node of the client, in Config.Guard. The decisions are in decide, which is pure; node/admit.go
// carries them out, member by member.
type Guard struct {
	cfg GuardConfig

	mu      sync.Mutex // guards the fields below; a leaf
	nodes   []*Node
	free    []int // seats of nodes that have left
	contact []contact
	told    []bool        // it was read that this member knows of our MaxTTL
	known   []bool        // a marker of this member was seen or made: if it has none now, it forgot
	saw     bool          // a marker that this client did not make in a first deployment
	first   time.Time     // when this client began to mark a first deployment; zero: it did not
	q       time.Duration // the greatest MaxTTL known
	changed chan struct{} // closed and replaced when contact or saw changes

	// met: a majority was told of our MaxTTL (docs/protocol.md, "Greater MaxTTL"). No member votes for this client
	// before that, and it costs nothing: there is no lock without a majority. A vote that one member alone gave
	// before would count in a lease which the others learn of only when they give theirs; the first may have
	// forgotten it by then, and been restored from others that had not learnt of it yet.
	met atomic.Bool
}

// contact is what the first look at a member found.
type contact uint8

const (
	notYet contact = iota
	unmarked
	marked
)

// NewGuard makes the guard for cfg.Members nodes.
func NewGuard(cfg GuardConfig) *Guard {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Guard{cfg: cfg, q: cfg.MaxTTL, changed: make(chan struct{})}
}

// join gives n its seat.
func (g *Guard) join(n *Node) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if last := len(g.free) - 1; last >= 0 {
		seat := g.free[last]
		g.free = g.free[:last]
		g.nodes[seat], g.contact[seat], g.known[seat], g.told[seat] = n, notYet, false, false
		return seat
	}
	g.nodes = append(g.nodes, n)
	g.contact = append(g.contact, notYet)
	g.known = append(g.known, false)
	g.told = append(g.told, false)
	return len(g.nodes) - 1
}

// leave gives a seat back: a master that is no longer one of its cluster. Its goroutines have ended.
func (g *Guard) leave(seat int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free = append(g.free, seat)
}

// markingNow reports whether this client marks a first deployment at this moment: its own markers are no
// sign of an older one. That ends after a while: a member that it never came to mark may have been marked
// and used by others since.
func (g *Guard) markingNow() bool {
	return !g.first.IsZero() && clock.Elapsed(g.first, time.Now()) < youngMarker
}

// found books what a look at a member found, and adopts a greater q.
func (g *Guard) found(seat int, m marker) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.q = max(g.q, m.q)
	if shard := g.nodes[seat].cfg.Shard; shard != nil && m.id != "" {
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

// view is what decide needs to know beside the marker.
type view struct {
	mode     RestartGuard
	fresh    bool
	saw      bool // a marker of others was seen before
	known    bool // a marker of this very member was
	unmarked int  // members whose first look found none
	members  int
	q        time.Duration
	uptime   time.Duration // of the server process
	lag      time.Duration // Config.FailoverLag, where a replica may replace the server
	waited   time.Duration // since the first look at this member found it unmarked
	patience time.Duration // for the other members' first answers
	young    bool          // a marker of another member is of state n and not yet youngMarker old
}

// youngMarker: a first deployment is being marked by somebody else while one of its markers is no older.
const youngMarker = 5 * time.Second

// lookAgain is how long a process that never saw a marker waits for somebody else's marking.
const lookAgain = time.Second

// action is what to do with a member whose marker was read.
type action uint8

const (
	accept    action = iota
	markNew          // first deployment: state n
	markLost         // it forgot: state g
	waitFirst        // not all members have been looked at yet
)

// decide is the whole rule of docs/protocol.md, "Marker" and docs/protocol.md, "First start". quarantine is that of a
// marking.
func decide(m marker, runID string, v view) (do action, quarantine time.Duration) {
	switch {
	case m.of(runID):
		return accept, 0
	case m.id != "" && v.mode == GuardOff && (m.known() || !m.promoted()): // its own data, and no replica's
		return accept, 0
	case m.id != "":
		return markLost, v.q
	case v.known:
		return markLost, v.q
	case !v.saw && v.unmarked == v.members:
		if v.fresh {
			return markNew, 0
		}
		if m.promoted() { // perhaps before a marker reached it: its process is older than its memory
			return markNew, v.q
		}
		// uptime_in_seconds runs up to a second ahead. A process that has just begun, empty, may have taken over
		// a moment before it ended: then the former master goes on granting for a while.
		return markNew, max(0, v.q+v.lag-max(0, v.uptime-time.Second))
	case !v.saw && v.waited < v.patience:
		return waitFirst, 0
	case v.young && v.waited < lookAgain:
		return waitFirst, 0
	case !v.saw && v.fresh:
		return markNew, 0 // a person vouches for those that do not answer, too
	}
	return markLost, v.q
}

// view of a member at seat.
func (g *Guard) view(seat int, uptime, waited, patience time.Duration) view {
	g.mu.Lock()
	v := view{
		mode: g.cfg.Mode, fresh: g.cfg.Fresh, saw: g.saw || !g.first.IsZero() && !g.markingNow(), known: g.known[seat], members: g.cfg.Members, q: g.q,
		uptime: uptime, waited: waited, patience: patience,
	}
	v.unmarked = g.unmarkedLocked()
	if shard := g.nodes[seat].cfg.Shard; shard != nil {
		v.known = v.known || shard.Group.covers(shard.Slots())
	}
	others := slices.Clone(g.nodes)
	g.mu.Unlock()
	for i, o := range others {
		if m, at := o.lastMarker(); i != seat && m.id != "" && m.state == neverForgot && m.age+time.Since(at) < youngMarker {
			v.young = true
		}
	}
	return v
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

// meet has all members vote once a majority knows of our MaxTTL: when one was told, and when a master of a cluster was
// found to be down, for which the others need not wait any more.
func (g *Guard) meet() {
	if g.met.Load() {
		return
	}
	g.mu.Lock()
	met := enoughToVote(g.toldLocked(), g.cfg.Members)
	nodes := slices.Clone(g.nodes)
	g.mu.Unlock()
	if !met || g.met.Swap(true) {
		return
	}
	for _, n := range nodes {
		n.change(func(*published) {}) // Votes is computed anew
	}
}

// enoughToVote is whether a client may use votes when so many members have learnt of its MaxTTL.
func enoughToVote(told, members int) bool { return told >= member.Majority(members) }

// toldLocked counts the members that know of our MaxTTL: a cluster, when all its masters do that serve slots and
// can be reached. One that comes later is told before it votes.
func (g *Guard) toldLocked() (count int) {
	clusters := make(map[*Group]bool)
	for i, told := range g.told {
		n := g.nodes[i]
		group := n.cfg.Shard.group()
		switch all, met := clusters[group]; {
		case n.isClosing():
		case group == nil && told:
			count++
		case group == nil:
		case told:
			clusters[group] = all || !met
		case len(n.cfg.Shard.Slots()) > 0 && errors.Is(n.published.Load().state.Err, member.ErrConnecting):
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

// marking books that this client marks a first deployment.
func (g *Guard) marking() {
	g.mu.Lock()
	if g.first.IsZero() {
		g.first = time.Now()
	}
	g.mu.Unlock()
}

// heard adopts a greater q that was read elsewhere.
func (g *Guard) heard(q time.Duration) {
	g.mu.Lock()
	g.q = max(g.q, q)
	g.mu.Unlock()
}

// enough members of those that know meet every majority without the one that forgot.
func (g *Guard) enough() int { return g.cfg.Members - member.Majority(g.cfg.Members) + 1 }

func (g *Guard) longest() time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.q
}

func (g *Guard) news() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// sources are the tables of those of the other members that know.
func (g *Guard) sources(ctx context.Context, seat int) (out []source) {
	g.mu.Lock()
	nodes := slices.Clone(g.nodes)
	g.mu.Unlock()
	own := nodes[seat].cfg.Shard.group()
	clusters := make(map[*Group][]*Node)
	for i, n := range nodes {
		switch group := n.cfg.Shard.group(); {
		case i == seat || n.isClosing() || group != nil && group == own:
		case group != nil:
			clusters[group] = append(clusters[group], n)
		default:
			if src, ok := n.counters(ctx); ok {
				out = append(out, src)
			}
		}
	}
	for _, masters := range clusters {
		if src, ok := clusterCounters(ctx, masters); ok {
			out = append(out, src)
		}
	}
	return out
}

// unmarkedLocked counts the members whose first look found no marker: of a cluster, those of all masters.
func (g *Guard) unmarkedLocked() (count int) {
	masters := make(map[*Group]int)
	for i, c := range g.contact {
		switch group := g.nodes[i].cfg.Shard.group(); {
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

// masters are the nodes of a cluster.
func (g *Guard) masters(of *Group) (out []*Node) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, n := range g.nodes {
		if n.cfg.Shard.group() == of && !n.isClosing() {
			out = append(out, n)
		}
	}
	return out
}

func (s *Shard) group() *Group {
	if s == nil {
		return nil
	}
	return s.Group
}

func (g *Guard) event(name, step string, until time.Time) {
	if g.cfg.Event != nil {
		g.cfg.Event(GuardEvent{Member: name, Step: step, Until: until})
	}
}

// merge is the table of counters that a member is restored to: of every bucket the maximum. A source
// whose own order rests on the clocks lends no absence: a bucket that it lacks is left out, whatever
// the others hold, and begins at server time. enough: so many sources must know.
func merge(sources []source, enough int) (table map[string]int64, byClock bool) {
	if len(sources) < enough {
		return nil, true
	}
	table = make(map[string]int64)
	for _, s := range sources {
		for bucket, n := range s.counters {
			table[bucket] = max(table[bucket], n)
		}
	}
	for _, s := range sources {
		if !s.clk {
			continue
		}
		byClock = true
		for bucket := range table {
			if _, ok := s.counters[bucket]; !ok {
				delete(table, bucket)
			}
		}
	}
	return table, byClock
}

// source is the table of a member that knows.
type source struct {
	clk      bool
	q        time.Duration // the greatest MaxTTL that it was told of
	counters map[string]int64
}

// longestOf is the q that the quarantine of a member must have lasted for when it is restored (docs/protocol.md,
// "Restore"): the greatest that the client knows by now or that a source tells. Who counts a member's vote has raised
// q there first. So where as many sources tell as merge wants, one of them was told of every lease that counted the
// member's old votes, whatever the client that marked it had seen by then.
func longestOf(known time.Duration, sources []source) time.Duration {
	for _, s := range sources {
		known = max(known, s.q)
	}
	return known
}
