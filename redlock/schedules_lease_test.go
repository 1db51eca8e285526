//go:build !race

package redlock

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// The schedules of leases that become others: a writer's is downgraded, and a lease is handed off and adopted.

// leaseBounds are those of such leases.
type leaseBounds struct {
	downgrades int // leases of writers that become those of readers
	handoffs   int
	adopters   int                 // of the clients, the last: they ask for nothing, and adopt
	borrows    int                 // of the adopters, the last: they borrow, and nobody adopts meanwhile, or once one has unlocked
	tries      [schedClients]int64 // of each adopter; 0: one
	stopped    int                 // scripts of adoptions that end in the middle
}

func (b *leaseBounds) changes() bool { return b.downgrades+b.handoffs > 0 }

const opAdopt = "adopt"

// schedHandoff is a lease on its way, and what became of it.
type schedHandoff struct {
	Handoff
	from, taker int  // clients; from 1, whose adoption succeeded: 0, nobody's yet
	freed       bool // the taker's lease is over, and it owes its release
	wrote       bool // it was a writer's
}

// leaseMsg is what a call has besides.
type leaseMsg struct {
	attempt int
	unheard bool // nobody hears the answer, or it is for a lease that has become another since
}

// leaseClient is what a client has besides.
type leaseClient struct {
	adopts  bool
	turned  *kind // of its lease, if it is not what the client asks for
	wrote   bool  // the lease was a writer's
	former  string
	adopted bool
	takes   int               // of the hand-offs, from 1, that it adopts or has adopted
	tried   map[string]string // owners of its adoptions that nobody has decided, by the former owner. Never changed
}

// hears reports whether the client's code hears the answer to a call.
func (cl *schedClient) hears(m *schedMsg) bool {
	switch {
	case m.op == opRelease, m.unheard, m.attempt != cl.attempt:
		return false
	}
	return cl.live(m.owner)
}

// pushed reports whether pushes find the client's hold: that of an adoption they do not.
func (cl *schedClient) pushed() bool { return !cl.adopts }

// borrowed reports whether the client leaves a lease to its hand-off.
func (b *schedBounds) borrowed(c int) bool { return c >= b.clients-b.borrows }

// settled reports whether no call of the client's owner is under way that may take a vote or a place: Handoff waits for that, but
// not for long if a member hangs.
func (cl *schedClient) settled(b *schedBounds) bool {
	for i := range cl.req {
		if !b.hangs(i) && slices.ContainsFunc(slices.Concat(cl.req[i], cl.rep[i]), func(m schedMsg) bool {
			return m.owner == cl.name && slices.Contains([]string{opAcquire, opWait, opClaim, opRejoin, opAdopt}, m.op)
		}) {
			return false
		}
	}
	return true
}

// adopters adds what a client can begin.
func (s *search) adopters(w *schedWorld, c int, add func(k schedKind, c, i int)) {
	if s.bounds.crowded(c) {
		return
	}
	if !w.c[c].adopts {
		add(actStart, c, 0)
		return
	}
	for k, h := range w.handed {
		lent := func(cl *schedClient) bool {
			return cl.takes == k+1 && (cl.phase == schedAdopting || cl.phase == schedHolding && cl.former == "")
		}
		if s.bounds.borrows == 0 || !h.freed && !slices.ContainsFunc(w.c[:], lent) {
			add(actAdopt, c, k)
		}
	}
}

// leaves adds what a lease can become.
func (s *search) leaves(w *schedWorld, c int, add func(k schedKind, c, i int)) {
	if w.used.downgrades < s.bounds.downgrades && s.kind(c).weaker != nil {
		add(actDowngrade, c, 0)
	}
	if w.used.handoffs < s.bounds.handoffs && w.c[c].settled(&s.bounds) {
		add(actHandoff, c, 0)
	}
}

// stoppedWrite is what comes before a script that ends behind so many writes.
const stoppedWrite = `local redis = (function(real) local left = %d ` +
	`local writes = {ZREM = 1, HDEL = 1, HSET = 1, PEXPIRE = 1} ` +
	`local function stops(name) if left == 0 and writes[name] then error('ERR stopped', 0) end if writes[name] then left = left - 1 end end ` +
	`return {call = function(...) stops(...) return real.call(...) end, pcall = function(...) stops(...) return real.pcall(...) end, ` +
	`error_reply = real.error_reply, sha1hex = real.sha1hex} end)(redis) `

