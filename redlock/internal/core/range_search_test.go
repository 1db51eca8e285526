//go:build !race

package core

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

// Every interleaving of two owners at three members, as far as tokens go: attempts that raise, wait and yield, holds that
// reserve tokens, renew and are re-joined, and members that forget and are restored. Votes end at the members at any time, so nothing
// that is found to hold rests on clocks. What the owners make of answers is the code of this package; what members do is a model of the
// scripts. A member executes the calls of one owner in their order. An answer is heard when it is executed, or never.
//
// All tokens of one hold lie on one side of those of another, and a hold whose attempt began after a lease had begun has greater ones.

// rangeBounds are how often what happens in one search, and the guard that it takes out.
type rangeBounds struct {
	begin                           []string // the first steps
	reserves, renews, waits, yields uint8
	expire, lost, forget, elsewhere uint8
	without                         string
	limit                           int
}

const (
	rangeAcquire uint8 = iota + 1
	rangeWait
	rangeRaise
	rangeReserve
	rangeRejoin
	rangeRelease

	rangeSize  = 3 // tokens of a reservation
	rangeCalls = 6 // under way between one owner and one member, at most
	rangeTTL   = time.Hour
)

const (
	rangeIdle uint8 = iota
	rangeAsking
	rangeRaising
	rangeHolding
	rangeEnded
)

var rangeNow = time.Now()

type rangeCall struct {
	op, token, n uint8 // n: of which question
	stale        bool  // it was submitted before the member forgot
}

// rangeMember is what a member knows. Owners are counted from 1.
type rangeMember struct {
	counter, owner, token, old, oldToken uint8 // old: whose yield was interrupted
	silent                               bool  // it has forgotten, and is not restored
	gen                                  uint8
	line                                 [3]uint8
}

type rangeOwner struct {
	phase, questions, first, last, floor uint8
	waited, renews, reserves             uint8
	v                                    Votes
	room                                 [3]Voter
	r                                    Range
	term                                 Term
	before                               memberset.Set // members that have forgotten since the last reservation was submitted
	over                                 bool          // one of them was restored since: that comes when the reservation is over
	sees                                 [3]uint8
	calls                                [3][rangeCalls]rangeCall
}

type rangeState struct {
	m                                      [3]rangeMember
	o                                      [2]rangeOwner
	expire, lost, forget, elsewhere, yield uint8
	most                                   uint8 // the greatest token of a lease
	wrong                                  string
}

func (s *rangeState) clone() *rangeState {
	c := *s
	for k := range c.o {
		c.o[k].v.m = c.o[k].room[:]
	}
	return &c
}

// states is what an owner knows of members: it hears of a new generation with the first answer of that.
func (s *rangeState) states(k int) (out [3]member.State) {
	for i := range s.m {
		out[i].Brief = member.Brief{Gen: uint64(s.o[k].sees[i]), Votes: true}
	}
	return out
}

// send puts a call in line.
func (s *rangeState) send(k, i int, c rangeCall) {
	line := &s.o[k].calls[i]
	n := slices.IndexFunc(line[:], func(c rangeCall) bool { return c.op == 0 })
	if n < 0 {
		panic("more calls than the model has room for")
	}
	line[n] = c
}

func (s *rangeState) sendAll(k int, c rangeCall) {
	for i := range s.m {
		s.send(k, i, c)
	}
}

// answer is what member i says to the n-th question of an owner.
func (s *rangeState) answer(i int, n uint8, said int64) *Answer {
	at := member.Brief{Gen: uint64(s.m[i].gen), Votes: true}
	return &Answer{Outcome: member.Answered, N: said, Sent: rangeNow.Add(time.Duration(n)), At: rangeNow, From: at, Now: at}
}

// begins judges that an owner gives leases, with tokens up to the last of its range.
func (s *rangeState) begins(k int) {
	o := &s.o[k]
	if o.last <= o.floor {
		s.wrong = fmt.Sprintf("owner %d has token %d, and began after %d was given", k, o.last, o.floor)
	}
	for j := range s.o {
		if x := &s.o[j]; j != k && x.first > 0 && o.first <= x.last && x.first <= o.last {
			s.wrong = fmt.Sprintf("tokens %d to %d of owner %d and %d to %d of owner %d are mixed", o.first, o.last, k, x.first, x.last, j)
		}
	}
	s.most = max(s.most, o.last)
}

