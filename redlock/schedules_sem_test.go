//go:build !race

package redlock

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The schedules of semaphores: what they have beside those of locks (schedules_test.go). A pause before a
// split is followed ends at any time, in an order of its own.

// slotsBounds are those of semaphores.
type slotsBounds struct {
	slots   int                 // the limit of all; 0: a lock is searched
	permits int                 // that each wants
	splits  int                 // pauses that end
	gathers int                 // leases that ask for their slots where they are not given
	once    bool                // never waits
	same    bool                // all want slot 0 first; else each another one
	lower   int                 // 1 + a limit that somebody stores, once
	limits  [schedClients]int64 // of the clients, where they differ
	weights [schedClients]int64 // permits that each wants, where they differ
}

func (b slotsBounds) withDefaults(of *schedBounds) slotsBounds {
	set(&b.slots, 2)
	set(&b.permits, 1)
	set(&of.ttl, 9)
	set(&of.entry, 30)
	set(&of.timeout, 20)
	return b
}

const slotsMost = 4 // that a search has

// slotsClient is what a client has of semaphores.
type slotsClient struct {
	known    int64 // the stored limit that the client knows
	asked    int64 // and knew when the attempt began
	bound    int   // 1 + the limit that was in force when the attempt began
	gathered bool
}

// slotsWorld is what a world has of them.
type slotsWorld struct {
	set slotsSetter
	won [slotsMost]int64 // greatest token of a lease with the slot
}

// slotsSetter is who stores a limit.
type slotsSetter struct {
	phase    uint8 // one of the below
	mine     int64
	greatest int64
	said     memberset.Set
	gens     [schedMembers]uint64
	open     memberset.Set // members that have not answered
}

const (
	setterIdle uint8 = iota
	setterReads
	setterWrites
	setterDone
	setterFailed
)

func (s *search) permitTerms(c int) *permitTerms {
	p := &permitTerms{limit: s.limitOf(c), n: s.permitsOf(c)}
	if s.w != nil {
		p.known = s.w.c[c].asked
	}
	if !s.bounds.same {
		p.want = c % p.limit
	}
	return p
}

func (s *search) limitOf(c int) int {
	n := int(s.bounds.limits[c])
	set(&n, s.bounds.slots)
	return n
}

func (s *search) permitsOf(c int) int {
	n := int(s.bounds.weights[c])
	set(&n, s.bounds.permits)
	return n
}

// boundBy notes which limit is in force when an attempt begins.
func (s *search) boundBy(cl *schedClient) {
	cl.asked, cl.bound = cl.known, 0
	if s.w.slots.set.phase == setterDone {
		cl.bound = s.bounds.lower
	}
}

// bounded requires that member i has given nobody more than its limit allows. What a lease has it has.
func (s *search) bounded(i int, before, after *schedMember, op string) {
	for c := range s.bounds.clients {
		cl := s.w.c[c]
		has, had := after.read().permits[cl.name], before.read().permits[cl.name]
		if op == opRejoin || !cl.live(cl.name) || cl.phase == schedHolding || len(has) <= len(had) {
			continue
		}
		if limit := s.limitOf(c); after.read().used > limit {
			s.wrong("member %d has given %v a slot beyond its limit of %d", i, who(c), limit)
		}
	}
}

// gather is Lease.gather: a lease asks for its slots everywhere.
func (s *search) gather(w *schedWorld, c int) {
	cl := s.client(w, c)
	w.used.gathers++
	cl.gathered = true
	s.say("%v asks for its slots everywhere", who(c))
	s.count("gathered")
	l := s.lease(c)
	l.gather()
	s.keep(c, l)
}

// setLimit is askLimit as storeLimit calls it: it asks all members.
func (s *search) setLimit(w *schedWorld, phase uint8) {
	set := &w.slots.set
	*set = slotsSetter{phase: phase, mine: set.mine}
	for i := range w.m {
		if w.rest[i] == 0 {
			set.open = set.open.With(i)
		}
	}
	s.limitSet(w)
}

// setAt has a member execute what the setter asks, and the setter hear the answer.
func (s *search) setAt(w *schedWorld, i int, o member.Outcome) {
	set := &w.slots.set
	set.open = set.open.Without(i)
	st := s.state(0, i)
	call := &member.Call{Index: i, Result: member.Result{Outcome: o, At: s.now, State: st.Brief}}
	if o == member.Answered {
		stored := int64(0)
		if set.phase == setterWrites {
			stored = set.mine
		}
		l := script.Semaphore(schedName)
		out := s.played(w.m[i], s.call(l.Limit(nil, stored).Cmd))
		r := &out.reply
		w.m[i] = out.after
		for _, p := range out.pushes {
			for k := range s.bounds.clients {
				if w.c[k].live(p.Owner) {
					cl := s.own(w, k)
					cl.push[i] = append(slices.Clip(cl.push[i]), p)
				}
			}
		}
		s.say("member %d is asked to store the limit %d, and has %d", i, stored, r.n)
		num := func(n int64) member.Reply { return member.Reply{Kind: ':', Int: n} }
		call.Reply = member.Reply{Kind: '*', Elems: []member.Reply{num(r.n), num(r.server)}}
	}
	j := &limits{c: s.stubs[0], greatest: set.greatest, said: set.said, gens: slices.Clone(set.gens[:]), clocks: make([]int64, schedMembers)}
	j.Judge(nil, call)
	set.greatest, set.said = j.greatest, j.said
	copy(set.gens[:], j.gens)
	s.limitSet(w)
}

