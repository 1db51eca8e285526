package wait

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

// Strict order, by the tickets alone: what the ballot agrees on, at members that count, serve and forget nothing. Requests,
// answers and grants are late at random, some waits are lost, waiters yield whenever they like, and some give up. A caller whose ticket a majority
// has when another calls must get the lock before it, if it does not give up. TestTicketsFindWhatIsBroken shows that the test
// sees what it looks for.
func TestTicketsKeepTheOrder(t *testing.T) {
	finals := 0
	for seed := range uint64(4000) {
		w := newLineup(seed, lineupRules{})
		require.Empty(t, w.play(), "seed %d", seed)
		finals += w.finals
	}
	require.Greater(t, finals, 4000, "few tickets became final while others were still to call")
}

func TestTicketsFindWhatIsBroken(t *testing.T) {
	for name, rules := range map[string]lineupRules{
		"each member has an order of its own":    {ownOrder: true},
		"who yields goes to the end of the line": {newPlace: true},
		"a yield gives to the lowest name":       {lowestName: true},
		"a ticket follows the last in line":      {lastInLine: true},
		"who asks a free member has it":          {barges: true},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(20_000) {
				if wrong := newLineup(seed, rules).play(); wrong != "" {
					t.Logf("seed %d: %s", seed, wrong)
					return
				}
			}
			t.Fatal("nothing goes wrong")
		})
	}
}

// lineupRules are what a case takes out.
type lineupRules struct{ ownOrder, newPlace, lowestName, lastInLine, barges bool }

// lineup is some callers at some members.
type lineup struct {
	lineupRules
	rng     *rand.Rand
	members []lineupMember
	callers []lineupCaller
	finals  int
}

const lineupOther = -1 // who has the lock at the beginning

type lineupMember struct {
	holder, vote int // nobody has it: vote 0
	votes        int // that it has given
	last         int64
	places       map[int]int64
}

type lineupCaller struct {
	phase   int // 0 has not called, 1 waits, 2 has had the lock or has given up
	b       Ballot
	final   bool
	behind  map[int]bool // callers that were final when it called
	told    []int64      // by member: the place that it has executed
	vote    []int
	yielded []int
	to      [][]lineupCall
	from    [][]int64
	grants  [][]int
}

type lineupCall struct {
	op     string
	ticket int64
	vote   int
}

func newLineup(seed uint64, rules lineupRules) *lineup {
	w := &lineup{lineupRules: rules, rng: rand.New(rand.NewPCG(seed, 7))}
	n := []int{3, 5}[w.rng.IntN(2)]
	for range n {
		w.members = append(w.members, lineupMember{holder: lineupOther, vote: 1, votes: 1, last: int64(w.rng.IntN(12)), places: map[int]int64{}})
	}
	for range 2 + w.rng.IntN(3) {
		w.callers = append(w.callers, lineupCaller{
			behind: map[int]bool{}, told: make([]int64, n), vote: make([]int, n), yielded: make([]int, n),
			to: make([][]lineupCall, n), from: make([][]int64, n), grants: make([][]int, n),
		})
	}
	return w
}

// play makes steps at random, and returns what went wrong.
func (w *lineup) play() string {
	for range 600 {
		x, i := w.rng.IntN(len(w.callers)), w.rng.IntN(len(w.members))
		c, m := &w.callers[x], &w.members[i]
		switch what := w.rng.IntN(16); {
		case c.phase == 0 && what < 3:
			c.phase = 1
			c.b = New(fmt.Sprint("c:", x), NewRoom(len(w.members)), Terms{Rules: &Fair}, Past{Start: WaitFirst})
			for k := range w.callers {
				if w.callers[k].phase == 1 && w.callers[k].final {
					c.behind[k] = true
				}
			}
			w.ask(x, nil)
		case what < 9 && len(c.to[i]) > 0:
			call := c.to[i][0]
			c.to[i] = c.to[i][1:]
			w.execute(x, i, call)
		case what < 12 && len(c.from[i]) > 0:
			place := c.from[i][0]
			c.from[i] = c.from[i][1:]
			if c.phase == 1 {
				w.answered(x, i, place)
			}
		case what < 14 && len(c.grants[i]) > 0:
			vote := c.grants[i][0]
			c.grants[i] = c.grants[i][1:]
			if c.phase == 1 && vote > c.yielded[i] && vote > c.vote[i] {
				if c.vote[i] = vote; w.hold(x) {
					return fmt.Sprintf("caller %d of %d at %d members was overtaken", x, len(w.callers), len(w.members))
				}
			}
		case what == 14 && c.phase == 1 && c.vote[i] > 0:
			c.yielded[i] = c.vote[i]
			c.vote[i] = 0
			c.to[i] = append(c.to[i], lineupCall{op: "yield", ticket: c.b.ticketAt(i), vote: c.yielded[i]})
		case what == 14 && len(c.to[i]) > 0 && c.to[i][0].op == "wait" && w.rng.IntN(3) == 0:
			c.to[i] = c.to[i][1:] // it was never sent
		case what == 15 && m.holder == lineupOther:
			m.holder, m.vote = 0, 0
			if w.rng.IntN(2) == 0 { // else its lease has ended, and nobody serves before somebody asks
				w.serve(m, i)
			}
		case what == 15 && c.phase == 1 && w.rng.IntN(30) == 0:
			w.leave(x)
		case what == 15 && c.phase == 1 && w.rng.IntN(10) == 0:
			w.ask(x, nil) // a heartbeat
		}
		w.settle()
	}
	return ""
}