const stopsMost = 8 // writes of such a script

func stoppedName(sha string, writes int) string { return fmt.Sprint("stopped-", sha, "-", writes) }

// stoppedCall is an adoption that ends behind so many writes.
func (s *search) stoppedCall(c *scriptCall, writes int) *scriptCall {
	key := fmt.Sprint(writes, " ", strings.Join(c.args, " "))
	out := s.calls[key]
	if out == nil {
		stopped := *c
		stopped.args = slices.Clone(c.args)
		stopped.args[1] = stoppedName(c.args[1], writes)
		out = &stopped
		s.calls[key] = out
	}
	return out
}

// stops adds the ends of the client's next script in the middle.
func (s *search) stops(w *schedWorld, c, i int, add func(k schedKind, c, i int)) {
	m := &w.c[c].req[i][0]
	if w.used.stops >= s.bounds.stopped || m.op != opAdopt {
		return
	}
	for n := 1; n < stopsMost && s.played(w.m[i], s.stoppedCall(m.scriptCall, n)).reply.err != ""; n++ { // without a write it was not there
		add(actStop, c, i+schedMembers*n)
	}
}

// stop has a member end a script in the middle.
func (s *search) stop(c, i, writes int) {
	s.w.used.stops++
	s.count("scripts that ended in the middle")
	cl := s.own(s.w, c)
	m := cl.req[i][0]
	cl.req[i] = cl.req[i][1:]
	m.scriptCall = s.stoppedCall(m.scriptCall, writes)
	s.say("the script ends behind write %d", writes)
	s.execute(c, i, m)
}

// become books that the client's lease is another from now on: answers to its calls are for the former.
func (cl *schedClient) become() {
	for i := range cl.req {
		for _, q := range []*[]schedMsg{&cl.req[i], &cl.rep[i]} {
			*q = slices.Clone(*q)
			for k := range *q {
				(*q)[k].unheard = true
			}
		}
	}
	cl.renewals = nil
}

func (s *search) downgrade(w *schedWorld, c int) {
	cl, l := s.client(w, c), s.lease(c)
	w.used.downgrades++
	s.say("%v downgrades its lease", who(c))
	s.count("downgrades")
	cl.become()
	down, _, err := l.downgrade(&readKind)
	if err != nil {
		s.wrong("a downgrade of a lease that is held: %v", err)
		return
	}
	cl.turned, cl.wrote, cl.b = &readKind, true, down.hold.b
	cl.until, cl.limit, cl.renewAt = down.term.Until(), down.term.Limit(), down.renewAt
	cl.former = down.hold.former
}

func (s *search) handOff(w *schedWorld, c int) {
	cl, l := s.client(w, c), s.lease(c)
	w.used.handoffs++
	s.say("%v hands its lease off", who(c))
	s.count("hand-offs")
	cl.become()
	h, err := l.handOff()
	if err != nil {
		s.keep(c, l)
		return
	}
	owner := *h.owner // that of the event's lease is another soon
	h.owner = &owner
	if next := (schedHandoff{Handoff: h, from: c, wrote: cl.wrote}); s.bounds.borrowed(c) { // the same again
		w.handed = slices.Clone(w.handed)
		next.from = w.handed[cl.takes-1].from
		w.handed[cl.takes-1] = next
	} else {
		w.handed = append(slices.Clip(w.handed), next)
	}
	cl.takes = 0 // the lease goes on
	s.over(c)
}

func (s *search) adopt(w *schedWorld, c, k int) {
	cl := s.client(w, c)
	cl.attempt++
	h := w.handed[k].Handoff
	s.say("%v adopts the lease that %v handed off", who(c), who(w.handed[k].from))
	s.count("adoptions")
	cl.renewals = nil
	s.trying(c)
	l, _, _ := s.stubs[c].takeOver(context.Background(), schedName, &h, !s.bounds.borrowed(c), h.terms.ttl, s.now)
	cl.phase, cl.takes, cl.turned, cl.token = schedAdopting, k+1, h.terms.kind, int64(h.token)
	cl.name, cl.former, cl.b = l.hold.owner, l.hold.former, l.hold.b
	cl.wrote = w.handed[k].wrote
	cl.until, cl.limit, cl.renewAt = l.term.Until(), l.term.Limit(), l.renewAt
	cl.renewals = []schedRenewal{{sent: s.now, ttl: h.terms.ttl, adopts: true}}
	s.triedThen(c)
}

