//go:build !race

package redlock

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
)

// Every interleaving of calls for sets of names: docs/protocol.md, "Several names". Members are a model of the scripts, and
// calls a model of what a gathering does. At one member, the calls of one client are executed in their order. What a vote
// is worth, and when, is another search's (schedules_test.go): here votes are known at once, and last for ever.

// setBounds are what one search plays, and what it takes out.
type setBounds struct {
	members, clients int
	down             int // of the members
	cancel           bool
	apart            bool // members chain nothing: the promises are the same
	states           int  // that it visits at least

	reverse  bool // the second client takes names in the opposite order
	keep     bool // who waits keeps what is behind
	noYields bool
	forget   bool // who gives up releases the name that it waits for alone
}

const (
	setNames = 2
	setCalls = 8 // under way between one client and one member, at most
)

// What a client is doing.
const (
	setIdle uint8 = iota
	setAsking
	setWaiting
	setHolding
	setDone
)

// Calls, each about the name in its last bit.
const (
	setAsk     uint8 = 2 // from that name on, chained
	setRelease uint8 = 4
	setWait    uint8 = 6
)

// setWorld is one state: comparable, because it is its own key.
type setWorld struct {
	lock, queue [setNames][3]uint8 // who has the vote, from 1; who waits, as bits
	phase, at   [3]uint8           // at: the place in the client's order from which it asks, or for which it waits
	calls       [3][3][setCalls]uint8
}

type setSearch struct {
	setBounds
	need int
}

// name is the k-th in a client's order.
func (s *setSearch) name(x, k int) int {
	if s.reverse && x == 1 {
		return setNames - 1 - k
	}
	return k
}

func (s *setSearch) send(w *setWorld, x int, call uint8) {
	for i := range s.members - s.down {
		line := &w.calls[x][i]
		n := slices.Index(line[:], 0)
		if n < 0 {
			panic("more calls than the model has room for")
		}
		line[n] = call
	}
}

// votes counts those of a client for a name: where it has asked for their release, it has none.
func (s *setSearch) votes(w *setWorld, x, name int) (n int) {
	for i := range s.members {
		if w.lock[name][i] == uint8(x+1) && !slices.Contains(w.calls[x][i][:], setRelease|uint8(name)) {
			n++
		}
	}
	return n
}

// open counts the members that have not answered what a client has asked.
func (s *setSearch) open(w *setWorld, x int) (n int) {
	for i := range s.members - s.down {
		if slices.ContainsFunc(w.calls[x][i][:], func(c uint8) bool { return c&^1 == setAsk }) {
			n++
		}
	}
	return n
}

// ask goes on with the names from the k-th on; without any, the client holds its set.
func (s *setSearch) ask(w *setWorld, x, k int) {
	w.at[x] = uint8(k)
	if k == setNames {
		w.phase[x] = setHolding
		return
	}
	w.phase[x] = setAsking
	s.send(w, x, setAsk|uint8(k))
}

func (s *setSearch) end(w *setWorld, x int) {
	for k := range setNames {
		if !s.forget || w.phase[x] != setWaiting || k == int(w.at[x]) {
			s.send(w, x, setRelease|uint8(s.name(x, k)))
		}
	}
	w.phase[x], w.at[x] = setDone, 0
}

// setEmit is told of a step, and of the state behind it.
type setEmit func(step explore.Step, w setWorld)

// serve gives a vote to each that may have it next: the hint of a release can be any waiter.
func (s *setSearch) serve(w setWorld, name, i int, step explore.Step, emit setEmit) {
	if w.queue[name][i] == 0 {
		emit(step, w)
	}
	for y := range s.clients {
		if v := w; v.queue[name][i]>>y&1 == 1 {
			v.lock[name][i], v.queue[name][i] = uint8(y+1), v.queue[name][i]&^(1<<y)
			emit(explore.Say("the vote of name %d at member %d goes to client %d", name, i, y), v)
		}
	}
}

// execute carries out a client's next call at a member.
func (s *setSearch) execute(w setWorld, x, i int, emit setEmit) {
	line := &w.calls[x][i]
	call, me := line[0], uint8(x+1)
	copy(line[:], line[1:])
	line[setCalls-1] = 0
	name := int(call & 1)
	step := explore.Say("member %d executes call %d of client %d", i, int(call), x)
	switch call &^ 1 {
	case setAsk:
		for k := name; k < setNames; k++ { // of an ask, the bit is a place in the order
			n := s.name(x, k)
			if w.lock[n][i] == 0 || w.lock[n][i] == me {
				w.lock[n][i], w.queue[n][i] = me, w.queue[n][i]&^(1<<x)
			} else if !s.apart {
				break
			}
		}
	case setWait:
		if w.lock[name][i] == 0 || w.lock[name][i] == me {
			w.lock[name][i], w.queue[name][i] = me, w.queue[name][i]&^(1<<x)
		} else {
			w.queue[name][i] |= 1 << x
		}
	case setRelease:
		w.queue[name][i] &^= 1 << x
		if w.lock[name][i] == me {
			w.lock[name][i] = 0
			s.serve(w, name, i, step, emit)
			return
		}
	}
	emit(step, w)
}

