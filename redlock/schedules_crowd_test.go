//go:build !race

package redlock

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// The schedules of a client with several callers, which pass on what they get: docs/protocol/passing.md. The first clients of such a
// search are its attempts, and what these have won, so many as it has callers. The site, the tenure and the share are made for each
// event. What decides is the code.

// crowdBounds are those of such a client.
type crowdBounds struct {
	callers int
	locks   int // that each of them asks for, one after the other
	quits   int // callers that leave the line
	keep    int // ticks for which the client keeps what they have unlocked
}

func (b *schedBounds) crowded(c int) bool { return c < b.callers }

// schedCaller is one of them.
type schedCaller struct {
	is    callerPhase
	locks uint8 // that it has asked for
	at    int8  // of the attempts, while it tries
}

type callerPhase uint8

const (
	callerAway callerPhase = iota
	callerStands
	callerTries
	callerHolds
)

// crowdWorld is what such a client has of the name.
type crowdWorld struct {
	callers              [schedClients]schedCaller
	line                 []int8 // the callers that wait, in the order in which they came; never changed
	contended, met, shut time.Time
	waits                uint8 // the ticks, from 1, for which another client is registered at a majority; 0: none is
}

// crowdClient is what one of its attempts has won besides.
type crowdClient struct {
	tenured, found, recalled, more bool // found: callers find the tenure
	over, kept, told               bool // told: that another client waits
	few, lease                     int64
	caller                         int8 // from 1: who has the lease with that token; 0: nobody
	quiet, askedAt, rests, end     time.Time
}

func (cl *crowdClient) dates() []*time.Time {
	return []*time.Time{&cl.quiet, &cl.askedAt, &cl.rests, &cl.end}
}

func (x *crowdWorld) dates() []*time.Time { return []*time.Time{&x.contended, &x.met, &x.shut} }

// crowdEvent is what there is for one event.
type crowdEvent struct {
	site   *site
	places [schedClients]*place
	t      *tenure
	share  *share
}

// crowdTurn is that of a caller, which begins behind the event.
type crowdTurn struct {
	caller int
	start  wait.Start
}

// crowd makes what the client has, for an event at one of its attempts.
func (s *search) crowd(c int, a *attempt) {
	cl, x, terms := s.w.c[c], &s.w.crowd, s.terms(c)
	sh := sitesOf.of(s.stubs[c]).shard(schedName)
	s.event = crowdEvent{site: &site{contended: x.contended, met: x.met, shut: x.shut}}
	sh.m, sh.spare = map[string]*site{schedName: s.event.site}, nil
	for _, k := range x.line {
		if x.callers[k].is == callerTries {
			s.event.site.busy++
			continue
		}
		p := &place{turn: make(chan struct{}), width: 1, terms: &terms, ctx: context.Background()}
		s.event.places[k], s.event.site.places = p, append(s.event.site.places, p)
	}
	if !cl.tenured {
		return
	}
	t := &tenure{c: s.stubs[c], kind: terms.kind, name: schedName, ttl: terms.ttl, shard: sh, lease: s.leaseAt(c, a), seen: cl.quiet, asked: cl.askedAt}
	t.passing = passing{rests: cl.rests, few: cl.few, more: cl.more}
	t.over, t.stays = cl.over, stays{end: cl.end, kept: cl.kept}
	sitesOf.of(s.stubs[c]).kept.Store(one(cl.kept))
	if cl.recalled {
		t.recalled = &a.hold
	}
	t.lease.bond, a.open.to, s.event.t = t, t, t
	if cl.caller > 0 {
		s.event.share = t.joinLocked(context.Background(), &terms, s.now)
		s.event.share.token = uint64(cl.lease)
	}
	if cl.found {
		t.openLocked()
	}
}

