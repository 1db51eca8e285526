package guard

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
)

// A search of all schedules in which two clients restore one member, page by page, while counters rise, sources and the member
// forget, and q is raised. A page is one of two buckets. What scripts and client do is written out in gWorld. The rules:
// docs/protocol.md, "Pages". The long search has no claim, so that both clients copy at a time.

type gNote struct{ id, q, at int8 } // of a source, as fill.lua notes it

type gClient struct {
	on    bool
	id, q int8 // of the member, as it was claimed
	ids   [2]int8
	at    [2]int8 // pages that are written
	read  int8    // source+1 of the page that is read, and not written
	value int8
	sure  bool // it has looked at the sources behind the last page
}

type gWorld struct {
	src [2]struct {
		id    int8
		has   [2]int8
		knows bool
	}
	id, q      int8 // of the member
	quarantine bool
	whole      bool
	has        [2]int8
	notes      [2]gNote
	due        [2]int8 // what sources had when the quarantine ended
	clients    [2]gClient

	draws, faults, raises int8
}

// gRules is what is taken out.
type gRules struct {
	noLook    bool // at the sources, behind the last page
	noNoteID  bool // notes count for a source that forgot since
	noNoteQ   bool // notes count that were written before q was raised
	noWriteQ  bool // pages are written, and the member is declared whole, although q was raised since
	noID      bool // neither looks at the id of the member
	noWaiting bool // pages are read in the quarantine
	noClaim   bool // not a rule of safety
}

func (w *gWorld) waits(r *gRules) bool { return !w.whole && (!w.quarantine || r.noWaiting) }

func (w *gWorld) is(c *gClient, r *gRules) bool {
	return w.waits(r) && (w.id == c.id || r.noID) && (w.q == c.q || r.noWriteQ)
}

func (r *gRules) next(w *gWorld, yield func(explore.Step, gWorld)) {
	try := func(step explore.Step, edit func(w *gWorld) bool) {
		if n := *w; edit(&n) && n != *w {
			yield(step, n)
		}
	}
	if w.quarantine {
		try(explore.Say("the quarantine ends"), func(w *gWorld) bool {
			w.quarantine = false
			for b := range w.due {
				w.due[b] = max(w.due[b], w.src[0].has[b], w.src[1].has[b])
			}
			return true
		})
	}
	if w.raises > 0 && !w.whole {
		try(explore.Say("q is raised"), func(w *gWorld) bool {
			w.raises, w.q, w.quarantine = w.raises-1, w.q+1, true
			return true
		})
	}
	if w.faults > 0 && !w.whole {
		try(explore.Say("the member forgets again"), func(w *gWorld) bool {
			w.faults, w.id, w.quarantine, w.has, w.notes = w.faults-1, w.id+1, true, [2]int8{}, [2]gNote{}
			return true
		})
	}
	for s := range w.src {
		if w.faults > 0 {
			try(explore.Say("source %d forgets", s), func(w *gWorld) bool {
				w.faults--
				w.src[s].id, w.src[s].has, w.src[s].knows = w.src[s].id+1, [2]int8{}, false
				return true
			})
		}
		try(explore.Say("source %d goes on from the clocks", s), func(w *gWorld) bool {
			if w.src[s].knows {
				return false
			}
			w.src[s].has, w.src[s].knows = [2]int8{9, 9}, true
			return true
		})
		for b := range w.due {
			if w.draws > 0 && w.src[s].knows {
				try(explore.Say("source %d grants in bucket %d", s, b), func(w *gWorld) bool {
					w.draws--
					w.src[s].has[b]++
					return w.src[s].has[b] < 9
				})
			}
		}
	}
	for i := range w.clients {
		r.client(w, i, try)
	}
}