func (s *setSearch) next(w setWorld, emit setEmit) {
	for x := range s.clients {
		for i := range s.members - s.down {
			if w.calls[x][i][0] != 0 {
				s.execute(w, x, i, emit)
			}
		}
		v := w
		at := int(w.at[x])
		switch w.phase[x] {
		case setIdle:
			s.ask(&v, x, 0)
			emit(explore.Say("client %d begins", x), v)
		case setAsking:
			first := at
			for first < setNames && s.votes(&w, x, s.name(x, first)) >= s.need {
				first++
			}
			if first == setNames {
				v.phase[x], v.at[x] = setHolding, 0
				emit(explore.Say("client %d holds its set", x), v)
			} else if s.votes(&w, x, s.name(x, first))+s.open(&w, x) < s.need {
				for k := first + 1; k < setNames && !s.keep; k++ {
					s.send(&v, x, setRelease|uint8(s.name(x, k)))
				}
				v.phase[x], v.at[x] = setWaiting, uint8(first)
				s.send(&v, x, setWait|uint8(s.name(x, first)))
				emit(explore.Say("client %d waits for name %d", x, s.name(x, first)), v)
			}
		case setWaiting:
			name := s.name(x, at)
			if s.votes(&w, x, name) >= s.need {
				s.ask(&v, x, at+1)
				if v.phase[x] == setHolding {
					v.at[x] = 0
				}
				emit(explore.Say("client %d has name %d, and goes on", x, name), v)
				break
			}
			for i := range s.members - s.down { // a yield: all members prefer the same client
				if s.noYields || w.lock[name][i] != uint8(x+1) || w.calls[x][i][0] != 0 {
					continue
				}
				for y := range x {
					if u := w; u.queue[name][i]>>y&1 == 1 {
						u.lock[name][i], u.queue[name][i] = uint8(y+1), u.queue[name][i]&^(1<<y)|1<<x
						emit(explore.Say("client %d yields at member %d to client %d", x, i, y), u)
						break
					}
				}
			}
		case setHolding:
			s.end(&v, x)
			emit(explore.Say("client %d unlocks", x), v)
		}
		if v := w; s.cancel && (w.phase[x] == setAsking || w.phase[x] == setWaiting) {
			s.end(&v, x)
			emit(explore.Say("client %d gives up", x), v)
		}
	}
}

func (s *setSearch) wrong(w *setWorld) string {
	for k := range setNames {
		holders := 0
		for x := range s.clients {
			if w.phase[x] != setHolding {
				continue
			}
			holders++
			if s.votes(w, x, k) < s.need {
				return "a set is held without all of its names"
			}
		}
		if holders > 1 {
			return "two hold one name"
		}
	}
	for x := range s.clients {
		if w.phase[x] != setDone || w.calls[x] != [3][setCalls]uint8{} {
			continue
		}
		for k := range setNames {
			for i := range s.members {
				if w.lock[k][i] == uint8(x+1) || w.queue[k][i]>>x&1 == 1 {
					return "something is left behind"
				}
			}
		}
	}
	return ""
}

func (s *setSearch) over(w *setWorld) bool {
	for x := range s.clients {
		if w.phase[x] != setDone || w.calls[x] != [3][setCalls]uint8{} {
			return false
		}
	}
	return true
}

func (s *setSearch) explore() explore.Found[explore.Step] {
	s.need = s.members/2 + 1
	return (&explore.World[setWorld, explore.Step]{
		Key:   explore.Value[setWorld],
		Wrong: func(w setWorld) string { return s.wrong(&w) },
		Over:  func(w setWorld) bool { return s.over(&w) },
		Next: func(w setWorld, yield func(explore.Step, setWorld, string) bool) {
			s.next(w, func(step explore.Step, v setWorld) { yield(step, v, "") })
		},
	}).Explore(setWorld{})
}

func TestSetsExplored(t *testing.T) {
	for _, b := range []setBounds{
		{members: 3, clients: 2, states: 60_000},
		{members: 3, clients: 2, down: 1, states: 1_300},
		{members: 3, clients: 2, cancel: true, states: 190_000},
		{members: 1, clients: 3, cancel: true, states: 3_900},
		{members: 3, clients: 2, apart: true, states: 60_000},
		{members: 3, clients: 3, down: 1, apart: true, states: 100_000},
		{members: 3, clients: 3, down: 1, states: 70_000},
	} {
		t.Run(fmt.Sprintf("%+v", b), func(t *testing.T) {
			f := (&setSearch{setBounds: b}).explore()
			require.Empty(t, f.Wrong, f)
			require.GreaterOrEqual(t, f.States, b.states)
			t.Logf("%d states", f.States)
		})
	}
}

func TestSetsCounterExamples(t *testing.T) {
	for _, c := range []struct {
		name string
		setBounds
		want string
	}{
		{"each client has an order of its own", setBounds{members: 3, clients: 2, down: 1, reverse: true}, "deadlock"},
		{"who waits keeps what is behind", setBounds{members: 3, clients: 2, down: 1, keep: true}, "deadlock"},
		{"no yields", setBounds{members: 3, clients: 2, down: 1, noYields: true}, "deadlock"},
		{"who gives up releases one name", setBounds{members: 1, clients: 2, cancel: true, forget: true}, "left behind"},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := (&setSearch{setBounds: c.setBounds}).explore()
			require.Contains(t, f.Wrong, c.want)
			t.Log(f)
			b := c.setBounds
			b.reverse, b.keep, b.noYields, b.forget = false, false, false, false
			f = (&setSearch{setBounds: b}).explore()
			require.Empty(t, f.Wrong, f)
		})
	}
}
