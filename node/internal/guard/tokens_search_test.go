package guard

import (
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A search of all schedules of grants, forgetting and restoring, over one bucket of three members. planOf is what it is; what
// scripts do is written out in bMember. The rules: docs/protocol.md, "Where a bucket begins". A grant, with its raise, is one
// step: redlock/schedules_test.go has those whose steps interleave.
//
// Clients of the version before are there, too, where a base is: it is what a bucket without a field counts from, for them alone.

// bTick is how far clocks go in a tick, which is as long as a quarantine, beyond all that is drawn in one.
const bTick = 100

type bMember struct {
	counter, base  int64 // 0: none
	clk            bool
	silent, forgot bool // in quarantine; and its counters are not restored
}

type bWorld struct {
	members [3]bMember
	clock   int64
	last    int64 // the greatest token of the name
	other   int64 // that of a lease of another name in the bucket, which goes on, 0: none
	ticks   int8
	faults  int8
	draws   int8
}

// bRules say how members are, and what is taken out.
type bRules struct {
	ahead  [3]int64 // of the members' clocks
	strict bool     // too few sources restore nobody
	before bool     // some clients are of the version before
	slots  bool     // members are slots of clusters: only a first deployment gave a base
	moves  bool     // a slot may come from a master with a former copy of it, as a snapshot is

	beginsLow    bool // a bucket without a field begins at 1
	rejoinLow    bool // a rejoin begins a bucket at the token of the lease
	lendsAbsence bool // so does a source that goes on from the clocks
	movedKeeps   bool // a slot that comes from another master keeps its base
}

// begun is where a bucket without a field begins.
func (r *bRules) begun(w *bWorld, i int, before bool) int64 {
	switch {
	case before && w.members[i].base > 0:
		return w.members[i].base + 1
	case r.beginsLow:
		return 1
	}
	return w.clock + r.ahead[i]
}

func (r *bRules) draw(w *bWorld, i int, before bool) int64 {
	m := &w.members[i]
	if m.counter++; m.counter == 1 {
		m.counter = r.begun(w, i, before)
	}
	return m.counter
}

func (m *bMember) votes() bool { return !m.silent && !m.forgot }

// step is one of either version.
func (r *bRules) step(w *bWorld, yield func(step explore.Step, w bWorld), before bool) {
	try := func(step explore.Step, edit func(w *bWorld) bool) {
		n := *w
		if edit(&n) && n != *w {
			yield(step, n)
		}
	}
	greatest := int64(0)
	for _, m := range w.members {
		greatest = max(greatest, m.base)
	}
	version := 0
	if before {
		version = 1
	}
	for set := range uint(8) {
		if bits.OnesCount(set) > 1 && w.draws > 0 {
			try(explore.Say("grant at %03b, by version %d before", int(set), version), func(w *bWorld) bool {
				token := int64(0)
				for i := range w.members {
					if set>>i&1 > 0 {
						if !w.members[i].votes() {
							return false
						}
						token = max(token, r.draw(w, i, before))
					}
				}
				for i := range w.members {
					if m := &w.members[i]; set>>i&1 > 0 {
						m.counter = max(m.counter, token)
					}
				}
				if w.draws--; token <= w.last {
					w.last = -1 // it fell
					return true
				}
				if w.other == 0 {
					w.other = token
				} else {
					w.last = token
				}
				return true
			})
		}
	}
	for i := range w.members {
		now := w.clock + r.ahead[i]
		try(explore.Say("rejoin at %d, by version %d before", i, version), func(w *bWorld) bool {
			m := &w.members[i]
			if w.other == 0 || !m.votes() {
				return false
			}
			if m.counter == 0 && !r.rejoinLow {
				m.counter = r.begun(w, i, before)
			}
			m.counter = max(m.counter, w.other)
			return true
		})
		if before && !r.slots {
			try(explore.Say("base of %d", i), func(w *bWorld) bool {
				m := &w.members[i]
				if m.forgot || m.base > 0 && m.base >= greatest {
					return false
				}
				if m.base == 0 {
					m.base = now
				}
				m.base = max(m.base, greatest)
				return true
			})
		}
		for set := range uint(8) {
			if set>>i&1 > 0 {
				continue
			}
			try(explore.Say("restore %d from %03b, by version %d before", i, int(set), version), func(w *bWorld) bool {
				m := &w.members[i]
				if m.silent || !m.forgot {
					return false
				}
				var sources []source
				counter, base := int64(0), int64(0)
				for j, o := range w.members {
					if set>>j&1 > 0 {
						if !o.votes() {
							return false
						}
						sources = append(sources, source{clk: o.clk && !r.lendsAbsence})
						counter, base = max(counter, o.counter), max(base, o.base)
					}
				}
				p := planOf(sources, enoughSources(3))
				if r.strict && !p.known {
					return false
				}
				*m = bMember{clk: p.byClock}
				if p.takes("7") && counter > 0 { // restore.lua
					if m.counter = counter; p.byClock {
						m.counter = max(m.counter, now)
					}
				}
				if before && !r.slots {
					if p.byClock {
						base = max(base, now)
					}
					if m.base = base; m.counter > 0 {
						m.counter = max(m.counter, base)
					}
				}
				return true
			})
		}
	}
}

func (r *bRules) next(w *bWorld, yield func(step explore.Step, w bWorld)) {
	r.step(w, yield, false)
	if r.before {
		r.step(w, yield, true)
	}
	for i := range w.members {
		if w.faults == 0 {
			break
		}
		n := *w
		n.faults--
		n.members[i] = bMember{silent: true, forgot: true}
		yield(explore.Say("%d forgets", i), n)
		if r.moves && w.members[i].votes() {
			n = *w
			n.faults--
			n.clock += bTick
			if n.members[i].counter = 0; !r.movedKeeps {
				n.members[i].base = 0
			}
			yield(explore.Say("slot %d moves, a former copy of it", i), n)
		}
	}
	if w.ticks > 0 {
		n := *w
		n.ticks--
		n.clock += bTick
		for i := range n.members {
			n.members[i].silent = false
		}
		yield(explore.Say("a tick passes"), n)
	}
}

// search returns the shortest schedule to a token that is not above an earlier one, if there is one.
func (r *bRules) search(first bWorld) explore.Found[explore.Step] {
	return (&explore.World[bWorld, explore.Step]{
		Key: explore.Value[bWorld],
		Next: func(w bWorld, yield func(explore.Step, bWorld, string) bool) {
			r.next(&w, func(s explore.Step, n bWorld) { yield(s, n, "") })
		},
		Wrong: func(w bWorld) string { return map[bool]string{true: "a token fell"}[w.last < 0] },
	}).Explore(first)
}

func TestNoScheduleOfForgettingHasATokenThatFalls(t *testing.T) { searchTokens(t, false) }

func TestLongNoScheduleOfForgettingHasATokenThatFalls(t *testing.T) {
	rt.Long(t, "more states")
	searchTokens(t, true)
}

func searchTokens(t *testing.T, long bool) {
	near, far := [3]int64{0, 45, -45}, [3]int64{0, 100_000, -250}
	world := func(base ...int64) (w bWorld) {
		w = bWorld{clock: 3 * bTick, ticks: 1, faults: 2, draws: 3}
		if long {
			w.ticks = 2
		}
		for i, b := range base {
			w.members[i].base = b
		}
		return w
	}
	based, moving := world(250, 250, 250), world(250, 250, 250)
	if !long {
		based.faults = 1 // 2 s less
	}
	moving.faults, moving.draws = 1, 4 // a second loss, unseen as this one, is beyond what is assumed
	for _, tc := range []struct {
		name  string
		rules bRules
		first bWorld
		falls bool
	}{
		{"clocks differ by less than a quarantine", bRules{ahead: near}, world(), false},
		{"clocks are wrong, and enough members know", bRules{ahead: far, strict: true}, world(), false},
		{"a bucket begins anywhere, and enough members know", bRules{ahead: far, strict: true, beginsLow: true, rejoinLow: true}, world(), false},
		{"clients of the version before, which gave a base", bRules{before: true, ahead: near}, based, false},
		{"clients of the version before, at slots of clusters", bRules{before: true, ahead: near, slots: true}, based, false},
		{"clients of the version before, at slots that move", bRules{before: true, ahead: near, slots: true, moves: true}, moving, false},

		{"clocks are wrong, and too few members know", bRules{ahead: far}, world(), true},
		{"a bucket begins anywhere", bRules{ahead: near, beginsLow: true}, world(), true},
		{"a rejoin begins a bucket at its token", bRules{ahead: near, rejoinLow: true}, world(), true},
		{"a source that goes on from the clocks lends absence", bRules{ahead: near, lendsAbsence: true}, world(), true},
		{"a slot that moves keeps the base that the version before gave it",
			bRules{before: true, ahead: near, slots: true, moves: true, movedKeeps: true}, moving, true},
		{"clients of the version before, which gave some members a base", bRules{before: true, ahead: near}, world(0, 280, 250), false},
	} {
		if !long && tc.first.members[0].base < tc.first.members[1].base {
			continue // 5 s
		}
		t.Run(tc.name, func(t *testing.T) {
			f := tc.rules.search(tc.first)
			t.Logf("%d states: %v", f.States, f)
			require.Equal(t, map[bool]string{true: "a token fell"}[tc.falls], f.Wrong)
			require.True(t, tc.falls || f.All && f.States > 500)
		})
	}
}
