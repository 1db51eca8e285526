package latch

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/member"
)

// Every schedule of a few parties of a barrier and of 3 members, breadth first. The parties are
// Barriers; the members are a model of the script, whose cases are in
// redlock/internal/script/testdata/latch/barrier.txt. A step is one call that a member executes, with its answer
// or without one. A push is an answer that comes early.

// record is an arrival at a member. round 0: it was withdrawn, or has ended.
type record struct {
	round int64
	watch int8
}

// post is what a member has of a barrier. Values replace each other, so that worlds may share them.
type post struct {
	round, digest, before, proof int64
	open, known                  bool
	recs                         map[int8]record
	gen                          uint64
}

// barrierRules are what a search takes out of the parties and the members.
type barrierRules struct {
	first      bool // the vote of one member opens a round
	passed     bool // a later round is always the next one
	anySet     bool // votes are for a round, and not for its parties
	strangers  bool // members keep no parties of the round before
	whoever    bool // an arrival of another process of the party counts as the party's own
	forgetFail bool // a Wait that has failed is forgotten
	unvote     bool // a withdrawal takes back a vote
	vouch      bool // who proves that a round was open says that any party was in it
}

// barrierBounds are what a search may do.
type barrierBounds struct {
	barrierRules
	parties int  // that the barrier has
	names   int  // that come
	rounds  int  // that each wants to go through
	aborts  int  // Waits that end before they return
	deaths  int  // processes that end, and begin anew
	lost    int  // answers that are lost
	forgets int  // losses of memory of a member
	oneMind bool // all members have the same time
	limit   int  // worlds; 0: all
	begin   []explore.Step
}

// attendee is a party: a process of it, and what it has been told.
type attendee struct {
	b        *Barrier
	name     int8
	waiting  bool
	watch    int8
	returned int64 // the last round
	count    int
	barred   bool
	owes     [3]int8 // a withdrawal of that watch is under way to the member; 0: none
	asked    [3]bool // the watch may be at the member
}

type hall struct {
	b       *barrierBounds
	posts   [3]post
	all     []*attendee
	watches int8
	aborts  int
	deaths  int
	lost    int
	forgets int
	left    map[int8][3]bool        // of a name that does not wait: the members that took its arrival away, or had none, and had not voted
	decided map[int64]int64         // rounds that were open, and for whom
	counted map[int64]map[int8]bool // of an open round: the watches that a vote counted
	through map[int64]map[int8]bool // the names that went through a round
	bad     string
}

func newHall(b *barrierBounds) *hall {
	w := &hall{b: b, left: map[int8][3]bool{}, decided: map[int64]int64{}, counted: map[int64]map[int8]bool{}, through: map[int64]map[int8]bool{}}
	for m := range w.posts {
		w.posts[m] = post{round: -1, gen: 1}
	}
	for i := range b.names {
		w.all = append(w.all, &attendee{b: w.barrier(), name: int8(i)})
	}
	return w
}

func (w *hall) barrier() *Barrier {
	need := 2
	if w.b.first {
		need = 1
	}
	return NewBarrier(3, int64(w.b.parties), need)
}

func (w *hall) clone() *hall {
	c := *w
	c.all = slices.Clone(w.all)
	c.left, c.decided, c.counted, c.through = maps.Clone(w.left), maps.Clone(w.decided), maps.Clone(w.counted), maps.Clone(w.through)
	return &c
}

func (w *hall) own(i int) *attendee {
	a := *w.all[i]
	b := *a.b
	b.at = slices.Clone(b.at)
	a.b = &b
	w.all[i] = &a
	return &a
}

func (w *hall) states() []member.State {
	out := make([]member.State, 3)
	for i := range w.posts {
		out[i] = member.State{Brief: member.Brief{Gen: w.posts[i].gen, Epoch: 1, Votes: true}, Up: true}
	}
	return out
}

