package redlock

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"log/slog"
	"reflect"
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
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// docs/protocol.md, "Exhaustive search" says how far this goes.
//
// Every interleaving of a few clients at three members: which request a member executes next, which
// answer or push a client hears next, what is lost, when a connection breaks, when time passes, when a
// holder unlocks or a caller gives up. Breadth first, so that the first violation has the shortest
// schedule, with equal states visited once.
//
// What decides is the code itself: the ballot, and the methods of attempt, renewal, keeper and Lease that
// submit and judge. They run on a Client without goroutines, whose members (recorder) only note what is
// submitted; the search stands in for what attempt.sleep would wait for. The members are modelMember. Of the
// restart guard, what the client makes of generations and quarantines is the code; that a member which
// forgot is quarantined and restored, which package node sees to, is played (forget).
//
// Time goes in ticks of a second. The search runs in a synctest bubble, where time.Now stands still;
// instead of time going on, a tick sets everything back that has a date.

const (
	schedMembers = 3
	schedClients = 2
	schedTick    = time.Second
	schedNow     = int64(1_000_000_000_000) // every server's clock, µs
	schedOther   = "Z:1"                    // an owner of a client that is not played
)

// schedRules are the clients' guards and the promises of a session that a case takes out. The zero value
// is the client as it is. emulated: the guard cannot be taken out of the code from here, so the driver
// does what a client without it would.
type schedRules struct {
	modelRules
	need            int  // votes that decide, 0: a majority
	renewNeed       int  // confirmations that renew, 0: a majority
	noRaise         bool // the greatest token of the votes wins, without a second round (emulated)
	raiseAnywhere   bool // the counter is lifted at any majority, held or not (emulated)
	confirmAbove    bool // a vote above the token of a raise counts as confirmed
	pushUnchecked   bool // a push counts whatever was yielded
	pushFromArrival bool // a push is believed from its arrival (emulated)
	endOfRound      bool // validity from the answer instead of the request
	renewEndOfRound bool
	believeTTL      bool // what was granted while waiting is believed for the whole TTL
	noYield         bool
	noTimeout       bool // a split waits for every member's answer
	revive          bool // a late renewal gives an ended lease back (emulated)
	releaseVotes    bool // a release goes only to members whose vote is in hand
	releaseOnce     bool // a release whose outcome is unknown is not owed again
	zombies         bool // what was on a broken connection may be executed later
	noRelease       bool // an attempt that ends without a lease leaves what it has
	noQuarantine    bool // a member that forgot votes again at once
	noRestore       bool // its counters begin anew
	restoreFew      bool // its counters are those of one other member
}

// schedBounds say how far a search goes, and from where.
type schedBounds struct {
	ticks     int
	attempts  int // per client
	breaks    int // connections that break
	lost      int // pushes that are lost
	cancels   int // callers that give up
	extends   int // Extend to one tick, by a holder
	ttl       int // ticks
	entry     int // ticks
	timeout   int // ticks
	renew     bool
	wait      bool // asks with wait at once, as where the lock is known to be contended
	hung      bool // the last member executes nothing
	prompt    bool // answers arrive with their execution
	forgets   int  // members that restart without memory: quarantined for the TTL, then restored
	lapses    int  // votes that a member loses before their time: only tokens are judged then
	alone     bool // one client has an attempt, the other none
	forced    int  // members at which the lock is taken from whoever holds it
	fair      bool // strict order
	brief     bool // the third client's leases end with the first tick
	others    int  // members, from the first, that a third client has at the start, and frees some time
	counters  [schedMembers]int64
	kinds     [schedClients]*kind // what each client asks for; nil: the exclusive lock
	maxStates int
}

type schedPhase uint8

const (
	schedIdle   schedPhase = iota
	schedTrying            // the ballot says what to do
	schedHolding
	schedDone // no more attempts
)

// schedMsg is a call on its way to a member, and then its answer.
type schedMsg struct {
	modelCall
	sent  time.Time
	round *schedRound // nil: nobody counts
	epoch uint64
	reply modelReply
	idle  bool // was not sent: the member is in quarantine
}

// schedRound tells the rounds of a client apart. kind: what its answers are for.
type schedRound struct {
	op string
	n  int // of renewals: which
}

type schedRenewal struct {
	sent         time.Time
	ttl          time.Duration
	yes, refused quorum.Set
	decided      bool
	forced       bool // sent when a majority had been forced
}

type schedClientState struct {
	phase    schedPhase
	attempt  int   // the number in the owner's name
	began    int64 // won when the attempt began
	name     string
	b        ballot.Ballot
	raise    int64               // the token that is to be confirmed
	token    int64               // the lease's
	places   [schedMembers]int64 // that members have told the attempt, heard of or not
	final    bool                // a majority of the members have it at its ticket
	behind   quorum.Set          // clients whose tickets were final when the attempt began
	forced   quorum.Set          // members at which the lease was taken by force
	until    time.Time           // the lease's fields
	limit    time.Time
	renewAt  time.Time
	renewals []schedRenewal
	epoch    [schedMembers]uint64
	req      [schedMembers][]schedMsg
	rep      [schedMembers][]schedMsg
	push     [schedMembers][]script.Push
	zombies  [schedMembers][]schedMsg
}

// schedWorld is a state of everything. Slices in it are never changed in place, except the ballot's,
// which own copies (schedWorld.client).
type schedWorld struct {
	m       [schedMembers]modelMember
	c       [schedClients]schedClientState
	used    struct{ ticks, breaks, lost, cancels, extends, lapses, forgets, forced int }
	gen     [schedMembers]uint64 // memories that a member lost
	rest    [schedMembers]int    // ticks until its quarantine ends
	won     int64                // greatest token of an attempt that won
	written int64                // the same of attempts that do not hold together with others
	tokens  []int64              // of all that won
	counted [schedMembers]int64  // greatest token of a vote that decided
	wrong   string
}

// schedAction is one step: kind, and what it is about.
type schedAction struct {
	kind schedKind
	c, i int8
}

type schedKind uint8

const (
	actStart schedKind = iota
	actExec
	actAnswer
	actPush
	actLosePush
	actBreak
	actZombie
	actTick
	actUnlock
	actCancel
	actExtend
	actLapse // a member loses a vote
	actOther // a third client's release arrives
	actForget
	actForce // an operator takes the lock at a member
)

// search is one search.
type search struct {
	t      *testing.T
	bounds schedBounds
	rules  schedRules
	now    time.Time
	model  *modelServer
	stubs  [schedClients]*Client
	cfg    Config

	w      *schedWorld // the state that the recorders write to
	spare  *schedWorld // nobody's any more
	calls  map[string]modelCall
	dates  func([]byte, time.Time) []byte // appendTime
	acting int
	seen   map[[2]uint64]struct{}
	seeds  [2]maphash.Seed
	nodes  []schedNode
	stats  map[string]int
	only   string        // nothing else counts as wrong
	begin  []schedAction // the search starts behind these
	trace  *[]string     // where a replay says what happens
	buf    []byte        // of key
	out    []byte
}

type schedNode struct {
	parent int32
	action schedAction
}