func (s *rangeState) win(k int, g Grant) {
	o := &s.o[k]
	o.phase = rangeHolding
	o.term, _ = o.v.Start(g, rangeNow)
	o.r = o.v.Range()
	o.first = uint8(o.v.token)
	o.last = o.first
	s.begins(k)
}

func (s *rangeState) end(k int) {
	o := &s.o[k]
	*o = rangeOwner{phase: rangeEnded, first: o.first, last: o.last, calls: o.calls}
	o.v.m = o.room[:]
	s.sendAll(k, rangeCall{op: rangeRelease})
}

// granted is told of a vote by an answer.
func (s *rangeState) granted(k, i int) {
	o := &s.o[k]
	if o.phase == rangeIdle || o.phase == rangeEnded {
		return
	}
	a := s.answer(i, 0, int64(s.m[i].token))
	a.TTL = rangeTTL
	o.v.Enter(i, uint64(s.m[i].gen))
	o.v.Granted(i, a)
	s.lifts(k, i)
}

// lifts raises a vote that came after the decision.
func (s *rangeState) lifts(k, i int) {
	if token, late := s.o[k].v.Late(i); late && s.o[k].phase == rangeHolding {
		s.send(k, i, rangeCall{op: rangeRaise, token: uint8(token)})
	}
}

// pushed is told of a vote by a push.
func (s *rangeState) pushed(k, i int, token uint8) {
	o := &s.o[k]
	if o.phase != rangeIdle && o.phase != rangeEnded {
		states := s.states(k)
		o.v.Pushed(i, &Push{Token: int64(token), Server: 1, TTL: rangeTTL}, &states[i], rangeNow)
		s.lifts(k, i)
	}
}

func (m *rangeMember) draw(owner uint8) {
	m.counter++
	m.owner, m.token = owner, m.counter
}

func (m *rangeMember) leave(owner uint8) {
	n := 0
	for _, w := range m.line {
		if w != 0 && w != owner {
			m.line[n] = w
			n++
		}
	}
	clear(m.line[n:])
}

func (m *rangeMember) enqueue(owner uint8) {
	if i := slices.Index(m.line[:], 0); i >= 0 && !slices.Contains(m.line[:], owner) {
		m.line[i] = owner
	}
}

type rangeSearch struct{ rangeBounds }

// rangeExecutes are the names of the steps in which a member executes a call: it is heard, not heard, or the call is lost.
var rangeExecutes = func() (out [rangeRelease + 1][3]string) {
	for op, name := range []string{"", "acquire", "wait", "raise", "reserve", "re-join", "release"} {
		for fate, how := range []string{"", ", not heard", ", lost"} {
			out[op][fate] = "member %d: " + name + " of owner %d, token %d" + how
		}
	}
	return out
}()

type rangeYield = func(explore.Step, *rangeState, string) bool

// serve gives the vote to each that waits, in turn: heard, or never.
func (x *rangeSearch) serve(s *rangeState, i int, step explore.Step, yield rangeYield) (any bool) {
	for _, h := range s.m[i].line {
		if h == 0 {
			break
		}
		any = true
		c := s.clone()
		c.m[i].leave(h)
		c.m[i].draw(h)
		if c.lost > 0 {
			d := c.clone()
			d.lost--
			yield(explore.Say("member %d: a release, and the push to owner %d is lost", i, int(h-1)), d, "")
		}
		c.pushed(int(h-1), i, c.m[i].token)
		yield(step, c, c.wrong)
	}
	return any
}

