package guard

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A search of all schedules in which two clients restore one member, while counters rise, sources and the member forget or
// follow a stale copy and are masters again, and q is raised. A client reads two buckets one after the other, and writes them in two
// parts. What scripts and client do is written out in gWorld. A copy of a source is that of the beginning, and one of the member
// is made at any time. Its replication id changes without a promotion, too, and is noted. The rules: docs/protocol.md, "Pages". The
// long search has no claim, so that both clients restore at a time.

// gData is what a copy of the member takes along.
type gData struct {
	id, q, noted int8
	has          [2]int8
}

type gClient struct {
	on    bool
	id, q int8 // of the member, as it was claimed
	ids   [2]int8
	lives [2]int8 // replication ids of the sources
	at    int8    // reads that are done, of four
	has   [2]int8 // what was read
	sure  bool    // it has looked at the sources behind the last page
	part  bool    // the first bucket is written
}

type gWorld struct {
	src [2]struct {
		id    int8
		life  int8 // its replication id
		noted int8 // the one that it was marked with
		marks int8
		has   [2]int8
		knows bool
	}
	gData      // of the member
	life       int8
	marks      int8
	quarantine bool
	whole      bool
	copied     bool
	copy       gData
	due        [2]int8 // what sources had when the quarantine ended
	clients    [2]gClient

	unnoted bool // its replication id has changed without a promotion

	draws, faults, raises, copies, replicas int8
}

// gRules is what is taken out.
type gRules struct {
	noLook    bool // at the sources, behind the last page
	noWriteQ  bool // counters are written, and the member is declared whole, although q was raised since
	noID      bool // neither looks at the id of the member
	noLife    bool // nor at its replication id
	noSrcLife bool // sources are known by their markings alone
	noWaiting bool // pages are read in the quarantine
	noAnswer  bool // a part that was refused is taken for written
	noClaim   bool // not a rule of safety

	faults, raises, copies, replicas int8
}

func (w *gWorld) waits(r *gRules) bool { return !w.whole && (!w.quarantine || r.noWaiting) }