// recorder is a member that notes what is submitted to it.
type recorder struct {
	s    *search
	c, i int
}

func (r recorder) Name() string                   { return fmt.Sprint("member ", r.i) }
func (r recorder) Listen(string, member.Listener) {}
func (r recorder) Close(context.Context) error    { return nil }
func (r recorder) State() member.State            { return r.s.state(r.c, r.i) }
func (s *search) state(c, i int) member.State {
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

func (s *search) states(c int) []member.State {
	out := make([]member.State, schedMembers)
	for i := range out {
		out[i] = s.state(c, i)
	}
	return out
}

// Submit implements member.Member: the end of the line in the session.
func (r recorder) Submit(c *member.Call) {
	round := c.Sink.(*quorum.Round)
	cl := &r.s.w.c[r.c]
	call, ok := r.s.calls[string(c.Cmd)]
	if !ok {
		call = parseCall(c.Cmd)
		r.s.calls[string(c.Cmd)] = call
	}
	m := schedMsg{modelCall: call, sent: round.Sent, epoch: cl.epoch[r.i], round: &schedRound{op: round.Op}}
	switch j := round.Judge.(type) {
	case *renewal:
		m.round.n = len(cl.renewals)
	case rejoinJudge:
		for n := range cl.renewals {
			if cl.renewals[n].sent.Equal(j.n.sent) {
				m.round.n = n
			}
		}
	}
	if r.s.rules.believeTTL && m.ttl > 0 && m.entry > 0 {
		m.ttl = min(m.ttl, m.entry) // the ballot thinks that it asked for more
	}
	if r.s.rules.noRaise && m.op == opRaise {
		return // not a late one either
	}
	if r.s.rules.releaseVotes && m.op == opRelease && cl.probe().Vote(r.i).Token == 0 {
		return
	}
	if r.s.w.rest[r.i] > 0 {
		if m.op != opRelease {
			m.idle = true
			cl.rep[r.i] = append(slices.Clip(cl.rep[r.i]), m)
			return
		}
		m.tag = "!"
	}
	cl.req[r.i] = append(slices.Clip(cl.req[r.i]), m)
}

func newSearch(t *testing.T, bounds schedBounds, rules schedRules) *search {
	s := &search{
		t: t, bounds: bounds, rules: rules, now: time.Now(), model: newModelServer(rules.modelRules),
		seen: map[[2]uint64]struct{}{}, calls: map[string]modelCall{}, seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}, stats: map[string]int{},
	}
	s.dates = s.appendTime
	ticks := func(n int) time.Duration { return time.Duration(n) * schedTick }
	s.cfg = Config{
		TTL: ticks(bounds.ttl), Entry: ticks(bounds.entry), MemberTimeout: ticks(bounds.timeout),
		MaxTTL: time.Hour, NoQuorumAfter: -1, Logger: slog.New(slog.DiscardHandler),
	}.withDefaults()
	if rules.noTimeout {
		s.cfg.MemberTimeout = time.Hour
	}
	for c := range s.stubs {
		members := make([]member.Member, schedMembers)
		for i := range members {
			members[i] = recorder{s, c, i}
		}
		stub := &Client{cfg: s.cfg, log: s.cfg.Logger, trace: newTracers(nil), members: members, briefed: make([]member.Briefed, len(members)), spread: make([]member.Spread, len(members)), need: member.Majority(schedMembers), uuid: name(c), closed: make(chan struct{})}
		stub.number = func() uint64 { return uint64(s.w.c[c].attempt) }
		if rules.renewNeed > 0 {
			stub.need = rules.renewNeed
		}
		stub.changes.ch = make(chan struct{})
		stub.keeper.init(stub)
		s.stubs[c] = stub
	}
	return s
}

// tickets reports whether a client asks for strict order.
func (b *schedBounds) tickets() bool { return b.fair || slices.Contains(b.kinds[:], &fair) }

func (s *search) kind(c int) *kind {
	if k := s.bounds.kinds[c]; k != nil {
		return k
	}
	if s.bounds.fair {
		return &fair
	}
	return &exclusive
}

func (s *search) terms(c int) terms {
	return terms{kind: s.kind(c), ttl: s.cfg.TTL, renew: s.bounds.renew}
}

func (s *search) initial() *schedWorld {
	w := &schedWorld{}
	if s.bounds.alone {
		w.c[1].phase = schedDone
	}
	for i := range w.m {
		w.m[i].counter = s.bounds.counters[i]
		if w.m[i].counter == 0 {
			w.m[i].counter = 5
		}
		if i < s.bounds.others {
			w.m[i].owner, w.m[i].token, w.m[i].end = schedOther, w.m[i].counter, schedNow/1000+3_600_000
			if s.bounds.brief {
				w.m[i].end = schedNow/1000 + schedTick.Milliseconds()
			}
		}
	}
	return w
}

// clone makes a state to go on from. Ballots are shared until client takes one.
func (s *search) clone(w *schedWorld) *schedWorld {
	v := s.spare
	if s.spare = nil; v == nil {
		v = new(schedWorld)
	}
	*v = *w
	return v
}

// client gives client c of w a ballot of its own, and makes it the one that acts.
func (s *search) client(w *schedWorld, c int) *schedClientState {
	s.w, s.acting = w, c
	cl := &w.c[c]
	cl.b = cl.probe().Clone()
	cl.renewals = slices.Clone(cl.renewals)
	return cl
}

// attempt is the client's attempt, for one event.
func (s *search) attempt(c int) *attempt {
	cl := &s.w.c[c]
	a := &attempt{hold: hold{c: s.stubs[c], wire: s.kind(c).lock("k"), terms: s.terms(c), owner: cl.name, n: uint64(cl.attempt), b: cl.b}}
	a.ended.Store(cl.phase == schedIdle || cl.phase == schedDone)
	return a
}

func (cl *schedClientState) probe() ballot.Probe { return ballot.Probe{Ballot: &cl.b} }

// live reports whether an owner's attempt still goes on.
func (cl *schedClientState) live(owner string) bool {
	return cl.name == owner && cl.phase != schedIdle && cl.phase != schedDone
}

func (s *search) say(format string, args ...any) {
	if s.trace != nil {
		*s.trace = append(*s.trace, fmt.Sprintf(format, args...))
	}
}

func (s *search) count(what string) { s.stats[what]++ }