// execute has member i execute the first call of an owner.
func (x *rangeSearch) execute(s *rangeState, k, i int, yield rangeYield) {
	call := s.o[k].calls[i][0]
	for fate := range 3 { // heard, not heard, never executed
		if fate > 0 && s.lost == 0 || fate == 2 && call.op == rangeRelease {
			break
		}
		c := s.clone()
		copy(c.o[k].calls[i][:], c.o[k].calls[i][1:])
		c.o[k].calls[i][rangeCalls-1] = rangeCall{}
		if fate > 0 {
			c.lost--
		}
		step := explore.Say(rangeExecutes[call.op][fate], i, k, int(call.token))
		if fate == 2 {
			yield(step, c, "")
			continue
		}
		o, m, owner := &c.o[k], &c.m[i], uint8(k+1)
		hears := fate == 0 && !call.stale
		if m.silent && call.op != rangeRelease {
			yield(step, c, "")
			continue
		}
		if hears && o.phase != rangeEnded {
			o.sees[i] = m.gen
		}
		has := m.owner == owner && m.token <= o.first || m.old == owner && m.oldToken <= o.first // as far as a reservation looks
		switch call.op {
		case rangeAcquire, rangeWait:
			switch {
			case m.owner == 0:
				m.leave(owner)
				m.draw(owner)
				fallthrough
			case m.owner == owner:
				if hears {
					c.granted(k, i)
				}
			case m.old == owner:
			default:
				if call.op == rangeWait {
					m.enqueue(owner)
				}
				if hears && o.phase != rangeEnded {
					o.v.Refused(i, 2)
				}
			}
		case rangeRaise:
			if m.owner == owner && m.token <= call.token || m.old == owner && m.oldToken <= call.token {
				m.counter = max(m.counter, call.token)
				if a := c.answer(i, call.n, 1); hears && o.phase == rangeRaising {
					a.Raise = true
					o.v.Confirms(i, a)
				}
			}
		case rangeReserve:
			said := int64(0)
			switch {
			case x.without == "vote":
				said = 1
			case x.without == "base" && m.owner == owner && m.token <= call.token || has:
				said = 1
			case m.owner == owner || m.old == owner:
				said = 3
			}
			if said == 1 {
				m.counter = max(m.counter, call.token)
			}
			if hears && o.phase == rangeHolding {
				x.reserved(c, k, i, c.answer(i, call.n, said))
			}
		case rangeRejoin:
			m.counter = max(m.counter, call.token)
			if m.owner == 0 {
				m.leave(owner)
				m.owner, m.token = owner, call.n
			}
			if m.owner == owner && hears && o.phase == rangeHolding {
				x.renewed(c, k, i)
			}
		case rangeRelease:
			m.leave(owner)
			switch {
			case m.old == owner:
				m.old, m.oldToken = 0, 0
			case m.owner == owner && m.old != 0:
				m.owner, m.token, m.old, m.oldToken = m.old, m.oldToken, 0, 0
			case m.owner == owner:
				m.owner, m.token = 0, 0
				if !m.silent && x.serve(c, i, step, yield) {
					continue
				}
			}
		}
		yield(step, c, c.wrong)
	}
}

// reserved books the answer to a reservation.
func (x *rangeSearch) reserved(s *rangeState, k, i int, a *Answer) {
	o, now, states := &s.o[k], rangeNow, s.states(k)
	if o.over && x.without != "end" {
		now = now.Add(2 * rangeTTL)
	}
	a.Raise = true
	if x.without == "majority" {
		o.v.need = 1
	}
	if o.v.Reserved(&o.r, i, a, now, states[:]) {
		o.r.last = o.r.most
		o.last = uint8(o.r.most)
		s.begins(k)
	}
	o.v.need = 2
}

// renewed books that a member has the vote, by a renewal or a re-join.
func (x *rangeSearch) renewed(s *rangeState, k, i int) {
	v := &s.o[k].v
	s.o[k].sees[i] = s.m[i].gen
	v.Enter(i, uint64(s.m[i].gen))
	m := &v.m[i]
	none := m.token == 0
	v.Renewed(i, true, rangeNow.Add(rangeTTL))
	if none && (x.without == "rejoined" && m.refused || x.without == "found" && !m.refused) {
		m.drawn = true
	}
}