func (w *gWorld) is(c *gClient, r *gRules) bool {
	return w.waits(r) && (w.id == c.id || r.noID) && (w.life == w.noted || r.noLife) && (w.q == c.q || r.noWriteQ)
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
			w.faults--
			w.forgets()
			return true
		})
	}
	if w.copies > 0 && !w.whole {
		try(explore.Say("the member is copied"), func(w *gWorld) bool {
			w.copied, w.copy = !w.quarantine, w.gData
			return !w.quarantine // else its end is in the copy, too
		})
	}
	if w.copied && w.copies > 0 && !w.whole && !w.quarantine {
		try(explore.Say("the member follows its copy, and is a master again"), func(w *gWorld) bool {
			w.copies, w.gData, w.life, w.unnoted = w.copies-1, w.copy, w.life+1, false
			return true
		})
	}
	if w.replicas > 0 && w.life == w.noted && !w.whole {
		try(explore.Say("the member gets its first replica, and another replication id"), func(w *gWorld) bool {
			w.replicas, w.life, w.unnoted = w.replicas-1, w.life+1, true
			return true
		})
	}
	if w.unnoted {
		try(explore.Say("the replication id is noted"), func(w *gWorld) bool {
			w.noted, w.unnoted = w.life, false
			return true
		})
	}
	if w.life != w.noted && !w.whole {
		try(explore.Say("the member is seen to have another replication id"), func(w *gWorld) bool {
			w.forgets()
			return true
		})
	}
	for s := range w.src {
		if w.faults > 0 {
			try(explore.Say("source %d forgets", s), func(w *gWorld) bool {
				w.faults--
				w.sourceForgets(s)
				return true
			})
		}
		if w.copies > 0 {
			try(explore.Say("source %d follows a copy, and is a master again", s), func(w *gWorld) bool {
				first := gFirst()
				w.copies--
				src := &w.src[s]
				src.id, src.noted, src.has, src.knows, src.life = first.src[s].id, first.src[s].noted, first.src[s].has, true, src.life+1
				return true
			})
		}
		if w.src[s].life != w.src[s].noted {
			try(explore.Say("source %d is seen to have another replication id", s), func(w *gWorld) bool {
				w.sourceForgets(s)
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

// forgets marks the member.
func (w *gWorld) forgets() {
	w.marks++
	w.gData = gData{id: w.marks, q: w.q, noted: w.life}
	w.quarantine, w.unnoted = true, false
}

// sourceForgets marks a source.
func (w *gWorld) sourceForgets(s int) {
	src := &w.src[s]
	src.marks++
	src.id, src.noted, src.has, src.knows = src.marks, src.life, [2]int8{}, false
}

// known reports whether a look shows that a source knows.
func (r *gRules) known(w *gWorld, s int) bool {
	src := &w.src[s]
	return src.knows && (src.life == src.noted || r.noSrcLife)
}

func (r *gRules) client(w *gWorld, i int, try func(explore.Step, func(w *gWorld) bool)) {
	c := &w.clients[i]
	if !c.on {
		try(explore.Say("client %d begins", i), func(w *gWorld) bool {
			c := gClient{on: true, id: w.id, q: w.q}
			for s, src := range w.src {
				if c.ids[s], c.lives[s] = src.id, src.life; !r.known(w, s) {
					return false
				}
			}
			w.clients[i] = c
			return w.waits(r) && (w.life == w.noted || r.noLife) && (r.noClaim || !w.clients[1-i].on)
		})
		return
	}
	try(explore.Say("client %d ends", i), func(w *gWorld) bool { w.clients[i] = gClient{}; return true })
	switch s, b := c.at/2, c.at%2; {
	case c.at < 4:
		try(explore.Say("client %d reads bucket %d of source %d", i, int(b), int(s)), func(w *gWorld) bool {
			c := &w.clients[i]
			c.has[b] = max(c.has[b], w.src[s].has[b])
			c.at++
			return true
		})
	case !c.sure:
		try(explore.Say("client %d looks at the sources", i), func(w *gWorld) bool {
			c := &w.clients[i]
			for s, src := range w.src {
				if !r.noLook && (!r.known(w, s) || src.id != c.ids[s] || src.life != c.lives[s] && !r.noSrcLife) {
					w.clients[i] = gClient{}
					return true
				}
			}
			c.sure = true
			return true
		})
	case !c.part:
		try(explore.Say("client %d writes a part", i), func(w *gWorld) bool {
			c := &w.clients[i]
			switch c.part = true; {
			case w.is(c, r):
				w.has[0] = max(w.has[0], c.has[0])
			case !r.noAnswer:
				w.clients[i] = gClient{}
			}
			return true
		})
	default:
		try(explore.Say("client %d writes the last part", i), func(w *gWorld) bool {
			if c := &w.clients[i]; w.is(c, r) {
				w.has[1], w.whole = max(w.has[1], c.has[1]), true
			}
			w.clients[i] = gClient{}
			return true
		})
	}
}

func gFirst() (w gWorld) {
	w.id, w.q, w.marks, w.quarantine = 1, 1, 1, true
	for s := range w.src {
		w.src[s].id, w.src[s].marks, w.src[s].knows, w.src[s].has = 1, 1, true, [2]int8{1, 1}
	}
	w.src[0].has[1], w.src[1].has[0] = 2, 2 // neither has all
	return w
}

func (r *gRules) search() explore.Found[explore.Step] {
	first := gFirst()
	first.draws, first.faults, first.raises, first.copies, first.replicas = 1, r.faults, r.raises, r.copies, r.replicas
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
	forget := func(r gRules) gRules { r.faults, r.raises = 1, 1; return r }
	follow := func(r gRules) gRules { r.copies = 1; return r }
	searchPages(t, forget(gRules{}))
	searchPages(t, follow(gRules{}))
	searchPages(t, gRules{copies: 1, replicas: 1})
	for name, rules := range map[string]gRules{
		"the look at the sources behind the last page": forget(gRules{noLook: true}),
		"the same, beside copies":                      follow(gRules{noLook: true}),
		"q, compared when counters are written":        forget(gRules{noWriteQ: true}),
		"the id of the member":                         forget(gRules{noID: true}),
		"the replication id of the member":             follow(gRules{noLife: true}),
		"the replication ids of the sources":           follow(gRules{noSrcLife: true}),
		"the wait for the end of the quarantine":       forget(gRules{noWaiting: true}),
		"the answer to each part":                      {noAnswer: true, replicas: 1},
	} {
		f := rules.search()
		require.Equal(t, "a counter is lost", f.Wrong, "without %s", name)
		t.Logf("without %s: %v", name, f)
	}
}

func TestLongNoScheduleOfPagesOfTwoClientsAtATimeLosesACounter(t *testing.T) {
	rt.Long(t, "more states")
	searchPages(t, gRules{noClaim: true, faults: 1, raises: 1})
	searchPages(t, gRules{noClaim: true, copies: 1})
	searchPages(t, gRules{copies: 1, raises: 1})
}

func searchPages(t *testing.T, r gRules) {
	t.Helper()
	f := r.search()
	t.Logf("%d states, all: %v", f.States, f.All)
	require.Empty(t, f.Wrong, f)
	require.True(t, f.All)
}