func (w *hall) time(m int) int64 {
	if w.b.oneMind {
		return int64(10 + 100*w.forgets)
	}
	return int64(10*(m+1) + 100*w.forgets)
}

func digestOf(names ...int8) (d int64) {
	for _, n := range names {
		d |= 1 << n
	}
	return d
}

func (p *post) with(name int8, r record) map[int8]record {
	out := maps.Clone(p.recs)
	if out == nil {
		out = map[int8]record{}
	}
	out[name] = r
	return out
}

// call is the script at a member. entry false: it withdraws, or looks.
func (w *hall) call(m int, a *attendee, watch int8, round, before, digest int64, entry bool) BarrierState {
	p := w.posts[m]
	rec, mine := p.recs[a.name]
	say := func() BarrierState {
		s := BarrierState{Round: p.round, Parties: int64(w.b.parties), Open: p.open, Digest: p.digest, Before: p.before, Proof: p.proof, Mine: NotKnown, Server: w.time(m)}
		switch {
		case !mine && (p.open || p.known):
			s.Mine = Stranger
		case mine && rec.round == round && (p.open && p.round == round || p.known && p.before == round):
			if s.Mine = CountedOther; rec.watch == watch || w.b.whoever {
				s.Mine = Counted
			}
		case w.b.vouch && p.before == round && round != 0:
			s.Mine = Counted
		}
		if p.round < 0 {
			s.Parties = 0
		}
		return s
	}
	if p.round > round || !entry {
		if p.round == round && (!p.open || w.b.unvote) && mine && rec.round == round && rec.watch == watch {
			p.recs = p.with(a.name, record{})
			if p.open {
				p.open, p.digest = false, 0
			}
		}
		w.posts[m] = p
		return say()
	}
	if p.round == round && (p.open || p.known && !mine) {
		return say()
	}
	if p.round < round {
		kept := p.open && p.round == before && p.digest == digest && !w.b.strangers
		recs := map[int8]record{}
		if kept {
			recs = p.recs
		} else {
			mine = false
		}
		p = post{round: round, before: before, proof: digest, known: kept, recs: recs, gen: p.gen}
	}
	if mine || !p.known {
		rec, mine = record{round, watch}, true
		p.recs = p.with(a.name, rec)
		delete(w.left, a.name)
		var there []int8
		for name, r := range p.recs {
			if r.round == round {
				there = append(there, name)
			}
		}
		if len(there) >= w.b.parties {
			p.open = true
			if p.digest = digestOf(there...); w.b.anySet {
				p.digest = 1
			}
			if !p.known {
				maps.DeleteFunc(p.recs, func(_ int8, r record) bool { return r.round != round })
			}
			w.posts[m] = p
			w.vote(m)
		}
	}
	w.posts[m] = p
	return say()
}

// vote notes what a vote counted.
func (w *hall) vote(m int) {
	p := &w.posts[m]
	counted := maps.Clone(w.counted[p.round])
	if counted == nil {
		counted = map[int8]bool{}
	}
	votes := 0
	for i := range w.posts {
		if q := &w.posts[i]; q.round == p.round && q.open && q.digest == p.digest {
			votes++
		}
	}
	for _, r := range p.recs {
		if r.round == p.round {
			counted[r.watch] = true
		}
	}
	w.counted[p.round] = counted
	if votes < 2 || w.decided[p.round] != 0 {
		return
	}
	w.decided[p.round] = p.digest
	if d := w.decided[p.round-1]; d != 0 && d != p.digest && w.b.forgets == 0 {
		w.bad = "the parties of a round are not those of the one before"
	}
	for name := range p.recs {
		n := 0
		for _, gone := range w.left[name] {
			if gone {
				n++
			}
		}
		if n >= 2 {
			w.bad = "a round counts an arrival that a majority had taken away"
		}
	}
}