// ask submits a wait to members, to all if none are given.
func (w *lineup) ask(x int, to []int) {
	c := &w.callers[x]
	for i := range w.members {
		if to == nil || to[i] == 1 {
			c.to[i] = append(c.to[i], lineupCall{op: "wait", ticket: c.b.ticket()})
		}
	}
}

func (w *lineup) answered(x, i int, place int64) {
	c := &w.callers[x]
	var a Answer
	a.Outcome, a.N, a.Place = member.Answered, -1000, place
	a.From, a.Now = member.Brief{Votes: true}, member.Brief{Votes: true}
	c.b.Answered(i, &a)
	wrong := c.b.wrongPlaces()
	if w.ownOrder {
		c.b.tickets.agreed = 0
		return
	}
	to := make([]int, len(w.members))
	for k := range to {
		if wrong.Has(k) {
			to[k] = 1
		}
	}
	w.ask(x, to)
}

func (w *lineup) leave(x int) {
	c := &w.callers[x]
	c.phase = 2
	for i := range w.members {
		c.to[i] = append(c.to[i], lineupCall{op: "release"})
	}
}

// hold reports whether caller x holds, before another that was first.
func (w *lineup) hold(x int) bool {
	c, n := &w.callers[x], 0
	for _, v := range c.vote {
		if v > 0 {
			n++
		}
	}
	if n < member.Majority(len(w.members)) {
		return false
	}
	for k := range c.behind {
		if w.callers[k].phase == 1 && w.callers[k].final {
			return true
		}
	}
	w.leave(x)
	return false
}

// settle notes whose tickets are final.
func (w *lineup) settle() {
	for x := range w.callers {
		c := &w.callers[x]
		if c.phase != 1 || c.final || !w.ownOrder && c.b.ticket() == 0 {
			continue
		}
		n := 0
		for _, place := range c.told {
			if place > 0 && (w.ownOrder || place == c.b.ticket()) {
				n++
			}
		}
		if c.final = n >= member.Majority(len(w.members)); c.final {
			w.finals++
		}
	}
}

// What the scripts do.

func (w *lineup) execute(x, i int, call lineupCall) {
	c, m := &w.callers[x], &w.members[i]
	mine := m.vote > 0 && m.holder == x
	switch call.op {
	case "wait":
		place := w.stand(m, x, call.ticket)
		if mine {
			delete(m.places, x)
		} else if m.vote == 0 && w.barges {
			w.grant(m, i, x)
		} else {
			w.serve(m, i)
		}
		c.told[i] = place
		c.from[i] = append(c.from[i], place)
	case "yield":
		if !mine || m.vote != call.vote {
			return
		}
		if w.newPlace {
			call.ticket = 0
		}
		w.stand(m, x, call.ticket)
		m.vote = 0
		w.serve(m, i)
	case "release":
		delete(m.places, x)
		if mine {
			m.vote = 0
			w.serve(m, i)
		}
		if m.vote == 0 && len(m.places) == 0 {
			m.last = 0 // the ticket is removed
		}
	}
}

func (w *lineup) stand(m *lineupMember, x int, ticket int64) int64 {
	last := m.last
	if w.lastInLine {
		last = 0
		for _, place := range m.places {
			last = max(last, place)
		}
	}
	switch was := m.places[x]; {
	case ticket == 0 && was > 0:
		ticket = was
	case ticket == 0:
		ticket = last + 1
	}
	m.places[x], m.last = ticket, max(m.last, ticket)
	return ticket
}

func (w *lineup) serve(m *lineupMember, i int) {
	if m.vote > 0 || len(m.places) == 0 {
		return
	}
	heir := -1
	for x, place := range m.places {
		switch {
		case heir < 0, w.lowestName && x < heir:
			heir = x
		case !w.lowestName && (place < m.places[heir] || place == m.places[heir] && x < heir):
			heir = x
		}
	}
	w.grant(m, i, heir)
}

func (w *lineup) grant(m *lineupMember, i, x int) {
	m.votes++
	m.holder, m.vote = x, m.votes
	delete(m.places, x)
	w.callers[x].grants[i] = append(w.callers[x].grants[i], m.vote)
}