// trying and triedThen keep the owners of adoptions that are undecided, which the stub of a client has for one event.
func (s *search) trying(c int) {
	a := &s.stubs[c].adopters
	a.m = map[string]adopter{}
	for former, owner := range s.w.c[c].tried {
		a.m[former] = adopter{owner, s.now.Add(time.Hour)}
	}
}

func (s *search) triedThen(c int) {
	cl := s.w.c[c]
	cl.tried = nil
	for former, a := range s.stubs[c].adopters.m {
		if cl.tried == nil {
			cl.tried = map[string]string{}
		}
		cl.tried[former] = a.owner
	}
}

// adoptionHeard is called with each answer to an adoption.
func (s *search) adoptionHeard(c int, call *member.Call, l *lease) {
	cl := s.w.c[c]
	st := &cl.renewals[0]
	if call.Outcome != member.Answered {
		st.failed = st.failed.With(call.Index)
	}
	cl.b = l.hold.b
	cl.until, cl.limit, cl.renewAt = l.term.Until(), l.term.Limit(), l.renewAt
	need := member.Majority(schedMembers)
	switch {
	case st.yes.Len() >= need:
		s.adoptionEnds(c, l, quorum.Won)
	case schedMembers-st.refused.Len()-st.failed.Len() < need:
		s.adoptionEnds(c, l, quorum.Lost)
	}
}

// adoptionWaits ends an adoption whose members are silent.
func (s *search) adoptionWaits(c int) {
	if cl := s.w.c[c]; clock.Until(cl.renewals[0].sent.Add(s.cfg.MemberTimeout), s.now) <= 0 {
		s.adoptionEnds(c, s.lease(c), quorum.Undecided)
	}
}

func (s *search) adoptionEnds(c int, l *lease, v quorum.Verdict) {
	cl := s.w.c[c]
	s.trying(c)
	err := s.stubs[c].tookOver(l, v, cl.renewals[0].refused.Len())
	s.triedThen(c)
	if err != nil {
		s.say("  %v does not adopt the lease: %v", who(c), err)
		s.count("adoptions that failed: " + err.Error())
		s.over(c)
		return
	}
	s.say("  %v has adopted the lease", who(c))
	s.count("leases adopted")
	cl.phase, cl.adopted, cl.b = schedHolding, l.hold.former != "", l.hold.b
	cl.until, cl.limit, cl.renewAt = l.term.Until(), l.term.Limit(), l.renewAt
	w := s.w
	w.handed = slices.Clone(w.handed)
	if h := &w.handed[cl.takes-1]; h.taker > 0 {
		s.wrong("%v and %v have both adopted one lease", who(h.taker-1), who(c))
	} else {
		h.taker = c + 1
	}
}

// leaseOver is called when a client's lease or attempt is over.
func (s *search) leaseOver(c int) {
	cl := s.w.c[c]
	if cl.takes > 0 && cl.phase == schedHolding {
		s.w.handed = slices.Clone(s.w.handed)
		s.w.handed[cl.takes-1].freed = true
	}
	cl.turned, cl.wrote, cl.former, cl.adopted, cl.takes = nil, false, "", false, 0
}

// freed requires that a release takes the vote of a lease that was handed off only from whom has it.
func (s *search) freed(before, after *schedMember, c, i int, m *schedMsg) {
	if m.op != opRelease || !before.gave(m.owner) || after.gave(m.owner) {
		return
	}
	for _, h := range s.w.handed {
		if *h.owner == m.owner && h.from != c && h.taker != c+1 && !s.bounds.borrowed(c) {
			s.wrong("%v frees a vote at member %d of a lease that it has not adopted", who(c), i)
		}
	}
}

// gave reports whether the member has given an owner a vote, also as a reader.
func (m *schedMember) gave(owner string) bool {
	v := m.read()
	return v.lock[owner] != "" || v.permits[owner] != nil
}

