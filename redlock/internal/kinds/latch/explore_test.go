//go:build !race

package latch

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

// Every schedule of a few clients and members, breadth first. The clients are Latches; the members are
// a model of the scripts, whose cases are in redlock/internal/script/testdata/latch. A step is one call
// that a member executes, with its answer or without one.

// site is what a member has. Values replace each other, so that worlds may share them.
type site struct {
	round, count, sum, digest int64
	ids                       map[string]int64
	open                      bool
	watches                   memberset.Set // awaiters
	gen                       uint64
}

func (s *site) state() State {
	return State{Round: s.round, Count: s.count, Sum: s.sum, Digest: s.digest, Open: s.open}
}

func hashOf(id string) int64 { return int64(id[0]) * 7919 }

// call is arrive or await at a member: watch is -1, or the awaiter.
func (s *site) call(r rules, round, count int64, open bool, arrivals []Arrival, watch int) (after site, told memberset.Set) {
	after = *s
	switch {
	case r.oneRound: // no rounds: what a member has is of any use
		if after.round < 0 {
			after.round = round
		}
	case s.round > round:
		return after, 0
	case s.round < round:
		told = after.watches
		after = site{round: round, gen: s.gen}
	case count > 0 && s.count > 0 && count != s.count:
		return after, 0
	}
	if after.count == 0 {
		after.count = count
	}
	after.ids = maps.Clone(after.ids)
	for _, a := range arrivals {
		if old := after.ids[a.ID]; a.N > old || r.countsRepeats {
			if after.ids == nil {
				after.ids = map[string]int64{}
			}
			if r.countsRepeats {
				old = 0
			}
			after.ids[a.ID] = a.N
			after.sum += a.N - old
			after.digest += hashOf(a.ID) * (a.N - old)
		}
	}
	if opens := !after.open && (open || after.count > 0 && after.sum >= after.count); opens {
		after.open = true
		told |= after.watches
		after.watches = 0
	}
	if watch >= 0 && !after.open {
		after.watches = after.watches.With(watch)
	}
	return after, told
}

// rules are what a search takes out of the clients and the members.
type rules struct {
	oneRound      bool // rounds are not told apart
	countsRepeats bool // an arrival that is repeated counts again
	need          int  // members that make an arrival done; 0: a majority
	noJoin        bool // nobody joins what members have
	noReassert    bool // nobody arrives again
	first         bool // Await returns at the first word
}

// bounds are what a search may do.
type bounds struct {
	rules
	members, arrivals, awaiters int
	forgets                     int  // losses of memory
	snapshots                   bool // and members may come back with an old state
	dies                        bool // who has arrived, and is done, is gone
	stale                       bool // the first member has the last round, open
	lost                        bool // answers are lost
}

type client struct {
	*Latch
	await   bool
	invoked bool
	done    bool // its call has returned
	gone    bool
	version int
	calls   [3]*Batch // under way at each member
}

type world struct {
	b       *bounds
	sites   []site
	snaps   []site
	clients []*client
	forgets int
	opened  bool // a call of Await has returned
	bad     string
}

func newWorld(b *bounds) *world {
	w := &world{b: b}
	for i := range b.members {
		s := site{round: -1, gen: 1}
		if b.stale && i == 0 {
			s = site{round: 1, count: int64(b.arrivals), sum: int64(b.arrivals), open: true, gen: 1}
			if b.oneRound {
				s.round = 2
			}
		}
		w.sites = append(w.sites, s)
	}
	w.snaps = slices.Clone(w.sites)
	for i := range b.arrivals + b.awaiters {
		w.clients = append(w.clients, &client{Latch: New(b.members, w.terms()), await: i >= b.arrivals})
	}
	return w
}

func (w *world) terms() Terms {
	need := w.b.need
	if need == 0 {
		need = member.Majority(w.b.members)
	}
	return Terms{Round: 2, Count: int64(w.b.arrivals), Need: need, Most: 4}
}

func (w *world) clone() *world {
	c := *w
	c.sites, c.snaps = slices.Clone(w.sites), slices.Clone(w.snaps)
	c.clients = slices.Clone(w.clients)
	return &c
}