// crowdThen keeps what an event has made of it, and judges what was passed on.
func (s *search) crowdThen(c int) {
	e := s.event
	if s.event = (crowdEvent{}); e.site == nil {
		return
	}
	cl, x, t := s.own(s.w, c), &s.w.crowd, e.t
	x.contended, x.met, x.shut = e.site.contended, e.site.met, e.site.shut
	if t != nil {
		cl.found, cl.recalled, cl.quiet, cl.askedAt = t.site != nil, t.recalled != nil, t.seen, t.asked
		cl.few, cl.more, cl.rests, cl.over = t.few, t.more, t.rests, t.over
		cl.kept, cl.end = t.kept, t.end
		sitesOf.of(s.stubs[c]).kept.Store(0)
		t.doneLocked()
		if e.share != nil && e.share.term.Err() != nil {
			s.away(c)
		}
	}
	for k, p := range e.places {
		switch {
		case p == nil || !isClosed(p.turn):
		case p.share == nil:
			x.callers[k].is, x.callers[k].at = callerTries, -1
			s.turns = append(s.turns, crowdTurn{k, wait.WaitFirst})
		default:
			s.passed(c, k, p.share)
		}
	}
	if t != nil && t.lease.term.Err() != nil {
		s.say("  what %v has won ends: %v", who(c), t.lease.term.Err())
		s.over(c)
	}
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// passed judges a lease that no member was asked for.
func (s *search) passed(c, k int, l *share) {
	cl, token, least := s.w.c[c], int64(l.token), s.w.won
	s.say("  caller %v has the lock of %v, with token %d", who(k), who(c), token)
	s.count("passes")
	if s.bounds.lapses > 0 {
		least = cl.began
	}
	switch waits := s.w.crowd.waits; {
	case cl.caller > 0:
		s.wrong("a lock is passed on that a caller has")
	case cl.told:
		s.wrong("a lock is passed on, and it was told that another client waits")
	case waits > 0 && 3*int(waits-1) >= s.bounds.entry:
		s.wrong("a lock is passed on, and another client has waited for a third of Entry")
	case clock.Until(l.until(nil), l.of.lease.term.Until()) > 0:
		s.wrong("a lease is longer than its hold")
	case token <= least || slices.Contains(s.w.tokens, token):
		s.wrong("token %d of %v is not above %d, or is given out twice", token, who(c), least)
	}
	s.w.won, s.w.written = max(s.w.won, token), max(s.w.written, token)
	s.w.tokens = append(slices.Clip(s.w.tokens), token)
	s.leased(c, k, token)
}

// leased has a caller have a lease of what attempt c has won: the first of those that wait.
func (s *search) leased(c, k int, token int64) {
	if x := &s.w.crowd; x.line[0] != int8(k) {
		s.wrong("caller %v is overtaken by caller %v", who(x.line[0]), who(k))
	}
	s.waitsNoMore(k, callerHolds)
	s.w.c[c].caller, s.w.c[c].lease = int8(k+1), token
}

func (s *search) waitsNoMore(k int, is callerPhase) {
	x := &s.w.crowd
	x.line = slices.DeleteFunc(slices.Clone(x.line), func(j int8) bool { return j == int8(k) })
	x.callers[k].is = is
}

// away sends the caller away that has a lease of attempt c, or tries there.
func (s *search) away(c int) {
	x := &s.w.crowd
	if k := s.w.c[c].caller; k > 0 {
		s.w.c[c].caller, x.callers[k-1].is = 0, callerAway
	}
	for k := range x.callers {
		if x.callers[k].is == callerTries && int(x.callers[k].at) == c {
			s.waitsNoMore(k, callerAway)
		}
	}
}

// crowdWon is told that attempt c has the lock: won of its client. The tenure is nil if it is not to be passed on.
func (s *search) crowdWon(c int, a *attempt) *tenure {
	if !s.bounds.crowded(c) {
		return nil
	}
	t := s.stubs[c].won(&want{op: opLock, name: schedName, terms: &a.terms, turn: hasTurn}, &a.hold)
	s.event.t, s.w.c[c].tenured = t, t != nil
	return t
}

// crowdHolds is called when the attempt has its lease.
func (s *search) crowdHolds(c int) {
	for k, caller := range s.w.crowd.callers {
		if s.bounds.crowded(c) && caller.is == callerTries && int(caller.at) == c {
			s.leased(c, k, s.w.c[c].token)
		}
	}
	s.crowdThen(c)
}

// crowdActions adds what the callers can do.
func (s *search) crowdActions(w *schedWorld, add func(k schedKind, c, i int)) (busy bool) {
	for k := range s.bounds.callers {
		x := &w.crowd.callers[k]
		switch {
		case x.is == callerAway && int(x.locks) < s.bounds.locks:
			add(actCome, k, 0)
			busy = true
		case x.is == callerStands && w.used.quits < s.bounds.quits:
			add(actQuit, k, 0)
		}
		if cl := w.c[k]; (cl.kept || !cl.rests.IsZero()) && cl.caller == 0 && !cl.over {
			add(actWake, k, 0)
		}
	}
	return busy
}

// crowdDoes makes a step of a caller, or of a tenure that has rested.
func (s *search) crowdDoes(w *schedWorld, kind schedKind, k int) {
	c := k
	if kind != actWake { // the attempt whose tenure callers find, or any
		c = max(0, slices.IndexFunc(w.c[:], func(cl *schedClient) bool { return cl.found }))
	}
	s.client(w, c)
	a, terms := s.attempt(c), s.terms(c)
	x, e := &w.crowd, &s.event
	switch kind {
	case actCome:
		x.callers[k].locks++
		x.callers[k].is, x.line = callerStands, append(slices.Clip(x.line), int8(k))
		before := len(e.site.places)
		come := comes{context.Background(), new(int)}
		func() {
			defer func() { _ = recover() }()
			if l, _ := s.stubs[c].takes(come, &want{op: opLock, name: schedName, terms: &terms}); l != nil {
				s.passed(c, k, l.bond.(*share))
				return
			}
			*come.asked = 0
			_, contended, _ := sitesOf.of(s.stubs[c]).enter(come, schedName, 1, nil, &terms)
			x.callers[k].is, x.callers[k].at = callerTries, -1
			s.turns = append(s.turns, crowdTurn{k, map[bool]wait.Start{true: wait.WaitFirst, false: wait.AskFirst}[contended]})
		}()
		switch n := len(e.site.places); {
		case x.callers[k].is != callerStands:
		case n > before:
			e.places[k] = e.site.places[n-1]
		default: // what was kept has ended
			x.callers[k].is, x.callers[k].at = callerTries, -1
			s.turns = append(s.turns, crowdTurn{k, wait.WaitFirst})
		}
		s.say("caller %v comes", who(k))
	case actQuit:
		s.say("caller %v leaves the line", who(k))
		w.used.quits++
		sitesOf.of(s.stubs[c]).leave(schedName, e.places[k])
		e.places[k] = nil
		s.waitsNoMore(k, callerAway)
	case actWake:
		s.say("%v has rested for long enough", who(c))
		e.t.rests, e.t.end = s.now, s.now
		e.t.wake()
	}
	s.back(c, a)
}

// comes is the context of a caller that comes. It panics where the caller begins to wait.
type comes struct {
	context.Context
	asked *int
}

func (c comes) Done() <-chan struct{} {
	if *c.asked++; *c.asked > 1 {
		panic("it stands in line")
	}
	return nil
}

// begin begins the turns that have come.
func (s *search) begin(w *schedWorld) {
	turns := s.turns
	s.turns = nil
	for _, turn := range turns {
		c := slices.IndexFunc(w.c[:s.bounds.callers], func(cl *schedClient) bool { return cl.phase == schedIdle })
		if c < 0 {
			s.wrong("there are more holds than callers")
			return
		}
		w.crowd.callers[turn.caller].at = int8(c)
		s.start(c, turn.start)
		s.settle(c)
	}
}

// crowdEnds ends the lease or the attempt of a client with several callers. It reports false if the client has one.
func (s *search) crowdEnds(c int) bool {
	if !s.bounds.crowded(c) {
		return false
	}
	a := s.attempt(c)
	if share := s.event.share; share != nil {
		if _, owed, _ := share.own.giveUp(); owed != nil {
			owed.release(false)
		}
		s.back(c, a)
		return true
	}
	if s.w.c[c].phase == schedHolding {
		term := core.ProbeTerm(s.now, s.now, 0)
		a.leaves(term.End(ErrReleased, s.now))
	}
	a.release(false)
	if s.w.c[c].phase == schedTrying {
		sitesOf.of(s.stubs[c]).leave(schedName, nil)
	}
	s.crowdThen(c)
	s.over(c)
	return true
}

// tells notes that a client was told of one that waits behind it.
func (s *search) tells(c int, other string, gone bool) {
	for k := s.bounds.callers; s.bounds.crowded(c) && k < s.bounds.clients; k++ {
		switch cl := s.own(s.w, c); {
		case gone && cl.phase == schedTrying && s.w.c[k].name == other:
			cl.told = false
		case !gone && s.w.c[k].live(other):
			cl.told = true
		}
	}
}

// checkCrowd requires that who is first in line is at the members when another client is known to wait.
func (s *search) checkCrowd(w *schedWorld) {
	if s.bounds.callers == 0 {
		return
	}
	x := &w.crowd
	waits := false
	for _, cl := range w.c[s.bounds.callers:s.bounds.clients] {
		n := 0
		for _, m := range w.m {
			n += int(one(strings.Contains(m.key(WaitersOf(schedName)).Fields[cl.name], " ")))
		}
		waits = waits || cl.phase == schedTrying && n >= member.Majority(schedMembers)
	}
	if x.waits = max(x.waits, 1); !waits {
		x.waits = 0
	}
	for c, cl := range w.c[:s.bounds.callers] {
		if cl.kept && cl.told {
			s.wrong("%v keeps a lock, and another client waits", who(c))
		}
		if cl.tenured && cl.told && len(x.line) > 0 && x.callers[x.line[0]].is == callerStands {
			s.wrong("nobody of the line of %v asks, and another client waits", who(c))
		}
	}
}

// crowdRests reports whether all callers have had what they ask for.
func (s *search) crowdRests(w *schedWorld) bool {
	return !slices.ContainsFunc(w.crowd.callers[:s.bounds.callers], func(x schedCaller) bool {
		return x.is != callerAway || int(x.locks) < s.bounds.locks
	})
}

// appendCrowd writes what there is of it.
func (s *search) appendCrowd(out []byte, w *schedWorld) []byte {
	x := &w.crowd
	out = append(out, byte(w.used.quits), x.waits, byte(len(x.line)))
	for _, k := range x.line {
		out = append(out, byte(k))
	}
	for k := range s.bounds.callers {
		cl := w.c[k]
		out = append(out, byte(x.callers[k].is), x.callers[k].locks, byte(x.callers[k].at), byte(cl.caller))
		out = append(out, flag(cl.tenured)|flag(cl.found)<<1|flag(cl.recalled)<<2|flag(cl.more)<<3|flag(cl.told)<<4|flag(cl.over)<<5|flag(cl.kept)<<6)
		out = appendNumbers(out, cl.few, cl.lease)
		for _, t := range cl.dates() {
			out = s.appendTime(out, *t)
		}
	}
	for _, t := range x.dates() {
		out = s.appendTime(out, *t)
	}
	return out
}