// limitSet goes on when a majority has answered.
func (s *search) limitSet(w *schedWorld) {
	set := &w.slots.set
	need := member.Majority(schedMembers)
	switch {
	case set.said.Len()+set.open.Len() < need:
		set.phase, set.open = setterFailed, 0
		return
	case set.said.Len() < need:
		return
	}
	j := &limits{c: s.stubs[0], greatest: set.greatest, said: set.said, gens: set.gens[:]}
	switch {
	case j.current() < need && !s.rules.anyLife:
		s.count("limits that were asked for again")
		s.setLimit(w, set.phase)
	case set.phase == setterWrites && set.greatest == set.mine:
		set.phase, set.open = setterDone, 0
		s.say("  the limit %d is in force", s.bounds.lower-1)
		s.count("limits set")
	default:
		set.mine = script.StoredLimit(laterLimit(set.greatest, []int64{schedNow}, s.now), s.bounds.lower-1)
		s.setLimit(w, setterWrites)
	}
}

// wonSlots looks at the slots of a lease.
func (s *search) wonSlots(c int) {
	cl, won := s.w.c[c], &s.w.slots.won
	has := cl.b.Permits()
	if n := s.permitsOf(c); len(has) != n {
		s.wrong("%v wanted %d permits and has %v", who(c), n, has)
	}
	for _, p := range has {
		if cl.bound > 0 && p.Slot >= cl.bound-1 {
			s.wrong("%v has slot %d, and began when the limit of %d was in force", who(c), p.Slot, cl.bound-1)
		}
		if p.Slot < 0 || p.Slot >= s.limitOf(c) {
			s.wrong("%v has slot %d", who(c), p.Slot)
		} else if p.Token <= won[p.Slot] {
			s.wrong("token %d of slot %d is not above %d, that of a lease before", p.Token, p.Slot, won[p.Slot])
		} else {
			won[p.Slot] = p.Token
		}
	}
}

func (s *search) checkSlots(w *schedWorld) {
	var holder [slotsMost]bool
	for c := range s.bounds.clients {
		if !s.believes(w, c) {
			continue
		}
		for _, p := range w.c[c].b.Permits() {
			if holder[p.Slot] {
				s.wrong("two holders of slot %d", p.Slot)
			}
			holder[p.Slot] = true
			if p.Token != w.slots.won[p.Slot] {
				s.wrong("another holder of slot %d in the middle of one tenure", p.Slot)
			}
		}
	}
	for i := range w.m {
		if wrong := w.m[i].read().wrong; wrong != "" {
			s.wrong("member %d %s", i, wrong)
		}
	}
}

// alikeBehindGate reports whether all members but the first, which is the gate, are alike.
func (s *search) alikeBehindGate() bool {
	b := &s.bounds
	return b.hung == 0 && b.timeout > b.ticks && b.forgets == 0 && b.breaks == 0 && b.lower == 0
}

// appendSlots writes what a world has of semaphores.
func (s *search) appendSlots(b []byte, w *schedWorld) []byte {
	b = appendNumbers(b, w.slots.won[:]...)
	if s.bounds.lower == 0 {
		return b
	}
	set := &w.slots.set
	b = append(b, set.phase, byte(set.open), byte(set.said))
	b = appendNumbers(b, set.mine, set.greatest)
	for i, gen := range set.gens {
		b = append(b, flag(gen == 1+w.gen[i]))
		b = appendNumbers(b, w.m[i].storedLimit())
	}
	for c := range s.bounds.clients {
		cl := w.c[c]
		b = append(b, byte(cl.bound))
		b = appendNumbers(b, cl.known, cl.asked)
	}
	return b
}

func appendList(b []byte, l permit.List) []byte {
	b = append(b, byte(len(l)))
	for _, p := range l {
		b = binary.AppendVarint(append(b, byte(p.Slot)), p.Token)
	}
	return b
}

func appendSlotNumbers(b []byte, l []int) []byte {
	b = append(b, byte(len(l)))
	for _, n := range l {
		b = append(b, byte(n))
	}
	return b
}

// appendWants writes what a call has of semaphores.
func appendWants(b []byte, c *scriptCall) []byte {
	b = appendNumbers(b, c.wish, c.known)
	b = append(b, byte(c.want), byte(c.limit), flag(c.tag != ""))
	return appendList(appendSlotNumbers(b, c.slots), c.had)
}

// TestSemaphoreSchedulesExplored visits every state within the bounds of each search: one holder of a
// slot at a time, tokens of a slot that rise, nothing left behind, and from every moment of rest a way
// for everybody to come to the end. Cost: 4 s. The mutants of semaphore_search.txt need its searches.
func TestSemaphoreSchedulesExplored(t *testing.T) { exploreAll(t, "semaphore/always", 0) }

func TestLongSemaphoreSchedulesExplored(t *testing.T) {
	rt.Long(t, "takes minutes")
	exploreAll(t, "semaphore/large", 0)
}

// TestSemaphoreSchedulesCounterExamples takes guards out, one by one, and shows the schedule that then
// breaks a promise; the same schedule, with the guard, breaks none. See TestSchedulesCounterExamples.
func TestSemaphoreSchedulesCounterExamples(t *testing.T) { counterExamples(t, "semaphore/broken") }