// owner has an owner do what it can.
func (x *rangeSearch) owner(s *rangeState, k int, yield rangeYield) {
	now, states := rangeNow, s.states(k)
	do := func(format string, numbers []int, f func(c *rangeState, o *rangeOwner)) {
		c := s.clone()
		f(c, &c.o[k])
		yield(explore.Say(format, append([]int{k}, numbers...)...), c, c.wrong)
	}
	if s.o[k].phase == rangeHolding || s.o[k].phase == rangeAsking || s.o[k].phase == rangeRaising {
		do("owner %d ends", nil, func(c *rangeState, _ *rangeOwner) { c.end(k) })
	}
	switch s.o[k].phase {
	case rangeIdle:
		do("owner %d asks", nil, func(c *rangeState, o *rangeOwner) {
			o.phase, o.floor = rangeAsking, c.most
			o.v.Begin(o.room[:], Terms{TTL: rangeTTL, Entry: rangeTTL})
			for i := range c.m {
				o.sees[i] = c.m[i].gen
				o.v.Enter(i, uint64(c.m[i].gen))
			}
			c.sendAll(k, rangeCall{op: rangeAcquire})
		})
	case rangeAsking:
		c := s.clone()
		o := &c.o[k]
		switch decided, g := o.v.Decide(now, states[:]); decided {
		case Won:
			c.win(k, g)
			yield(explore.Say("owner %d has won", k), c, c.wrong)
		case Apart:
			o.phase = rangeRaising
			o.questions++
			o.v.Raise(now.Add(time.Duration(o.questions)))
			for i := range c.m {
				if g.In.Has(i) {
					c.send(k, i, rangeCall{op: rangeRaise, token: uint8(g.token), n: o.questions})
				}
			}
			yield(explore.Say("owner %d raises", k), c, "")
		case Few:
			if s.o[k].waited < x.waits {
				do("owner %d waits", nil, func(c *rangeState, o *rangeOwner) {
					o.waited++
					for i := range c.m {
						if o.v.Token(i) == 0 {
							o.v.Enter(i, uint64(c.m[i].gen))
							o.v.Registers(i, now)
							c.send(k, i, rangeCall{op: rangeWait})
						}
					}
				})
			}
		}
		for i := range s.m {
			m := &s.m[i]
			if s.yield > 0 && s.o[k].v.Token(i) > 0 && m.owner == uint8(k+1) && m.old == 0 && m.line[0] != 0 && m.line[0] != m.owner && !m.silent {
				do("owner %d yields at member %d, which is interrupted", []int{i}, func(c *rangeState, o *rangeOwner) {
					c.yield--
					o.v.GiveUp(i, nil, nil)
					m := &c.m[i]
					h, token := m.line[0], m.token
					m.enqueue(uint8(k + 1))
					m.leave(h)
					m.draw(h)
					m.old, m.oldToken = uint8(k+1), token
					c.pushed(int(h-1), i, m.token)
				})
			}
		}
	case rangeRaising:
		c := s.clone()
		if g, won := c.o[k].v.Confirm(now, states[:]); won {
			c.win(k, g)
			yield(explore.Say("owner %d has won by a raise", k), c, c.wrong)
		}
	case rangeHolding:
		if o := &s.o[k]; o.reserves < x.reserves && (o.r.asked <= o.r.most || o.over) {
			do("owner %d reserves", nil, func(c *rangeState, o *rangeOwner) {
				o.reserves++
				o.questions++
				o.before, o.over = 0, false
				most := o.r.Reserve(&o.term, rangeSize, now.Add(time.Duration(o.questions)), rangeTTL)
				c.sendAll(k, rangeCall{op: rangeReserve, token: uint8(most), n: o.questions})
			})
		}
		for i := range s.m {
			m := &s.m[i]
			switch {
			case m.silent || s.o[k].calls[i][0].op != 0 || s.o[k].renews == x.renews:
			case m.owner == uint8(k+1):
				if s.o[k].v.Token(i) == 0 {
					do("owner %d renews, and member %d has the vote", []int{i}, func(c *rangeState, o *rangeOwner) {
						o.renews++
						x.renewed(c, k, i)
					})
				}
			default:
				do("owner %d renews, and is to be re-joined at member %d", []int{i}, func(c *rangeState, o *rangeOwner) {
					o.renews++
					if x.without != "unheard" { // as of a vote that has ended while the member could not be reached: nobody has told
						o.v.Renewed(i, false, time.Time{})
					}
					if x.without == "refused" {
						o.v.m[i].refused = false
					}
					c.send(k, i, rangeCall{op: rangeRejoin, token: uint8(o.r.most), n: uint8(o.v.token)})
				})
			}
		}
	}
}

