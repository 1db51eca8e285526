//go:build !race

package guard

import (
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A search of all schedules in which members forget under clients of different MaxTTL. It drives decide, longestOf,
// Standing.reads and Standing.mayVote as they are; what the scripts do is written out in qMember, and a case of
// TestGuardScriptsDoWhatTheProtocolSays compares that with their text (init, below). The rules: docs/protocol.md,
// "Restart guard".
//
// Time goes in ticks, at one rate for all. Every step of every client may be arbitrarily late, so a client that is
// stopped and resumed with what it knew is one of the schedules. A member that forgets is another process with
// nothing in it, and a call reaches it only on a connection that was admitted to that process. A member that is emptied, or
// whose data are replaced by a copy, is the same process on the same connections. A client that was connected looks at it
// before its next vote: docs/protocol.md has why, and what remains, under "What the guard cannot cure".
// Counters are left out: redlock/schedules_test.go searches those.

const (
	qMembers = 3
	qTick    = time.Hour // long beside what a test takes
)

type qState uint8

const (
	qUnmarked qState = iota
	qNever
	qForgot
	qWhole
)

var qStates = [...]string{"", neverForgot, forgot, whole}

type qMember struct {
	state   qState
	q, left int8 // ticks
	raised  int8 // ticks for which others may not have learnt of q
	run     int8 // its process
	mark    int8 // its marking: the process, and a number in that; 0: none
	marks   int8 // how many there were
	life    int8 // its replication id
	noted   int8 // the one that it was marked with
	holder  int8 // client+1
	key     int8 // ticks
}

// data is what a copy takes along.
func (m *qMember) data() qMember {
	return qMember{state: m.state, q: m.q, left: m.left, raised: m.raised, mark: m.mark, noted: m.noted, holder: m.holder, key: m.key}
}

// holds has the running process have these data.
func (m *qMember) holds(data qMember) {
	data.run, data.marks, data.life = m.run, m.marks, m.life
	*m = data
}

// marked is script/mark.lua.
func (m *qMember) marked(state qState, q, quarantine int8) {
	m.marks++
	m.state, m.q, m.left, m.raised, m.mark, m.noted = state, q, quarantine, 0, m.run*qMarks+m.marks, m.life
}

// raise is script/raise.lua.
func (m *qMember) raise(q int8, prolong bool) bool {
	if q <= m.q {
		return false
	}
	if prolong && (m.left > 0 || m.state == qForgot) {
		m.left += q - m.q
	}
	m.q, m.raised = q, 1
	return true
}

// restore is script/restore.lua, for the marking that it was begun with.
func (m *qMember) restore(q int8, prolong bool) {
	if m.state != qForgot || m.left > 0 || m.raise(q, prolong) || q < m.q {
		return
	}
	m.state = qWhole
}

// marker is what a look reads at tick 0 of the reader's clock.
func (m *qMember) marker() marker {
	if m.state == qUnmarked {
		return marker{}
	}
	return marker{id: qID(m.mark), state: qStates[m.state], q: time.Duration(m.q) * qTick, left: time.Duration(m.left) * qTick, arrived: qZero,
		recall: recall{repl: qRuns[m.noted], now: qRuns[m.life], older: qOlder[min(1, m.life)], role: "master"}}
}

const qMarks = 4 // no process is marked more often

var (
	qRuns  = [...]string{"a", "b", "c", "d", "e"}
	qOlder = [...]string{"0", "b"} // it was a replica
	qZero  = time.Now()
	qNames [len(qRuns) * qMarks]string
)

func init() {
	for i := range qNames {
		qNames[i] = qRuns[i/qMarks] + " " + strconv.Itoa(i%qMarks)
	}
}

// qID is the id of a marking.
func qID(mark int8) string {
	if mark == 0 {
		return ""
	}
	return qNames[mark]
}

// qSeen is what a client knows of a member.
type qSeen struct {
	run     int8 // of the process that it is connected to, from 1; 0: none
	mark    int8
	due     bool // it looks before it votes
	state   qState
	left    bool // by the member's word the quarantine goes on
	own     int8 // ticks that our count leaves of it
	learner int8 // ticks until all have learnt of our q
}

func (s *qSeen) standing() Standing {
	a := Standing{admitted: true, votesFrom: qZero.Add(time.Duration(s.own) * qTick)}
	if s.run > 0 {
		a.marker = marker{id: qID(s.mark), state: qStates[s.state]}
	}
	if s.left {
		a.marker.left = 1
	}
	return a
}

func (s *qSeen) reads(m *qMember) {
	a := s.standing()
	if s.run != m.run+1 || s.mark != m.mark {
		a = Standing{}
	}
	a = a.reads(m.marker())
	*s = qSeen{run: m.run + 1, mark: m.mark, state: m.state, left: a.marker.left > 0, own: max(0, int8(a.votesFrom.Sub(qZero)/qTick)), learner: m.raised}
	if a.votesFrom.IsZero() {
		s.own = 0
	}
}

func (s *qSeen) votes(m *qMember) bool {
	if s.learner > 0 || s.run != m.run+1 || s.due {
		return false
	}
	return s.standing().mayVote(qZero)
}

// knows is Standing.knows.
func (s *qSeen) knows(m *qMember) bool { return s.votes(m) && s.standing().knows(m.marker()) }

type qClient struct {
	q      int8
	known  uint8 // members that had a marker
	none   uint8 // members whose first look found no marker
	told   uint8 // members that know of its MaxTTL
	saw    bool
	first  bool  // it marks a first deployment
	looked uint8 // in this tick
	seen   [qMembers]qSeen

	target     int8  // member+1 that it restores
	targetMark int8  // the marking that it knows
	read       uint8 // members whose table it has
	heard      int8  // the greatest q in them

	votes uint8
	trust int8 // ticks that its attempt, then its lease, is valid
	held  bool
}

type qWorld struct {
	members [qMembers]qMember
	clients [3]qClient
	faults  int8 // restarts without data
	empties int8 // of all members at once
	copies  int8 // a member follows a copy of the beginning, and is a master again
}

// qRules are a search's bounds, and what is taken out.
type qRules struct {
	longest []int8 // MaxTTL of each client
	faults  int8
	empties int8
	copies  int8
	starts  bool  // clients know what a first start is
	met     uint8 // members that the clients behind the first have met before anything happens
	raised  bool  // then the first has met all, and has raised q there
	byClock bool  // members are restored also where too few know; then the first client looks at all in each tick
	limit   int   // states

	noSources, noProlonging, noMajority, noRest, noReplID bool

	begins [qMembers]qMember // what copies have
}

// next calls yield with every state that one step leads to.
func (r *qRules) next(w *qWorld, yield func(s explore.Step, w qWorld)) {
	try := func(client, member int, what string, edit func(w *qWorld, c *qClient, m *qMember) bool) {
		n := *w
		if edit(&n, &n.clients[max(client, 0)], &n.members[max(member, 0)]) && n != *w {
			yield(explore.Say(what, max(member, 0), client), n)
		}
	}
	for i := range qMembers {
		bit := uint8(1) << i
		if w.faults > 0 {
			try(-1, i, "member %d: forgets", func(w *qWorld, _ *qClient, m *qMember) bool {
				w.faults--
				*m = qMember{run: m.run + 1}
				return true
			})
		}
		if w.copies > 0 {
			try(-1, i, "member %d: follows a copy, and is a master again", func(w *qWorld, _ *qClient, m *qMember) bool {
				w.copies--
				m.holds(r.begins[i])
				m.life++
				w.due(i)
				return true
			})
		}
		for ci, ttl := range r.longest {
			try(ci, i, "member %d: looked at by client %d", func(w *qWorld, c *qClient, m *qMember) bool { return r.look(w, c, m, i, ttl, time.Hour) })
			if r.starts {
				try(ci, i, "member %d: looked at by client %d, which waits for the others", func(w *qWorld, c *qClient, m *qMember) bool {
					return r.look(w, c, m, i, ttl, 0)
				})
			}
			try(ci, i, "member %d: votes for client %d", func(_ *qWorld, c *qClient, m *qMember) bool {
				if m.holder != 0 || c.votes&bit != 0 || !r.noMajority && !enoughToVote(bits.OnesCount8(c.told), qMembers) || !c.seen[i].votes(m) {
					return false
				}
				if c.votes == 0 {
					c.trust = ttl
				}
				m.holder, m.key, c.votes = int8(ci+1), ttl, c.votes|bit
				c.held = c.held || bits.OnesCount8(c.votes) > qMembers/2
				return true
			})
			try(ci, i, "member %d: is to be restored by client %d", func(_ *qWorld, c *qClient, m *qMember) bool {
				s := c.seen[i]
				if s.run != m.run+1 || s.state != qForgot || s.own > 0 || c.target == int8(i+1) && c.targetMark == s.mark {
					return false
				}
				c.target, c.targetMark, c.read, c.heard = int8(i+1), s.mark, 0, 0
				return true
			})
			try(ci, i, "member %d: its table is read by client %d", func(_ *qWorld, c *qClient, m *qMember) bool {
				if c.target == 0 || c.target == int8(i+1) || c.read&bit != 0 || !c.seen[i].knows(m) {
					return false
				}
				c.read, c.heard = c.read|bit, max(c.heard, m.q)
				return true
			})
			if int(w.clients[ci].target) == i+1 {
				try(ci, i, "member %d: is restored by client %d", func(_ *qWorld, c *qClient, m *qMember) bool {
					if bits.OnesCount8(c.read) < enoughSources(qMembers) && !r.byClock {
						return false
					}
					var sources []source
					if !r.noSources {
						sources = append(sources, source{q: time.Duration(c.heard) * qTick})
					}
					if m.mark == c.targetMark {
						m.restore(int8(longestOf(time.Duration(c.q)*qTick, sources)/qTick), !r.noProlonging)
						c.seen[i].reads(m)
					}
					c.target, c.targetMark, c.read, c.heard = 0, 0, 0, 0
					return true
				})
			}
		}
	}
	if w.empties > 0 {
		try(-1, -1, "all members are emptied", func(w *qWorld, _ *qClient, _ *qMember) bool {
			w.empties--
			for i := range w.members {
				w.members[i].holds(qMember{})
				w.due(i)
			}
			return true
		})
	}
	try(-1, -1, "a tick passes", func(w *qWorld, _ *qClient, _ *qMember) bool { return r.tick(w) })
}

// due has all clients that are connected to a member look at it before they vote.
func (w *qWorld) due(member int) {
	for i := range w.clients {
		s := &w.clients[i].seen[member]
		s.due = s.run > 0
	}
}

func (r *qRules) look(w *qWorld, c *qClient, m *qMember, i int, ttl int8, waited time.Duration) bool {
	bit, found := uint8(1)<<i, m.marker()
	if r.noReplID {
		found.repl = found.now
	}
	if r.starts && m.state == qUnmarked && c.known&bit == 0 {
		c.none |= bit
	}
	stays := c.seen[i].run == m.run+1 && c.seen[i].standing().stays(found, time.Duration(ttl)*qTick)
	if !stays && !c.held {
		c.gone(i)
	}
	v := view{mode: Strict, saw: c.saw, known: c.known&bit != 0, members: qMembers, unmarked: max(1, bits.OnesCount8(c.none)),
		q: time.Duration(c.q) * qTick, fresh: r.noRest, waiting: waiting{waited: waited, patience: time.Second}}
	if early(found, v) {
		return true
	}
	switch do, quarantine := decide(found, qRuns[m.run], v); do {
	case markNew:
		m.marked(qNever, c.q, int8(quarantine/qTick))
		c.first = true
	case markLost:
		m.marked(qForgot, c.q, int8(quarantine/qTick))
		c.saw = c.saw || r.starts && !c.first
	case accept:
		c.saw = c.saw || !c.first
		if c.q = max(c.q, m.q); m.q < ttl {
			m.raise(ttl, !r.noProlonging)
		}
	}
	c.known, c.told = c.known|bit, c.told|bit
	c.q = max(c.q, m.q)
	c.seen[i].reads(m)
	if r.byClock && c == &w.clients[0] {
		c.looked |= bit
	}
	return true
}

// gone drops a vote: those of an ended generation count for nothing.
func (c *qClient) gone(member int) {
	if c.votes &^= 1 << member; c.votes == 0 {
		c.trust = 0
	}
}

func (r *qRules) tick(w *qWorld) bool {
	for i := range w.members {
		m := &w.members[i]
		m.left, m.raised = max(0, m.left-1), max(0, m.raised-1)
		if m.key = max(0, m.key-1); m.key == 0 {
			m.holder = 0
		}
	}
	for i := range r.longest {
		c := &w.clients[i]
		if r.byClock && i == 0 && c.looked != 1<<qMembers-1 {
			return false
		}
		c.looked = 0
		c.saw, c.first = c.saw || c.first, false
		for j := range c.seen {
			c.seen[j].own, c.seen[j].learner = max(0, c.seen[j].own-1), max(0, c.seen[j].learner-1)
		}
		if c.trust = max(0, c.trust-1); c.trust == 0 {
			c.votes, c.held = 0, false
		}
	}
	return true
}

func (w *qWorld) holders() (n int) {
	for i := range w.clients {
		if w.clients[i].held {
			n++
		}
	}
	return n
}

// search returns the shortest schedule to two holders, if there is one.
func (r *qRules) search() explore.Found[explore.Step] {
	var first qWorld
	first.faults, first.empties, first.copies = r.faults, r.empties, r.copies
	shortest := r.longest[0]
	for _, ttl := range r.longest {
		shortest = min(shortest, ttl)
	}
	for i := range first.members {
		first.members[i] = qMember{state: qNever, q: shortest, mark: 1, marks: 1}
		r.begins[i] = first.members[i].data()
	}
	for i, ttl := range r.longest {
		c := &first.clients[i]
		c.q = ttl
		for j := range c.seen {
			if i > 0 && r.met>>j&1 > 0 {
				c.saw, c.known, c.told = true, c.known|1<<j, c.told|1<<j
				c.seen[j].reads(&first.members[j])
			}
		}
	}
	for j := range first.members {
		if c, m := &first.clients[0], &first.members[j]; r.raised {
			m.q = c.q
			c.saw, c.known, c.told = true, c.known|1<<j, c.told|1<<j
			c.seen[j].reads(m)
		}
	}
	return (&explore.World[qWorld, explore.Step]{
		Key: explore.Value[qWorld],
		Next: func(w qWorld, yield func(explore.Step, qWorld, string) bool) {
			r.next(&w, func(s explore.Step, n qWorld) { yield(s, n, "") })
		},
		Wrong: func(w qWorld) string { return map[bool]string{true: "two holders"}[w.holders() > 1] },
		Limit: r.limit,
	}).Explore(first)
}

// What can be taken out. Each finds two holders then.
var qRulesOut = map[string]func(r *qRules){
	"what the sources know of longer leases":        func(r *qRules) { r.noSources = true },
	"the growth of the quarantine":                  func(r *qRules) { r.noProlonging = true },
	"the wait until a majority knows of our MaxTTL": func(r *qRules) { r.noMajority = true },
	qRest:   func(r *qRules) { r.noRest = true },
	qReplID: func(r *qRules) { r.noReplID = true },
}

const (
	qOfSources = "what the sources know of longer leases"
	qOfGrowth  = "the growth of the quarantine"
	qMajority  = "the wait until a majority knows of our MaxTTL"
	qRest      = "the rest of members that nobody saw marked"
	qReplID    = "the replication id that a member was marked with"
)

type qSearch struct {
	name   string
	rules  qRules
	out    []string
	long   bool
	broken bool // the short test has only what goes wrong without the rules
}

var qSearches = []qSearch{
	{"a client has met all members before longer leases come", qRules{longest: []int8{3, 1}, faults: 1, met: 0b111},
		[]string{qOfSources, qOfGrowth, qMajority}, false, false},
	{"a client starts, and has met one member alone", qRules{longest: []int8{3, 1}, faults: 1, met: 0b001}, []string{qOfSources}, true, false},
	{"a client was stopped before longer leases came", qRules{longest: []int8{3, 1}, faults: 1, met: 0b111, raised: true}, []string{qOfSources}, false, false},
	{"nobody can be asked, and the client with the longer leases comes in time", qRules{longest: []int8{3, 2}, faults: 1, met: 0b111, raised: true, byClock: true},
		[]string{qOfGrowth}, false, true},
	{"a majority forgets, and the client with the longer leases comes in time", qRules{longest: []int8{3, 2}, faults: 2, met: 0b111, raised: true, byClock: true},
		[]string{qOfGrowth}, true, false},
	{"a client starts", qRules{longest: []int8{3, 1}, faults: 1}, []string{qOfSources}, true, false},
}

// The same processes on the same connections, with other data.
var qReplaced = []qSearch{
	{"all are emptied, and a client comes that is new", qRules{longest: []int8{1, 1}, empties: 1, raised: true, starts: true}, []string{qRest}, false, false},
	{"all are emptied and one restarts, and a client comes that is new", qRules{longest: []int8{2, 2}, empties: 1, faults: 1, raised: true, starts: true},
		[]string{qRest}, true, false},
	{"a member follows a copy, and a client stays", qRules{longest: []int8{2, 2}, copies: 1, met: 0b111, raised: true}, []string{qReplID}, false, false},
	{"a member follows a copy, and a client comes that is new", qRules{longest: []int8{1, 1}, copies: 1, raised: true, starts: true}, []string{qReplID}, true, false},
	{"two members follow copies", qRules{longest: []int8{2, 2}, copies: 2, met: 0b111, raised: true}, []string{qReplID}, true, false},
	{"a member follows a copy of before longer leases came", qRules{longest: []int8{3, 1}, copies: 1, met: 0b111, raised: true}, []string{qReplID, qOfSources}, true, false},
}

func searchQuarantines(t *testing.T, searches []qSearch, long bool, limit int) {
	for _, s := range searches {
		if s.long && !long {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			r := s.rules
			r.limit = limit
			if long || !s.broken {
				f := r.search()
				t.Logf("%d states, all: %v", f.States, f.All)
				require.Empty(t, f.Wrong, f)
			}
			for _, out := range s.out {
				less := r
				less.limit *= 2 // it ends where it finds them
				qRulesOut[out](&less)
				f := less.search()
				require.Equal(t, "two holders", f.Wrong, "without %s", out)
				t.Logf("without %s: %v", out, f)
			}
		})
	}
}