// hear has a party judge what it knows, and return.
func (w *hall) hear(i int) {
	a := w.own(i)
	for a.waiting {
		round := a.b.round
		mine := a.b.counted() && round != 0 // what its Wait has had accepted leaves no majority without it
		v := a.b.Judge(w.states())
		if w.b.passed && v == Moved && round != 0 && a.b.round > round {
			v = Opened // as if nobody entered a later round before this one had opened
			a.b.enter(round+1, round, 0)
		}
		switch v {
		case Shut:
			return
		case Moved:
			a.asked = [3]bool{}
			if w.b.forgets == 0 && w.decided[round] != 0 && mine {
				w.bad = "a party that was counted is not told"
			}
		case Opened:
			a.waiting = false
			a.count++
			if round <= a.returned {
				w.bad = "a party goes through a round twice"
			}
			a.returned = round
			if w.decided[round] == 0 && w.b.forgets == 0 {
				w.bad = "a party goes on, and the round is not open"
			}
			in := maps.Clone(w.through[round])
			if in == nil {
				in = map[int8]bool{}
			}
			in[a.name] = true
			if w.through[round] = in; len(in) > w.b.parties {
				w.bad = "more parties than that go through one round"
			}
		case Strangers:
			a.waiting, a.barred = false, true
		case Differs:
			w.bad = "another number of parties"
		}
	}
}

func (w *hall) next(emit func(step explore.Step, n *hall)) {
	for i, a := range w.all {
		if a.barred {
			continue
		}
		if !a.waiting && a.count < w.b.rounds {
			n := w.clone()
			o := n.own(i)
			n.watches++
			o.waiting, o.watch, o.asked = true, n.watches, [3]bool{}
			o.b.Begin()
			emit(explore.Say("%d waits", i), n)
		}
		for m := range w.posts {
			if a.owes[m] != 0 {
				n := w.clone()
				o := n.own(i)
				watch := o.owes[m]
				o.owes[m] = 0
				for round := range int64(500) { // of whatever round the member has
					if round == n.posts[m].round {
						n.call(m, o, watch, round, 0, 0, false)
					}
				}
				n.gone(m, o.name)
				emit(explore.Say("%d takes back the arrival of %d", m, i), n)
			}
			if !a.waiting {
				continue
			}
			for _, lost := range []bool{false, true} {
				if lost && w.lost >= w.b.lost {
					continue
				}
				n := w.clone()
				o := n.own(i)
				round, before, digest := o.b.Round()
				s := n.call(m, o, o.watch, round, before, digest, round != 0)
				o.asked[m] = o.asked[m] || round != 0
				if lost {
					n.lost++
					if round == 0 {
						continue
					}
					emit(explore.Say("%d hears %d, and the answer is lost", m, i), n)
					continue
				}
				o.b.Heard(m, round, s, n.states()[m].Brief)
				n.hear(i)
				emit(explore.Say("%d asks %d", i, m), n)
			}
		}
		if a.waiting && w.aborts < w.b.aborts {
			n := w.clone()
			n.aborts++
			o := n.own(i)
			if o.waiting = false; !w.b.forgetFail {
				o.b.Fail()
			}
			n.leave(o, o.asked)
			emit(explore.Say("the Wait of %d ends", i), n)
		}
		if w.deaths < w.b.deaths && (a.waiting || a.count > 0) {
			n := w.clone()
			n.deaths++
			o := n.own(i)
			waited := o.waiting
			o.waiting, o.b, o.owes, o.asked = false, n.barrier(), [3]int8{}, [3]bool{}
			if waited {
				n.leave(o, [3]bool{})
			}
			emit(explore.Say("%d begins anew", i), n)
		}
	}
	for m := range w.posts { // the arrival of a Wait that has ended is not renewed
		p := &w.posts[m]
		for name, r := range p.recs {
			if r.round != p.round || p.open || w.live(r.watch) {
				continue
			}
			n := w.clone()
			n.posts[m].recs = p.with(name, record{})
			n.gone(m, name)
			emit(explore.Say("an arrival of %d ends at %d", int(name), m), n)
		}
		if w.forgets < w.b.forgets {
			n := w.clone()
			n.forgets++
			n.posts[m] = post{round: -1, gen: p.gen + 1}
			for i := range n.all {
				n.hear(i)
			}
			emit(explore.Say("%d forgets", m), n)
		}
	}
}