// mayStay reports whether an owner may be known to a member where nothing is under way.
func (s *search) mayStay(w *schedWorld, owner string) bool {
	if slices.ContainsFunc(w.c[:], func(cl *schedClient) bool { return cl.live(owner) }) {
		return true
	}
	for _, h := range w.handed {
		// Who has taken it may have to move further votes, or does not know the first owner.
		if *h.owner == owner && !h.freed {
			return true
		}
	}
	for _, cl := range w.c {
		for _, tried := range cl.tried {
			if tried == owner {
				return true
			}
		}
	}
	return false
}

// checkReaders requires that who holds the lock and writes is no reader to a member.
func (s *search) checkReaders(w *schedWorld) {
	for c := range s.bounds.clients {
		if cl := w.c[c]; cl.phase == schedHolding && !s.kind(c).together {
			for i, m := range w.m {
				if has := m.read().lock; has["r"] != "" && has[cl.name] != "" && toInt(has[cl.name]) < 1e14 {
					s.wrong("member %d has made a reader of %v, which writes", i, who(c))
				}
			}
		}
	}
}

// checkDowngraded requires that a downgrade has come everywhere in the end.
func (s *search) checkDowngraded(w *schedWorld) {
	if s.bounds.downgrades == 0 || w.used.breaks > 0 {
		return
	}
	for c, cl := range w.c {
		for i, m := range w.m {
			if cl.phase == schedHolding && cl.wrote && s.kind(c).together && m.has(cl.name) {
				s.wrong("member %d keeps readers out for %v, which reads", i, who(c))
			}
		}
	}
}

// checkVotes requires that whoever relies on a lease has the votes of a majority, as long as members lose none.
func (s *search) checkVotes(w *schedWorld) {
	if u := &w.used; u.lapses+u.forgets+u.forced+u.extends > 0 || s.rules.zombies {
		return
	}
	for c := range s.bounds.clients {
		if !s.believes(w, c) {
			continue
		}
		cl, n := w.c[c], 0
		for i := range w.m {
			n += int(one(w.m[i].votesFor(cl, s.kind(c))))
		}
		if n < cl.b.Need() {
			s.wrong("%v relies on a lease of which %d members know", who(c), n)
		}
	}
}

// votesFor reports whether the member has given the client what its lease is.
func (m *schedMember) votesFor(cl *schedClient, k *kind) bool {
	v := m.read()
	if has := v.permits[cl.name]; has != nil {
		return !slices.ContainsFunc(cl.b.Permits(), func(p permit.Permit) bool {
			return !slices.ContainsFunc(has, func(q permit.Permit) bool { return q.Slot == p.Slot })
		})
	}
	till := v.lock[cl.name]
	switch {
	case till == "":
		return false
	case v.lock["r"] == "":
		return !k.together || cl.wrote
	}
	return k.together && toInt(till) > schedNow/1000 && toInt(till) < 1e14
}

// ended plays the time on in which a lease that nobody has released ends.
func (s *search) ended(w *schedWorld) string {
	if !s.bounds.changes() {
		return ""
	}
	for range s.bounds.ttl + 1 {
		w = s.Do(w, schedAction{kind: actTick})
	}
	for i, m := range w.m {
		if owners := m.read().owners; len(owners) > 0 && !s.bounds.hangs(i) {
			return fmt.Sprintf("%v stays at member %d", owners, i)
		}
	}
	return w.wrong
}

// appendLeases writes what a world has of leases that change.
func (s *search) appendLeases(b []byte, w *schedWorld) []byte {
	for _, h := range w.handed {
		b = appendText(b, *h.owner)
		b = append(b, byte(h.from), byte(h.taker), flag(h.freed))
		b = appendNumbers(b, int64(h.token), int64(h.terms.ttl))
	}
	for c := range s.bounds.clients {
		cl := w.c[c]
		b = append(b, flag(cl.wrote)|flag(cl.adopted)<<1, byte(cl.takes))
		b = appendText(b, cl.former)
		if cl.turned != nil {
			b = appendText(b, string(cl.turned.name))
		}
		for _, h := range w.handed {
			b = appendText(b, cl.tried[*h.owner])
		}
		for _, r := range cl.renewals {
			b = append(b, flag(r.adopts))
		}
	}
	return b
}