// Cost: 2 s. Two holders are found behind 200,000 states, and no smaller search finds them.
func TestNoScheduleOfForgetfulMembersAndGreaterMaxTTLHasTwoHolders(t *testing.T) {
	searchQuarantines(t, qSearches, false, 300_000)
}

func TestNoScheduleOfMembersThatWereEmptiedOrFollowedACopyHasTwoHolders(t *testing.T) {
	searchQuarantines(t, qReplaced, false, 300_000)
}

func TestLongNoScheduleOfForgetfulMembersAndGreaterMaxTTLHasTwoHolders(t *testing.T) {
	rt.Long(t, "more states, from more beginnings")
	searchQuarantines(t, slices.Concat(qSearches, qReplaced), true, 700_000)
}

func init() {
	guardCases = append(guardCases, guardCase{"raise and restore do what the search takes them to do", func(s *memory) {
		rng := rand.New(rand.NewPCG(1, 2))
		for range 40 {
			s.flush()
			model := qMember{state: qState(1 + rng.IntN(2)), q: 1, left: int8(rng.IntN(2))}
			m := s.run(s.markCommand("a", qTick, time.Duration(model.left)*qTick, qStates[model.state]))
			for range 6 {
				q := int8(1 + rng.IntN(4))
				switch rng.IntN(3) {
				case 0:
					model.raise(q, true)
					s.run(plainHome.command(liftLua, m.id, millis(time.Duration(q)*qTick)))
				case 1:
					model.restore(q, true)
					s.run(plainHome.command(restoreLua, m.id, "0", millis(time.Duration(q)*qTick), "1"))
				case 2:
					model.left = 0
					s.ask("DEL", quarantineKey)
				}
				got := s.look()
				left := int8((got.left + qTick - 1) / qTick)
				require.Equal(s, []any{qStates[model.state], model.q, model.left}, []any{got.state, int8(got.q / qTick), left})
			}
		}
	}})

}
