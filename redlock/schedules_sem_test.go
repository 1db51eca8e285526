package redlock

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"log/slog"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The schedules of semaphores: as schedules_test.go, for up to three clients. What decides is the code
// itself. The members are slotsMember. A pause before a split is followed ends at any time, in an order
// of its own.

const slotsClients = 3

// slotsBounds say how far a search goes, and from where.
type slotsBounds struct {
	clients  int
	slots    int // the limit of all
	permits  int // that each wants
	attempts int // per client
	splits   int // pauses that end
	ticks    int
	breaks   int // connections that break
	lost     int // pushes that are lost
	cancels  int // callers that give up
	forgets  int // members that restart without memory: quarantined for the TTL, then restored
	gathers  int // leases that ask for their slots where they are not given
	ttl      int // ticks
	entry    int // ticks
	timeout  int // ticks
	renew    bool
	wait     bool // asks with wait at once
	once     bool // never waits
	hung     int  // 1 + the member that executes nothing
	prompt   bool // answers arrive with their execution
	same     bool // all want slot 0 first; else each another one
	others   int  // members, from the first, at which a third party has slot 0, and frees it some time
	lower    int  // 1 + a limit that somebody stores, once
	counters [schedMembers]int64
	limits   [slotsClients]int64 // of the clients, where they differ
	weights  [slotsClients]int64 // permits that each wants, where they differ

	maxStates int
}

func (b slotsBounds) withDefaults() slotsBounds {
	set(&b.clients, 2)
	set(&b.slots, 2)
	set(&b.permits, 1)
	set(&b.attempts, 1)
	set(&b.ttl, 9)
	set(&b.entry, 30)
	set(&b.timeout, 20)
	return b
}

// slotsGuards are the guards that a case takes out: those of the scripts, and those of the client that
// can be taken out from here.
type slotsGuards struct {
	slotsRules
	noFollow     bool // a split is not followed
	noQuarantine bool // a member that forgot votes again at once
	noRelease    bool // an attempt that ends without a lease leaves what it has
	noRestore    bool // its counters begin anew
	noLimit      bool // nor is the stored limit restored
	anyLife      bool // what a member says of a limit counts whatever it forgets then
}

// slotsMsg is a call on its way to a member, and then its answer.
type slotsMsg struct {
	slotsCall
	sent   time.Time
	part   time.Duration // the TTL that the round asked for
	n      int           // of renewals: which
	regain bool
	epoch  uint64
	reply  slotsReply
	idle   bool
}

// slotsClient is one client with its attempt.
type slotsClient struct {
	phase    schedPhase
	attempt  int
	known    int64 // the stored limit that the client knows
	asked    int64 // and knew when the attempt began
	bound    int   // 1 + the limit that was in force when the attempt began
	name     string
	b        ballot.Ballot
	until    time.Time
	limit    time.Time
	renewAt  time.Time
	gathered bool
	renewals []schedRenewal
	epoch    [schedMembers]uint64
	req      [schedMembers][]slotsMsg
	rep      [schedMembers][]slotsMsg
	push     [schedMembers][]script.Push
}

// slotsWorld is a state of everything. Slices in it are never changed in place, except the ballot's.
type slotsWorld struct {
	m     [schedMembers]slotsMember
	c     [slotsClients]slotsClient
	used  struct{ splits, ticks, breaks, lost, cancels, forgets, gathers int }
	gen   [schedMembers]uint64
	rest  [schedMembers]int
	set   slotsSetter
	won   [slotsMost]int64 // greatest token of a lease with the slot
	wrong string
}

// slotsSetter is who stores a limit.
type slotsSetter struct {
	phase    uint8 // one of the below
	mine     int64
	greatest int64
	said     quorum.Set
	gens     [schedMembers]uint64
	open     quorum.Set // members that have not answered
}

const (
	setterIdle uint8 = iota
	setterReads
	setterWrites
	setterDone
	setterFailed
)

// slotsSearch is one search.
type slotsSearch struct {
	t      *testing.T
	bounds slotsBounds
	rules  slotsGuards
	now    time.Time
	model  *slotsServer
	kind   kind
	stubs  [slotsClients]*Client
	cfg    Config

	w      *slotsWorld
	spare  *slotsWorld
	calls  map[string]slotsCall
	dates  func([]byte, time.Time) []byte
	clock  search // its appendTime
	acting int
	seen   map[[2]uint64]struct{}
	seeds  [2]maphash.Seed
	nodes  []schedNode
	stats  map[string]int
	only   string
	begin  []schedAction
	trace  *[]string
	buf    []byte
	out    []byte
}

const (
	actSplit  = 100 + iota // the pause before a split is followed ends
	actGather              // a lease asks for its slots where they are not given
	actSet                 // somebody begins to store a limit
	actSetAt               // a member is asked about it, and answers
)

// slotsRecorder is a member that notes what is submitted to it.
type slotsRecorder struct {
	s    *slotsSearch
	c, i int
}

func (r slotsRecorder) Name() string                   { return fmt.Sprint("member ", r.i) }
func (r slotsRecorder) Listen(string, member.Listener) {}
func (r slotsRecorder) Close(context.Context) error    { return nil }
func (r slotsRecorder) State() member.State            { return r.s.state(r.c, r.i) }

func (s *slotsSearch) state(c, i int) member.State {
	st := member.State{Gen: 1, Epoch: 1, Up: true, Votes: true, Inbox: true}
	if s.w != nil {
		st.Epoch += s.w.c[c].epoch[i]
		st.Gen += s.w.gen[i]
		if rest := s.w.rest[i]; rest > 0 {
			st.Votes, st.Quarantine = false, s.now.Add(time.Duration(rest)*schedTick)
		}
	}
	return st
}

func (s *slotsSearch) states(c int) []member.State {
	out := make([]member.State, schedMembers)
	for i := range out {
		out[i] = s.state(c, i)
	}
	return out
}

// Submit implements member.Member: the end of the line in the session.
func (r slotsRecorder) Submit(c *member.Call) {
	s, round := r.s, c.Sink.(*quorum.Round)
	cl := &s.w.c[r.c]
	call, ok := s.calls[string(c.Cmd)]
	if !ok {
		call = parseSlotsCall(c.Cmd)
		s.calls[string(c.Cmd)] = call
	}
	m := slotsMsg{slotsCall: call, sent: round.Sent, part: round.TTL, epoch: cl.epoch[r.i]}
	switch j := round.Judge.(type) {
	case *renewal:
		m.n = len(cl.renewals)
	case rejoinJudge:
		for n := range cl.renewals {
			if cl.renewals[n].sent.Equal(j.n.sent) {
				m.n = n
			}
		}
	case regained:
		m.regain = true
	}
	if s.w.rest[r.i] > 0 {
		if m.op != opRelease {
			m.idle = true
			cl.rep[r.i] = append(slices.Clip(cl.rep[r.i]), m)
			return
		}
		m.tag = "!"
	}
	cl.req[r.i] = append(slices.Clip(cl.req[r.i]), m)
}