func (r *gRules) client(w *gWorld, i int, try func(explore.Step, func(w *gWorld) bool)) {
	c := &w.clients[i]
	if !c.on {
		try(explore.Say("client %d begins", i), func(w *gWorld) bool {
			c := gClient{on: true, id: w.id, q: w.q}
			for s, src := range w.src {
				if c.ids[s] = src.id; !src.knows {
					return false
				}
				if n := w.notes[s]; (n.id == src.id || r.noNoteID) && (n.q == w.q || r.noNoteQ) {
					c.at[s] = n.at
				}
			}
			w.clients[i] = c
			return w.waits(r) && (r.noClaim || !w.clients[1-i].on)
		})
		return
	}
	try(explore.Say("client %d ends", i), func(w *gWorld) bool { w.clients[i] = gClient{}; return true })
	s := 0
	if c.at[0] == 2 {
		s = 1
	}
	switch {
	case c.read > 0:
		try(explore.Say("client %d writes a page", i), func(w *gWorld) bool {
			c := &w.clients[i]
			if !w.is(c, r) {
				w.clients[i] = gClient{}
				return true
			}
			s := c.read - 1
			w.has[c.at[s]] = max(w.has[c.at[s]], c.value)
			c.at[s]++
			c.read, c.value = 0, 0
			w.notes[s] = gNote{c.ids[s], c.q, c.at[s]}
			return true
		})
	case c.at[s] < 2:
		try(explore.Say("client %d reads a page of source %d", i, s), func(w *gWorld) bool {
			c := &w.clients[i]
			c.read, c.value = int8(s+1), w.src[s].has[c.at[s]]
			return true
		})
	case !c.sure:
		try(explore.Say("client %d looks at the sources", i), func(w *gWorld) bool {
			c := &w.clients[i]
			for s, src := range w.src {
				if !r.noLook && (!src.knows || src.id != c.ids[s]) {
					w.clients[i] = gClient{}
					return true
				}
			}
			c.sure = true
			return true
		})
	default:
		try(explore.Say("client %d declares the member whole", i), func(w *gWorld) bool {
			w.whole = w.is(&w.clients[i], r)
			w.clients[i] = gClient{}
			return true
		})
	}
}

func (r *gRules) search() explore.Found[explore.Step] {
	first := gWorld{q: 1, id: 1, quarantine: true, draws: 1, faults: 1, raises: 1}
	for s := range first.src {
		first.src[s].id, first.src[s].knows, first.src[s].has = 1, true, [2]int8{1, 1}
	}
	first.src[0].has[1], first.src[1].has[0] = 2, 2 // neither has all
	return (&explore.World[gWorld, explore.Step]{
		Key: explore.Value[gWorld],
		Next: func(w gWorld, yield func(explore.Step, gWorld, string) bool) {
			r.next(&w, func(s explore.Step, n gWorld) { yield(s, n, "") })
		},
		Wrong: func(w gWorld) string {
			return map[bool]string{true: "a counter is lost"}[w.whole && (w.has[0] < w.due[0] || w.has[1] < w.due[1])]
		},
		Limit: 2_000_000,
	}).Explore(first)
}

func TestNoScheduleOfPagesLosesACounter(t *testing.T) {
	searchPages(t, gRules{})
	for name, rules := range map[string]gRules{
		"the look at the sources behind the last page": {noLook: true},
		"the markings in notes":                        {noNoteID: true},
		"q in notes":                                   {noNoteQ: true},
		"q, compared when a page is written":           {noWriteQ: true},
		"the id of the member":                         {noID: true},
		"the wait for the end of the quarantine":       {noWaiting: true},
	} {
		f := rules.search()
		require.Equal(t, "a counter is lost", f.Wrong, "without %s", name)
		t.Logf("without %s: %v", name, f)
	}
}

func TestLongNoScheduleOfPagesOfTwoClientsAtATimeLosesACounter(t *testing.T) {
	if os.Getenv("REDQUORUM_LONG") == "" {
		t.Skip("LONG: more states; `make test-long` sets REDQUORUM_LONG=1 and runs it")
	}
	searchPages(t, gRules{noClaim: true})
}

func searchPages(t *testing.T, r gRules) {
	f := r.search()
	t.Logf("%d states, all: %v", f.States, f.All)
	require.Empty(t, f.Wrong, f)
	require.True(t, f.All)
}