// own makes a client this world's own, before it changes.
func (w *world) own(i int) *client {
	c := *w.clients[i]
	l := *c.Latch
	l.log, l.at = slices.Clone(l.log), slices.Clone(l.at)
	l.latest, l.union = maps.Clone(l.latest), maps.Clone(l.union)
	c.Latch = &l
	w.clients[i] = &c
	return &c
}

func (w *world) states() []member.State {
	out := make([]member.State, len(w.sites))
	for i, s := range w.sites {
		out[i] = member.State{Brief: member.Brief{Gen: s.gen, Epoch: 1, Votes: true}, Up: true, Inbox: true}
	}
	return out
}

// pump has a client submit what is due, and end its call if it can.
func (w *world) pump(i int) {
	c := w.own(i)
	states := w.states()
	for !c.gone && c.invoked && !(w.b.noReassert && c.done) {
		b, _, ok := c.Due(time.Time{}, states, false)
		if !ok {
			break
		}
		for m := range w.sites {
			if b.To.Has(m) {
				c.calls[m] = &b
			}
		}
	}
	switch {
	case !c.invoked || c.done || c.gone:
	case c.await:
		if c.Open() && (c.Known(states) || w.b.first) {
			c.done, w.opened = true, true
			n := 0
			for _, o := range w.clients {
				if !o.await && o.invoked {
					n++
				}
			}
			if n < w.b.arrivals {
				w.bad = "opened too early"
			}
		}
	case c.Stored(c.version, states):
		if c.done = true; w.b.dies {
			c.gone = true
			c.calls = [3]*Batch{}
		}
	}
}

func (w *world) next(emit func(step explore.Step, n *world)) {
	for i, c := range w.clients {
		switch {
		case !c.invoked:
			n := w.clone()
			o := n.own(i)
			if o.invoked = true; !o.await {
				o.version = o.Arrive(string(rune('a'+i)), 1)
			}
			n.pump(i)
			emit(explore.Say("%d begins", i), n)
			continue
		case c.gone:
			continue
		}
		for m := range w.sites {
			if b := c.calls[m]; b != nil {
				for _, lost := range []bool{false, true} {
					if lost && !w.b.lost {
						continue
					}
					n := w.clone()
					o := n.own(i)
					count := w.terms().Count
					if b.Open {
						count = 0
					}
					after, told := n.sites[m], memberset.Set(0)
					if !b.Known || after.round >= 0 {
						after, told = n.sites[m].call(w.b.rules, 2, count, b.Open, b.Arrivals, -1)
					}
					n.sites[m] = after
					o.calls[m] = nil
					if lost {
						o.Failed(m, time.Time{})
					} else {
						o.Told(m, b, after.state(), n.states()[m].Brief)
					}
					n.pump(i)
					n.push(m, told)
					what := "%d is told by %d"
					if lost {
						what = "%d is told by %d, and the answer is lost"
					}
					emit(explore.Say(what, m, i), n)
				}
			}
			if !c.await || c.done {
				continue
			}
			n := w.clone()
			o := n.own(i)
			after, told := n.sites[m].call(w.b.rules, 2, w.terms().Count, false, nil, i)
			n.sites[m] = after
			o.Heard(m, after.state(), n.states()[m].Brief, o.Life())
			if o.open { // nothing of it is looked at any more
				o.at[m].said, o.at[m].steady, o.at[m].sum, o.at[m].digest = false, false, 0, 0
			}
			n.pump(i)
			n.push(m, told)
			emit(explore.Say("%d hears %d", i, m), n)
		}
		if to := c.Unequal(w.states()); c.await && !c.done && to != 0 && !w.b.noJoin {
			n := w.clone()
			o := n.own(i)
			for m := range n.sites {
				if to.Has(m) {
					o.Join(n.sites[m].state(), n.sites[m].ids)
				}
			}
			o.Repaired()
			for m := range n.sites {
				if to.Has(m) {
					after, told := n.sites[m].call(w.b.rules, 2, w.terms().Count, false, o.Lacking(n.sites[m].ids), -1)
					n.sites[m] = after
					n.push(m, told)
				}
			}
			n.pump(i)
			emit(explore.Say("%d joins", i), n)
		}
	}
	for m := range w.sites {
		if w.forgets < w.b.forgets {
			n := w.clone()
			n.forgets++
			back := site{round: -1}
			if w.b.snapshots {
				back = n.snaps[m]
				back.watches = 0
			}
			back.gen = n.sites[m].gen + 1
			n.sites[m] = back
			for i := range n.clients {
				n.pump(i)
			}
			emit(explore.Say("%d forgets", m), n)
		}
		if w.b.snapshots && w.forgets < w.b.forgets && w.snaps[m].sum != w.sites[m].sum {
			n := w.clone()
			n.snaps[m] = n.sites[m]
			emit(explore.Say("%d is saved", m), n)
		}
	}
}