// parseSlotsCall is what a client's bytes ask for, without the marker id that the member adds.
func parseSlotsCall(cmd []byte) slotsCall {
	f := strings.Split(string(cmd), "\r\n")
	arg := func(i int) string { return f[6+2*i] }
	num := func(i int) int64 {
		n, err := strconv.ParseInt(arg(i), 10, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	list := func(i int) permit.List {
		l, _ := permit.Parse(arg(i))
		return l
	}
	slots := func(i int) (out []int) {
		for _, n := range strings.Fields(arg(i)) {
			out = append(out, int(toInt(n)))
		}
		return out
	}
	lease := func(i int) (out permit.List) {
		for _, n := range slots(i) {
			out = append(out, permit.Permit{Slot: n, Token: 1})
		}
		return out
	}
	switch sha := f[4]; sha { // arguments: number of keys, keys, bucket, owner, ...
	case script.SemAcquire.SHA:
		return slotsCall{op: opAcquire, owner: arg(7), ttl: num(8), want: int(num(9)), limit: int(num(10)), known: num(11), n: int(num(12))}
	case script.SemWait.SHA:
		return slotsCall{op: opWait, owner: arg(7), ttl: num(8), entry: num(9), want: int(num(10)), limit: int(num(11)), known: num(12), n: int(num(13))}
	case script.SemRelease.SHA:
		return slotsCall{op: opRelease, owner: arg(7), hint: arg(8), had: lease(9)}
	case script.SemClaim.SHA:
		c := slotsCall{op: opClaim, owner: arg(7), had: list(8), ttl: num(10), entry: num(11), limit: int(num(12)), known: num(13), n: int(num(14))}
		if back, none := strings.CutPrefix(arg(9), "-"); none {
			c.want = int(toInt(back))
		} else {
			c.slots = slots(9)
		}
		return c
	case script.SemRaise.SHA:
		return slotsCall{op: opRaise, owner: arg(4), had: list(5)}
	case script.SemRejoin.SHA:
		return slotsCall{op: opRejoin, owner: arg(7), ttl: num(8), had: list(9), wish: num(10)}
	case script.SemExtend.SHA:
		return slotsCall{op: opExtend, owner: arg(2), ttl: num(3), had: lease(4)}
	}
	panic("unknown script " + f[4])
}

func newSlotsSearch(t *testing.T, bounds slotsBounds, rules slotsGuards) *slotsSearch {
	s := &slotsSearch{
		t: t, bounds: bounds, rules: rules, now: time.Now(), model: newSlotsServer(rules.slotsRules), kind: permitKind,
		seen: map[[2]uint64]struct{}{}, calls: map[string]slotsCall{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, stats: map[string]int{},
	}
	s.kind.held, s.kind.left = nil, nil // gathering is a step of its own
	s.clock.now = s.now
	s.dates = s.clock.appendTime
	ticks := func(n int) time.Duration { return time.Duration(n) * schedTick }
	s.cfg = Config{
		TTL: ticks(bounds.ttl), Entry: ticks(bounds.entry), MemberTimeout: ticks(bounds.timeout),
		MaxTTL: time.Hour, NoQuorumAfter: -1, Logger: slog.New(slog.DiscardHandler),
	}.withDefaults()
	for c := range bounds.clients {
		members := make([]member.Member, schedMembers)
		for i := range members {
			members[i] = slotsRecorder{s, c, i}
		}
		stub := &Client{cfg: s.cfg, log: s.cfg.Logger, trace: newTracers(nil), members: members, briefed: make([]member.Briefed, len(members)), spread: make([]member.Spread, len(members)), need: member.Majority(schedMembers), uuid: name(c), closed: make(chan struct{})}
		stub.number = func() uint64 { return uint64(s.w.c[c].attempt) }
		stub.changes.ch = make(chan struct{})
		stub.keeper.init(stub)
		s.stubs[c] = stub
	}
	return s
}

func (s *slotsSearch) terms(c int) terms {
	p := &permitTerms{limit: s.limitOf(c), n: s.permitsOf(c)}
	if s.w != nil {
		p.known = s.w.c[c].asked
	}
	if !s.bounds.same {
		p.want = c % p.limit
	}
	return terms{kind: &s.kind, ttl: s.cfg.TTL, renew: s.bounds.renew, permits: p}
}

func (s *slotsSearch) limitOf(c int) int {
	if n := s.bounds.limits[c]; n > 0 {
		return int(n)
	}
	return s.bounds.slots
}

func (s *slotsSearch) permitsOf(c int) int {
	if n := s.bounds.weights[c]; n > 0 {
		return int(n)
	}
	return s.bounds.permits
}

func (s *slotsSearch) wire(c int) script.Lock {
	t := s.terms(c)
	return s.kind.of("k", &s.cfg, &t)
}

func (s *slotsSearch) initial() *slotsWorld {
	w := &slotsWorld{}
	for c := s.bounds.clients; c < slotsClients; c++ {
		w.c[c].phase = schedDone
	}
	for i := range w.m {
		n := s.bounds.counters[i]
		if n == 0 {
			n = 5
		}
		for k := range s.bounds.slots {
			w.m[i].counters[k] = n
		}
		if i < s.bounds.others {
			end := schedNow/1000 + 3_600_000
			w.m[i].records, w.m[i].used = []slotsRecord{{schedOther, end, permit.List{{Slot: 0, Token: n}}}}, 1
			w.m[i].earliest, w.m[i].over, w.m[i].end = end, end, end+1
		}
	}
	return w
}

func (s *slotsSearch) clone(w *slotsWorld) *slotsWorld {
	v := s.spare
	if s.spare = nil; v == nil {
		v = new(slotsWorld)
	}
	*v = *w
	return v
}

func (s *slotsSearch) client(w *slotsWorld, c int) *slotsClient {
	s.w, s.acting = w, c
	cl := &w.c[c]
	cl.b = cl.probe().Clone()
	cl.renewals = slices.Clone(cl.renewals)
	return cl
}

func (s *slotsSearch) attempt(c int) *attempt {
	cl := &s.w.c[c]
	a := &attempt{hold: hold{c: s.stubs[c], wire: s.wire(c), terms: s.terms(c), owner: cl.name, n: uint64(cl.attempt), b: cl.b}}
	a.ended.Store(cl.phase == schedIdle || cl.phase == schedDone)
	return a
}

func (cl *slotsClient) probe() ballot.Probe { return ballot.Probe{Ballot: &cl.b} }

func (cl *slotsClient) live(owner string) bool {
	return cl.name == owner && cl.phase != schedIdle && cl.phase != schedDone
}

func (s *slotsSearch) say(format string, args ...any) {
	if s.trace != nil {
		*s.trace = append(*s.trace, fmt.Sprintf(format, args...))
	}
}

func (s *slotsSearch) count(what string) { s.stats[what]++ }

func (s *slotsSearch) hangs(i int) bool { return s.bounds.hung == i+1 }

// enabled lists what can happen next.
func (s *slotsSearch) enabled(w *slotsWorld) []schedAction {
	var out []schedAction
	add := func(k schedKind, c, i int) { out = append(out, schedAction{k, int8(c), int8(i)}) }
	busy := false
	for c := range s.bounds.clients {
		cl := &w.c[c]
		switch cl.phase {
		case schedIdle:
			add(actStart, c, 0)
		case schedHolding:
			add(actUnlock, c, 0)
			if w.used.gathers < s.bounds.gathers && !cl.gathered && cl.b.Lacking() != 0 {
				add(actGather, c, 0)
			}
		case schedTrying:
			if w.used.cancels < s.bounds.cancels {
				add(actCancel, c, 0)
			}
			if w.used.splits < s.bounds.splits && cl.probe().Pauses() {
				add(actSplit, c, 0)
			}
		}
		for i := range cl.req {
			if len(cl.req[i]) > 0 && !s.hangs(i) {
				add(actExec, c, i)
			}
			if len(cl.rep[i]) > 0 {
				add(actAnswer, c, i)
			}
			if len(cl.push[i]) > 0 {
				add(actPush, c, i)
				if w.used.lost < s.bounds.lost {
					add(actLosePush, c, i)
				}
			}
			if w.used.breaks < s.bounds.breaks && len(cl.req[i])+len(cl.rep[i]) > 0 {
				add(actBreak, c, i)
			}
			busy = busy || len(cl.req[i])+len(cl.rep[i])+len(cl.push[i]) > 0
		}
		busy = busy || cl.phase != schedDone
	}
	for i := range w.m {
		if busy && w.used.forgets < s.bounds.forgets && !s.hangs(i) {
			add(actForget, 0, i)
		}
		if w.m[i].record(schedOther) != nil {
			add(actOther, 0, i)
		}
		if w.set.open.Has(i) && !s.hangs(i) {
			add(actSetAt, 0, i)
		}
	}
	if s.bounds.lower > 0 && w.set.phase == setterIdle {
		add(actSet, 0, 0)
	}
	if busy && w.used.ticks < s.bounds.ticks {
		add(actTick, 0, 0)
	}
	return out
}

// do makes one step from w.
func (s *slotsSearch) do(w *slotsWorld, a schedAction) *slotsWorld {
	v := s.clone(w)
	c, i := int(a.c), int(a.i)
	switch a.kind {
	case actStart:
		s.start(v, c)
	case actExec:
		m := v.c[c].req[i][0]
		v.c[c].req[i] = v.c[c].req[i][1:]
		s.execute(v, c, i, m)
	case actAnswer:
		cl := s.client(v, c)
		m := cl.rep[i][0]
		cl.rep[i] = cl.rep[i][1:]
		s.say("%s hears member %d on %s: %v", name(c), i, m.op, m.reply)
		if m.idle {
			s.answer(c, i, m, member.NotSent)
		} else {
			s.answer(c, i, m, member.Answered)
		}
	case actPush:
		cl := s.client(v, c)
		p := cl.push[i][0]
		cl.push[i] = cl.push[i][1:]
		s.say("%s hears that member %d has given it %v", name(c), i, p.Permits)
		s.pushed(c, i, p)
	case actLosePush:
		cl := s.client(v, c)
		s.say("a push of member %d to %s is lost", i, name(c))
		cl.push[i] = cl.push[i][1:]
		v.used.lost++
		s.count("pushes lost")
	case actBreak:
		v.used.breaks++
		s.broken(v, c, i)
	case actTick:
		s.say("a tick")
		s.tick(v)
	case actUnlock:
		s.client(v, c)
		s.say("%s unlocks", name(c))
		s.end(c)
	case actCancel:
		s.client(v, c)
		s.say("%s gives up", name(c))
		v.used.cancels++
		s.end(c)
	case actForget:
		s.forget(v, i)
	case actOther:
		s.execute(v, c, i, slotsMsg{slotsCall: slotsCall{op: opRelease, owner: schedOther, had: permit.List{{Slot: 0, Token: 1}}}})
	case actSet:
		s.w = v
		s.say("somebody stores the limit %d", s.bounds.lower-1)
		s.setLimit(v, setterReads)
	case actSetAt:
		s.setAt(v, i, member.Answered)
	case actSplit:
		cl := s.client(v, c)
		s.say("the pause of %s ends", name(c))
		v.used.splits++
		cl.probe().EndPause(s.now)
	case actGather:
		cl := s.client(v, c)
		v.used.gathers++
		cl.gathered = true
		s.say("%s asks for its slots everywhere", name(c))
		s.count("gathered")
		l := s.lease(c)
		l.gather()
		s.keep(c, l)
	}
	switch {
	case a.kind == actTick || a.kind == actForget:
		for c := range s.bounds.clients {
			s.settleClient(v, c)
		}
	case a.kind == actSet || a.kind == actSetAt:
	case a.kind != actExec && a.kind != actOther || s.bounds.prompt:
		s.settleClient(v, c)
	}
	s.check(v)
	return v
}

// execute runs a request at its member; its answer and its pushes go on their way.
func (s *slotsSearch) execute(w *slotsWorld, c, i int, m slotsMsg) {
	s.w = w
	before := w.m[i]
	defer func() { s.bounded(w, i, &before, m.op) }()
	r, pushes := s.model.call(&w.m[i], schedNow, m.slotsCall)
	s.say("member %d executes %v: %v", i, m.slotsCall, r)
	m.reply = r
	if m.op == opRejoin && r.n == 1 {
		s.count("re-joins")
	}
	if m.op == opClaim {
		s.count("claims")
	}
	for _, p := range pushes {
		for k := range s.bounds.clients {
			if w.c[k].live(p.Owner) {
				w.c[k].push[i] = append(slices.Clip(w.c[k].push[i]), p)
			}
		}
		s.count("hand-overs")
	}
	if w.c[c].live(m.owner) && m.op != opRelease {
		w.c[c].rep[i] = append(slices.Clip(w.c[c].rep[i]), m)
		if s.bounds.prompt {
			cl := s.client(w, c)
			cl.rep[i] = cl.rep[i][:len(cl.rep[i])-1]
			s.answer(c, i, m, member.Answered)
		}
	}
}

// bounded requires that member i has given nobody more than its limit allows. What a lease has it has.
func (s *slotsSearch) bounded(w *slotsWorld, i int, before *slotsMember, op string) {
	for _, r := range w.m[i].records {
		had := permit.List(nil)
		if o := before.record(r.owner); o != nil {
			had = o.has
		}
		for c := range s.bounds.clients {
			if op == opRejoin || !w.c[c].live(r.owner) || w.c[c].phase == schedHolding || len(r.has) <= len(had) {
				continue
			}
			if limit := s.limitOf(c); w.m[i].used > limit {
				s.wrong("member %d has given %s a slot beyond its limit of %d", i, name(c), limit)
			}
		}
	}
}

// broken ends the connection of client c to member i.
func (s *slotsSearch) broken(w *slotsWorld, c, i int) {
	cl := s.client(w, c)
	s.say("the connection of %s to member %d breaks", name(c), i)
	s.count("connections broken")
	calls := slices.Concat(cl.rep[i], cl.req[i])
	cl.rep[i], cl.req[i] = nil, nil
	cl.epoch[i]++
	var owed []slotsMsg
	for _, m := range calls {
		if m.op == opRelease {
			m.epoch = cl.epoch[i]
			owed = append(owed, m)
		}
	}
	cl.req[i] = owed
	for _, m := range calls {
		if m.op != opRelease && cl.live(m.owner) {
			s.answer(c, i, m, member.Unknown)
		}
	}
}

// forget restarts member i without memory.
func (s *slotsSearch) forget(w *slotsWorld, i int) {
	s.say("member %d restarts and has forgotten everything", i)
	s.count("members that forgot")
	w.used.forgets++
	w.gen[i]++
	w.m[i] = slotsMember{}
	if w.rest[i] = s.bounds.ttl; s.rules.noQuarantine {
		w.rest[i] = 0
		s.restore(w, i)
	}
	for c := range s.bounds.clients {
		s.broken(w, c, i)
		w.c[c].push[i] = nil
	}
	if w.set.open.Has(i) {
		s.setAt(w, i, member.Unknown)
	}
}

// setLimit is askLimit as storeLimit calls it: it asks all members.
func (s *slotsSearch) setLimit(w *slotsWorld, phase uint8) {
	w.set = slotsSetter{phase: phase, mine: w.set.mine}
	for i := range w.m {
		if w.rest[i] == 0 {
			w.set.open = w.set.open.With(i)
		}
	}
	s.limitSet(w)
}

// setAt has a member execute what the setter asks, and the setter hear the answer.
func (s *slotsSearch) setAt(w *slotsWorld, i int, o member.Outcome) {
	s.w = w
	set := &w.set
	set.open = set.open.Without(i)
	st := s.state(0, i)
	call := &member.Call{Index: i, Result: member.Result{Outcome: o, At: s.now, State: st.Brief()}}
	if o == member.Answered {
		stored := int64(0)
		if set.phase == setterWrites {
			stored = set.mine
		}
		r, pushes := s.model.call(&w.m[i], schedNow, slotsCall{op: slotsLimit, stored: stored})
		for _, p := range pushes {
			for k := range s.bounds.clients {
				if w.c[k].live(p.Owner) {
					w.c[k].push[i] = append(slices.Clip(w.c[k].push[i]), p)
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
func (s *slotsSearch) limitSet(w *slotsWorld) {
	set := &w.set
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

// restore gives a member that forgot the counters of the others.
func (s *slotsSearch) restore(w *slotsWorld, i int) {
	a, b := &w.m[(i+1)%schedMembers], &w.m[(i+2)%schedMembers]
	for k := range s.bounds.slots {
		if w.m[i].counters[k] = max(a.counters[k], b.counters[k]); s.rules.noRestore {
			w.m[i].counters[k] = 1 // and not the time: a clock may be wrong
		}
	}
	if !s.rules.noLimit {
		w.m[i].stored = max(a.stored, b.stored)
	}
	s.say("member %d has its counters restored", i)
}

// start begins an attempt.
func (s *slotsSearch) start(w *slotsWorld, c int) {
	cl := s.client(w, c)
	cl.attempt++
	past := ballot.Past{Start: ballot.AskFirst}
	switch {
	case s.bounds.wait:
		past.Start = ballot.WaitFirst
	case s.bounds.once:
		past.Start = ballot.TryOnce
	}
	cl.asked, cl.bound = cl.known, 0
	if w.set.phase == setterDone {
		cl.bound = s.bounds.lower
	}
	a := s.stubs[c].newAttempt(s.wire(c), s.terms(c), past, nil)
	cl.phase, cl.name, cl.b, cl.renewals, cl.gathered = schedTrying, a.owner, a.b, nil, false
	cl.until, cl.limit, cl.renewAt = time.Time{}, time.Time{}, time.Time{}
	s.say("%s begins attempt %d", name(c), cl.attempt)
}

// answer gives an answer to what judges it.
func (s *slotsSearch) answer(c, i int, m slotsMsg, o member.Outcome) {
	cl := &s.w.c[c]
	if !cl.live(m.owner) {
		return
	}
	st := s.state(c, i)
	call := &member.Call{Index: i, Result: member.Result{Outcome: o, At: s.now, State: st.Brief()}}
	call.State.Epoch = m.epoch + 1
	num := func(n int64) member.Reply { return member.Reply{Kind: ':', Int: n} }
	said := num(m.reply.n)
	if m.reply.permits != "" {
		said = member.Reply{Kind: '$', Str: []byte(m.reply.permits)}
	}
	switch {
	case o == member.Unknown:
		call.Err = member.ErrBroken
	case o == member.NotSent:
		call.Err = &member.QuarantineError{Until: st.Quarantine}
	case m.op == opExtend:
		call.Reply = member.Reply{Kind: '*', Elems: []member.Reply{said}}
	case m.reply.server > 0:
		call.Reply = member.Reply{Kind: '*', Elems: []member.Reply{said, num(m.reply.server), {Kind: '$', Str: []byte(m.reply.next)}, num(0), num(m.reply.limit)}}
	default:
		call.Reply = said
	}
	r := &quorum.Round{Question: quorum.Question{Op: m.op, Sent: m.sent, TTL: m.part}}
	switch {
	case m.regain:
		a := s.attempt(c)
		regained{&a.hold}.Judge(r, call)
		cl.b = a.b
		return
	case m.op == opExtend || m.op == opRejoin:
		s.renewed(c, m, call)
		return
	}
	a := s.attempt(c)
	if s.bounds.lower > 0 {
		s.stubs[c].limits.m = map[string]int64{"k": cl.known}
	}
	a.Judge(r, call)
	cl.b = a.b
	if s.bounds.lower > 0 {
		cl.known = s.stubs[c].limits.get("k")
	}
}

// pushed gives a push to the attempt that it names.
func (s *slotsSearch) pushed(c, i int, p script.Push) {
	cl := &s.w.c[c]
	a := s.attempt(c)
	a.hear(i, p, s.state(c, i), s.now)
	cl.b = a.b
	if cl.probe().Vote(i).Token == p.Token {
		s.count("votes by push")
	}
}

func (s *slotsSearch) settleClient(w *slotsWorld, c int) {
	if w.c[c].phase == schedTrying {
		if s.acting != c || s.w != w {
			s.client(w, c)
		}
		s.run(c)
	}
}

// run is attempt.run up to the next sleep.
func (s *slotsSearch) run(c int) {
	cl := &s.w.c[c]
	defer func() { cl.probe().Evenly() }()
	for {
		st := cl.probe().Next(s.now, s.states(c))
		if st.Do == ballot.Claim && s.rules.noFollow {
			return
		}
		a := s.attempt(c)
		a.do(&st, s.now)
		cl.b = a.b
		switch {
		case st.Do == ballot.Win:
			s.win(c, a, st)
			return
		case st.Ends():
			why := schedCauses[st.Cause]
			s.say("  %s ends its attempt: %s", name(c), why)
			s.count("ended: " + why)
			s.end(c)
			return
		case st.Do == ballot.Listen:
			s.say("  %s goes on", name(c))
		case st.Do == ballot.Raise:
			s.say("  %s has a majority, and lifts counters to %v", name(c), cl.b.Permits())
			s.count("second rounds")
		case st.Do == ballot.Claim:
			s.say("  %s claims %v, and waits at %v", name(c), st.Offers, st.To)
			s.count("splits")
		}
		if st.Do == ballot.Sleep || st.Poll {
			return
		}
	}
}

// win is what follows a win: attempt.lease.
func (s *slotsSearch) win(c int, a *attempt, st ballot.Step) {
	cl := &s.w.c[c]
	l, err := a.lease(context.Background(), result{Grant: st.Grant, waited: a.b.Waited()})
	s.stubs[c].keeper.leases = nil
	cl.b = a.b
	if err != nil {
		s.say("  %s ends its attempt: %v", name(c), err)
		s.count("too slow")
		s.over(c)
		return
	}
	cl.phase = schedHolding
	cl.until, cl.limit, cl.renewAt = l.until, l.limit, l.renewAt
	has := cl.b.Permits()
	s.say("  %s holds %v with the votes %v for %v", name(c), has, cl.probe(), clock.Until(l.until, s.now))
	s.count("leases")
	if n := s.permitsOf(c); len(has) != n {
		s.wrong("%s wanted %d permits and has %v", name(c), n, has)
	}
	for _, p := range has {
		if cl.bound > 0 && p.Slot >= cl.bound-1 {
			s.wrong("%s has slot %d, and began when the limit of %d was in force", name(c), p.Slot, cl.bound-1)
		}
		if p.Slot < 0 || p.Slot >= s.limitOf(c) {
			s.wrong("%s has slot %d", name(c), p.Slot)
		} else if p.Token <= s.w.won[p.Slot] {
			s.wrong("token %d of slot %d is not above %d, that of a lease before", p.Token, p.Slot, s.w.won[p.Slot])
		} else {
			s.w.won[p.Slot] = p.Token
		}
	}
}

func (s *slotsSearch) wrong(format string, args ...any) {
	if what := fmt.Sprintf(format, args...); s.w.wrong == "" && strings.Contains(what, s.only) {
		s.w.wrong = what
	}
}

// end releases: unlock, give-up, loss and failure are one to the members.
func (s *slotsSearch) end(c int) {
	if s.rules.noRelease && s.w.c[c].phase != schedHolding {
		s.over(c)
		return
	}
	s.attempt(c).release(false)
	s.over(c)
}

// over forgets what an attempt that has ended does not look at any more.
func (s *slotsSearch) over(c int) {
	cl := &s.w.c[c]
	cl.phase = schedIdle
	if cl.attempt >= s.bounds.attempts {
		cl.phase = schedDone
	}
	cl.rep, cl.push = [schedMembers][]slotsMsg{}, [schedMembers][]script.Push{}
	cl.renewals, cl.b, cl.gathered = nil, ballot.Ballot{}, false
	cl.until, cl.limit, cl.renewAt = time.Time{}, time.Time{}, time.Time{}
}

// lease is the client's lease, for one event. Its keeper has no goroutine.
func (s *slotsSearch) lease(c int) *Lease {
	cl := &s.w.c[c]
	a := s.attempt(c)
	s.stubs[c].keeper.leases = nil
	return &Lease{
		c: s.stubs[c], hold: &a.hold, key: "k", token: 1, until: cl.until, limit: cl.limit, renewAt: cl.renewAt, renew: s.bounds.renew,
		ttl: s.cfg.TTL, users: 1, pos: -1, granted: s.now, values: context.Background(),
	}
}

// keep stores a lease after an event.
func (s *slotsSearch) keep(c int, l *Lease) {
	cl := &s.w.c[c]
	cl.b = l.hold.b
	if l.err != nil {
		s.say("  the lease of %s has ended: %v", name(c), l.err)
		s.over(c)
		return
	}
	cl.until, cl.limit, cl.renewAt = l.until, l.limit, l.renewAt
}

// watch lets the keeper look at a lease.
func (s *slotsSearch) watch(c int) {
	cl := &s.w.c[c]
	l := s.lease(c)
	if due := clock.Until(l.until, s.now) <= 0 || !l.renewAt.IsZero() && clock.Until(l.renewAt, s.now) <= 0; !due {
		return
	}
	ttl := l.ttl
	if !l.limit.IsZero() {
		ttl = min(ttl, clock.Until(l.limit, s.now))
	}
	before := len(cl.req[0]) + len(cl.rep[0])
	k := &s.stubs[c].keeper
	if held, ask := l.ask(s.now); ask {
		k.renewAll([]*Lease{l}, s.now)
	} else if !held {
		l.expire()
	}
	s.keep(c, l)
	if cl.phase == schedHolding && len(cl.req[0])+len(cl.rep[0]) > before {
		s.say("  %s renews", name(c))
		cl.renewals = append(cl.renewals, schedRenewal{sent: s.now, ttl: ttl})
	} else if cl.phase != schedHolding {
		s.count("leases that ended by themselves")
	}
}

// renewed gives an answer to a renewal.
func (s *slotsSearch) renewed(c int, m slotsMsg, call *member.Call) {
	cl := &s.w.c[c]
	if cl.phase != schedHolding || m.n >= len(cl.renewals) {
		return
	}
	st := &cl.renewals[m.n]
	l := s.lease(c)
	n := &renewal{k: &s.stubs[c].keeper, sent: st.sent, items: []renewItem{{l: l, ttl: st.ttl, yes: st.yes, refused: st.refused, decided: st.decided}}}
	r := &quorum.Round{Question: quorum.Question{Op: m.op, Sent: st.sent, TTL: st.ttl}}
	s.stubs[c].keeper.leases = nil
	was := st.decided
	if m.op == opExtend {
		n.Judge(r, call)
	} else {
		rejoinJudge{n, 0}.Judge(r, call)
	}
	it := n.items[0]
	st.yes, st.refused, st.decided = it.yes, it.refused, it.decided
	if !was && it.decided && l.err == nil {
		s.count("renewals")
	}
	s.keep(c, l)
}

// tick lets time pass: everything with a date is set back by it.
func (s *slotsSearch) tick(w *slotsWorld) {
	w.used.ticks++
	const d = -schedTick
	const ms = int64(d / time.Millisecond)
	back := func(t *time.Time) {
		if !t.IsZero() {
			*t = t.Add(d)
		}
	}
	micros := func(n *int64) {
		if *n != 0 {
			*n += d.Microseconds()
		}
	}
	for i := range w.m {
		m := &w.m[i]
		m.records, m.queue, m.wishes = slices.Clone(m.records), slices.Clone(m.queue), slices.Clone(m.wishes)
		for k := range m.records {
			m.records[k].deadline += ms
		}
		if m.earliest > 0 {
			m.earliest, m.over, m.end = m.earliest+ms, m.over+ms, m.end+ms
		}
		for k := range m.queue {
			micros(&m.queue[k].since)
			m.queue[k].deadline += ms
		}
		for k := range m.wishes {
			m.wishes[k].deadline += ms
		}
		if m.waitEnd != 0 {
			m.waitEnd += ms
		}
		m.expire(schedNow)
	}
	for i := range w.rest {
		if w.rest[i] > 0 {
			if w.rest[i]--; w.rest[i] == 0 {
				s.restore(w, i)
			}
		}
	}
	for c := range s.bounds.clients {
		cl := s.client(w, c)
		cl.probe().Shift(d)
		for _, t := range []*time.Time{&cl.until, &cl.limit, &cl.renewAt} {
			back(t)
		}
		for n := range cl.renewals {
			back(&cl.renewals[n].sent)
		}
		for i := range cl.req {
			for _, q := range []*[]slotsMsg{&cl.req[i], &cl.rep[i]} {
				*q = slices.Clone(*q)
				for k := range *q {
					back(&(*q)[k].sent)
					micros(&(*q)[k].reply.server)
				}
			}
			cl.push[i] = slices.Clone(cl.push[i])
			for k := range cl.push[i] {
				micros(&cl.push[i][k].Server)
			}
		}
	}
	for c := range s.bounds.clients {
		if w.c[c].phase == schedHolding {
			s.client(w, c)
			s.watch(c)
		}
	}
}

func (s *slotsSearch) believes(w *slotsWorld, c int) bool {
	return w.c[c].phase == schedHolding && clock.Until(w.c[c].until, s.now) > 0
}

func (s *slotsSearch) inFlight(w *slotsWorld) bool {
	for i := range w.m {
		if w.set.open.Has(i) && !s.hangs(i) {
			return true
		}
	}
	for c := range s.bounds.clients {
		for i := range w.c[c].req {
			if len(w.c[c].req[i]) > 0 && !s.hangs(i) || len(w.c[c].rep[i])+len(w.c[c].push[i]) > 0 {
				return true
			}
		}
	}
	return false
}

// check looks for what must never be.
func (s *slotsSearch) check(w *slotsWorld) {
	s.w = w
	var holder [slotsMost]int // 1 + client
	for c := range s.bounds.clients {
		cl := &w.c[c]
		for i := range schedMembers {
			if name, exists := cl.probe().Combination(i); !exists {
				s.wrong("%s of member %d go together", name, i)
			}
		}
		if !s.believes(w, c) {
			continue
		}
		for _, p := range cl.b.Permits() {
			if holder[p.Slot] > 0 {
				s.wrong("two holders of slot %d", p.Slot)
			}
			holder[p.Slot] = c + 1
			if p.Token != w.won[p.Slot] {
				s.wrong("another holder of slot %d in the middle of one tenure", p.Slot)
			}
		}
	}
	for i := range w.m {
		s.consistent(&w.m[i], i)
	}
	if s.inFlight(w) {
		return
	}
	for i := range w.m {
		if s.hangs(i) {
			continue
		}
		for _, o := range w.m[i].owners() {
			live := o == schedOther
			for c := range s.bounds.clients {
				live = live || w.c[c].live(o)
			}
			if !live {
				s.wrong("%s is left behind at member %d", o, i)
			}
		}
	}
}

// consistent requires what holds of a member after each script.
func (s *slotsSearch) consistent(m *slotsMember, i int) {
	used := 0
	for k, r := range m.records {
		used += len(r.has)
		for _, p := range r.has {
			for _, o := range m.records[:k] {
				if o.has.Token(p.Slot) > 0 {
					s.wrong("member %d has given slot %d twice", i, p.Slot)
				}
			}
		}
		if r.deadline < m.earliest || r.deadline > m.end {
			s.wrong("member %d does not keep the bounds of its deadlines", i)
		}
	}
	if used != m.used {
		s.wrong("member %d counts %d slots and has given %d", i, m.used, used)
	}
}

// owners are all that a member knows.
func (m *slotsMember) owners() (out []string) {
	for _, r := range m.records {
		if r.deadline >= schedNow/1000 {
			out = append(out, r.owner)
		}
	}
	for _, q := range m.queue {
		out = append(out, q.owner)
	}
	for _, v := range m.wishes {
		out = append(out, v.owner)
	}
	return out
}

// key names a state. All members but the first of the gate's order are alike.
func (s *slotsSearch) key(w *slotsWorld) [2]uint64 {
	var blocks [schedMembers][]byte
	b := s.buf[:0]
	for i := range blocks {
		start := len(b)
		b = s.appendMember(b, w, i)
		blocks[i] = b[start:]
		if cap(b) != cap(s.buf) {
			s.buf = b
		}
	}
	if s.bounds.hung == 0 && s.bounds.timeout > s.bounds.ticks && s.bounds.forgets == 0 && s.bounds.breaks == 0 && s.bounds.lower == 0 {
		slices.SortFunc(blocks[1:], slices.Compare)
	}
	u := &w.used
	out := append(s.out[:0], byte(u.splits), byte(u.ticks), byte(u.breaks), byte(u.lost), byte(u.cancels), byte(u.forgets), byte(u.gathers))
	for _, n := range w.won {
		out = binary.AppendVarint(out, n)
	}
	if s.bounds.lower > 0 {
		out = append(out, w.set.phase, byte(w.set.open), byte(w.set.said))
		out = binary.AppendVarint(binary.AppendVarint(out, w.set.mine), w.set.greatest)
		for i, gen := range w.set.gens {
			out = append(out, flag(gen == 1+w.gen[i]))
			out = binary.AppendVarint(out, w.m[i].stored)
		}
		for c := range s.bounds.clients {
			cl := &w.c[c]
			out = append(out, byte(cl.bound))
			out = binary.AppendVarint(binary.AppendVarint(out, cl.known), cl.asked)
		}
	}
	for c := range s.bounds.clients {
		cl := &w.c[c]
		out = append(out, byte(cl.phase), byte(cl.attempt), flag(cl.gathered))
		for _, t := range []time.Time{cl.until, cl.limit, cl.renewAt} {
			out = s.dates(out, t)
		}
		out = cl.probe().AppendKey(out, s.clocks(cl, 0))
		out = appendText(out, cl.b.Hint())
		for _, r := range cl.renewals {
			out = s.dates(out, r.sent)
			out = append(out, flag(r.decided), byte(r.ttl/schedTick))
		}
	}
	for _, m := range blocks {
		out = binary.AppendUvarint(out, uint64(len(m)))
		out = append(out, m...)
	}
	s.out = out
	return [2]uint64{maphash.Bytes(s.seeds[0], out), maphash.Bytes(s.seeds[1], out)}
}

func (s *slotsSearch) clocks(cl *slotsClient, i int) ballot.Clocks {
	return ballot.Clocks{Time: s.dates, Server: schedNow, Epoch: cl.epoch[i] + 1, Recent: s.now.Add(1 - 2*schedTick)}
}

func appendList(b []byte, l permit.List) []byte {
	b = append(b, byte(len(l)))
	for _, p := range l {
		b = binary.AppendVarint(append(b, byte(p.Slot)), p.Token)
	}
	return b
}

func (s *slotsSearch) appendMember(b []byte, w *slotsWorld, i int) []byte {
	m := &w.m[i]
	const now = schedNow / 1000
	b = append(b, byte(len(m.records)))
	for _, r := range m.records {
		b = appendText(b, r.owner)
		b = binary.AppendVarint(b, r.deadline-now)
		b = appendList(b, r.has)
	}
	if m.earliest > 0 {
		b = binary.AppendVarint(b, m.earliest-now)
		b = binary.AppendVarint(b, m.over-now)
		b = binary.AppendVarint(b, m.end-now)
	}
	for _, n := range m.counters {
		b = binary.AppendVarint(b, n)
	}
	b = append(b, byte(len(m.queue)))
	for _, q := range m.queue {
		b = appendText(b, q.owner)
		b = binary.AppendVarint(b, q.since-schedNow)
		b = binary.AppendVarint(b, q.deadline-now)
		b = binary.AppendVarint(b, q.ttl)
		b = append(b, byte(q.want), byte(q.n), byte(q.limit))
	}
	b = append(b, byte(len(m.wishes)))
	for _, v := range m.wishes {
		b = appendText(b, v.owner)
		b = binary.AppendVarint(b, v.deadline-now)
		b = binary.AppendVarint(b, v.ttl)
		b = append(b, byte(v.limit), byte(len(v.slots)))
		for _, slot := range v.slots {
			b = append(b, byte(slot))
		}
	}
	if m.waitEnd != 0 {
		b = binary.AppendVarint(b, m.waitEnd-now)
	}
	if s.bounds.forgets > 0 {
		b = append(b, byte(w.gen[i]), byte(w.rest[i]))
	}
	for c := range s.bounds.clients {
		cl := &w.c[c]
		if s.bounds.forgets > 0 {
			b = cl.probe().AppendMemory(b, i)
		}
		b = cl.probe().AppendVoter(b, i, s.clocks(cl, i))
		for _, r := range cl.renewals {
			b = append(b, flag(r.yes.Has(i)), flag(r.refused.Has(i)))
		}
		for _, q := range [][]slotsMsg{cl.req[i], cl.rep[i]} {
			b = append(b, byte(len(q)))
			for k := range q {
				msg := &q[k]
				b = append(b, msg.op[0], msg.op[2])
				b = appendText(b, msg.owner)
				b = appendText(b, msg.hint)
				b = binary.AppendVarint(b, msg.ttl)
				b = binary.AppendVarint(b, msg.wish)
				b = binary.AppendVarint(b, msg.known)
				b = append(b, byte(msg.want), byte(msg.limit), byte(len(msg.slots)), flag(msg.tag != ""))
				for _, slot := range msg.slots {
					b = append(b, byte(slot))
				}
				b = appendList(b, msg.had)
				if !cl.live(msg.owner) {
					continue
				}
				b = s.dates(b, msg.sent)
				b = append(b, byte(msg.n), flag(msg.epoch == cl.epoch[i]), flag(msg.idle), flag(msg.regain))
				b = binary.AppendVarint(b, msg.reply.n)
				b = appendText(b, msg.reply.permits)
				b = binary.AppendVarint(b, msg.reply.server-schedNow)
				b = appendText(b, msg.reply.next)
				b = binary.AppendVarint(b, msg.reply.limit)
			}
		}
		b = append(b, byte(len(cl.push[i])))
		for _, p := range cl.push[i] {
			b = appendText(b, p.Other)
			b = appendList(b, p.Permits)
			b = binary.AppendVarint(b, p.Server-schedNow)
			b = binary.AppendVarint(b, int64(p.TTL))
		}
	}
	return b
}

// explore visits every state within the bounds, until something is wrong.
func (s *slotsSearch) explore() found {
	type at struct {
		w    *slotsWorld
		node int32
	}
	start := s.initial()
	for _, a := range s.begin {
		start = s.do(start, a)
	}
	s.nodes = []schedNode{{parent: -1}}
	s.seen[s.key(start)] = struct{}{}
	can := map[[2]uint64]bool{}
	f := found{states: 1}
	level := []at{{start, 0}}
	for ; len(level) > 0; f.depth++ {
		var next []at
		for k := range level {
			from := level[k]
			level[k] = at{}
			for _, a := range s.enabled(from.w) {
				v := s.do(from.w, a)
				key := s.key(v)
				if _, was := s.seen[key]; was && v.wrong == "" {
					s.spare = v
					continue
				}
				s.seen[key] = struct{}{}
				s.nodes = append(s.nodes, schedNode{from.node, a})
				node := int32(len(s.nodes) - 1)
				f.states++
				if v.wrong == "" && !s.inFlight(v) {
					s.count("quiescent states")
					if why := s.finish(v, can); why != "" && strings.Contains(why, s.only) {
						v.wrong = why
					}
				}
				if v.wrong != "" {
					f.wrong, f.schedule = v.wrong, s.path(node)
					f.depth++
					return f
				}
				if f.states >= s.bounds.maxStates && s.bounds.maxStates > 0 {
					f.truncated = true
					return f
				}
				next = append(next, at{v, node})
			}
		}
		level = next
	}
	return f
}

func (s *slotsSearch) path(node int32) (out []schedAction) {
	for ; node > 0; node = s.nodes[node].parent {
		out = append(out, s.nodes[node].action)
	}
	slices.Reverse(out)
	return slices.Concat(s.begin, out)
}

// finish plays on from w with nothing more lost, everything delivered at once, pauses that end one after
// the other, and holders that unlock: all clients must come to their end. It returns why not, or "". can
// remembers states that do.
func (s *slotsSearch) finish(w *slotsWorld, can map[[2]uint64]bool) string {
	const patience = 60 // ticks
	stats, bounds := s.stats, s.bounds
	s.stats = map[string]int{}
	s.bounds.splits, s.bounds.ticks, s.bounds.cancels, s.bounds.lost, s.bounds.breaks, s.bounds.forgets, s.bounds.gathers = 1<<20, 1<<20, 0, 0, 0, 0, 0
	defer func() { s.stats, s.bounds = stats, bounds }()
	var passed [][2]uint64
	first := w
	var turns [slotsClients]int // pauses of each that have ended
	for ticks, splits := 0, 0; ; {
		if w.wrong != "" {
			return "on the way to the end: " + w.wrong
		}
		done := true
		for c := range s.bounds.clients {
			done = done && w.c[c].phase == schedDone
		}
		if done && !s.inFlight(w) {
			break
		}
		if !s.inFlight(w) {
			v := *w
			v.used = first.used
			s.bounds.ticks = bounds.ticks
			key := s.key(&v)
			s.bounds.ticks = 1 << 20
			if can[key] {
				break
			}
			passed = append(passed, key)
		}
		next := schedAction{kind: actTick}
		for _, a := range s.enabled(w) {
			if a.kind == actExec || a.kind == actAnswer || a.kind == actPush || a.kind == actSetAt {
				next = a
				break
			}
			switch a.kind {
			case actStart, actUnlock, actOther:
				if next.kind == actTick || next.kind == actSplit {
					next = a
				}
			case actSplit:
				if splits < 6*s.bounds.clients && next.kind == actTick || next.kind == actSplit && turns[a.c] < turns[next.c] {
					next = a
				}
			}
		}
		switch next.kind {
		case actTick:
			ticks, splits = ticks+1, 0
		case actSplit:
			turns[next.c]++
			splits++ // a while later somebody is late
		}
		if ticks > patience {
			return fmt.Sprintf("no progress: %d ticks later not everybody has had a permit", patience)
		}
		w = s.do(w, next)
	}
	for _, key := range passed {
		can[key] = true
	}
	return ""
}

// tell is the schedule in words.
func (s *slotsSearch) tell(schedule []schedAction) string {
	var lines []string
	s.trace = &lines
	defer func() { s.trace = nil }()
	w := s.initial()
	for n, a := range schedule {
		k := len(lines)
		if !slices.Contains(s.enabled(w), a) {
			lines = append(lines, fmt.Sprintf("%2d. (%s is not possible)", n+1, slotsSpell(a)))
			continue
		}
		w = s.do(w, a)
		for ; k < len(lines); k++ {
			if !strings.HasPrefix(lines[k], " ") {
				lines[k] = fmt.Sprintf("%2d. %s", n+1, lines[k])
			} else {
				lines[k] = "  " + lines[k]
			}
		}
	}
	if w.wrong == "" && !s.inFlight(w) {
		k := len(lines)
		if s.finish(w, map[[2]uint64]bool{}) != "" {
			lines = slices.Insert(lines[:min(len(lines), k+60)], k, "and then, with everything delivered at once:")
		} else {
			lines = lines[:k]
		}
	}
	return strings.Join(lines, "\n")
}

// follow plays a schedule as far as it can be played.
func (s *slotsSearch) follow(schedule []schedAction) *slotsWorld {
	w := s.initial()
	for _, a := range schedule {
		if slices.Contains(s.enabled(w), a) {
			w = s.do(w, a)
		}
	}
	return w
}

func (s *slotsSearch) verdict(w *slotsWorld) string {
	if w.wrong != "" || s.inFlight(w) {
		return w.wrong
	}
	return s.finish(w, map[[2]uint64]bool{})
}

// slotsSpell spells an action as schedAction.String does: "gB" is that a pause of B ends, "wB" that its
// lease asks everywhere.
func slotsSpell(a schedAction) string {
	switch a.kind {
	case actSplit:
		return "g" + name(int(a.c))
	case actGather:
		return "w" + name(int(a.c))
	case actSet:
		return "L"
	case actSetAt:
		return fmt.Sprint("m", a.i)
	}
	return a.String()
}

func slotsSpelled(schedule []schedAction) string {
	var f []string
	for _, a := range schedule {
		f = append(f, slotsSpell(a))
	}
	return strings.Join(f, " ")
}

func parseSlotsSchedule(words []string) (out []schedAction) {
	for _, f := range words {
		switch f[0] {
		case 'g':
			out = append(out, schedAction{actSplit, int8(f[1] - 'A'), 0})
		case 'w':
			out = append(out, schedAction{actGather, int8(f[1] - 'A'), 0})
		case 'L':
			out = append(out, schedAction{kind: actSet})
		case 'm':
			out = append(out, schedAction{actSetAt, 0, int8(f[1] - '0')})
		default:
			out = append(out, parseSchedule([]string{f})...)
		}
	}
	return out
}

// slotsCase is a search, or guards and the schedule that breaks a promise without them.
type slotsCase struct {
	name   string
	bounds slotsBounds
	rules  slotsGuards

	states int
	needs  []string

	begin, found []schedAction
	wrong        string
}

// slotsCases reads testdata/schedules: the README there has the words.
func slotsCases(t *testing.T, place string) (all []slotsCase) {
	t.Helper()
	for _, c := range cases.Read(t, "testdata/schedules/"+place+".txt") {
		s := slotsCase{name: c.Name}
		for _, l := range c.Lines {
			switch rest := l.Words[1:]; l.Words[0] {
			case "within":
				setWords(t, &s.bounds, rest)
			case "without":
				setWords(t, &s.rules, rest)
			case "visits":
				n, err := strconv.Atoi(rest[0])
				require.NoError(t, err, "%v", l)
				if s.states = n; len(rest) > 1 {
					s.bounds.maxStates = n
				}
			case "sees":
				s.needs = rest
			case "begin":
				s.begin = parseSlotsSchedule(rest)
			case "found":
				s.found, s.wrong = parseSlotsSchedule(rest), strings.Join(l.Want, " ")
			default:
				t.Fatalf("%v: no such word", l)
			}
		}
		s.bounds = s.bounds.withDefaults()
		all = append(all, s)
	}
	return all
}

// TestSemaphoreSchedulesExplored visits every state within the bounds of each search: one holder of a
// slot at a time, tokens of a slot that rise, nothing left behind, and from every moment of rest a way
// for everybody to come to the end.
func TestSemaphoreSchedulesExplored(t *testing.T) {
	searched := slotsCases(t, "semaphore/always")
	if RaceEnabled {
		searched = searched[:1] // ten times as slow, and one goroutine
	}
	exploreSlots(t, searched)
}

// TestLongSemaphoreSchedulesExplored visits more.
func TestLongSemaphoreSchedulesExplored(t *testing.T) {
	if os.Getenv("REDQUORUM_LONG") == "" {
		t.Skip("LONG: takes minutes; `make test-long` sets REDQUORUM_LONG=1 and runs it")
	}
	exploreSlots(t, slotsCases(t, "semaphore/large"))
}

// TestSemaphoreSchedulesCounterExamples takes guards out, one by one, and shows the schedule that then
// breaks a promise; the same schedule, with the guard, breaks none. See TestSchedulesCounterExamples.
func TestSemaphoreSchedulesCounterExamples(t *testing.T) {
	for _, c := range slotsCases(t, "semaphore/broken") {
		t.Run(c.name, func(t *testing.T) {
			FakeTime(t, func(t *testing.T) {
				c.bounds.maxStates = 400_000
				schedule := c.found
				broken := newSlotsSearch(t, c.bounds, c.rules)
				broken.only = c.wrong
				wrong := broken.verdict(broken.follow(schedule))
				if !strings.Contains(wrong, c.wrong) {
					wrong = ""
					t.Logf("the recorded schedule shows nothing any more:\n%s", broken.tell(schedule))
				}
				if wrong == "" || schedulesLarge() {
					broken.begin = c.begin
					f := broken.explore()
					wrong, schedule = f.wrong, f.schedule
					t.Logf("%d states, %d steps: %s", f.states, len(schedule), slotsSpelled(schedule))
				}
				require.Contains(t, wrong, c.wrong, "nothing goes wrong without the guard: the search does not see what it should")
				t.Logf("without the guard: %s\n%s", wrong, broken.tell(schedule))

				whole := newSlotsSearch(t, c.bounds, slotsGuards{})
				require.Empty(t, whole.verdict(whole.follow(schedule)), "with the guard\n%s", whole.tell(schedule))
			})
		})
	}
}

func exploreSlots(t *testing.T, searched []slotsCase) {
	states := 0
	for _, tc := range searched {
		t.Run(tc.name, func(t *testing.T) {
			FakeTime(t, func(t *testing.T) {
				s := newSlotsSearch(t, tc.bounds, slotsGuards{})
				s.begin = tc.begin
				f := s.explore()
				states += f.states
				t.Logf("%d states to a depth of %d, all: %v; %v", f.states, f.depth, !f.truncated, s.stats)
				if f.wrong != "" {
					t.Fatalf("%s: %s\n%s", f.wrong, slotsSpelled(f.schedule), s.tell(f.schedule))
				}
				require.GreaterOrEqual(t, f.states, tc.states, "fewer states than there were: what is not explored any more?")
				for _, what := range tc.needs {
					require.NotZero(t, s.stats[what], "the search has seen no %s", what)
				}
			})
		})
	}
	t.Logf("%d states in %d searches", states, len(searched))
}