func (w *hall) live(watch int8) bool {
	for _, a := range w.all {
		if a.waiting && a.watch == watch {
			return true
		}
	}
	return false
}

// leave ends a Wait: it is withdrawn from the members that may have it.
func (w *hall) leave(a *attendee, from [3]bool) {
	for m := range w.posts {
		if from[m] {
			a.owes[m] = a.watch
		}
		w.gone(m, a.name)
	}
}

// gone notes whether a member that has not voted has no arrival of a party that does not wait.
func (w *hall) gone(m int, name int8) {
	p := &w.posts[m]
	for _, a := range w.all {
		if a.name == name && a.waiting {
			return
		}
	}
	l := w.left[name]
	l[m] = !p.open && p.recs[name].round != p.round
	w.left[name] = l
}

// bits are booleans in a key.
func bits(all ...bool) (x byte) {
	for _, one := range all {
		x <<= 1
		if one {
			x |= 1
		}
	}
	return x
}

func (w *hall) key() explore.Key {
	b := []byte{byte(w.aborts), byte(w.deaths), byte(w.lost), byte(w.forgets)}
	// Watches are told apart by whose they are, and whether it is the one that waits.
	alias := map[int8]byte{0: 0}
	for i, a := range w.all {
		alias[a.watch] = byte(2*i + 1)
	}
	of := func(watch int8) byte {
		if x, ok := alias[watch]; ok {
			return x
		}
		return 99
	}
	for m := range w.posts {
		p := &w.posts[m]
		b = append(b, byte(p.round), byte(p.round>>8), byte(p.digest), byte(p.before), byte(p.before>>8), byte(p.proof), byte(p.gen), bits(p.open, p.known))
		for n := range int8(w.b.names) {
			r, ok := p.recs[n]
			b = append(b, bits(ok), byte(r.round), byte(r.round>>8), of(r.watch))
		}
	}
	for _, a := range w.all {
		b = append(b, byte(w.decided[a.b.round]), byte(w.decided[a.b.round-1]))
		b = append(b, bits(a.waiting, a.barred, a.b.mine), byte(a.count), byte(a.returned), byte(a.b.round), byte(a.b.round>>8), byte(a.b.before), byte(a.b.digest))
		l := w.left[a.name]
		b = append(b, bits(l[0], l[1], l[2], a.asked[0], a.asked[1], a.asked[2]))
		for m := range a.b.at {
			p := &a.b.at[m]
			if !a.waiting {
				p = &party{}
			}
			b = append(b, of(a.owes[m]), bits(p.said, p.accepted, p.Open), byte(p.gen), byte(p.Round), byte(p.Digest), byte(p.Before), byte(p.Proof), byte(p.Mine))
		}
	}
	return explore.Bytes(b)
}

func (w *hall) finished() bool {
	for _, a := range w.all {
		if a.count < w.b.rounds && !a.barred {
			return w.b.names > w.b.parties && w.barred() || w.deaths+w.forgets > 0 && slices.ContainsFunc(w.all, func(a *attendee) bool { return a.count == w.b.rounds })
		}
	}
	return true
}

func (w *hall) barred() bool {
	return slices.ContainsFunc(w.all, func(a *attendee) bool { return a.barred })
}

func exploredBarrier(b barrierBounds) explore.Found[explore.Step] {
	first := newHall(&b)
	for _, one := range b.begin {
		first.next(func(step explore.Step, n *hall) {
			if step == one {
				first = n
			}
		})
	}
	return (&explore.World[*hall, explore.Step]{
		Key:  (*hall).key,
		Over: (*hall).finished,
		Next: func(w *hall, yield func(explore.Step, *hall, string) bool) {
			w.next(func(step explore.Step, n *hall) { yield(step, n, "") })
		},
		Wrong: func(w *hall) string { return w.bad },
		Limit: b.limit,
	}).Explore(first)
}