// push tells awaiters; one that is lost is a schedule in which they hear it later.
func (w *world) push(m int, told memberset.Set) {
	for i := range w.clients {
		if told.Has(i) && !w.clients[i].done {
			w.own(i).Pushed(m, 2, w.states()[m])
			w.pump(i)
		}
	}
}

// key tells worlds apart. Which member is which makes no difference.
func (w *world) key() explore.Key {
	var of [3][]byte
	ids := func(b []byte, m map[string]int64) []byte {
		for id := range byte(w.b.arrivals) {
			b = append(b, byte(m[string(rune('a'+id))]))
		}
		return b
	}
	for m, s := range w.sites {
		b := append(of[m], byte(s.round), byte(s.count), byte(s.sum), byte(s.watches), byte(s.gen))
		b = ids(append(b, bits(s.open)), s.ids)
		if w.b.snapshots {
			b = ids(append(b, bits(w.snaps[m].open), byte(w.snaps[m].round), byte(w.snaps[m].sum)), w.snaps[m].ids)
		}
		for _, c := range w.clients {
			if p := &c.at[m]; !c.gone && c.invoked {
				b = append(b, bits(p.met, p.pending, p.knows, p.differs, p.said, p.steady, c.calls[m] != nil && c.calls[m].Open))
				b = append(b, byte(p.gen), byte(p.has), byte(p.sum))
			}
		}
		of[m] = b
	}
	slices.SortFunc(of[:len(w.sites)], slices.Compare)
	b := []byte{byte(w.forgets)}
	for _, one := range of {
		b = append(b, one...)
	}
	for _, c := range w.clients {
		b = append(b, bits(c.invoked, c.done, c.gone, c.open, c.passed))
		if !c.gone {
			b = ids(b, c.union)
		}
	}
	return explore.Bytes(b)
}

func (w *world) finished() bool {
	for _, c := range w.clients {
		if !c.done {
			return false
		}
	}
	return true
}

// fresh asks members of a majority what remains, by any that it can ask.
func (w *world) fresh() (worst int64) {
	for set := range 1 << len(w.sites) {
		l := New(len(w.sites), w.terms())
		n := 0
		for m, s := range w.sites {
			if set>>m&1 == 1 {
				n++
				l.Join(s.state(), s.ids)
			}
		}
		if n >= member.Majority(len(w.sites)) {
			worst = max(worst, l.Remaining())
		}
	}
	return worst
}

func explored(b bounds) explore.Found[explore.Step] {
	return (&explore.World[*world, explore.Step]{
		Key:  (*world).key,
		Over: (*world).finished,
		Next: func(w *world, yield func(explore.Step, *world, string) bool) {
			w.next(func(step explore.Step, n *world) { yield(step, n, "") })
		},
		Wrong: func(w *world) string {
			if w.bad == "" && w.opened && b.forgets == 0 && w.fresh() > 0 {
				return "an arrival remains after Await has returned"
			}
			return w.bad
		},
	}).Explore(newWorld(&b))
}

var searches = []search{
	{bounds{members: 3, arrivals: 1, awaiters: 1, dies: true, lost: true}, 3_000},
	{bounds{members: 3, arrivals: 1, awaiters: 1, forgets: 1, snapshots: true, dies: true}, 5_000},
	{bounds{members: 3, arrivals: 2, awaiters: 1, dies: true}, 25_000},
	{bounds{members: 3, arrivals: 1, awaiters: 1, forgets: 2}, 15_000},
	{bounds{members: 3, arrivals: 2, awaiters: 1, stale: true, dies: true}, 26_000},
}

type search struct {
	bounds
	least int // worlds
}