// Open holds in the searches of schedules: a holder reserves tokens, and gives all that it gets at once. Their tokens do not mix with
// those of others.

// schedSpan are the tokens of one hold.
type schedSpan struct{ first, last int64 }

// schedAsker hears nothing: the search looks at the hold itself.
type schedAsker struct{}

func (schedAsker) reserved(reserved) {}

// last is the greatest token that a client has given.
func (cl *schedClient) last() int64 {
	switch {
	case cl.tenured:
		return cl.lease
	case cl.opened:
		return cl.open.Most()
	}
	return cl.token
}

// mayReserve reports whether a client may begin a reservation.
func (s *search) mayReserve(w *schedWorld, c int) bool {
	cl := w.c[c]
	return w.used.reserves < s.bounds.reserves && s.believes(w, c) && !(cl.opened && cl.open.asking(s.now, schedMembers))
}

// reserves has a client reserve tokens.
func (s *search) reserves(w *schedWorld, c int) {
	w.used.reserves++
	cl := s.client(w, c)
	a := s.attempt(c)
	if !cl.opened {
		a.opens(schedAsker{})
	}
	a.reserveMore(core.ProbeTerm(cl.until, cl.limit, s.cfg.Drift), false)
	s.opened(c, a)
	s.say("%v reserves tokens up to %d", who(c), cl.open.asked.most)
}

// opens reports whether holds may be open.
func (b *schedBounds) opens() bool { return b.reserves+b.callers > 0 }

// back keeps what an event has made of an attempt.
func (s *search) back(c int, a *attempt) {
	s.w.c[c].b = a.b
	s.opened(c, a)
	s.crowdThen(c)
}

// opened keeps what an open hold has after an event.
func (s *search) opened(c int, a *attempt) {
	if cl := s.w.c[c]; a.open != nil && cl.phase == schedHolding {
		before := cl.last()
		if cl.opened, cl.open = true, *a.open; cl.last() > before {
			s.count("ranges")
			s.say("  %v gives the tokens up to %d", who(c), cl.last())
			s.spans(c, before)
		}
	}
}

// spans looks at the tokens of a client, which has given those up to before already.
func (s *search) spans(c int, before int64) {
	w, own := s.w, schedSpan{s.w.c[c].token, s.w.c[c].last()}
	if s.bounds.reserves == 0 {
		return
	}
	var all []schedSpan
	for _, o := range w.spans {
		if o.first == own.first && before > 0 {
			continue
		}
		if all = append(all, o); o.first <= own.last && own.first <= o.last {
			s.wrong("tokens %v of %v are mixed with %v", own, who(c), o)
		}
	}
	if w.spans = append(all, own); before > 0 && s.bounds.lapses == 0 && w.won > before {
		s.wrong("%v gives tokens above %d, and %d was given meanwhile", who(c), before, w.won)
	}
	w.won = max(w.won, own.last)
	w.written = max(w.written, own.last)
}

// openDates are the dates of an open hold.
func (cl *schedClient) openDates() []*time.Time {
	return append(core.ProbeRange{Range: &cl.open.Range}.Dates(), &cl.open.asked.sent, &cl.open.asked.end)
}

// appendOpen writes what an open hold has, and appendOpenAt what it has of member i.
func (s *search) appendOpen(out []byte, w *schedWorld, cl *schedClient) []byte {
	out = append(out, byte(w.used.reserves), flag(cl.opened))
	if cl.opened {
		out = appendNumbers(out, cl.open.Most(), cl.open.asked.most, cl.open.given)
		for _, t := range cl.openDates() {
			out = s.appendTime(out, *t)
		}
	}
	for _, o := range w.spans {
		out = appendNumbers(out, o.first, o.last)
	}
	return out
}

func (s *search) appendOpenAt(out []byte, cl *schedClient, i int) []byte {
	if len(cl.probe().Room().Voters) == 0 {
		return out
	}
	bits := cl.probe().Drawn(i)
	for k, in := range []memberset.Set{core.ProbeRange{Range: &cl.open.Range}.Confirmed(), cl.open.asked.heard, cl.open.asked.alone, cl.open.asked.refused} {
		bits |= flag(in.Has(i)) << (k + 2)
	}
	return append(out, bits)
}
