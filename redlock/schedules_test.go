//go:build !race

package redlock

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/cases"
	"github.com/redquorum/redquorum/internal/explore"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// docs/protocol.md, "Exhaustive search" says how far this goes.
//
// Every interleaving of a few clients at three members: which request a member executes next, which
// answer or push a client hears next, what is lost, when a connection breaks, when time passes, when a
// holder unlocks or a caller gives up. Package explore goes through them.
//
// What decides is the code itself: the ballot, and the methods of attempt, renewal, keeper and Lease that
// submit and judge. They run on a Client without goroutines, whose members (recorder) only note what is
// submitted; the search stands in for what attempt.sleep would wait for. At a member the scripts execute
// calls (schedules_member_test.go). Of the restart guard, what the client makes of
// generations and quarantines is the code; that a member which forgot is quarantined and restored, which
// package node sees to, is played (forget).
//
// Time goes in ticks of a second. The search runs in a synctest bubble, where time.Now stands still;
// instead of time going on, a tick sets everything back that has a date.

const (
	schedMembers = 3
	schedClients = 3
	schedTick    = time.Second
	schedNow     = int64(1_000_000_000_000)       // every server's clock, µs
	schedOther   = "ZH562NNFTB43BXGH2ECCCRUH2J:1" // an owner of a client that is not played
)

// schedRules are the clients' guards and the promises of a session that a case takes out. The zero value
// is the client as it is. emulated: the guard cannot be taken out of the code from here, so the driver
// does what a client without it would.
type schedRules struct {
	scripts         []string // guards of the scripts: scriptGuards has them
	need            int      // votes that decide, 0: a majority
	renewNeed       int      // confirmations that renew, 0: a majority
	noRaise         bool     // the greatest token of the votes wins, without a second round (emulated)
	raiseAnywhere   bool     // the counter is lifted at any majority, held or not (emulated)
	confirmAbove    bool     // a vote above the token of a raise counts as confirmed
	pushUnchecked   bool     // a push counts whatever was yielded
	pushFromArrival bool     // a push is believed from its arrival (emulated)
	endOfRound      bool     // validity from the answer instead of the request
	renewEndOfRound bool
	believeTTL      bool // what was granted while waiting is believed for the whole TTL
	noYield         bool
	noFollow        bool // a split of a semaphore is not followed
	noTimeout       bool // a split waits for every member's answer
	revive          bool // a late renewal gives an ended lease back (emulated)
	releaseVotes    bool // a release goes only to members whose vote is in hand
	releaseOnce     bool // a release whose outcome is unknown is not owed again
	zombies         bool // what was on a broken connection may be executed later
	noRelease       bool // an attempt that ends without a lease leaves what it has
	noRegain        bool // a lease waits for its next renewal, when a member votes again
	noQuarantine    bool // a member that forgot votes again at once
	noRestore       bool // its counters begin anew
	noLimit         bool // nor is the stored limit restored
	restoreFew      bool // its counters are those of one other member
	anyLife         bool // what a member says of a limit counts whatever it forgets then
}

// schedBounds say how far a search goes, and from where.
type schedBounds struct {
	clients   int
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
	hung      int  // 1 + the member that executes nothing; without a number the last
	prompt    bool // answers arrive with their execution
	forgets   int  // members that restart without memory: quarantined for the TTL, then restored
	turns     int  // > 0: one at a time, each when the leases have all votes again, which takes so many ticks; nobody unlocks then
	lapses    int  // votes that a member loses before their time: only tokens are judged then
	alone     bool // one client has an attempt, the other none
	forced    int  // members at which the lock is taken from whoever holds it
	reserves  int  // reservations of holders
	fair      bool // strict order
	brief     bool // the third party's leases end with the first tick
	others    int  // members, from the first, that a third party has at the start (or slot 0), and frees some time
	counters  [schedMembers]int64
	kinds     [schedClients]*kind // what each client asks for; nil: the exclusive lock
	maxStates int
	slotsBounds
	leaseBounds
	crowdBounds
}

func (b schedBounds) withDefaults() schedBounds {
	set(&b.clients, 2)
	set(&b.attempts, 1)
	set(&b.ttl, 3)
	set(&b.entry, 9)
	set(&b.timeout, 2)
	set(&b.locks, 1)
	b.renew = b.renew || b.callers > 0
	return b
}

type schedPhase uint8

const (
	schedIdle   schedPhase = iota
	schedTrying            // the ballot says what to do
	schedHolding
	schedAdopting
	schedDone // no more attempts
)

// schedMsg is a call on its way to a member, and then its answer.
type schedMsg struct {
	*scriptCall // never changed
	sent        time.Time
	part        time.Duration // the TTL that the round asked for
	renewal     int           // which
	regain      bool
	epoch       uint64
	reply       scriptReply
	idle        bool // was not sent: the member is in quarantine
	leaseMsg
}

type schedRenewal struct {
	sent         time.Time
	ttl          time.Duration
	yes, refused memberset.Set
	verdict      quorum.Verdict
	forced       bool // sent when a majority had been forced
	adopts       bool
	failed       memberset.Set // members that did not say, of an adoption
}

type schedClient struct {
	phase    schedPhase
	attempt  int // the number in the owner's name
	name     string
	b        wait.Ballot
	raise    int64         // the token that is to be confirmed
	token    int64         // the lease's
	forced   memberset.Set // members at which the lease was taken by force
	until    time.Time     // the lease's fields
	limit    time.Time
	renewAt  time.Time
	renewals []schedRenewal
	epoch    [schedMembers]uint64
	req      [schedMembers][]schedMsg
	rep      [schedMembers][]schedMsg
	push     [schedMembers][]script.Push
	zombies  [schedMembers][]schedMsg

	began  int64               // won when the attempt began
	places [schedMembers]int64 // that members have told the attempt, heard of or not
	final  bool                // a majority of the members have it at its ticket
	behind memberset.Set       // clients whose tickets were final when the attempt began

	opened bool
	open   openness // of the lease, if it is opened

	slotsClient
	leaseClient
	crowdClient
}

// schedWorld is a state of everything. What it points to is never changed, except the clients that own and client have
// made its own.
type schedWorld struct {
	m       [schedMembers]*schedMember
	c       [schedClients]*schedClient
	own     memberset.Set // clients that are this world's
	ballots memberset.Set // and have ballots of their own
	used    struct {
		splits, ticks, breaks, lost, cancels, extends, lapses, forgets, forced, gathers, downgrades, handoffs, stops, reserves, quits int
	}
	gen     [schedMembers]uint64 // memories that a member lost
	rest    [schedMembers]int    // ticks until its quarantine ends
	won     int64                // greatest token of an attempt that won
	written int64                // the same of attempts that do not hold together with others
	tokens  []int64              // of all that won
	spans   []schedSpan          // of all that won, where holders reserve
	counted [schedMembers]int64  // greatest token of a vote that decided
	slots   slotsWorld
	crowd   crowdWorld
	handed  []schedHandoff // never changed
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
	actOther // a third party's release arrives
	actForget
	actForce  // an operator takes the lock at a member
	actSplit  // the pause before a split is followed ends
	actGather // a lease asks for its slots where they are not given
	actSet    // somebody begins to store a limit
	actSetAt  // a member is asked about it, and answers
	actDowngrade
	actHandoff
	actAdopt // the hand-off of that number
	actReserve
	actCome // a caller
	actQuit // it leaves the line
	actWake // a tenure has rested
	actStop // as actExec, but the script ends behind a write: i is the member, and as often as there are members, writes
)

// schedPlay is a call that a member executes, and schedOutcome what follows.
type schedPlay struct {
	at   *schedMember
	call *scriptCall
}

type schedOutcome struct {
	after  *schedMember
	reply  scriptReply
	pushes []script.Push
}

// search is one search.
type search struct {
	bounds schedBounds
	rules  schedRules
	now    time.Time
	stage  *redistest.Stage
	sem    kind // of semaphores
	stubs  [schedClients]*Client
	cfg    Config

	w        *schedWorld // the state that the recorders write to
	spare    *schedWorld // nobody's any more
	idle     []*schedClient
	voters   []wait.Room
	seen     [schedMembers]member.State
	a        attempt // of the event that is judged
	event    crowdEvent
	turns    []crowdTurn
	outcomes map[schedPlay]schedOutcome
	calls    map[string]*scriptCall
	members  map[string]*schedMember
	other    *scriptCall // the third party's release
	force    *scriptCall
	dates    func([]byte, time.Time) []byte // appendTime
	stats    map[string]int
	only     string // nothing else counts as wrong
	telling  bool
	said     []string
	buf      []byte // of key
	out      []byte
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
	st := member.State{Brief: member.Brief{Gen: 1, Epoch: 1, Votes: true}, Up: true, Inbox: true}
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
	for i := range s.seen {
		s.seen[i] = s.state(c, i)
	}
	return s.seen[:]
}