// missed begins where a round is open, a Wait of a party too many has failed in it, and member 0 has heard nothing.
var missed = barrierBounds{parties: 2, names: 3, rounds: 2, aborts: 1, oneMind: true, begin: []explore.Step{
	explore.Say("%d waits", 2), explore.Say("%d asks %d", 2, 1), explore.Say("%d asks %d", 2, 2), explore.Say("the Wait of %d ends", 2),
	explore.Say("%d waits", 0), explore.Say("%d asks %d", 0, 1), explore.Say("%d asks %d", 0, 2), explore.Say("%d asks %d", 0, 1), explore.Say("%d asks %d", 0, 2),
	explore.Say("%d waits", 1), explore.Say("%d asks %d", 1, 1), explore.Say("%d asks %d", 1, 2), explore.Say("%d asks %d", 1, 1), explore.Say("%d asks %d", 1, 2),
	explore.Say("%d asks %d", 0, 1), explore.Say("%d asks %d", 0, 2),
}}

// hallSearches are those that take no second.
var hallSearches = []barrierBounds{
	{parties: 2, names: 2, rounds: 1},
	{parties: 2, names: 2, rounds: 2, oneMind: true},
	{parties: 2, names: 2, rounds: 1, forgets: 1, oneMind: true},
	{parties: 2, names: 2, rounds: 1, lost: 1, oneMind: true},
	missed,
}

func (b barrierBounds) run(t *testing.T) {
	t.Helper()
	f := exploredBarrier(b)
	t.Logf("%+v: %d worlds", b, f.States)
	require.Empty(t, f.Wrong, f)
	require.Greater(t, f.States, 1000)
}

// In every world a party goes on only from a round that is open, no round counts an arrival that a
// majority had taken away, no party goes through one round twice, and no more than the parties go
// through it. From every world all can go on.
func TestBarrierExplored(t *testing.T) {
	for _, b := range hallSearches {
		b.run(t)
	}
}

// Each rule that is taken out breaks a promise. Cost: 3 s, of six searches until they find it.
func TestBarrierCounterExamples(t *testing.T) {
	vouching := missed
	vouching.vouch = true
	for what, c := range map[string]counter{
		"one vote opens a round":                    {exploredBarrier(barrierBounds{barrierRules: barrierRules{first: true}, parties: 2, names: 2, rounds: 1}), "is not open"},
		"a later round says that this one was open": {exploredBarrier(barrierBounds{barrierRules: barrierRules{passed: true}, parties: 2, names: 2, rounds: 1}), "is not open"},
		"votes are for a round alone":               {exploredBarrier(barrierBounds{barrierRules: barrierRules{anySet: true}, parties: 2, names: 3, rounds: 1, oneMind: true}), "more parties than that"},
		"a withdrawal takes back a vote":            {exploredBarrier(barrierBounds{barrierRules: barrierRules{unvote: true}, parties: 2, names: 2, rounds: 1, aborts: 1, oneMind: true}), "is not open"},
		"another process of a party is this one":    {exploredBarrier(barrierBounds{barrierRules: barrierRules{whoever: true}, parties: 2, names: 2, rounds: 2, deaths: 1, oneMind: true}), "twice"},
		"a proof is for any party":                  {exploredBarrier(vouching), "more parties than that"},
	} {
		t.Run(what, c.run)
	}
}

// counter is what is found without a rule, within bounds that break nothing with it.
type counter struct {
	found explore.Found[explore.Step]
	wrong string
}

func (c counter) run(t *testing.T) {
	t.Helper()
	require.Contains(t, c.found.Wrong, c.wrong)
	t.Log(c.found)
}