// befalls is what happens to a member.
func (x *rangeSearch) befalls(s *rangeState, i int, yield rangeYield) {
	m := &s.m[i]
	do := func(format string, f func(c *rangeState, m *rangeMember)) {
		c := s.clone()
		f(c, &c.m[i])
		yield(explore.Say(format, i), c, "")
	}
	if s.elsewhere > 0 && !m.silent {
		do("member %d draws for another name", func(c *rangeState, m *rangeMember) { c.elsewhere--; m.counter++ })
	}
	if s.expire > 0 && m.owner != 0 {
		do("member %d: the vote ends", func(c *rangeState, m *rangeMember) {
			c.expire--
			m.owner, m.token, m.old, m.oldToken = 0, 0, 0, 0
		})
	}
	if s.forget > 0 && !m.silent {
		do("member %d forgets", func(c *rangeState, m *rangeMember) {
			c.forget--
			*m = rangeMember{silent: true, gen: m.gen}
			for k := range c.o {
				o := &c.o[k]
				for n := range o.calls[i] {
					o.calls[i][n].stale = o.calls[i][n].op != 0
				}
				if o.r.asked > o.r.most {
					o.before = o.before.With(i)
				}
			}
		})
	}
	if a, b := &s.m[(i+1)%3], &s.m[(i+2)%3]; m.silent && !a.silent && !b.silent {
		do("member %d is restored", func(c *rangeState, m *rangeMember) {
			m.silent, m.counter = false, max(m.counter, a.counter, b.counter)
			m.gen++
			for k := range c.o {
				o := &c.o[k]
				o.over = o.over || o.before.Has(i)
				if o.phase == rangeAsking || o.phase == rangeRaising { // what it had there has ended meanwhile
					o.sees[i] = m.gen
				}
			}
		})
	}
}

// key is the same for states that differ in which member is which.
func (x *rangeSearch) key(s *rangeState) explore.Key {
	var parts [3][]byte
	for i := range s.m {
		m := &s.m[i]
		b := append([]byte{m.counter, m.owner, m.token, m.old, m.oldToken, bit(m.silent), m.gen}, m.line[:]...)
		for k := range s.o {
			o := &s.o[k]
			v := &o.room[i]
			b = append(b, byte(v.token), bit(v.drawn)|bit(v.refused)<<1|bit(v.gen == uint64(m.gen))<<2|bit(o.v.raise.yes.Has(i))<<3|
				bit(o.r.yes.Has(i))<<4|bit(o.before.Has(i))<<5|bit(v.first.IsZero())<<6|bit(o.sees[i] == m.gen)<<7, byte(v.given), byte(v.server))
			for _, c := range o.calls[i] {
				if c.op == 0 {
					break
				}
				b = append(b, c.op|bit(c.stale)<<4, c.token, c.n)
			}
			b = append(b, 0)
		}
		parts[i] = b
	}
	slices.SortFunc(parts[:], bytes.Compare)
	all := bytes.Join(parts[:], []byte{255})
	for k := range s.o {
		o := &s.o[k]
		all = append(all, o.phase, o.first, o.last, o.floor, o.waited, o.renews, o.reserves, o.questions, byte(o.v.agreed.token), byte(o.r.asked), bit(o.over))
	}
	return explore.Bytes(append(all, s.expire, s.lost, s.forget, s.elsewhere, s.yield, s.most))
}