func (s search) run(t *testing.T) {
	t.Helper()
	f := explored(s.bounds)
	t.Logf("%+v: %d worlds", s.bounds, f.States)
	require.Empty(t, f.Wrong, f)
	require.Greater(t, f.States, s.least)
}

// In every world nothing has opened too early, and without losses of memory nothing remains once a call
// of Await has returned. From every world all calls can return. Cost: 2 s. Smaller searches have no two arrivals, or
// no two losses.
func TestLatchExplored(t *testing.T) {
	for _, s := range searches {
		s.run(t)
	}
}

// Each rule that is taken out breaks a promise.
func TestLatchCounterExamples(t *testing.T) {
	for what, c := range map[string]counter{
		"rounds are not told apart":       {explored(bounds{rules: rules{oneRound: true}, members: 3, arrivals: 1, awaiters: 1, stale: true, dies: true}), "opened too early"},
		"a repeated arrival counts again": {explored(bounds{rules: rules{countsRepeats: true}, members: 3, arrivals: 2, awaiters: 1, lost: true, dies: true}), "opened too early"},
		"an arrival is done at fewer":     {explored(bounds{rules: rules{need: 1}, members: 3, arrivals: 1, awaiters: 1, forgets: 1, dies: true}), explore.Stuck},
		"Await returns at the first word": {explored(bounds{rules: rules{first: true}, members: 3, arrivals: 1, awaiters: 1, dies: true}), "remains after Await"},
	} {
		t.Run(what, c.run)
	}
}

// What the counter-examples break holds within their bounds.
func TestLongLatchExplored(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for _, b := range []bounds{
		{members: 3, arrivals: 2, awaiters: 1, forgets: 1, dies: true},
		{members: 3, arrivals: 1, awaiters: 1, forgets: 3},
	} {
		search{b, 10_000}.run(t)
	}
}

func TestLongLatchCounterExamples(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for what, c := range map[string]counter{
		"who is there does not arrive again": {explored(bounds{rules: rules{noReassert: true}, members: 3, arrivals: 1, awaiters: 1, forgets: 3}), explore.Stuck},
		"nobody joins what members have":     {explored(bounds{rules: rules{noJoin: true}, members: 3, arrivals: 2, awaiters: 1, forgets: 1, dies: true}), explore.Stuck},
	} {
		t.Run(what, c.run)
	}
}

// TestBarrierExplored, where a process ends or a Wait fails.
func TestBarrierExploredWithFailures(t *testing.T) {
	for _, b := range []barrierBounds{
		{parties: 2, names: 2, rounds: 1, deaths: 1, oneMind: true},
		{parties: 2, names: 2, rounds: 1, aborts: 1, oneMind: true},
	} {
		b.run(t)
	}
}

func TestLongBarrierExplored(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for _, b := range []barrierBounds{
		{parties: 2, names: 3, rounds: 1, oneMind: true},
		{parties: 2, names: 2, rounds: 2, deaths: 1, oneMind: true},
		{parties: 2, names: 2, rounds: 2, forgets: 1, oneMind: true},
		{parties: 2, names: 3, rounds: 2, oneMind: true, limit: 700_000},
		{parties: 2, names: 2, rounds: 2, aborts: 1, oneMind: true, limit: 700_000},
		{parties: 2, names: 2, rounds: 1, aborts: 2, oneMind: true, limit: 700_000},
		{parties: 2, names: 2, rounds: 1, aborts: 1, deaths: 1, oneMind: true, limit: 700_000},
		{parties: 3, names: 3, rounds: 1, oneMind: true, limit: 700_000},
	} {
		b.run(t)
	}
}

func TestLongBarrierCounterExamples(t *testing.T) {
	rt.Long(t, "more worlds, without the race detector")
	for what, c := range map[string]counter{
		"members keep no parties":         {exploredBarrier(barrierBounds{barrierRules: barrierRules{strangers: true}, parties: 2, names: 3, rounds: 1, oneMind: true}), "the parties of a round"},
		"a Wait that failed is forgotten": {exploredBarrier(barrierBounds{barrierRules: barrierRules{forgetFail: true}, parties: 2, names: 2, rounds: 1, aborts: 1, oneMind: true}), explore.Stuck},
	} {
		t.Run(what, c.run)
	}
}