// Submit implements member.Member: the end of the line in the session.
func (r recorder) Submit(c *member.Call) {
	s, round := r.s, c.Sink.(*quorum.Round)
	cl := s.w.c[r.c]
	m := schedMsg{scriptCall: s.call(c.Cmd), sent: round.Sent, part: round.TTL, epoch: cl.epoch[r.i], leaseMsg: leaseMsg{attempt: cl.attempt}}
	switch j := round.Judge.(type) {
	case *renewal:
		m.renewal = len(cl.renewals)
	case withdrawal:
		m.unheard = true
	case rejoinJudge:
		for n := range cl.renewals {
			if cl.renewals[n].sent.Equal(j.n.sent) {
				m.renewal = n
			}
		}
	case regained:
		m.regain = true
	}
	switch {
	case s.rules.noRaise && m.op == opRaise: // not a late one either
		return
	case s.rules.releaseVotes && m.op == opRelease && cl.probe().Vote(r.i).Token == 0:
		return
	case s.rules.believeTTL && m.ttl > 0 && m.entry > 0:
		m.scriptCall = s.edited(m.scriptCall, "ttl", text(min(m.ttl, m.entry))) // the ballot thinks that it asked for more
	}
	if s.w.rest[r.i] > 0 {
		if m.op != opRelease {
			m.idle = true
			cl.rep[r.i] = append(slices.Clip(cl.rep[r.i]), m)
			return
		}
		m.scriptCall = s.edited(m.scriptCall, "tag", "!")
	}
	cl.req[r.i] = append(slices.Clip(cl.req[r.i]), m)
}

// ungathered are the hooks of a semaphore whose gathering is a step of its own.
type ungathered struct{ permitHooks }

func (ungathered) held(*lease) {}

func (ungathered) left(*hold) {}