func (b rangeBounds) search() explore.Found[explore.Step] {
	x := &rangeSearch{b}
	first := &rangeState{expire: b.expire, lost: b.lost, forget: b.forget, elsewhere: b.elsewhere, yield: b.yields}
	for i := range first.m {
		first.m[i] = rangeMember{counter: 1, gen: 1}
	}
	w := explore.World[*rangeState, explore.Step]{Key: x.key, Limit: b.limit, Next: func(s *rangeState, yield rangeYield) {
		for k := range s.o {
			for i := range s.m {
				if s.o[k].calls[i][0].op != 0 {
					x.execute(s, k, i, yield)
				}
			}
			x.owner(s, k, yield)
		}
		for i := range s.m {
			x.befalls(s, i, yield)
		}
	}}
	first = first.clone()
	for _, step := range b.begin {
		var next *rangeState
		w.Next(first, func(a explore.Step, s *rangeState, _ string) bool {
			if a.String() == step {
				next = s
			}
			return false
		})
		first = next
	}
	return w.Explore(first)
}

// How a search may begin: owner 0 has won at members 0 and 1; or at 1 and 2, and its yield to owner 1 at member 0 was interrupted.
var (
	rangeWon     = []string{"owner 0 asks", "member 0: acquire of owner 0, token 0", "member 1: acquire of owner 0, token 0", "owner 0 has won"}
	rangeYielded = []string{
		"owner 0 asks", "member 0: acquire of owner 0, token 0", "owner 1 asks", "member 0: acquire of owner 1, token 0", "owner 1 waits",
		"member 0: wait of owner 1, token 0", "owner 0 yields at member 0, which is interrupted", "member 1: acquire of owner 0, token 0",
		"member 2: acquire of owner 0, token 0", "owner 0 has won",
	}
)

func searchRanges(t *testing.T, all ...rangeBounds) {
	for _, b := range all {
		f := b.search()
		t.Logf("%+v: %d states, all: %v", b, f.States, f.All)
		require.Empty(t, f.Wrong, f)
		require.Equal(t, b.limit == 0, f.All)
	}
}

func TestTokensOfOneHoldLieOnOneSideOfThoseOfAnother(t *testing.T) {
	searchRanges(t,
		rangeBounds{begin: rangeWon, reserves: 1, renews: 1, expire: 1, limit: 20_000},
		rangeBounds{begin: append(rangeWon, "owner 0 reserves"), reserves: 1, forget: 1, limit: 20_000},
		rangeBounds{begin: rangeYielded, reserves: 1, renews: 1, waits: 1, yields: 1, expire: 1, limit: 20_000},
	)
}

func TestLongTokensOfOneHoldLieOnOneSideOfThoseOfAnother(t *testing.T) {
	rt.Long(t, "searches for minutes")
	searchRanges(t,
		rangeBounds{begin: rangeYielded, reserves: 1, renews: 1, waits: 1, yields: 1, expire: 1},
		rangeBounds{begin: rangeYielded, reserves: 1, renews: 1, waits: 1, yields: 1, expire: 1, lost: 1, limit: 1_000_000},
		rangeBounds{begin: rangeWon, reserves: 1, renews: 1, expire: 1},
		rangeBounds{begin: append(rangeWon, "owner 0 reserves"), reserves: 1, renews: 1, forget: 1},
		rangeBounds{begin: rangeWon, reserves: 2, renews: 2, expire: 1, forget: 1, limit: 1_000_000},
		rangeBounds{reserves: 2, renews: 2, waits: 1, yields: 1, expire: 1, lost: 1, forget: 1, elsewhere: 1, limit: 1_000_000},
	)
}

func TestEachPartOfAReservationIsNeeded(t *testing.T) {
	for _, b := range []rangeBounds{
		{begin: rangeWon, reserves: 1, renews: 1, expire: 1, without: "rejoined"},
		{begin: rangeYielded, reserves: 1, renews: 1, waits: 1, yields: 1, expire: 1, without: "found"},
		{begin: rangeWon, reserves: 1, renews: 1, expire: 1, without: "unheard"},
		{begin: rangeWon, reserves: 1, expire: 1, without: "base"},
		{begin: rangeWon, reserves: 1, expire: 1, without: "vote"},
		{begin: rangeWon, reserves: 1, expire: 1, without: "majority"},
		{begin: append(rangeWon, "owner 0 reserves"), reserves: 1, forget: 1, without: "end"},
	} {
		f := b.search()
		t.Logf("%s: %v", b.without, f)
		require.Contains(t, f.Wrong, "are mixed", b.without)
	}
}