// enabled lists what can happen next.
func (s *search) enabled(w *schedWorld) []schedAction {
	var out []schedAction
	add := func(k schedKind, c, i int) { out = append(out, schedAction{k, int8(c), int8(i)}) }
	busy := false
	for c := range w.c {
		cl := &w.c[c]
		switch cl.phase {
		case schedIdle:
			add(actStart, c, 0)
		case schedHolding:
			add(actUnlock, c, 0)
			if w.used.extends < s.bounds.extends {
				add(actExtend, c, 0)
			}
		case schedTrying:
			if w.used.cancels < s.bounds.cancels {
				add(actCancel, c, 0)
			}
		}
		for i := range cl.req {
			if len(cl.req[i]) > 0 && !(s.bounds.hung && i == schedMembers-1) {
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
			if len(cl.zombies[i]) > 0 {
				add(actZombie, c, i)
			}
			if w.used.breaks < s.bounds.breaks && len(cl.req[i])+len(cl.rep[i]) > 0 {
				add(actBreak, c, i)
			}
			busy = busy || len(cl.req[i])+len(cl.rep[i])+len(cl.push[i]) > 0
		}
		busy = busy || cl.phase != schedDone
	}
	for i := range w.m {
		if busy && w.used.forgets < s.bounds.forgets && !(s.bounds.hung && i == schedMembers-1) {
			add(actForget, 0, i)
		}
		if w.used.forced < s.bounds.forced && holding(w) {
			add(actForce, 0, i)
		}
		if w.m[i].owner == schedOther {
			add(actOther, 0, i)
		} else if w.m[i].owner != "" && w.used.lapses < s.bounds.lapses {
			add(actLapse, 0, i)
		}
	}
	if busy && w.used.ticks < s.bounds.ticks {
		add(actTick, 0, 0)
	}
	return out
}

// do makes one step from w.
func (s *search) do(w *schedWorld, a schedAction) *schedWorld {
	v := s.clone(w)
	c, i := int(a.c), int(a.i)
	switch a.kind {
	case actStart:
		s.start(v, c)
	case actExec:
		m := v.c[c].req[i][0]
		v.c[c].req[i] = v.c[c].req[i][1:]
		s.execute(v, c, i, m)
	case actZombie:
		m := v.c[c].zombies[i][0]
		v.c[c].zombies[i] = v.c[c].zombies[i][1:]
		r, _ := s.model.call(&v.m[i], schedNow, m.modelCall)
		s.say("member %d executes a request of %s from the broken connection: %v: %v", i, name(c), m.modelCall, r)
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
		s.say("%s hears a push of member %d: %+v", name(c), i, p)
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
	case actExtend:
		s.extendLess(v, c)
	case actLapse:
		s.say("member %d loses the vote of %s", i, v.m[i].owner)
		v.m[i].owner, v.m[i].token, v.m[i].end = "", 0, 0
		v.used.lapses++
	case actForget:
		s.forget(v, i)
	case actForce:
		s.force(v, i)
	case actOther:
		release := modelCall{op: opRelease, owner: schedOther}
		if s.bounds.kinds != ([schedClients]*kind{}) {
			release.by, release.hint = byWriter, script.ReadersFirst("")
		}
		s.execute(v, c, i, schedMsg{modelCall: release})
	}
	switch {
	case a.kind == actTick || a.kind == actForget:
		for c := range v.c {
			s.settleClient(v, c)
		}
	case a.kind != actExec && a.kind != actOther && a.kind != actForce && a.kind != actLapse || s.bounds.prompt:
		s.settleClient(v, c)
	}
	if s.bounds.fair {
		s.finals(v)
	}
	s.check(v)
	return v
}

func name(c int) string { return string(rune('A' + c)) }

// execute runs a request at its member; its answer and its pushes go on their way.
func (s *search) execute(w *schedWorld, c, i int, m schedMsg) {
	before := w.m[i].owner
	r, pushes := s.model.call(&w.m[i], schedNow, m.modelCall)
	s.say("member %d executes %v: %v", i, m.modelCall, r)
	m.reply = r
	if m.op == opYield && r.n == 0 && before == m.owner {
		s.count("votes given away by a yield")
	}
	if m.op == opRejoin && r.n == 1 {
		s.count("re-joins")
	}
	if r.place > 0 && w.c[c].live(m.owner) {
		w.c[c].places[i] = r.place
		if m.ticket > 0 {
			s.count("tickets written back")
		}
	}
	for _, p := range pushes {
		for k := range w.c {
			if p.Readers && s.kind(k).name == KindWrite {
				continue // its release serves readers in any case
			}
			if w.c[k].live(p.Owner) {
				w.c[k].push[i] = append(slices.Clip(w.c[k].push[i]), p)
			}
		}
		if p.Grant {
			s.count("hand-overs")
		}
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

// broken ends the connection of client c to member i. What was not answered is unknown; what was not
// executed never is (the succession rule), except as a zombie; a release is owed again.
func (s *search) broken(w *schedWorld, c, i int) {
	cl := s.client(w, c)
	s.say("the connection of %s to member %d breaks", name(c), i)
	s.count("connections broken")
	calls := slices.Concat(cl.rep[i], cl.req[i])
	if s.rules.zombies {
		for _, m := range cl.req[i] {
			if m.op != opRelease {
				cl.zombies[i] = append(slices.Clip(cl.zombies[i]), m)
			}
		}
	}
	cl.rep[i], cl.req[i] = nil, nil
	cl.epoch[i]++
	var owed []schedMsg
	for _, m := range calls {
		if m.op == opRelease && !s.rules.releaseOnce {
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

// forget restarts member i without memory. Its sessions see that before anything else goes out, and no
// call but a release is sent in its quarantine.
func (s *search) forget(w *schedWorld, i int) {
	s.say("member %d restarts and has forgotten everything", i)
	s.count("members that forgot")
	w.used.forgets++
	w.gen[i]++
	w.m[i] = modelMember{}
	if w.rest[i] = s.bounds.ttl; s.rules.noQuarantine {
		w.rest[i] = 0
		s.restore(w, i)
	}
	for c := range w.c {
		s.broken(w, c, i)
		w.c[c].push[i] = nil
	}
}

func holding(w *schedWorld) bool {
	for c := range w.c {
		if w.c[c].phase == schedHolding {
			return true
		}
	}
	return false
}

// force takes the lock at member i from whoever holds it. An acquire of the holder that arrives behind it gives a vote: it is no
// re-join.
func (s *search) force(w *schedWorld, i int) {
	w.used.forced++
	s.count("locks forced")
	for c := range w.c {
		late := slices.ContainsFunc(w.c[c].req[i], func(m schedMsg) bool { return m.op == opAcquire || m.op == opWait })
		if w.c[c].phase == schedHolding && !late {
			w.c[c].forced = w.c[c].forced.With(i)
		}
	}
	s.execute(w, 0, i, schedMsg{modelCall: modelCall{op: opForce, ttl: s.cfg.TTL.Milliseconds()}})
}

// restore gives a member that forgot the counters of the others.
func (s *search) restore(w *schedWorld, i int) {
	of := [...]int64{w.m[(i+1)%schedMembers].counter, w.m[(i+2)%schedMembers].counter}
	switch {
	case s.rules.noRestore:
		w.m[i].counter = 1 // and not the time: a clock may be wrong
	case s.rules.restoreFew:
		w.m[i].counter = min(of[0], of[1])
	default:
		w.m[i].counter = max(of[0], of[1])
	}
	s.say("member %d has its counter restored to %d", i, w.m[i].counter)
}

// start begins an attempt.
func (s *search) start(w *schedWorld, c int) {
	cl := s.client(w, c)
	cl.attempt++
	cl.began = w.won
	past := ballot.Past{Start: ballot.AskFirst}
	if s.bounds.wait {
		past.Start = ballot.WaitFirst
	}
	a := s.stubs[c].newAttempt(s.kind(c).lock("k"), s.terms(c), past, nil)
	cl.places, cl.final, cl.behind = [schedMembers]int64{}, false, 0
	for k := range w.c {
		if k != c && w.c[k].phase == schedTrying && w.c[k].final {
			cl.behind = cl.behind.With(k)
		}
	}
	cl.phase, cl.name, cl.b, cl.token, cl.raise, cl.renewals = schedTrying, a.owner, a.b, 0, 0, nil
	cl.until, cl.limit, cl.renewAt = time.Time{}, time.Time{}, time.Time{}
	if s.rules.need > 0 {
		cl.probe().SetNeed(s.rules.need)
	}
	if s.rules.believeTTL {
		cl.probe().SetPart(s.cfg.TTL)
	}
	s.say("%s begins attempt %d", name(c), cl.attempt)
}

// answer gives an answer to what judges it.
func (s *search) answer(c, i int, m schedMsg, o member.Outcome) {
	cl := &s.w.c[c]
	if !cl.live(m.owner) {
		return
	}
	st := s.state(c, i)
	call := &member.Call{Index: i, Result: member.Result{Outcome: o, At: s.now, State: st.Brief()}}
	call.State.Epoch = m.epoch + 1
	num := func(n int64) member.Reply { return member.Reply{Kind: ':', Int: n} }
	switch {
	case o == member.Unknown:
		call.Err = member.ErrBroken
	case o == member.NotSent:
		call.Err = &member.QuarantineError{Until: st.Quarantine}
	case m.op == opExtend:
		call.Reply = member.Reply{Kind: '*', Elems: []member.Reply{num(m.reply.n)}}
	case m.reply.server > 0:
		call.Reply = member.Reply{Kind: '*', Elems: []member.Reply{num(m.reply.n), num(m.reply.server), {Kind: '$', Str: []byte(m.reply.next)}, num(m.reply.place)}}
	default:
		call.Reply = num(m.reply.n)
	}
	if m.op == opExtend || m.op == opRejoin {
		s.renewed(c, m, call)
		return
	}
	ttl := s.cfg.TTL
	if m.op == opWait || m.op == opYield {
		ttl = cl.b.Part()
	}
	r := &quorum.Round{Question: quorum.Question{Op: m.op, Sent: m.sent, TTL: ttl}}
	a := s.attempt(c)
	a.Judge(r, call)
	cl.b = a.b
	if s.rules.raiseAnywhere && m.op == opRaise && o == member.Answered {
		cl.probe().Confirm(i)
	}
	if v := cl.probe().Vote(i); s.rules.endOfRound && m.reply.n > 0 && v.Token == m.reply.n {
		cl.probe().SetVote(i, ballot.Vote{Token: v.Token, Until: s.now.Add(clock.Validity(ttl, s.cfg.Drift))})
	}
}

// pushed gives a push to the attempt that it names.
func (s *search) pushed(c, i int, p script.Push) {
	cl := &s.w.c[c]
	for _, q := range [][]schedMsg{cl.req[i], cl.rep[i]} {
		for _, m := range q {
			if p.Grant && m.op == opWait {
				s.count("pushes that cross an answer")
			}
		}
	}
	yielded := int64(0)
	if s.rules.pushUnchecked {
		yielded = cl.probe().Forget(i)
	}
	a := s.attempt(c)
	a.hear(i, p, s.state(c, i), s.now)
	cl.b = a.b
	if s.rules.pushUnchecked {
		cl.probe().Yielded(i, yielded)
	}
	if p.Grant && s.rules.pushFromArrival && cl.probe().Vote(i).Token <= p.Token {
		cl.probe().Believe(i, ballot.Vote{Token: p.Token, Until: s.now.Add(clock.Validity(cl.b.Part(), s.cfg.Drift))}, p.Server)
	}
	if p.Grant && cl.probe().Vote(i).Token == p.Token {
		s.count("votes by push")
	}
}

// settleClient lets a client do what it does without anything more to hear. No client is slow here: a
// slow client is one whose messages are late.
func (s *search) settleClient(w *schedWorld, c int) {
	if w.c[c].phase == schedTrying {
		if s.acting != c || s.w != w {
			s.client(w, c)
		}
		s.run(c)
	}
}

// run is attempt.run up to the next sleep.
func (s *search) run(c int) {
	cl := &s.w.c[c]
	for {
		st, skip := s.next(c)
		if skip {
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
			s.spent(c, schedCauses[st.Cause])
			return
		case st.Do == ballot.Listen:
			s.say("  %s waits", name(c))
		case st.Do == ballot.Raise:
			s.say("  %s has a majority, and lifts counters to %d", name(c), st.Token)
			s.count("second rounds")
			cl.raise = st.Token
		case st.Do == ballot.Yield:
			s.say("  %s yields %v", name(c), st.Offers)
			s.count("splits")
		}
		if st.Do == ballot.Sleep || st.Poll {
			return
		}
	}
}

var schedCauses = map[ballot.Cause]string{ballot.TooSlow: "too slow", ballot.Unconfirmed: "token not confirmed", ballot.NoQuorum: "no quorum", ballot.StoodBack: "no quorum", ballot.Stuck: "stuck"}

// next asks the ballot, and does what one without the guard that is taken out would. skip: it does nothing.
func (s *search) next(c int) (st ballot.Step, skip bool) {
	cl, states := &s.w.c[c], s.states(c)
	p := cl.probe()
	switch verdict, raising := p.Raising(); {
	case raising && s.rules.raiseAnywhere && verdict == quorum.Won:
		st, ok := p.Unraised(s.now, states)
		if !ok {
			s.spent(c, "too slow")
		}
		return st, !ok
	case raising && s.rules.confirmAbove:
		var votes [schedMembers]ballot.Vote
		for i := range votes {
			votes[i] = p.Vote(i)
			p.SetVote(i, ballot.Vote{Token: min(votes[i].Token, cl.raise), Until: votes[i].Until})
		}
		st = p.Next(s.now, states)
		for i := range votes {
			p.SetVote(i, votes[i])
		}
		return st, false
	}
	var before ballot.Ballot
	if s.rules.noYield {
		before = p.Clone()
	}
	st = p.Next(s.now, states)
	switch {
	case st.Do == ballot.Raise && s.rules.noRaise:
		st, _ = p.Unraised(s.now, states)
	case st.Do == ballot.Raise && s.rules.raiseAnywhere:
		p.RaiseEverywhere()
		st.To = quorum.All(schedMembers)
	case st.Do == ballot.Yield && s.rules.noYield:
		s.count("splits")
		for _, o := range st.Offers {
			p.Keep(o.Member, &before)
		}
		return st, true
	}
	return st, false
}

// win is what follows a win: attempt.lease.
func (s *search) win(c int, a *attempt, st ballot.Step) {
	cl := &s.w.c[c]
	token := st.Grant.Token
	if st.Grant.Raised {
		s.count("won with a second round")
	}
	l, err := a.lease(context.Background(), result{Grant: st.Grant, waited: a.b.Waited()})
	s.stubs[c].keeper.leases = nil
	cl.b = a.b
	if err != nil {
		s.say("  %s ends its attempt: %v", name(c), err)
		s.count("too slow")
		s.over(c)
		return
	}
	cl.phase, cl.token = schedHolding, token
	s.ordered(c)
	cl.until, cl.limit, cl.renewAt = l.until, l.limit, l.renewAt
	s.say("  %s holds the lock with token %d and the votes %v for %v", name(c), token, cl.probe(), clock.Until(l.until, s.now))
	s.count("leases")
	// Where members lose votes early, two attempts may hold at once, and the one that was overtaken may
	// finish later: then a token must be above those given out before its attempt began, and none is given
	// out twice.
	before, together := s.w.won, s.kind(c).together
	switch {
	case together: // with tokens of their own, in any order; above those of all that are not
		before = s.w.written
	case s.bounds.lapses > 0:
		before = cl.began
	}
	if token <= before {
		s.wrong("token %d of %s is not above %d, that of an attempt before", token, name(c), before)
	}
	if !together && slices.Contains(s.w.tokens, token) {
		s.wrong("token %d is given out twice", token)
	}
	if s.w.won = max(s.w.won, token); !together {
		s.w.written = max(s.w.written, token)
	}
	s.w.tokens = append(slices.Clip(s.w.tokens), token)
	for i := range s.w.counted {
		if !st.Grant.In.Has(i) || s.bounds.lapses > 0 || s.w.gen[i] > 0 {
			continue
		}
		if n := cl.probe().Vote(i).Token; together {
			s.w.counted[i] = max(s.w.counted[i], n)
		} else if n <= s.w.counted[i] {
			s.wrong("the vote %d of member %d counted twice", n, i)
		} else {
			s.w.counted[i] = n
		}
	}
}

// ordered looks for who was first and waits still. What a member forgot, or lost early, is promised to nobody.
func (s *search) ordered(c int) {
	if s.bounds.lapses+s.bounds.forgets > 0 {
		return
	}
	for k := range s.w.c {
		if s.w.c[c].behind.Has(k) && s.w.c[k].phase == schedTrying && s.w.c[k].final {
			s.wrong("%s holds before %s, which was first", name(c), name(k))
		}
	}
}

// finals notes whose tickets have become final.
func (s *search) finals(w *schedWorld) {
	for c := range w.c {
		cl := &w.c[c]
		if ticket := cl.probe().Ticket(); ticket > 0 && cl.phase == schedTrying && !cl.final {
			n := 0
			for _, place := range cl.places {
				n += int(one(place == ticket))
			}
			cl.final = n >= member.Majority(schedMembers)
			if cl.final {
				s.count("tickets that became final")
			}
		}
	}
}

func (s *search) wrong(format string, args ...any) {
	if what := fmt.Sprintf(format, args...); s.w.wrong == "" && strings.Contains(what, s.only) {
		s.w.wrong = what
	}
}

// spent ends an attempt without a lease.
func (s *search) spent(c int, why string) {
	s.say("  %s ends its attempt: %s", name(c), why)
	s.count(why)
	s.end(c)
}

// end releases: unlock, give-up, loss and failure are one to the members.
func (s *search) end(c int) {
	if s.rules.noRelease && s.w.c[c].phase != schedHolding {
		s.over(c)
		return
	}
	s.attempt(c).release(false)
	s.over(c)
}

// over forgets what an attempt that has ended does not look at any more.
func (s *search) over(c int) {
	cl := &s.w.c[c]
	cl.phase = schedIdle
	if cl.attempt >= s.bounds.attempts {
		cl.phase = schedDone
	}
	cl.rep, cl.push = [schedMembers][]schedMsg{}, [schedMembers][]script.Push{}
	cl.renewals = nil
	cl.b = ballot.Ballot{}
	cl.until, cl.limit, cl.renewAt = time.Time{}, time.Time{}, time.Time{}
	cl.token, cl.raise, cl.forced = 0, 0, 0
	cl.places, cl.final, cl.behind = [schedMembers]int64{}, false, 0
	for k := range s.w.c {
		s.w.c[k].behind = s.w.c[k].behind.Without(c)
	}
}

// lease is the client's lease, for one event. Its keeper has no goroutine.
func (s *search) lease(c int) *Lease {
	cl := &s.w.c[c]
	a := s.attempt(c)
	s.stubs[c].keeper.leases = nil
	return &Lease{
		c: s.stubs[c], hold: &a.hold, key: "k", token: uint64(cl.token), until: cl.until, limit: cl.limit, renewAt: cl.renewAt, renew: s.bounds.renew,
		ttl: s.cfg.TTL, users: 1, pos: -1, granted: s.now, values: context.Background(),
	}
}

// keep stores a lease after an event.
func (s *search) keep(c int, l *Lease) {
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
func (s *search) watch(c int) {
	cl := &s.w.c[c]
	if s.rules.revive && clock.Until(cl.until, s.now) <= 0 {
		return // nobody looks
	}
	l := s.lease(c)
	if due := clock.Until(l.until, s.now) <= 0 || !l.renewAt.IsZero() && clock.Until(l.renewAt, s.now) <= 0; !due {
		return
	}
	ttl := l.ttl
	if !l.limit.IsZero() {
		ttl = min(ttl, clock.Until(l.limit, s.now))
	}
	before := len(cl.req[0])
	k := &s.stubs[c].keeper
	if held, ask := l.ask(s.now); ask {
		k.renewAll([]*Lease{l}, s.now)
	} else if !held {
		l.expire()
	}
	s.keep(c, l)
	if cl.phase == schedHolding && len(cl.req[0]) > before {
		s.say("  %s renews", name(c))
		cl.renewals = append(cl.renewals, schedRenewal{sent: s.now, ttl: ttl, forced: cl.forced.Len() >= cl.b.Need()})
	} else if cl.phase != schedHolding {
		s.count("leases that ended by themselves")
	}
}

// renewed gives an answer to a renewal.
func (s *search) renewed(c int, m schedMsg, call *member.Call) {
	cl := &s.w.c[c]
	if cl.phase != schedHolding || m.round.n >= len(cl.renewals) {
		return
	}
	st := &cl.renewals[m.round.n]
	l := s.lease(c)
	if s.rules.revive {
		l.until = s.now.Add(time.Hour)
	}
	sent := st.sent
	if s.rules.renewEndOfRound {
		sent = s.now
	}
	n := &renewal{k: &s.stubs[c].keeper, sent: sent, items: []renewItem{{l: l, ttl: st.ttl, yes: st.yes, refused: st.refused, decided: st.decided}}}
	r := &quorum.Round{Question: quorum.Question{Op: m.op, Sent: sent, TTL: st.ttl}}
	s.stubs[c].keeper.leases = nil
	was := st.decided
	if m.op == opExtend {
		n.Judge(r, call)
	} else {
		rejoinJudge{n, 0}.Judge(r, call)
	}
	it := n.items[0]
	st.yes, st.refused, st.decided = it.yes, it.refused, it.decided
	if s.rules.revive && l.err == nil && !was && it.decided {
		l.until = n.sent.Add(clock.Validity(st.ttl, s.cfg.Drift))
		s.say("  %s believes its lease for %v", name(c), clock.Until(l.until, s.now))
	} else if s.rules.revive && l.err == nil {
		l.until = cl.until
	}
	if !was && it.decided && l.err == nil {
		s.count("renewals")
		if st.forced {
			s.wrong("a lease was renewed that a majority had been forced to give up")
		}
	}
	s.keep(c, l)
}

// extendLess is Extend to one tick by a client that does not bound its own belief by it.
func (s *search) extendLess(w *schedWorld, c int) {
	cl := s.client(w, c)
	w.used.extends++
	s.say("%s asks the members to keep its lease for one tick only", name(c))
	for i := range cl.req {
		m := schedMsg{modelCall: modelCall{op: opExtend, owner: cl.name, ttl: schedTick.Milliseconds()}, sent: s.now, epoch: cl.epoch[i], round: &schedRound{op: opExtend, n: 99}}
		cl.req[i] = append(slices.Clip(cl.req[i]), m)
	}
}

// tick lets time pass: everything with a date is set back by it.
func (s *search) tick(w *schedWorld) {
	w.used.ticks++
	const d = -schedTick
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
		if m.owner != "" {
			m.end += d.Milliseconds()
		}
		m.phase.readers = slices.Clone(m.phase.readers)
		for k := range m.phase.readers {
			m.phase.readers[k].end += d.Milliseconds()
		}
		m.reading = slices.Clone(m.reading)
		for k := range m.reading {
			m.reading[k].deadline += d.Milliseconds()
		}
		m.queue = slices.Clone(m.queue)
		micros(&m.last)
		for k := range m.queue {
			micros(&m.queue[k].since)
			m.queue[k].deadline += d.Milliseconds()
		}
		m.waitEnd += d.Milliseconds()
		m.buried = slices.Clone(m.buried)
		for k := range m.buried {
			m.buried[k].until += d.Milliseconds()
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
	for c := range w.c {
		cl := s.client(w, c)
		cl.probe().Shift(d)
		for _, t := range []*time.Time{&cl.until, &cl.limit, &cl.renewAt} {
			back(t)
		}
		for n := range cl.renewals {
			back(&cl.renewals[n].sent)
		}
		for i := range cl.places {
			micros(&cl.places[i])
		}
		for i := range cl.req {
			for _, q := range []*[]schedMsg{&cl.req[i], &cl.rep[i], &cl.zombies[i]} {
				*q = slices.Clone(*q)
				for k := range *q {
					back(&(*q)[k].sent)
					micros(&(*q)[k].reply.server)
					micros(&(*q)[k].reply.place)
					micros(&(*q)[k].ticket)
				}
			}
			cl.push[i] = slices.Clone(cl.push[i])
			for k := range cl.push[i] {
				micros(&cl.push[i][k].Server)
			}
		}
	}
	for c := range w.c {
		if w.c[c].phase == schedHolding {
			s.client(w, c)
			s.watch(c)
		}
	}
}

// believes reports whether client c relies on the lock now.
func (s *search) believes(w *schedWorld, c int) bool {
	return w.c[c].phase == schedHolding && clock.Until(w.c[c].until, s.now) > 0
}

// inFlight reports whether any message is on its way that can still arrive.
func (s *search) inFlight(w *schedWorld) bool {
	for c := range w.c {
		for i := range w.c[c].req {
			stuck := s.bounds.hung && i == schedMembers-1
			if len(w.c[c].req[i]) > 0 && !stuck || len(w.c[c].rep[i])+len(w.c[c].push[i])+len(w.c[c].zombies[i]) > 0 {
				return true
			}
		}
	}
	return false
}

// check looks for what must never be.
func (s *search) check(w *schedWorld) {
	s.w = w
	for c := range w.c {
		for i := range schedMembers {
			if name, exists := w.c[c].probe().Combination(i); !exists {
				s.wrong("%s of member %d go together", name, i)
			}
		}
	}
	holders, alone, stale := 0, false, false // stale: another has won since
	for c := range w.c {
		if s.believes(w, c) {
			holders++
			if s.kind(c).together {
				stale = stale || w.c[c].token <= w.written
			} else {
				alone, stale = true, stale || w.c[c].token != w.won
			}
		}
	}
	switch {
	case s.bounds.lapses > 0: // members forget early: only the order of tokens is promised then
	case holders > 1 && alone:
		s.wrong("two holders")
	case stale:
		s.wrong("another holder in the middle of one tenure")
	}
	if s.inFlight(w) {
		return
	}
	for i := range w.m {
		if s.bounds.hung && i == schedMembers-1 {
			continue
		}
		for _, o := range append([]string{w.m[i].owner}, queued(&w.m[i])...) {
			if o != "" && o != phaseOwner && o != schedOther && !w.c[0].live(o) && !w.c[1].live(o) {
				s.wrong("%s is left behind at member %d", o, i)
			}
		}
	}
}

func queued(m *modelMember) (out []string) {
	for _, q := range m.queue {
		out = append(out, q.owner)
	}
	for _, q := range m.reading {
		out = append(out, q.owner)
	}
	for _, r := range m.phase.readers {
		if r.end > schedNow/1000 {
			out = append(out, r.owner)
		}
	}
	return out
}

// key names a state: what can still matter of it, with everything that has a date relative to now, and the
// members in an order of their own, since they are alike.
func (s *search) key(w *schedWorld) [2]uint64 {
	var blocks [schedMembers][]byte
	b := s.buf[:0]
	for i := range blocks {
		start := len(b)
		b = s.appendMember(b, w, i)
		blocks[i] = b[start:]
		if cap(b) != cap(s.buf) { // grown: earlier blocks stay where they were
			s.buf = b
		}
	}
	alike := blocks[:]
	if s.bounds.hung {
		alike = blocks[:schedMembers-1]
	}
	slices.SortFunc(alike, slices.Compare)
	out := s.out[:0]
	out = append(out, byte(w.used.ticks), byte(w.used.breaks), byte(w.used.lost), byte(w.used.cancels), byte(w.used.extends), byte(w.used.lapses), byte(w.used.forgets), byte(w.used.forced))
	out = binary.AppendVarint(out, w.won)
	out = binary.AppendVarint(out, w.written)
	if s.bounds.lapses > 0 { // else the greatest says it all
		for _, n := range w.tokens {
			out = binary.AppendVarint(out, n)
		}
		out = binary.AppendVarint(out, w.c[0].began)
		out = binary.AppendVarint(out, w.c[1].began)
	}
	for c := range w.c {
		cl := &w.c[c]
		out = append(out, byte(cl.phase), byte(cl.attempt))
		out = binary.AppendVarint(out, cl.token)
		for _, t := range []time.Time{cl.until, cl.limit, cl.renewAt} {
			out = s.appendTime(out, t)
		}
		out = cl.probe().AppendKey(out, s.clocks(cl, 0))
		out = append(out, flag(cl.final), byte(cl.behind))
		for _, r := range cl.renewals {
			out = s.appendTime(out, r.sent)
			out = append(out, flag(r.decided), byte(r.ttl/schedTick), flag(r.forced))
		}
	}
	for _, m := range blocks {
		out = binary.AppendUvarint(out, uint64(len(m)))
		out = append(out, m...)
	}
	s.out = out
	return [2]uint64{maphash.Bytes(s.seeds[0], out), maphash.Bytes(s.seeds[1], out)}
}

// clocks write the dates of a ballot.
func (s *search) clocks(cl *schedClientState, i int) ballot.Clocks {
	return ballot.Clocks{Time: s.dates, Server: schedNow, Epoch: cl.epoch[i] + 1, Recent: s.now.Add(1 - 2*schedTick)}
}

func flag(b bool) byte { return byte(one(b)) }

func appendText(b []byte, s string) []byte { return append(append(b, byte(len(s))), s...) }

// appendTime writes a time to the tick at which it is reached.
func (s *search) appendTime(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	d := t.Sub(s.now)
	ticks := d / schedTick
	if d%schedTick > 0 {
		ticks++
	}
	return binary.AppendVarint(append(b, 1), int64(ticks))
}

// appendTicket writes a ticket or a place as one behind the present second.
func appendTicket(b []byte, n int64) []byte {
	if n == 0 {
		return append(b, 0)
	}
	return binary.AppendVarint(append(b, 1), n-schedNow)
}

func (s *search) appendMember(b []byte, w *schedWorld, i int) []byte {
	m := &w.m[i]
	b = appendText(b, m.owner)
	if m.owner != "" {
		b = binary.AppendVarint(b, m.token)
		b = binary.AppendVarint(b, m.end-schedNow/1000)
	}
	b = binary.AppendVarint(b, m.counter)
	b = binary.AppendVarint(b, w.counted[i])
	if s.bounds.forgets > 0 {
		b = append(b, byte(w.gen[i]), byte(w.rest[i]))
		for c := range w.c {
			b = w.c[c].probe().AppendMemory(b, i)
		}
	}
	if m.owner == phaseOwner {
		b = binary.AppendVarint(b, m.phase.drawn)
		b = binary.AppendVarint(b, m.phase.told)
		for _, r := range m.phase.readers {
			b = appendText(b, r.owner)
			b = binary.AppendVarint(b, r.end-schedNow/1000)
		}
	}
	b = append(b, byte(len(m.reading)))
	for _, q := range m.reading {
		b = appendText(b, q.owner)
		b = binary.AppendVarint(b, q.deadline-schedNow/1000)
		b = binary.AppendVarint(b, q.ttl)
	}
	b = append(b, byte(len(m.buried)))
	for _, o := range m.buried {
		b = binary.AppendVarint(b, o.until-schedNow/1000)
	}
	b = append(b, byte(len(m.queue)))
	for _, q := range m.queue {
		b = appendText(b, q.owner)
		b = binary.AppendVarint(b, q.since-schedNow)
		b = binary.AppendVarint(b, q.deadline-schedNow/1000)
		b = binary.AppendVarint(b, q.ttl)
	}
	if s.bounds.tickets() {
		b = appendTicket(b, m.last)
	}
	for c := range w.c {
		cl := &w.c[c]
		b = append(b, flag(cl.forced.Has(i)))
		if s.bounds.tickets() {
			b = appendTicket(b, cl.places[i])
		}
		b = cl.probe().AppendVoter(b, i, s.clocks(cl, i))
		for _, r := range cl.renewals {
			b = append(b, flag(r.yes.Has(i)), flag(r.refused.Has(i)))
		}
		for _, q := range [][]schedMsg{cl.req[i], cl.rep[i], cl.zombies[i]} {
			b = append(b, byte(len(q)))
			for k := range q {
				msg := &q[k]
				b = append(b, msg.op[0], msg.op[2])
				b = appendText(b, msg.owner)
				b = appendText(b, msg.hint)
				b = binary.AppendVarint(b, msg.ttl)
				b = binary.AppendVarint(b, msg.token)
				if !cl.live(msg.owner) {
					continue
				}
				b = s.appendTime(b, msg.sent)
				b = append(b, byte(msg.round.n), flag(msg.epoch == cl.epoch[i]), flag(msg.idle))
				b = binary.AppendVarint(b, msg.reply.n)
				b = binary.AppendVarint(b, msg.reply.server-schedNow)
				b = appendText(b, msg.reply.next)
				if s.bounds.tickets() {
					b = appendTicket(appendTicket(b, msg.ticket), msg.reply.place)
				}
			}
		}
		b = append(b, byte(len(cl.push[i])))
		for _, p := range cl.push[i] {
			b = append(b, flag(p.Grant), flag(p.Gone)|flag(p.Readers)<<1)
			b = appendText(b, p.Other)
			b = binary.AppendVarint(b, p.Token)
			b = binary.AppendVarint(b, p.Server-schedNow)
			b = binary.AppendVarint(b, int64(p.TTL))
		}
	}
	return b
}

// found is the end of a search.
type found struct {
	states, depth int
	truncated     bool
	wrong         string
	schedule      []schedAction // to what is wrong
}

// explore visits every state within the bounds, until something is wrong.
func (s *search) explore() found {
	type at struct {
		w    *schedWorld
		node int32
	}
	start := s.initial()
	for _, a := range s.begin {
		start = s.do(start, a)
	}
	s.nodes = []schedNode{{parent: -1}}
	s.seen[s.key(start)] = struct{}{}
	can := map[[2]uint64]bool{} // from here all can finish
	f := found{states: 1}
	level := []at{{start, 0}}
	for ; len(level) > 0; f.depth++ {
		var next []at
		for k := range level {
			from := level[k]
			level[k] = at{} // its memory is needed
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
					if why := s.finish(v, can); why != "" {
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

func (s *search) path(node int32) (out []schedAction) {
	for ; node > 0; node = s.nodes[node].parent {
		out = append(out, s.nodes[node].action)
	}
	slices.Reverse(out)
	return slices.Concat(s.begin, out)
}

// finish plays on from w with nothing more lost, everything delivered at once, and holders that unlock:
// all clients must come to their end. It returns why not, or "". can remembers states that do.
func (s *search) finish(w *schedWorld, can map[[2]uint64]bool) string {
	const patience = 40 // ticks
	stats := s.stats
	s.stats = map[string]int{}
	defer func() { s.stats = stats }()
	var passed [][2]uint64
	for ticks := 0; ; {
		if w.wrong != "" {
			return "on the way to the end: " + w.wrong
		}
		done := true
		for c := range w.c {
			done = done && w.c[c].phase == schedDone
		}
		if done && !s.inFlight(w) {
			break
		}
		if !s.inFlight(w) {
			key := s.key(w)
			if can[key] {
				break
			}
			passed = append(passed, key)
		}
		next := schedAction{kind: actTick}
		for _, a := range s.enabled(w) {
			if a.kind == actExec || a.kind == actAnswer || a.kind == actPush || a.kind == actZombie {
				next = a
				break
			}
			if next.kind == actTick && (a.kind == actStart || a.kind == actUnlock || a.kind == actOther) {
				next = a
			}
		}
		if next.kind == actTick {
			if ticks++; ticks > patience {
				return fmt.Sprintf("no progress: %d ticks later not everybody has had the lock", patience)
			}
		}
		w = s.do(w, next)
	}
	for _, key := range passed {
		can[key] = true
	}
	return ""
}

// tell is the schedule in words.
func (s *search) tell(schedule []schedAction) string {
	var lines []string
	s.trace = &lines
	defer func() { s.trace = nil }()
	w := s.initial()
	for n, a := range schedule {
		k := len(lines)
		if !slices.Contains(s.enabled(w), a) {
			lines = append(lines, fmt.Sprintf("%2d. (%s is not possible)", n+1, a))
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
	return strings.Join(lines, "\n")
}

// follow plays a schedule as far as it can be played: steps that are not possible are left out.
func (s *search) follow(schedule []schedAction) *schedWorld {
	w := s.initial()
	for _, a := range schedule {
		if slices.Contains(s.enabled(w), a) {
			w = s.do(w, a)
		}
	}
	return w
}

// schedCase is a search, or a guard and the schedule that breaks its promise without it.
type schedCase struct {
	name   string
	bounds schedBounds
	rules  schedRules // the guards taken out

	states int      // what a search visits at least
	needs  []string // what must have happened in it

	begin, found []schedAction
	wrong        string
}

// schedCases reads testdata/schedules: the README there has the words.
func schedCases(t *testing.T, place string) (all []schedCase) {
	t.Helper()
	for _, c := range cases.Read(t, "testdata/schedules/"+place+".txt") {
		s := schedCase{name: c.Name}
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
				s.begin = parseSchedule(rest)
			case "found":
				s.found, s.wrong = parseSchedule(rest), strings.Join(l.Want, " ")
			default:
				t.Fatalf("%v: no such word", l)
			}
		}
		s.bounds = s.bounds.withDefaults()
		all = append(all, s)
	}
	return all
}

// setWords sets the fields of a struct that are named, to true or to what stands behind "=".
func setWords(t *testing.T, to any, words []string) {
	t.Helper()
	for _, w := range words {
		name, value, _ := strings.Cut(w, "=")
		f := reflect.ValueOf(to).Elem().FieldByName(name)
		require.True(t, f.IsValid(), "no such word: %s", name)
		switch field := reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Interface().(type) {
		case *bool:
			*field = true
		case *int:
			*field = int(toInt(value))
		case *[schedMembers]int64:
			for i, n := range strings.Split(value, "/") {
				field[i] = toInt(n)
			}
		case *[schedClients]*kind:
			for i, name := range strings.Split(value, "/") {
				field[i] = kindOf(Kind(name))
				require.NotNil(t, field[i], "no such kind: %s", name)
			}
		default:
			t.Fatalf("%s is a %T", w, field)
		}
	}
}

func (b schedBounds) withDefaults() schedBounds {
	set(&b.attempts, 1)
	set(&b.ttl, 3)
	set(&b.entry, 9)
	set(&b.timeout, 2)
	return b
}

// TestSchedulesExplored visits every state within the bounds of each search: one holder at a time, tokens
// that rise, votes that count once, nothing left behind, and from every moment of rest a way for everybody
// to come to the end.
func TestSchedulesExplored(t *testing.T) {
	states, searches := 0, 0
	searched := schedCases(t, "explored/always")
	if !RaceEnabled {
		searched = append(searched, schedCases(t, "explored/plain")...)
		if schedulesLarge() {
			searched = append(searched, schedCases(t, "explored/large")...)
		}
	}
	for _, tc := range searched {
		t.Run(tc.name, func(t *testing.T) {
			FakeTime(t, func(t *testing.T) {
				s := newSearch(t, tc.bounds, schedRules{})
				f := s.explore()
				states, searches = states+f.states, searches+1
				t.Logf("%d states to a depth of %d, all: %v; %v", f.states, f.depth, !f.truncated, s.stats)
				if f.wrong != "" {
					t.Fatalf("%s: %s\n%s", f.wrong, spell(f.schedule), s.tell(f.schedule))
				}
				require.GreaterOrEqual(t, f.states, tc.states, "fewer states than there were: what is not explored any more?")
				for _, what := range tc.needs {
					require.NotZero(t, s.stats[what], "the search has seen no %s", what)
				}
			})
		})
	}
	t.Logf("%d states in %d searches", states, searches)
}

// TestSchedulesCounterExamples takes guards out, one by one, and shows the schedule that then breaks a
// promise; the same schedule, with the guard, breaks none. Schedules are searched for when there is time
// (REDQUORUM_SEEDS), and when the recorded one has ceased to show it.
func TestSchedulesCounterExamples(t *testing.T) {
	for _, c := range schedCases(t, "broken/guards") {
		t.Run(c.name, func(t *testing.T) {
			FakeTime(t, func(t *testing.T) {
				c.bounds.maxStates = 300_000
				schedule := c.found
				broken := newSearch(t, c.bounds, c.rules)
				broken.only = c.wrong
				wrong := broken.verdict(broken.follow(schedule))
				if wrong == "" {
					t.Logf("the recorded schedule shows nothing any more:\n%s", broken.tell(schedule))
				}
				if wrong == "" || schedulesLarge() {
					broken.begin = c.begin
					f := broken.explore()
					wrong, schedule = f.wrong, f.schedule
					t.Logf("%d states, %d steps: %s", f.states, len(schedule), spell(schedule))
				}
				require.Contains(t, wrong, c.wrong, "nothing goes wrong without the guard: the search does not see what it should")
				t.Logf("without the guard: %s\n%s", wrong, broken.tell(schedule))

				whole := newSearch(t, c.bounds, schedRules{})
				require.Empty(t, whole.verdict(whole.follow(schedule)), "with the guard\n%s", whole.tell(schedule))
			})
		})
	}
}

// verdict is what is wrong at the end of a schedule, or on the way from there to everybody's end.
func (s *search) verdict(w *schedWorld) string {
	if w.wrong != "" || s.inFlight(w) {
		return w.wrong
	}
	return s.finish(w, map[[2]uint64]bool{})
}

// schedLetters spell the kinds of actions in a recorded schedule: "xB2" is that member 2 executes the next
// request of client B.
const schedLetters = "sxaplbztucevofF"

func (a schedAction) String() string {
	l := string(schedLetters[a.kind])
	switch a.kind {
	case actTick:
		return l
	case actStart, actUnlock, actCancel, actExtend:
		return l + name(int(a.c))
	case actLapse, actOther, actForget, actForce:
		return fmt.Sprint(l, a.i)
	}
	return fmt.Sprint(l, name(int(a.c)), a.i)
}

func parseSchedule(words []string) (out []schedAction) {
	for _, f := range words {
		a := schedAction{kind: schedKind(strings.IndexByte(schedLetters, f[0]))}
		for _, ch := range f[1:] {
			if ch >= 'A' {
				a.c = int8(ch - 'A')
			} else {
				a.i = int8(ch - '0')
			}
		}
		out = append(out, a)
	}
	return out
}

func spell(schedule []schedAction) string {
	var f []string
	for _, a := range schedule {
		f = append(f, a.String())
	}
	return strings.Join(f, " ")
}