func newSearch(bounds schedBounds, rules schedRules) *search {
	s := &search{
		bounds: bounds, rules: rules, now: time.Now(),
		stage: scriptStage(rules.scripts), sem: permitKind,
		calls: map[string]*scriptCall{}, members: map[string]*schedMember{}, outcomes: map[schedPlay]schedOutcome{}, stats: map[string]int{},
	}
	s.sem.hooks = ungathered{}
	s.dates = s.appendTime
	ticks := func(n int) time.Duration { return time.Duration(n) * schedTick }
	s.cfg = Config{
		TTL: ticks(bounds.ttl), Entry: ticks(bounds.entry), MemberTimeout: ticks(bounds.timeout),
		MaxTTL: time.Hour, NoQuorumAfter: -1, Logger: slog.New(slog.DiscardHandler),
	}.withDefaults()
	lock := script.Exclusive(schedName)
	s.force = s.call(lock.Force(nil, "", s.cfg.TTL).Cmd)
	hint := ""
	switch {
	case bounds.slots > 0:
		lock = script.Semaphore(schedName).Holding(leased(0))
	case bounds.kinds != [schedClients]*kind{}:
		lock, hint = script.Writing(schedName), script.ReadersFirst("")
	}
	s.other = s.call(lock.Release(nil, schedOther, hint).Cmd)
	if rules.noTimeout {
		s.cfg.MemberTimeout = time.Hour
	}
	for c := range bounds.clients {
		members := make([]member.Member, schedMembers)
		for i := range members {
			members[i] = recorder{s, c, i}
		}
		stub := &Client{
			kept: newKept(), cfg: s.cfg, log: s.cfg.Logger, members: members,
			briefed: make([]ability.Briefed, len(members)), spread: make([]ability.Spread, len(members)),
			need: member.Majority(schedMembers), closed: make(chan struct{}),
		}
		stub.uuid, stub.number = clientID(c), func() uint64 { return uint64(s.w.c[c].attempt) }
		if bounds.crowded(c) {
			stub.uuid, stub.number = clientID(0), func() uint64 { return uint64(s.w.c[c].attempt*bounds.callers + c) }
		}
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

func (b *schedBounds) hangs(i int) bool { return b.hung == i+1 }

func (s *search) kind(c int) *kind {
	switch k := s.bounds.kinds[c]; {
	case s.w != nil && s.w.c[c].turned != nil:
		return s.w.c[c].turned
	case s.bounds.slots > 0:
		return &s.sem
	case k != nil:
		return k
	case s.bounds.fair:
		return &fair
	}
	return &exclusive
}

func (s *search) terms(c int) terms {
	t := terms{kind: s.kind(c), ttl: s.cfg.TTL, renew: s.bounds.renew, keeps: s.bounds.keep > 0 && s.bounds.crowded(c)}
	t.keep = time.Duration(one(t.keeps)) * time.Duration(s.bounds.keep) * schedTick
	if s.bounds.slots > 0 {
		t.extra = s.permitTerms(c)
	}
	if s.w != nil && s.w.c[c].former != "" {
		t = t.with(s.w.c[c].b.Permits())
	}
	return t
}

func (s *search) wire(c int) script.Lock {
	if s.bounds.slots == 0 {
		return s.kind(c).lock(schedName)
	}
	t := s.terms(c)
	return s.sem.of(schedName, &s.cfg, &t)
}

func (s *search) initial() *schedWorld {
	w := &schedWorld{}
	for c := range w.c {
		if w.c[c] = (&schedClient{}); c >= s.bounds.clients || c > 0 && s.bounds.alone {
			w.c[c].phase = schedDone
		}
		w.c[c].adopts = c >= s.bounds.clients-s.bounds.adopters
	}
	for i := range w.m {
		n, end := s.bounds.counters[i], schedNow/1000+3_600_000
		if set(&n, 5); s.bounds.brief {
			end = schedNow/1000 + schedTick.Milliseconds()
		}
		w.m[i] = s.firstMember(n, i < s.bounds.others, end)
	}
	return w
}

// clone makes a state to go on from.
func (s *search) clone(w *schedWorld) *schedWorld {
	v := s.spare
	if s.spare = nil; v == nil {
		v = new(schedWorld)
	}
	*v = *w
	v.own, v.ballots = 0, 0
	return v
}

// drop is for a state that nobody looks at any more.
func (s *search) drop(w *schedWorld) {
	for c := range w.c {
		if w.own.Has(c) {
			s.idle = append(s.idle, w.c[c])
		}
		if v := w.c[c].probe().Room(); w.ballots.Has(c) && len(v.Voters) > 0 {
			s.voters = append(s.voters, v)
		}
	}
	s.spare = w
}

// own makes client c the state's own. Its ballot is shared.
func (s *search) own(w *schedWorld, c int) *schedClient {
	if w.own.Has(c) {
		return w.c[c]
	}
	cl := new(schedClient)
	if n := len(s.idle); n > 0 {
		cl, s.idle = s.idle[n-1], s.idle[:n-1]
	}
	*cl = *w.c[c]
	w.c[c], w.own = cl, w.own.With(c)
	return cl
}

// client gives client c a ballot of its own, too.
func (s *search) client(w *schedWorld, c int) *schedClient {
	cl := s.own(w, c)
	if !w.ballots.Has(c) {
		var room wait.Room
		if n := len(s.voters); n > 0 && len(cl.probe().Room().Voters) > 0 {
			room, s.voters = s.voters[n-1], s.voters[:n-1]
		}
		cl.b, cl.renewals = cl.probe().CloneInto(room), slices.Clone(cl.renewals)
		w.ballots = w.ballots.With(c)
	}
	return cl
}

// attempt is the client's attempt, for one event.
func (s *search) attempt(c int) *attempt {
	cl := s.w.c[c]
	s.a = attempt{hold: hold{
		c: s.stubs[c], wire: s.wire(c), terms: s.terms(c), owner: cl.name, n: uint64(cl.attempt), b: cl.b, former: cl.former,
	}}
	if cl.opened {
		s.a.open = &openness{Range: cl.open.Range, to: schedAsker{}, given: cl.open.given, asked: cl.open.asked}
	}
	s.a.ended.Store(cl.phase == schedIdle || cl.phase == schedDone)
	if s.event = (crowdEvent{}); s.bounds.crowded(c) {
		s.crowd(c, &s.a)
	}
	return &s.a
}

func (cl *schedClient) probe() wait.Probe { return wait.Probe{Ballot: &cl.b} }

// live reports whether an owner's attempt still goes on.
func (cl *schedClient) live(owner string) bool {
	return cl.name == owner && cl.phase != schedIdle && cl.phase != schedDone
}

// who is a client in words.
type who int8

func (c who) String() string { return clientName(int(c)) }

func clientName(c int) string { return "ABC"[c : c+1] }

// clientID is the client in the names of its owners: any that is one (foreign.lua). The searches count states, and the order of
// the owners' hashes is a part of what they search.
func clientID(c int) string { return clientName(c) + "H562NNFTB43BXGH2ECCCRUH2J" }

func (s *search) say(format string, args ...any) {
	if s.telling {
		s.said = append(s.said, fmt.Sprintf(format, args...))
	}
}

func (s *search) count(what string) { s.stats[what]++ }

// Enabled lists what can happen next.
func (s *search) Enabled(w *schedWorld) []schedAction {
	out := make([]schedAction, 0, 16)
	add := func(k schedKind, c, i int) { out = append(out, schedAction{k, int8(c), int8(i)}) }
	busy, holds, rests := false, false, false
	for c := range s.bounds.clients {
		cl := w.c[c]
		switch cl.phase {
		case schedIdle:
			s.adopters(w, c, add)
		case schedHolding:
			holds = true
			s.leaves(w, c, add)
			if s.bounds.turns == 0 && (!s.bounds.crowded(c) || cl.caller > 0) {
				add(actUnlock, c, 0)
			}
			if s.mayReserve(w, c) {
				add(actReserve, c, 0)
			}
			if w.used.extends < s.bounds.extends {
				add(actExtend, c, 0)
			}
			if w.used.gathers < s.bounds.gathers && !cl.gathered && cl.b.Lacking() != 0 {
				add(actGather, c, 0)
			}
		case schedTrying, schedAdopting:
			if w.used.cancels < s.bounds.cancels {
				add(actCancel, c, 0)
			}
			if w.used.splits < s.bounds.splits && cl.probe().Pauses() {
				add(actSplit, c, 0)
			}
		}
		for i := range cl.req {
			if len(cl.req[i]) > 0 && !s.bounds.hangs(i) {
				add(actExec, c, i)
				s.stops(w, c, i, add)
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
		busy = busy || cl.phase != schedDone && !(s.bounds.crowded(c) && cl.phase == schedIdle)
		rests = rests || !cl.rests.IsZero()
	}
	busy = s.crowdActions(w, add) || busy
	for i := range w.m {
		if busy && w.used.forgets < s.bounds.forgets && !s.bounds.hangs(i) && (s.bounds.turns == 0 || s.whole(w)) {
			add(actForget, 0, i)
		}
		if holds && w.used.forced < s.bounds.forced {
			add(actForce, 0, i)
		}
		if w.m[i].has(schedOther) {
			add(actOther, 0, i)
		} else if w.used.lapses < s.bounds.lapses && w.m[i].read().lock != nil {
			add(actLapse, 0, i)
		}
		if w.slots.set.open.Has(i) && !s.bounds.hangs(i) {
			add(actSetAt, 0, i)
		}
	}
	if s.bounds.lower > 0 && w.slots.set.phase == setterIdle {
		add(actSet, 0, 0)
	}
	if busy && !rests && w.used.ticks < s.bounds.ticks && (s.bounds.turns == 0 || !s.inFlight(w)) { // at rest
		add(actTick, 0, 0)
	}
	return out
}

// Do makes one step from w.
func (s *search) Do(w *schedWorld, a schedAction) *schedWorld {
	v := s.clone(w)
	s.w = v
	c, i := int(a.c), int(a.i)
	settles := true
	switch a.kind {
	case actStart:
		s.start(c, s.first())
	case actExec:
		cl := s.own(v, c)
		m := cl.req[i][0]
		cl.req[i] = cl.req[i][1:]
		settles = s.bounds.prompt
		s.execute(c, i, m)
	case actZombie:
		cl := s.own(v, c)
		m := cl.zombies[i][0]
		cl.zombies[i] = cl.zombies[i][1:]
		out := s.played(v.m[i], m.scriptCall)
		v.m[i] = out.after
		s.say("member %d executes a request of %v from the broken connection: %v: %v", i, who(c), m.scriptCall, &out.reply)
	case actAnswer:
		cl := s.client(v, c)
		m := cl.rep[i][0]
		cl.rep[i] = cl.rep[i][1:]
		s.say("%v hears member %d on %s: %v", who(c), i, m.op, &m.reply)
		o := member.Answered
		if m.idle {
			o = member.NotSent
		}
		s.answer(c, i, &m, o)
	case actPush:
		cl := s.client(v, c)
		p := cl.push[i][0]
		cl.push[i] = cl.push[i][1:]
		s.say("%v hears a push of member %d: %+v", who(c), i, &p)
		s.pushed(c, i, p)
	case actLosePush:
		cl := s.client(v, c)
		s.say("a push of member %d to %v is lost", i, who(c))
		cl.push[i] = cl.push[i][1:]
		v.used.lost++
		s.count("pushes lost")
	case actBreak:
		v.used.breaks++
		s.broken(c, i)
	case actTick:
		s.say("a tick")
		s.tick(v)
	case actUnlock:
		s.client(v, c)
		s.say("%v unlocks", who(c))
		s.end(c)
	case actCancel:
		s.client(v, c)
		s.say("%v gives up", who(c))
		if v.used.cancels++; v.c[c].phase == schedAdopting {
			s.adoptionEnds(c, s.lease(c), quorum.Undecided)
		} else {
			s.end(c)
		}
	case actExtend:
		s.extendLess(v, c)
	case actLapse:
		settles = s.bounds.prompt
		m := v.m[i]
		s.say("member %d loses the vote of %v", i, m.read().lock)
		v.m[i] = s.with(m, redistest.Key{Name: schedName})
		v.used.lapses++
	case actForget:
		s.forget(v, i)
	case actForce:
		settles = s.bounds.prompt
		s.forced(v, i)
	case actOther:
		settles = s.bounds.prompt
		s.execute(c, i, schedMsg{scriptCall: s.other})
	case actSplit:
		cl := s.client(v, c)
		s.say("the pause of %v ends", who(c))
		v.used.splits++
		cl.probe().EndPause(s.now)
	case actGather:
		s.gather(v, c)
	case actSet:
		settles = false
		s.say("somebody stores the limit %d", s.bounds.lower-1)
		s.setLimit(v, setterReads)
	case actSetAt:
		settles = false
		s.setAt(v, i, member.Answered)
	case actDowngrade:
		s.downgrade(v, c)
	case actHandoff:
		s.handOff(v, c)
	case actAdopt:
		s.adopt(v, c, i)
	case actReserve:
		s.reserves(v, c)
	case actCome, actQuit, actWake:
		s.crowdDoes(v, a.kind, c)
	case actStop:
		s.stop(c, i%schedMembers, i/schedMembers)
	}
	if a.kind == actTick || a.kind == actForget {
		for c := range s.bounds.clients {
			s.settle(c)
		}
	} else if settles {
		s.settle(c)
	}
	s.begin(v)
	if s.bounds.fair {
		s.finals(v)
	}
	s.check(v)
	return v
}

// played is what follows when a member executes a call. Many schedules lead there.
func (s *search) played(at *schedMember, c *scriptCall) schedOutcome {
	out, known := s.outcomes[schedPlay{at, c}]
	if !known {
		out = at.played(s, c)
		s.outcomes[schedPlay{at, c}] = out
	}
	return out
}

// execute runs a request at its member; its answer and its pushes go on their way.
func (s *search) execute(c, i int, m schedMsg) {
	w := s.w
	before := w.m[i]
	out := s.played(before, m.scriptCall)
	after, r := out.after, &out.reply
	w.m[i], m.reply = after, *r
	s.say("member %d executes %v: %v", i, m.scriptCall, r)
	switch {
	case m.op == opYield && r.n == 0 && before.has(m.owner):
		s.count("votes given away by a yield")
	case m.op == opRejoin && r.n == 1:
		s.count("re-joins")
	case m.op == opClaim:
		s.count("claims")
	}
	if r.place > 0 && w.c[c].live(m.owner) {
		s.own(w, c).places[i] = r.place
		if m.ticket > 0 {
			s.count("tickets written back")
		}
	}
	for _, p := range out.pushes {
		for k := range s.bounds.clients {
			if p.Readers && s.kind(k).name == KindWrite {
				continue // its release serves readers in any case
			}
			if w.c[k].live(p.Owner) && w.c[k].pushed() {
				cl := s.own(w, k)
				cl.push[i] = append(slices.Clip(cl.push[i]), p)
			}
		}
		if p.Grant {
			s.count("hand-overs")
		}
	}
	s.freed(before, after, c, i, &m)
	if w.c[c].hears(&m) {
		if s.bounds.prompt {
			s.client(w, c)
			s.answer(c, i, &m, member.Answered)
		} else {
			cl := s.own(w, c)
			cl.rep[i] = append(slices.Clip(cl.rep[i]), m)
		}
	}
	if s.bounds.slots > 0 {
		s.bounded(i, before, after, m.op)
	}
}

// broken ends the connection of client c to member i. What was not answered is unknown; what was not
// executed never is (the succession rule), except as a zombie; a release is owed again.
func (s *search) broken(c, i int) {
	cl := s.client(s.w, c)
	s.say("the connection of %v to member %d breaks", who(c), i)
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
		if cl.hears(&m) {
			s.answer(c, i, &m, member.Unknown)
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
	w.m[i] = s.member(nil)
	if w.rest[i] = s.bounds.ttl; s.rules.noQuarantine {
		w.rest[i] = 0
		s.restore(w, i)
	}
	for c := range s.bounds.clients {
		s.broken(c, i)
		w.c[c].push[i] = nil
	}
	if w.slots.set.open.Has(i) {
		s.setAt(w, i, member.Unknown)
	}
}

// forced takes the lock at member i from whoever holds it. An acquire of the holder that arrives behind it gives a vote: it is no
// re-join.
func (s *search) forced(w *schedWorld, i int) {
	w.used.forced++
	s.count("locks forced")
	for c := range s.bounds.clients {
		late := slices.ContainsFunc(w.c[c].req[i], func(m schedMsg) bool { return m.op == opAcquire || m.op == opWait })
		if w.c[c].phase == schedHolding && !late {
			cl := s.own(w, c)
			cl.forced = cl.forced.With(i)
		}
	}
	s.execute(0, i, schedMsg{scriptCall: s.force})
}

// restore gives a member that forgot what the others have.
func (s *search) restore(w *schedWorld, i int) {
	w.m[i] = s.restored(w.m[i], w.m[(i+1)%schedMembers], w.m[(i+2)%schedMembers])
	s.say("member %d has its counters restored", i)
}

// regain lets those that hold ask for what they lack at a member that votes again.
func (s *search) regain(w *schedWorld, i int) {
	for c := range s.bounds.clients {
		if w.c[c].phase != schedHolding || s.rules.noRegain {
			continue
		}
		cl, l := s.client(w, c), s.lease(c)
		s.stubs[c].keeper.rejoins.Store(0)
		s.stubs[c].keeper.regain([]*lease{l}, memberset.Set(0).With(i))
		cl.b = l.hold.b
	}
}

// whole reports whether all members vote, and all leases have the votes of all of them.
func (s *search) whole(w *schedWorld) bool {
	for i, m := range w.m {
		for _, cl := range w.c[:s.bounds.clients] {
			if w.rest[i] > 0 || cl.phase == schedHolding && m.read().lock[cl.name] == "" {
				return false
			}
		}
	}
	return true
}

// unwhole plays on from w with everything delivered at once, until all leases have the votes of all members. It returns why that
// is not so in time, or "". The time counts from the moment when all members vote. Where a push was lost, all must be asked anew.
func (s *search) unwhole(w *schedWorld) string {
	patience := s.bounds.turns
	if w.used.lost+w.used.breaks > 0 {
		patience = s.bounds.ttl + s.bounds.entry
	}
	stats, bounds := s.stats, s.bounds
	s.stats = map[string]int{}
	b := &s.bounds
	b.ticks, b.cancels, b.lost, b.breaks, b.forgets = 1<<20, 0, 0, 0, 0
	defer func() { s.stats, s.bounds = stats, bounds }()
	for ticks := 0; !s.whole(w); {
		next := s.soonest(w, 0, &[schedClients]int{})
		if next.kind == actTick {
			if slices.ContainsFunc(w.rest[:], func(rest int) bool { return rest > 0 }) {
				ticks = -1
			}
			if ticks++; ticks > patience {
				return "no margin: the holder has not the votes of all members again"
			}
		}
		if w = s.Do(w, next); w.wrong != "" {
			return "on the way to all votes: " + w.wrong
		}
	}
	return ""
}

// first is what an attempt does first.
func (s *search) first() wait.Start {
	switch {
	case s.bounds.wait:
		return wait.WaitFirst
	case s.bounds.once:
		return wait.TryOnce
	}
	return wait.AskFirst
}

// start begins an attempt.
func (s *search) start(c int, how wait.Start) {
	w, cl := s.w, s.client(s.w, c)
	cl.attempt++
	cl.began = w.won
	s.boundBy(cl)
	terms := s.terms(c)
	a := s.stubs[c].newAttempt(s.wire(c), &terms, wait.Past{Start: how}, nil)
	cl.places, cl.final, cl.behind = [schedMembers]int64{}, false, 0
	for k := range s.bounds.clients {
		if k != c && w.c[k].phase == schedTrying && w.c[k].final {
			cl.behind = cl.behind.With(k)
		}
	}
	cl.phase, cl.name, cl.b, cl.token, cl.raise, cl.renewals, cl.gathered = schedTrying, a.owner, a.b, 0, 0, nil, false
	cl.until, cl.limit, cl.renewAt = time.Time{}, time.Time{}, time.Time{}
	if s.rules.need > 0 {
		cl.probe().SetNeed(s.rules.need)
	}
	if s.rules.believeTTL {
		cl.probe().SetPart(s.cfg.TTL)
	}
	s.say("%v begins attempt %d", who(c), cl.attempt)
}

// answer gives an answer to what judges it.
func (s *search) answer(c, i int, m *schedMsg, o member.Outcome) {
	cl := s.w.c[c]
	if !cl.hears(m) {
		return
	}
	st := s.state(c, i)
	call := &member.Call{Index: i, Result: member.Result{Outcome: o, At: s.now, State: st.Brief}}
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
	case m.reply.err != "":
		call.Outcome, call.Err = member.Refused, errors.New(m.reply.err)
	case m.op == opExtend || m.op == opAdopt:
		call.Reply = member.Reply{Kind: '*', Elems: []member.Reply{said}}
	case m.reply.server > 0:
		next := member.Reply{Kind: '$', Str: []byte(m.reply.next)}
		call.Reply = member.Reply{Kind: '*', Elems: []member.Reply{said, num(m.reply.server), next, num(m.reply.place)}}
		if s.bounds.slots > 0 {
			call.Reply.Elems = append(call.Reply.Elems, num(m.reply.limit))
		}
	default:
		call.Reply = said
	}
	if !m.regain && (m.op == opExtend || m.op == opRejoin || m.op == opAdopt) {
		s.renewed(c, m, call)
		return
	}
	a := s.attempt(c)
	r := &quorum.Round{Question: quorum.Question{Op: m.op, Sent: m.sent, TTL: m.part}}
	if m.op == opDowngrade {
		downgraded{&a.hold}.Judge(r, call)
		cl.b = a.b
		return
	}
	if m.regain {
		regained{&a.hold}.Judge(r, call)
		s.back(c, a)
		return
	}
	if s.bounds.lower > 0 {
		limitsOf.of(s.stubs[c]).m = map[string]int64{schedName: cl.known}
	}
	if cl.phase == schedHolding && m.op == opReserve && m.reply.n == 2 || m.reply.n > 0 && m.reply.next != "" {
		s.tells(c, m.reply.next, false)
	}
	a.Judge(r, call)
	if s.back(c, a); !cl.live(cl.name) {
		return
	}
	if s.bounds.lower > 0 {
		cl.known = limitsOf.of(s.stubs[c]).get(schedName)
	}
	if s.rules.raiseAnywhere && m.op == opRaise && o == member.Answered {
		cl.probe().Confirm(i)
	}
	if v := cl.probe().Vote(i); s.rules.endOfRound && m.reply.n > 0 && v.Token == m.reply.n {
		cl.probe().SetVote(i, wait.Vote{Token: v.Token, Until: s.now.Add(clock.Validity(m.part, s.cfg.Drift))})
	}
}

// pushed gives a push to the attempt that it names.
func (s *search) pushed(c, i int, p script.Push) {
	cl := s.w.c[c]
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
	s.tells(c, p.Other, p.Gone)
	a.hear(i, p, s.state(c, i), s.now)
	if s.back(c, a); !cl.live(cl.name) {
		return
	}
	if s.rules.pushUnchecked {
		cl.probe().Yielded(i, yielded)
	}
	if p.Grant && s.rules.pushFromArrival && cl.probe().Vote(i).Token <= p.Token {
		cl.probe().Believe(i, wait.Vote{Token: p.Token, Until: s.now.Add(clock.Validity(cl.b.Part(), s.cfg.Drift))}, p.Server)
	}
	if p.Grant && cl.probe().Vote(i).Token == p.Token {
		s.count("votes by push")
	}
}

// settle lets a client do what it does without anything more to hear. No client is slow here: a
// slow client is one whose messages are late.
func (s *search) settle(c int) {
	if s.w.c[c].phase != schedTrying {
		return
	}
	cl := s.client(s.w, c)
	s.run(c)
	if s.bounds.slots > 0 {
		cl.probe().Evenly()
	}
}

// run is attempt.run up to the next sleep.
func (s *search) run(c int) {
	cl := s.w.c[c]
	for {
		st, skip := s.next(c)
		if skip {
			return
		}
		a := s.attempt(c)
		a.do(&st, s.now)
		if cl.b = a.b; st.Do == wait.Win {
			s.win(c, a, st)
			return
		}
		s.crowdThen(c)
		switch {
		case st.Ends():
			s.spent(c, schedCauses[st.Cause])
			return
		case st.Do == wait.Listen:
			s.say("  %v waits", who(c))
		case st.Do == wait.Raise:
			s.say("  %v has a majority, and lifts counters to %d %v", who(c), st.Token, cl.b.Permits())
			s.count("second rounds")
			cl.raise = st.Token
		case st.Do == wait.Yield:
			s.say("  %v yields %v", who(c), st.Offers)
			s.count("splits")
		case st.Do == wait.Claim:
			s.say("  %v claims %v, and waits at %v", who(c), st.Offers, st.To)
			s.count("splits")
		}
		if st.Do == wait.Sleep || st.Poll {
			return
		}
	}
}

var schedCauses = map[wait.Cause]string{
	wait.TooSlow: "too slow", wait.Unconfirmed: "token not confirmed", wait.NoQuorum: "no quorum",
	wait.StoodBack: "no quorum", wait.Stuck: "stuck",
}

// next asks the ballot, and does what one without the guard that is taken out would. skip: it does nothing.
func (s *search) next(c int) (st wait.Step, skip bool) {
	cl, states := s.w.c[c], s.states(c)
	p := cl.probe()
	switch verdict, raising := p.Raising(); {
	case raising && s.rules.raiseAnywhere && verdict == quorum.Won:
		st, ok := p.Unraised(s.now, states)
		if !ok {
			s.spent(c, "too slow")
		}
		return st, !ok
	case raising && s.rules.confirmAbove:
		var votes [schedMembers]wait.Vote
		for i := range votes {
			votes[i] = p.Vote(i)
			p.SetVote(i, wait.Vote{Token: min(votes[i].Token, cl.raise), Until: votes[i].Until})
		}
		st = p.Next(s.now, states)
		for i := range votes {
			p.SetVote(i, votes[i])
		}
		return st, false
	}
	var before wait.Ballot
	if s.rules.noYield {
		before = p.Clone()
	}
	st = p.Next(s.now, states)
	switch {
	case st.Do == wait.Claim && s.rules.noFollow:
		return st, true
	case st.Do == wait.Raise && s.rules.noRaise:
		st, _ = p.Unraised(s.now, states)
	case st.Do == wait.Raise && s.rules.raiseAnywhere:
		p.RaiseEverywhere()
		st.To = memberset.All(schedMembers)
	case st.Do == wait.Yield && s.rules.noYield:
		s.count("splits")
		for _, o := range st.Offers {
			p.Keep(o.Given.Member(), &before)
		}
		return st, true
	}
	return st, false
}

// win is what follows a win: attempt.lease.
func (s *search) win(c int, a *attempt, st wait.Step) {
	cl := s.w.c[c]
	if st.Grant.Raised {
		s.count("won with a second round")
	}
	t := s.crowdWon(c, a)
	l, err := a.lease(context.Background(), result{Grant: st.Grant, waited: a.b.Waited()}, t)
	s.stubs[c].keeper.leases = nil
	cl.b = a.b
	if t != nil && err == nil {
		l = &t.lease.own
	}
	if err != nil {
		s.crowdThen(c)
		s.say("  %v ends its attempt: %v", who(c), err)
		s.count("too slow")
		s.over(c)
		return
	}
	cl.phase, cl.token = schedHolding, st.Grant.Token()
	cl.until, cl.limit, cl.renewAt = l.term.Until(), l.term.Limit(), l.renewAt
	s.say("  %v holds the lock with token %d %v and the votes %v for %v",
		who(c), cl.token, cl.b.Permits(), cl.probe(), clock.Until(l.term.Until(), s.now))
	s.count("leases")
	if s.bounds.slots > 0 {
		cl.token = 1 // they have one each
		s.wonSlots(c)
		return
	}
	s.ordered(c)
	s.wonToken(c, st.Grant.In)
	s.opened(c, a)
	s.crowdHolds(c)
}

// wonToken looks at the token of a lease, and at the votes for it.
func (s *search) wonToken(c int, in memberset.Set) {
	// Where members lose votes early, two attempts may hold at once, and the one that was overtaken may
	// finish later: then a token must be above those given out before its attempt began, and none is given
	// out twice.
	cl, token := s.w.c[c], s.w.c[c].token
	before, together := s.w.won, s.kind(c).together
	switch {
	case together: // with tokens of their own, in any order; above those of all that are not
		before = s.w.written
	case s.bounds.lapses > 0:
		before = cl.began
	}
	if token <= before {
		s.wrong("token %d of %v is not above %d, that of an attempt before", token, who(c), before)
	}
	if !together && slices.Contains(s.w.tokens, token) {
		s.wrong("token %d is given out twice", token)
	}
	s.spans(c, 0)
	if s.w.won = max(s.w.won, token); !together {
		s.w.written = max(s.w.written, token)
	}
	s.w.tokens = append(slices.Clip(s.w.tokens), token)
	for i := range s.w.counted {
		if !in.Has(i) || s.bounds.lapses > 0 || s.w.gen[i] > 0 {
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
	for k := range s.bounds.clients {
		if s.w.c[c].behind.Has(k) && s.w.c[k].phase == schedTrying && s.w.c[k].final {
			s.wrong("%v holds before %v, which was first", who(c), who(k))
		}
	}
}

// finals notes whose tickets have become final.
func (s *search) finals(w *schedWorld) {
	for c := range s.bounds.clients {
		cl := w.c[c]
		if ticket := cl.probe().Ticket(); ticket > 0 && cl.phase == schedTrying && !cl.final {
			n := 0
			for _, place := range cl.places {
				n += int(one(place == ticket))
			}
			if n >= member.Majority(schedMembers) {
				s.own(w, c).final = true
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
	s.say("  %v ends its attempt: %s", who(c), why)
	s.count(why)
	s.end(c)
}

// end releases: unlock, give-up, loss and failure are one to the members.
func (s *search) end(c int) {
	if s.crowdEnds(c) {
		return
	}
	if !s.rules.noRelease || s.w.c[c].phase == schedHolding {
		h := &s.attempt(c).hold
		if term := core.ProbeTerm(s.now, s.now, 0); s.w.c[c].phase == schedHolding {
			h.leaves(term.End(ErrReleased, s.now))
		}
		h.release(false)
	}
	s.over(c)
}

// over forgets what an attempt that has ended does not look at any more.
func (s *search) over(c int) {
	cl := s.w.c[c]
	s.leaseOver(c)
	s.away(c)
	cl.phase, cl.crowdClient = schedIdle, crowdClient{}
	most := s.bounds.attempts
	if cl.adopts {
		most = max(1, int(s.bounds.tries[c]))
	}
	if cl.attempt >= most && !s.bounds.crowded(c) {
		cl.phase = schedDone
	}
	cl.rep, cl.push = [schedMembers][]schedMsg{}, [schedMembers][]script.Push{}
	cl.renewals, cl.b, cl.gathered = nil, wait.Ballot{}, false
	cl.until, cl.limit, cl.renewAt = time.Time{}, time.Time{}, time.Time{}
	cl.token, cl.raise, cl.forced = 0, 0, 0
	cl.opened, cl.open = false, openness{}
	cl.places, cl.final, cl.behind = [schedMembers]int64{}, false, 0
	for k := range s.bounds.clients {
		if s.w.c[k].behind.Has(c) {
			other := s.own(s.w, k)
			other.behind = other.behind.Without(c)
		}
	}
}

// lease is the client's lease, for one event. Its keeper has no goroutine.
func (s *search) lease(c int) *lease {
	a := s.attempt(c)
	s.stubs[c].keeper.leases = nil
	if t := s.event.t; t != nil {
		return t.lease
	}
	return s.leaseAt(c, a)
}

// leaseAt is that of an attempt.
func (s *search) leaseAt(c int, a *attempt) *lease {
	cl := s.w.c[c]
	l := &lease{
		c: s.stubs[c], hold: &a.hold, key: schedName, token: uint64(cl.token), term: core.ProbeTerm(cl.until, cl.limit, s.cfg.Drift), renew: s.bounds.renew,
		plan: plan{ttl: s.cfg.TTL, renewAt: cl.renewAt}, users: 1, inKeeper: inKeeper{pos: -1}, granted: s.now, ctx: context.Background(), bond: alone{},
	}
	l.own.lease = l
	return l
}

// keep stores a lease after an event.
func (s *search) keep(c int, l *lease) {
	cl := s.w.c[c]
	s.back(c, &s.a)
	if cl.phase != schedHolding && cl.phase != schedAdopting {
		return
	}
	if err := l.term.Err(); err != nil {
		s.say("  the lease of %v has ended: %v", who(c), err)
		if s.bounds.turns > 0 {
			s.wrong("a lease was lost although members restarted in turn")
		}
		s.over(c)
		return
	}
	cl.until, cl.limit, cl.renewAt = l.term.Until(), l.term.Limit(), l.renewAt
}

// watch lets the keeper look at a lease.
func (s *search) watch(c int) {
	cl := s.w.c[c]
	if s.rules.revive && clock.Until(cl.until, s.now) <= 0 {
		return // nobody looks
	}
	l := s.lease(c)
	if due := clock.Until(l.term.Until(), s.now) <= 0 || !l.renewAt.IsZero() && clock.Until(l.renewAt, s.now) <= 0; !due {
		return
	}
	ttl := l.ttl
	if limit := l.term.Limit(); !limit.IsZero() {
		ttl = min(ttl, clock.Until(limit, s.now))
	}
	before := len(cl.req[0]) + len(cl.rep[0])
	k := &s.stubs[c].keeper
	if held, ask := l.ask(s.now); ask {
		k.renewAll([]*lease{l}, s.now)
	} else if !held {
		l.bound().expire(l)
	}
	s.keep(c, l)
	if cl.phase == schedHolding && len(cl.req[0])+len(cl.rep[0]) > before {
		s.say("  %v renews", who(c))
		cl.renewals = append(cl.renewals, schedRenewal{sent: s.now, ttl: ttl, forced: cl.forced.Len() >= cl.b.Need()})
	} else if cl.phase != schedHolding {
		s.count("leases that ended by themselves")
	}
}

// renewed gives an answer to a renewal.
func (s *search) renewed(c int, m *schedMsg, call *member.Call) {
	cl := s.w.c[c]
	if cl.phase != schedHolding && cl.phase != schedAdopting || m.renewal >= len(cl.renewals) {
		return
	}
	st := &cl.renewals[m.renewal]
	l := s.lease(c)
	if s.rules.revive {
		l.term = core.ProbeTerm(s.now.Add(time.Hour), l.term.Limit(), s.cfg.Drift)
	}
	sent := st.sent
	if s.rules.renewEndOfRound {
		sent = s.now
	}
	item := renewItem{l: l, Count: core.ProbeCount(core.Asks(st.ttl, 2*s.stubs[c].need-1), st.yes, st.refused, st.verdict)}
	n := &renewal{k: &s.stubs[c].keeper, sent: sent, items: []renewItem{item}, adopt: st.adopts, manual: st.adopts}
	r := &quorum.Round{Question: quorum.Question{Op: m.op, Sent: sent, TTL: st.ttl}}
	s.stubs[c].keeper.leases = nil
	was := st.verdict != quorum.Undecided
	if m.op != opRejoin {
		n.Judge(r, call)
	} else {
		rejoinJudge{n, 0}.Judge(r, call)
	}
	st.verdict = n.items[0].Verdict()
	st.yes, st.refused = n.items[0].Heard()
	decided := st.verdict != quorum.Undecided
	if cl.phase == schedAdopting {
		s.adoptionHeard(c, call, l)
		return
	}
	if s.rules.revive && l.term.Err() == nil && !was && decided {
		l.term = core.ProbeTerm(n.sent.Add(clock.Validity(st.ttl, s.cfg.Drift)), l.term.Limit(), s.cfg.Drift)
		s.say("  %v believes its lease for %v", who(c), clock.Until(l.term.Until(), s.now))
	} else if s.rules.revive && l.term.Err() == nil {
		l.term = core.ProbeTerm(cl.until, l.term.Limit(), s.cfg.Drift)
	}
	if !was && decided && l.term.Err() == nil {
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
	s.say("%v asks the members to keep its lease for one tick only", who(c))
	lock := script.Exclusive(schedName)
	call := s.call(lock.Extend(nil, cl.name, schedTick).Cmd)
	for i := range cl.req {
		cl.req[i] = append(slices.Clip(cl.req[i]), schedMsg{scriptCall: call, sent: s.now, epoch: cl.epoch[i], renewal: 99})
	}
}

// back sets a time back by a tick, micros one of a server.
func back(t *time.Time) {
	if !t.IsZero() {
		*t = t.Add(-schedTick)
	}
}

func micros(n *int64) {
	if *n != 0 {
		*n -= schedTick.Microseconds()
	}
}

// tick lets time pass: everything with a date is set back by it.
func (s *search) tick(w *schedWorld) {
	w.used.ticks++
	for i := range w.m {
		w.m[i] = w.m[i].later(s)
	}
	for i := range w.rest {
		if w.rest[i] > 0 {
			if w.rest[i]--; w.rest[i] == 0 {
				s.restore(w, i)
				s.regain(w, i)
			}
		}
	}
	for c := range s.bounds.clients {
		cl := s.client(w, c)
		cl.probe().Shift(-schedTick)
		for _, t := range []*time.Time{&cl.until, &cl.limit, &cl.renewAt} {
			back(t)
		}
		for n := range cl.renewals {
			back(&cl.renewals[n].sent)
		}
		for _, t := range slices.Concat(cl.openDates(), cl.dates()) {
			back(t)
		}
		for i := range cl.req {
			micros(&cl.places[i])
			for _, q := range []*[]schedMsg{&cl.req[i], &cl.rep[i], &cl.zombies[i]} {
				*q = slices.Clone(*q)
				for k := range *q {
					m := &(*q)[k]
					back(&m.sent)
					micros(&m.reply.server)
					micros(&m.reply.place)
					if m.ticket != 0 {
						m.scriptCall = s.edited(m.scriptCall, "ticket", text(m.ticket-schedTick.Microseconds()))
					}
				}
			}
			cl.push[i] = slices.Clone(cl.push[i])
			for k := range cl.push[i] {
				micros(&cl.push[i][k].Server)
			}
		}
	}
	for _, t := range w.crowd.dates() {
		back(t)
	}
	if w.crowd.waits > 0 {
		w.crowd.waits++
	}
	for c := range s.bounds.clients {
		switch w.c[c].phase {
		case schedHolding:
			s.watch(c)
		case schedAdopting:
			s.adoptionWaits(c)
		}
	}
}

// believes reports whether client c relies on the lock now.
func (s *search) believes(w *schedWorld, c int) bool {
	cl := w.c[c]
	return cl.phase == schedHolding && clock.Until(cl.until, s.now) > 0 && (!cl.tenured || cl.caller > 0)
}

// inFlight reports whether any message is on its way that can still arrive.
func (s *search) inFlight(w *schedWorld) bool {
	for i := range w.m {
		hangs := s.bounds.hangs(i)
		if w.slots.set.open.Has(i) && !hangs {
			return true
		}
		for c := range s.bounds.clients {
			cl := w.c[c]
			if len(cl.req[i]) > 0 && !hangs || len(cl.rep[i])+len(cl.push[i])+len(cl.zombies[i]) > 0 {
				return true
			}
		}
	}
	return false
}

// check looks for what must never be.
func (s *search) check(w *schedWorld) {
	for c := range s.bounds.clients {
		for i := range schedMembers {
			if name, exists := w.c[c].probe().Combination(i); !exists {
				s.wrong("%s of member %d go together", name, i)
			}
		}
	}
	if s.bounds.slots > 0 {
		s.checkSlots(w)
	} else {
		s.checkHolders(w)
	}
	s.checkReaders(w)
	s.checkVotes(w)
	s.checkCrowd(w)
	if s.inFlight(w) {
		return
	}
	s.checkDowngraded(w)
	for i := range w.m {
		if s.bounds.hangs(i) {
			continue
		}
		for _, o := range w.m[i].read().owners {
			if o != schedOther && !s.mayStay(w, o) {
				s.wrong("%s is left behind at member %d", o, i)
			}
		}
	}
}

func (s *search) checkHolders(w *schedWorld) {
	holders, alone, stale := 0, false, false // stale: another has won since
	for c := range s.bounds.clients {
		if s.believes(w, c) {
			holders++
			if s.kind(c).together {
				stale = stale || w.c[c].token < w.written || w.c[c].token == w.written && !w.c[c].wrote
			} else {
				alone, stale = true, stale || w.c[c].last() != w.won
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
}

// key names a state: what can still matter of it, with everything that has a date relative to now. Members that are alike
// are in an order of their own.
func (s *search) key(w *schedWorld) explore.Key {
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
	switch {
	case s.bounds.slots > 0:
		if s.alikeBehindGate() {
			slices.SortFunc(blocks[1:], slices.Compare)
		}
	case s.bounds.hung > 0:
		slices.SortFunc(blocks[:schedMembers-1], slices.Compare)
	default:
		slices.SortFunc(blocks[:], slices.Compare)
	}
	u := &w.used
	out := append(s.out[:0], byte(u.splits), byte(u.ticks), byte(u.breaks), byte(u.lost), byte(u.cancels), byte(u.extends), byte(u.lapses), byte(u.forgets), byte(u.forced), byte(u.gathers))
	out = append(out, byte(u.downgrades), byte(u.handoffs), byte(u.stops))
	out = appendNumbers(out, w.won, w.written)
	if s.bounds.lapses > 0 { // else the greatest says it all
		out = appendNumbers(out, w.tokens...)
		for c := range s.bounds.clients {
			out = appendNumbers(out, w.c[c].began)
		}
	}
	if s.bounds.slots > 0 {
		out = s.appendSlots(out, w)
	}
	if s.bounds.changes() {
		out = s.appendLeases(out, w)
	}
	if s.bounds.callers > 0 {
		out = s.appendCrowd(out, w)
	}
	for c := range s.bounds.clients {
		cl := w.c[c]
		out = append(out, byte(cl.phase), byte(cl.attempt), flag(cl.gathered))
		out = appendNumbers(out, cl.token)
		for _, t := range [...]time.Time{cl.until, cl.limit, cl.renewAt} {
			out = s.appendTime(out, t)
		}
		out = cl.probe().AppendKey(out, s.clocks(cl, 0))
		if s.bounds.slots > 0 {
			out = appendText(out, cl.b.Hint())
		}
		out = append(out, flag(cl.final), byte(cl.behind))
		if s.bounds.opens() {
			out = s.appendOpen(out, w, cl)
		}
		for _, r := range cl.renewals {
			out = s.appendTime(out, r.sent)
			out = append(out, flag(r.verdict != quorum.Undecided), byte(r.ttl/schedTick), flag(r.forced))
		}
	}
	for _, m := range blocks {
		out = binary.AppendUvarint(out, uint64(len(m)))
		out = append(out, m...)
	}
	s.out = out
	return explore.Bytes(out)
}

// clocks write the dates of a ballot.
func (s *search) clocks(cl *schedClient, i int) wait.Clocks {
	return wait.Clocks{Time: s.dates, Server: schedNow, Epoch: cl.epoch[i] + 1, Recent: s.now.Add(1 - 2*schedTick)}
}

func one(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

func flag(b bool) byte { return byte(one(b)) }

func appendNumbers(b []byte, numbers ...int64) []byte {
	for _, n := range numbers {
		b = binary.AppendVarint(b, n)
	}
	return b
}

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

// appendMember writes member i, and what is between it and each client.
func (s *search) appendMember(b []byte, w *schedWorld, i int) []byte {
	b = binary.AppendUvarint(b, w.m[i].id)
	b = appendNumbers(b, w.counted[i])
	if s.bounds.forgets > 0 {
		b = append(b, byte(w.gen[i]), byte(w.rest[i]))
	}
	for c := range s.bounds.clients {
		cl := w.c[c]
		if s.bounds.forgets > 0 {
			b = cl.probe().AppendMemory(b, i)
		}
		b = append(b, flag(cl.forced.Has(i)))
		if s.bounds.tickets() {
			b = appendTicket(b, cl.places[i])
		}
		b = cl.probe().AppendVoter(b, i, s.clocks(cl, i))
		if s.bounds.opens() {
			b = s.appendOpenAt(b, cl, i)
		}
		for _, r := range cl.renewals {
			b = append(b, flag(r.yes.Has(i)), flag(r.refused.Has(i))|flag(r.failed.Has(i))<<1)
		}
		for _, q := range [...][]schedMsg{cl.req[i], cl.rep[i], cl.zombies[i]} {
			b = append(b, byte(len(q)))
			for k := range q {
				b = s.appendMessage(b, cl, i, &q[k])
			}
		}
		b = append(b, byte(len(cl.push[i])))
		for k := range cl.push[i] {
			p := &cl.push[i][k]
			b = append(b, flag(p.Grant), flag(p.Gone)|flag(p.Readers)<<1|flag(p.Wish)<<2)
			b = appendText(b, p.Other)
			b = appendList(b, p.Permits)
			b = appendNumbers(b, p.Token, p.Server-schedNow, int64(p.TTL))
		}
	}
	return b
}

func (s *search) appendMessage(b []byte, cl *schedClient, i int, m *schedMsg) []byte {
	b = append(b, m.op[0], m.op[2])
	b = appendText(b, m.owner)
	b = appendText(b, m.hint)
	b = appendNumbers(b, m.ttl, m.token, m.most)
	if s.bounds.slots > 0 {
		b = appendWants(b, m.scriptCall)
	}
	if m.op == opAdopt {
		b = appendText(b, m.former)
	}
	if !cl.hears(m) {
		return b
	}
	if b = s.appendTime(b, m.sent); s.bounds.changes() {
		b = append(b, flag(m.attempt == cl.attempt))
	}
	b = append(b, byte(m.renewal), flag(m.epoch == cl.epoch[i]), flag(m.idle)|flag(m.regain)<<1)
	b = appendNumbers(b, m.reply.n, m.reply.server-schedNow)
	b = appendText(b, m.reply.next)
	b = appendText(b, m.reply.permits)
	b = appendNumbers(b, m.reply.limit)
	if s.bounds.tickets() {
		b = appendTicket(appendTicket(b, m.ticket), m.reply.place)
	}
	return b
}

// explore visits every state within the bounds that follows a schedule, until something is wrong.
func (s *search) explore(begin []schedAction) explore.Found[schedAction] {
	can := map[explore.Key]bool{}
	w := explore.World[*schedWorld, schedAction]{
		Next: func(w *schedWorld, yield func(a schedAction, v *schedWorld, wrong string) bool) {
			for _, a := range s.Enabled(w) {
				if v := s.Do(w, a); yield(a, v, v.wrong) {
					s.drop(v)
				}
			}
		},
		Key: s.key,
		Wrong: func(w *schedWorld) string {
			if s.inFlight(w) {
				return ""
			}
			s.count("quiescent states")
			if s.bounds.turns > 0 {
				if wrong := s.unwhole(w); strings.Contains(wrong, s.only) && wrong != "" {
					return wrong
				}
			}
			return s.finish(w, can)
		},
		Limit: s.bounds.maxStates,
	}
	f := w.Explore(explore.Play(s, s.initial(), begin))
	f.Schedule = slices.Concat(begin, f.Schedule)
	return f
}

// finish plays on from w with nothing more lost, everything delivered at once, pauses that end one after
// the other, and holders that unlock: all clients must come to their end. It returns why not, or "". can
// remembers states that do.
func (s *search) finish(w *schedWorld, can map[explore.Key]bool) string {
	patience := 40 // ticks
	if s.bounds.slots > 0 {
		patience = 60
	}
	stats, bounds := s.stats, s.bounds
	s.stats = map[string]int{}
	b := &s.bounds
	b.splits, b.ticks, b.cancels, b.lost, b.breaks, b.forgets, b.gathers, b.turns = 1<<20, 1<<20, 0, 0, 0, 0, 0, 0
	b.reserves = -min(b.reserves, 1) // none more
	b.downgrades, b.handoffs, b.stopped, b.quits = 0, 0, 0, 0
	defer func() { s.stats, s.bounds = stats, bounds }()
	var passed []explore.Key
	var turns [schedClients]int // pauses of each that have ended
	for ticks, splits := 0, 0; ; {
		if w.wrong != "" {
			return "on the way to the end: " + w.wrong
		}
		done := !slices.ContainsFunc(w.c[:], func(cl *schedClient) bool {
			return cl.phase != schedDone && !(cl.phase == schedIdle && cl.adopts && (len(w.handed) == 0 || s.bounds.borrows > 0)) &&
				!(cl.phase == schedIdle && s.bounds.callers > 0 && s.crowdRests(w))
		})
		rests := !s.inFlight(w)
		if done && rests {
			break
		}
		if rests {
			v := *w
			v.used = schedWorld{}.used // nothing of it matters from here
			all := s.bounds
			s.bounds = bounds
			key := s.key(&v)
			if s.bounds = all; can[key] {
				break
			}
			passed = append(passed, key)
		}
		next := s.soonest(w, splits, &turns)
		switch next.kind {
		case actTick:
			ticks, splits = ticks+1, 0
		case actSplit:
			turns[next.c]++
			splits++ // a while later somebody is late
		}
		if why := fmt.Sprintf("no progress: %d ticks later not everybody has had the lock", patience); ticks > patience && strings.Contains(why, s.only) {
			return why
		} else if ticks > patience {
			break
		}
		w = s.Do(w, next)
	}
	for _, key := range passed {
		can[key] = true
	}
	return s.ended(w)
}

// soonest is what happens first of what can.
func (s *search) soonest(w *schedWorld, splits int, turns *[schedClients]int) schedAction {
	next := schedAction{kind: actTick}
	for _, a := range s.Enabled(w) {
		switch a.kind {
		case actExec, actAnswer, actPush, actZombie, actSetAt:
			return a
		case actStart, actUnlock, actOther, actAdopt, actCome, actWake:
			if next.kind == actTick || next.kind == actSplit {
				next = a
			}
		case actSplit:
			if splits < 6*s.bounds.clients && next.kind == actTick || next.kind == actSplit && turns[a.c] < turns[next.c] {
				next = a
			}
		}
	}
	return next
}

// tell is the schedule in words.
func (s *search) tell(schedule []schedAction) string {
	told := func() []string { said := s.said; s.said = nil; return said }
	s.telling = true
	defer func() { s.telling = false }()
	w, text := explore.Tell(s, s.initial(), schedule, told)
	if w.wrong == "" && !s.inFlight(w) && s.finish(w, map[explore.Key]bool{}) != "" {
		said := told()
		text += "\nand then, with everything delivered at once:\n" + strings.Join(said[:min(len(said), 60)], "\n")
	}
	s.said = nil
	return text
}

// verdict is what is wrong at the end of a schedule, or on the way from there to everybody's end. Steps that are not
// possible are left out.
func (s *search) verdict(schedule []schedAction) string {
	w := explore.Play(s, s.initial(), schedule)
	if w.wrong != "" || s.inFlight(w) {
		return w.wrong
	}
	if s.bounds.turns > 0 {
		if wrong := s.unwhole(w); wrong != "" {
			return wrong
		}
	}
	return s.finish(w, map[explore.Key]bool{})
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
				isScripts := func(word string) bool { return scriptGuards[word] != nil }
				for _, word := range rest {
					if isScripts(word) {
						s.rules.scripts = append(s.rules.scripts, word)
					}
				}
				setWords(t, &s.rules, slices.DeleteFunc(rest, isScripts))
			case "visits":
				n, err := strconv.Atoi(rest[0])
				require.NoError(t, err, "%v", l)
				if s.states = n; len(rest) > 1 {
					s.bounds.maxStates = n
				}
			case "sees":
				s.needs = rest
			case "begin":
				s.begin = explore.Parse(rest, parseAction)
			case "found":
				s.found, s.wrong = explore.Parse(rest, parseAction), strings.Join(l.Want, " ")
			default:
				t.Fatalf("%v: no such word", l)
			}
		}
		if strings.HasPrefix(place, "semaphore") {
			s.bounds.slotsBounds = s.bounds.slotsBounds.withDefaults(&s.bounds)
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
		name, value, has := strings.Cut(w, "=")
		f := reflect.ValueOf(to).Elem().FieldByName(name)
		require.True(t, f.IsValid(), "no such word: %s", name)
		switch field := reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Interface().(type) {
		case *bool:
			*field = true
		case *int:
			if *field = schedMembers; has {
				*field = int(toInt(value))
			}
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

// TestSchedulesExplored visits every state within the bounds of each search: one holder at a time, tokens
// that rise, votes that count once, nothing left behind, and from every moment of rest a way for everybody
// to come to the end. Cost: 20 s. Each search shows something that no other here does.
func TestSchedulesExplored(t *testing.T) { exploreAll(t, "explored/always", 0) }

// TestLongSchedulesExplored visits more. Every search ends at a million states, which take 1 GB, unless REDQUORUM_SEEDS is set.
func TestLongSchedulesExplored(t *testing.T) {
	rt.Long(t, "takes minutes")
	limit := 1_000_000
	if schedulesLarge() {
		limit = 0
	}
	exploreAll(t, "explored/large", limit)
}

// schedulesLarge reports whether there is time for more: make soak.
func schedulesLarge() bool { return os.Getenv("REDQUORUM_SEEDS") != "" }

// exploreAll runs the searches of testdata/schedules, of no more states than limit, 0: all. Under the race
// detector, which finds nothing in one goroutine, they end early.
func exploreAll(t *testing.T, place string, limit int) {
	t.Helper()
	states := 0
	searches := schedCases(t, place)
	for _, tc := range searches {
		t.Run(tc.name, faketime.In(func(t *testing.T) {
			set(&tc.bounds.maxStates, limit)
			if faketime.Race {
				tc.bounds.maxStates, tc.states, tc.needs = 500, 0, nil
			}
			s := newSearch(tc.bounds, schedRules{})
			f := s.explore(tc.begin)
			states += f.States
			t.Logf("%d states to a depth of %d, all: %v; members did %d things; %v", f.States, f.Depth, f.All, len(s.outcomes), s.stats)
			if f.Wrong != "" {
				t.Fatalf("%s: %s\n%s", f.Wrong, explore.Spell(f.Schedule), s.tell(f.Schedule))
			}
			require.GreaterOrEqual(t, f.States, tc.states, "fewer states than there were: what is not explored any more?")
			for _, what := range tc.needs {
				require.NotZero(t, s.stats[what], "the search has seen no %s", what)
			}
		}))
	}
	t.Logf("%d states in %d searches", states, len(searches))
}

// TestSchedulesCounterExamples takes guards out, one by one, and shows the schedule that then breaks a
// promise; the same schedule, with the guard, breaks none. Schedules are searched for when there is time
// (make soak), and when the recorded one has ceased to show it.
func TestSchedulesCounterExamples(t *testing.T) { counterExamples(t, "broken/guards") }

func counterExamples(t *testing.T, place string) {
	t.Helper()
	for _, c := range schedCases(t, place) {
		t.Run(c.name, faketime.In(func(t *testing.T) {
			c.bounds.maxStates = 400_000
			schedule := c.found
			broken := newSearch(c.bounds, c.rules)
			broken.only = c.wrong
			wrong := broken.verdict(schedule)
			if wrong == "" {
				t.Logf("the recorded schedule shows nothing any more:\n%s", broken.tell(schedule))
			}
			if wrong == "" || schedulesLarge() {
				f := broken.explore(c.begin)
				wrong, schedule = f.Wrong, f.Schedule
				t.Logf("%d states, %d steps: %s", f.States, len(schedule), explore.Spell(schedule))
			}
			require.Contains(t, wrong, c.wrong, "nothing goes wrong without the guard: the search does not see what it should")
			t.Logf("without the guard: %s\n%s", wrong, broken.tell(schedule))

			whole := newSearch(c.bounds, schedRules{})
			require.Empty(t, whole.verdict(schedule), "with the guard\n%s", whole.tell(schedule))
		}))
	}
}

// schedLetters spell the kinds of actions in a recorded schedule: "xB2" is that member 2 executes the next
// request of client B.
const schedLetters = "sxaplbztucevofFgwLmdhyrnjkS"

func (a schedAction) String() string {
	l := schedLetters[a.kind : a.kind+1]
	switch a.kind {
	case actTick, actSet:
		return l
	case actStart, actUnlock, actCancel, actExtend, actSplit, actGather, actDowngrade, actHandoff, actReserve, actCome, actQuit, actWake:
		return l + clientName(int(a.c))
	case actLapse, actOther, actForget, actForce, actSetAt:
		return fmt.Sprint(l, a.i)
	}
	return fmt.Sprint(l, clientName(int(a.c)), a.i)
}

func parseAction(word string) schedAction {
	a := schedAction{kind: schedKind(strings.IndexByte(schedLetters, word[0]))}
	for _, ch := range word[1:] {
		if ch >= 'A' {
			a.c = int8(ch - 'A')
		} else {
			a.i = 10*a.i + int8(ch-'0')
		}
	}
	return a
}
