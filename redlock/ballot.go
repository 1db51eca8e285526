package redlock

import (
	"errors"
	"hash/fnv"
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// A ballot is everything one attempt knows: the vote of each member, where it is registered, who waits
// behind it. It decides what to do next and does nothing itself: no I/O, no clock, no lock. Each method
// takes the instant it is called at, and the members' states where they matter, so that every
// interleaving can be played in a test. The rules are those of docs/protocol.md, "Client steps".
type ballot struct {
	owner   string
	need    int
	ttl     time.Duration // of a vote from acquire
	part    time.Duration // of a vote granted while waiting: min(ttl, entry)
	entry   time.Duration // lifetime of a place in the queues
	factor  float64       // drift
	timeout time.Duration // silence of a member that counts as no answer
	giveUp  time.Duration // without a majority to ask for so long: no quorum; < 0 never

	m     []voter
	next  []named // waiters that members named as the next in line, in order of hearing
	heard []named // waiters that announced themselves
	rtt   time.Duration
	token int64 // once won

	asked     time.Time  // last submission of wait to all
	notYet    time.Time  // do not ask before: a former attempt found that asking was in vain
	doubt     quorum.Set // members that did not answer then, until they do
	woken     quorum.Set // members that can be waited at again, and have not been asked since
	lame      time.Time  // since when fewer than a majority can be asked or answer; zero: not so
	beat      time.Time  // next heartbeat
	split     time.Time  // when to yield, if still no majority; zero: no split seen
	darkSince time.Time  // since when fewer than a majority could be asked; zero: not so

	shared *sharedBallot // with Config.Interop only
}

// voter is one member, as the attempt sees it.
type voter struct {
	vote
	sent     int       // calls submitted that may have reached it: it is owed a release
	pending  int       // acquire and wait calls without an answer
	since    time.Time // submission of the oldest of those, at most
	retry    time.Time // when its lock ends by its own word: worth asking then
	yielding bool      // a yield is on its way
	kept     bool      // a yield gave the vote back: do not offer it again before something changes
	again    bool      // a yield was lost: the member keeps for us the vote that was to be given up
	off      bool      // was not to be waited at: ask when it is again
	ear      uint64    // State.Ear when it could be waited at last
	refused  bool      // its last word was that the lock is another's
	raised   bool      // confirmed the token
	slow     bool      // its last grant had ended by the time that it was heard of
	crowded  int       // calls in a row that did not fit into its line
	gone     bool      // had a vote of the lease and, by the word of a renewal, has it no longer
	left     bool      // has answered a release...
	disowned bool      // ...that it was not ours
	err      error     // its last answer was not one

	// What follows belongs to a generation of the member (a restored counter may lie below a yielded
	// token, and its clock may be another's).
	gen      uint64
	yielded  int64        // greatest token given up here: a vote counts only above it
	anchor   clock.Anchor // of the latest wait answered; zero: none
	distrust bool         // its clock stepped: a push proves nothing until two anchors agree
	first    time.Time    // submission of the first wait
}

// vote is a grant: identified by member and token, trusted until end.
type vote struct {
	token  int64 // 0: none
	end    time.Time
	server int64 // server time of the grant, µs; 0 where it was not told
	voteOf uint64
}

type named struct {
	owner string
	by    quorum.Set
}

func newBallot(owner string, n int, t terms, cfg *Config) ballot {
	return ballotOf(owner, make([]voter, n), t, cfg)
}

// ballotOf is newBallot over memory that is there already.
func ballotOf(owner string, voters []voter, t terms, cfg *Config) ballot {
	var shared *sharedBallot
	if cfg.Interop {
		shared = &sharedBallot{offers: make([]offer, len(voters))}
	}
	return ballot{
		owner: owner, need: member.Majority(len(voters)), m: voters,
		ttl: t.ttl, part: min(t.ttl, cfg.Entry), entry: cfg.Entry,
		factor: cfg.Drift, timeout: cfg.MemberTimeout, giveUp: cfg.NoQuorumAfter,
		rtt: time.Millisecond, shared: shared,
	}
}

// submitted notes that a call is about to go to member i. asking: acquire or wait.
func (b *ballot) submitted(i int, asking bool, at time.Time) {
	m := &b.m[i]
	m.sent++
	if !asking {
		return
	}
	if m.pending == 0 {
		m.since = at
	}
	m.pending++
}

// waitSubmitted notes the first wait of a generation: before its answer, the only anchor there is.
func (b *ballot) waitSubmitted(i int, gen uint64, at time.Time) {
	m := &b.m[i]
	m.enter(gen)
	if m.first.IsZero() {
		m.first = at
	}
	m.kept = false
}

// enter drops what belonged to an earlier generation.
func (m *voter) enter(gen uint64) {
	if gen <= m.gen {
		return
	}
	m.gen, m.yielded, m.again, m.anchor, m.distrust, m.first = gen, 0, false, clock.Anchor{}, false, time.Time{}
	if m.voteOf != gen {
		m.vote = vote{}
	}
}

// answer is the result of a call, decoded. n is the script's number, server its time in µs (0 where the
// script does not tell), next the head of the queue.
type answer struct {
	outcome member.Outcome
	err     error
	n       int64
	server  int64
	next    string
	sent    time.Time // before it was submitted
	at      time.Time // when the answer arrived
	from    member.State
	now     member.State // of the member now
}

// idle reports whether an answer counts for nothing: that of an ended generation, or of a member that
// may not vote.
func (a answer) idle() bool {
	return a.outcome == member.Answered && (a.from.Gen != a.now.Gen || !a.now.Votes)
}

// settled books the outcome of any call and reports whether the answer may count at all.
func (b *ballot) settled(i int, a answer, asking bool) bool {
	m := &b.m[i]
	if a.outcome == member.NotSent {
		m.sent--
	}
	if asking {
		m.pending--
		m.since = a.sent
	}
	if a.idle() {
		return false
	}
	m.err, m.refused = a.err, false
	if errors.Is(a.err, member.ErrOverflow) {
		m.crowded++
		m.retry = a.sent.Add(b.patience(m.crowded))
		return false
	}
	m.crowded = 0
	if a.outcome != member.Answered {
		return false
	}
	b.doubt = b.doubt.Without(i)
	m.enter(a.from.Gen)
	return true
}

// patience is the pause before a call that did not fit into a member's line is made again: some milliseconds, longer
// from one time to the next, and another one for each owner, so that a crowd spreads.
func (b *ballot) patience(times int) time.Duration {
	return b.spread(4*time.Millisecond<<min(times, 5), times) // 128 ms
}

// spread is a part of most, a quarter at least: another one for each owner, and for each time.
func (b *ballot) spread(most time.Duration, times int) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(b.owner))
	return most/4 + time.Duration(uint64(most)*3/4*uint64((h.Sum32()+uint32(times)*2654435769)>>16)>>16)
}

// crowdedOut is the pause before the lock is tried for again where only full lines were in the way of a majority; else 0.
func (b *ballot) crowdedOut(now time.Time, states []member.State) (pause time.Duration) {
	n := 0
	for i := range b.m {
		switch m := &b.m[i]; {
		case m.crowded > 0:
			pause = max(pause, b.patience(m.crowded))
			n++
		case b.valid(i, now, states):
			n++
		}
	}
	if n < b.need {
		return 0
	}
	return pause
}

// answered takes the result of an acquire or a wait. lease is the TTL it asked for.
func (b *ballot) answered(i int, a answer, lease time.Duration) {
	if !b.settled(i, a, true) {
		return
	}
	m := &b.m[i]
	if took := clock.Elapsed(a.sent, a.at); took < 4*b.rtt {
		b.rtt = (7*b.rtt + took) / 8
	} else {
		b.rtt = b.rtt * 9 / 8
	}
	if a.server > 0 {
		b.anchored(m, a)
	}
	if a.n <= 0 {
		m.retry = a.at.Add(time.Duration(-a.n)*time.Millisecond + time.Millisecond)
		m.refused, m.slow, m.again = true, false, false
		// Answers come in order, but pushes cross them: a refusal older than the vote says nothing.
		if m.token > 0 && a.server > m.server {
			m.vote = vote{}
		}
		return
	}
	b.hear(&b.next, a.next, i)
	m.retry = time.Time{}
	if a.n <= m.yielded || a.n < m.token {
		// It still does not count, but heartbeats keep it alive: unless it is offered again, nobody ever has it.
		m.again = a.n == m.yielded && m.token == 0 && !m.yielding
		return
	}
	end := a.sent.Add(clock.Validity(lease, b.factor))
	if a.n == m.token && !m.distrust && clock.Until(m.end, end) > 0 {
		end = m.end // the same grant, anchored later by its push
	}
	m.slow = clock.Until(end, a.at) <= 0
	m.vote, m.again = vote{token: a.n, end: end, server: a.server, voteOf: m.gen}, false
}

// anchored keeps the latest pair of server time and local time, which dates the pushes to come.
func (b *ballot) anchored(m *voter, a answer) {
	fresh := clock.Anchor{Sent: a.sent, Server: a.server, Epoch: a.from.Epoch, Gen: a.from.Gen}
	old := m.anchor
	if !old.Sent.IsZero() && old.Epoch == fresh.Epoch {
		if clock.Until(fresh.Sent, old.Sent) <= 0 {
			return
		}
		m.distrust = clock.Stepped(old, fresh, clock.Elapsed(a.sent, a.at), b.factor)
	} else {
		m.distrust = false
	}
	m.anchor = fresh
}

// pushed takes a grant that a member made on its own, when it executed our standing request. st is the
// member's state when the push arrived. A push that proves nothing makes the attempt ask. It reports
// whether the grant counts.
func (b *ballot) pushed(i int, p push, st member.State, at time.Time) bool {
	m := &b.m[i]
	if !st.Votes || st.Gen < m.gen {
		return false
	}
	m.enter(st.Gen)
	b.hear(&b.next, p.other, i)
	if p.token <= m.yielded || p.token <= m.token {
		return false // known, or given up since
	}
	end, ok := b.endOfPushed(m, p, st.Epoch, at)
	if !ok {
		m.retry = at
		return false
	}
	m.vote = vote{token: p.token, end: end, server: p.server, voteOf: st.Gen}
	m.kept, m.slow, m.again = false, false, false
	m.retry = time.Time{}
	return true
}

// endOfPushed dates a grant that the member made at p.server (docs/protocol.md, "Pushes"): from the latest anchor of
// this connection, or, before any wait was answered, from the first wait's submission. It lasts as long as the member
// says, which may be less than was asked for, and is never more.
func (b *ballot) endOfPushed(m *voter, p push, epoch uint64, at time.Time) (time.Time, bool) {
	start := m.first
	switch {
	case p.server <= 0: // the member does not vouch for it
		return time.Time{}, false
	case !m.anchor.Sent.IsZero():
		var ok bool
		if start, ok = m.anchor.Start(p.server, at, b.factor); !ok || m.distrust || m.anchor.Epoch != epoch {
			return time.Time{}, false
		}
	case start.IsZero():
		return time.Time{}, false
	case clock.Until(start, at) > 0:
		start = at
	}
	end := start.Add(clock.Validity(min(p.ttl, b.part), b.factor))
	return end, clock.Until(end, at) > 0
}

// announced takes a waiter's announcement, which member i made to the holder of a vote.
func (b *ballot) announced(i int, waiter string) {
	b.hear(&b.heard, waiter, i)
	b.m[i].kept = false
}

// withdrawn forgets a waiter that has given up. Its name is never used again.
func (b *ballot) withdrawn(waiter string) {
	named := func(n named) bool { return n.owner == waiter }
	b.next, b.heard = slices.DeleteFunc(b.next, named), slices.DeleteFunc(b.heard, named)
}

// yieldAnswered takes the result of a yield: a new token if the vote stayed ours.
func (b *ballot) yieldAnswered(i int, a answer) {
	b.m[i].yielding = false
	if !b.settled(i, a, false) {
		return
	}
	m := &b.m[i]
	if a.n <= m.yielded || a.n <= m.token {
		m.refused = m.token == 0
		return
	}
	m.vote = vote{token: a.n, end: a.sent.Add(clock.Validity(b.part, b.factor)), server: a.server, voteOf: m.gen}
	m.kept = true
}

// raiseAnswered reports whether member i confirmed that the vote is ours and the counter is lifted.
func (b *ballot) raiseAnswered(i int, a answer) bool {
	ok := b.settled(i, a, false) && a.n == 1
	if ok {
		b.m[i].raised = true
	}
	return ok
}

// hearMost is how many waiters are remembered. A hint needs those of late only: who has been passed over by so many is named
// again by its members, as the next in line. And others decide how many there are.
const hearMost = 32

// hear remembers a waiter that member i named, in place of the one heard of first where there are too many.
func (b *ballot) hear(list *[]named, owner string, i int) {
	if owner == "" || owner == "-" || owner == b.owner {
		return
	}
	for k := range *list {
		if (*list)[k].owner == owner {
			(*list)[k].by = (*list)[k].by.With(i)
			return
		}
	}
	if len(*list) == hearMost {
		*list = slices.Delete(*list, 0, 1)
	}
	*list = append(*list, named{owner, quorum.Set(0).With(i)})
}

// hint names the successor for the release: of the waiters that members named as next in line, the one
// most of them named, the first heard among equals; only without any, of those that announced
// themselves. (Counting announcements first starves: a newcomer that all members announce would beat
// older waiters whose members disagree.)
func (b *ballot) hint() string {
	list := b.next
	if len(list) == 0 {
		list = b.heard
	}
	best := named{}
	for _, n := range list {
		if n.by.Len() > best.by.Len() {
			best = n
		}
	}
	return best.owner
}

// valid reports whether the vote of member i counts now.
func (b *ballot) valid(i int, now time.Time, states []member.State) bool {
	m := &b.m[i]
	return m.token > 0 && states[i].Votes && m.voteOf == states[i].Gen && clock.Until(m.end, now) > 0
}

// tally counts the votes in hand: their set, the greatest token, how many have exactly that, and until
// when a majority of them is trusted (the need-th latest of their ends).
func (b *ballot) tally(now time.Time, states []member.State) (in quorum.Set, token int64, exact int, until time.Time) {
	var buf [quorum.MaxMembers]time.Time
	ends := buf[:0]
	for i := range b.m {
		if b.valid(i, now, states) {
			in = in.With(i)
			token = max(token, b.m[i].token)
			ends = append(ends, b.m[i].end)
		}
	}
	for i := range b.m {
		if in.Has(i) && b.m[i].token == token {
			exact++
		}
	}
	return in, token, exact, nthLatest(ends, b.need)
}

// mayHaveVoted adds to in the members with a call under way that may give a vote. What is submitted now
// reaches them behind it.
func (b *ballot) mayHaveVoted(in quorum.Set) quorum.Set {
	for i := range b.m {
		if b.m[i].pending > 0 {
			in = in.With(i)
		}
	}
	return in
}

// confirmed is tally over the votes that a raise to the token has confirmed. A vote above the token came
// after the one that was confirmed: another may have held the lock, and drawn as much, in between.
func (b *ballot) confirmed(token int64, now time.Time, states []member.State) (in quorum.Set, until time.Time) {
	var buf [quorum.MaxMembers]time.Time
	ends := buf[:0]
	for i := range b.m {
		if b.m[i].raised && b.m[i].token <= token && b.valid(i, now, states) {
			in = in.With(i)
			ends = append(ends, b.m[i].end)
		}
	}
	return in, nthLatest(ends, b.need)
}

// nthLatest returns the n-th latest instant, zero if there are fewer.
func nthLatest(ends []time.Time, n int) time.Time {
	if len(ends) < n {
		return time.Time{}
	}
	slices.SortFunc(ends, func(x, y time.Time) int { return y.Compare(x) })
	return ends[n-1]
}

// late reports whether a vote that came after the decision lies below the token, so that its member's
// counter must be lifted, without anybody waiting for it.
func (b *ballot) late(i int) bool {
	return b.token > 0 && b.m[i].token > 0 && b.m[i].token < b.token
}

// owed is the set of members that a release must go to: all that a write may have reached.
func (b *ballot) owed() quorum.Set {
	var s quorum.Set
	for i := range b.m {
		if b.m[i].sent > 0 {
			s = s.With(i)
		}
	}
	return s
}

// deed is what a waiting attempt has to do.
type deed uint8

const (
	deedWait      deed = iota // nothing before step.wake, unless something is heard
	deedDecide                // a majority is in hand: step.token, step.exact
	deedAsk                   // submit wait to step.to
	deedYield                 // submit a yield for each of step.yields
	deedForeign               // the key is no lock at so many members that a majority is impossible
	deedTooSlow               // a majority grants, and so late that nothing is left of it
	deedNoQuorum              // fewer than a majority could be asked for too long, or will never answer
	deedStandBack             // fewer than a majority can be asked now: give up what is in hand, and begin anew later
)

type step struct {
	deed   deed
	wake   time.Time
	to     quorum.Set
	token  int64
	exact  bool // a majority has exactly this token: no second round
	in     quorum.Set
	until  time.Time
	yields []yielded
	freed  bool       // of deedAsk: others have freed the lock at step.to
	why    WakeReason // of deedAsk; "" for the first time
}

type yielded struct {
	member int
	token  int64
}

// advance decides what a waiting attempt does now. It books what it tells the caller to do, which must
// then be done: every wait and yield of the step is submitted.
func (b *ballot) advance(now time.Time, states []member.State) step {
	in, token, exact, until := b.tally(now, states)
	if in.Len() >= b.need {
		return step{deed: deedDecide, token: token, exact: exact >= b.need, in: in, until: until}
	}
	var (
		woken    quorum.Set // can be waited at again, as of now
		vain     quorum.Set // fail whatever is asked of them
		settled  = true     // every member has answered, failed, or been silent for too long
		offers   = 0        // votes in hand that may be yielded
		open     = 0        // members that can be asked
		able     = 0        // and do not fail
		sure     = 0        // nor owe an answer for too long, nor are in doubt
		resting  = 0        // members that will vote again by themselves, after a quarantine
		foreign  = 0
		slow     = 0 // granted in vain
		hopeless = 0
	)
	for i := range b.m {
		m := &b.m[i]
		late := clock.Elapsed(m.since, now) >= b.timeout
		if (m.pending > 0 || m.yielding) && !late {
			settled = false
		}
		if m.err != nil && m.crowded == 0 {
			vain = vain.With(i)
		}
		if m.token > 0 && !b.valid(i, now, states) {
			m.vote = vote{}
			if m.retry.IsZero() {
				m.retry = now // it may be free
			}
		}
		if b.shared != nil && m.kept {
			b.offerAgain(i, now)
		}
		if m.token > 0 && !m.kept || m.again {
			offers++
		}
		if m.slow {
			slow++
		}
		if !states[i].Votes || !states[i].Inbox {
			m.off, b.woken = true, b.woken.Without(i)
		} else {
			// A push may be lost where we began to listen, also if nobody looked while we did not; in a Redis
			// Cluster, where the slot was then.
			if m.off || m.ear != 0 && m.ear != states[i].Ear {
				woken = woken.With(i)
			}
			m.off, m.ear = false, states[i].Ear
		}
		switch {
		case !states[i].Quarantine.IsZero():
			resting++
		case states[i].Votes && states[i].Inbox:
			open++
			if vain.Has(i) {
				break
			}
			able++
			if !b.doubt.Has(i) && !(m.pending > 0 && late) {
				sure++
			}
		}
		switch {
		case kindOf(m.err) == member.KindForeign:
			foreign++
			hopeless++
		case kindOf(m.err) == member.KindExhausted, kindOf(m.err) == member.KindAuth, kindOf(states[i].Deaf) == member.KindAuth:
			hopeless++
		}
	}
	if woken != 0 { // what was in vain may not be any more
		b.notYet, b.doubt, b.woken = time.Time{}, b.doubt&^woken, b.woken|woken
	}
	n := len(b.m)
	if n-foreign < b.need {
		return step{deed: deedForeign}
	}
	if slow >= b.need {
		return step{deed: deedTooSlow}
	}
	if n-hopeless < b.need {
		return step{deed: deedNoQuorum}
	}
	wake, dark := b.beat, time.Time{}
	if sure+resting >= b.need {
		b.darkSince = time.Time{}
	} else if b.giveUp >= 0 {
		if b.darkSince.IsZero() {
			b.darkSince = now
		}
		end := b.darkSince.Add(b.giveUp)
		if clock.Until(end, now) <= 0 {
			return step{deed: deedNoQuorum}
		}
		wake, dark = earlier(wake, end), end
	}

	// Without a majority to ask no vote is of use here, and each is kept from somebody who may have the others. (A member
	// that hangs is one that cannot be asked as soon as its connection has stalled.)
	switch standing := b.owed() != 0; {
	case able >= b.need, !standing && open >= b.need:
		b.lame = time.Time{}
	case !standing: // a change of a member wakes
		return step{deed: deedWait, wake: earlier(dark, now.Add(b.entry/3))}
	default:
		if b.lame.IsZero() {
			b.lame = now
		}
		end := b.lame.Add(b.timeout)
		if clock.Until(end, now) <= 0 {
			return step{deed: deedStandBack, in: vain}
		}
		wake = earlier(wake, end)
	}
	if clock.Until(b.notYet, now) > 0 {
		return step{deed: deedWait, wake: earlier(dark, b.notYet)}
	}

	// A split: several attempts have some votes, nobody a majority. All members give to the same one.
	switch {
	case offers == 0:
		b.split = time.Time{}
	case settled && b.split.IsZero():
		b.split = now.Add(max(time.Millisecond, 2*b.rtt))
	}
	if !b.split.IsZero() {
		if clock.Until(b.split, now) <= 0 {
			b.split = time.Time{}
			if out := b.yield(now); len(out) > 0 {
				return step{deed: deedYield, yields: out}
			}
		} else {
			wake = earlier(wake, b.split)
		}
	}

	// Ask again: as heartbeat, when a member's lock should have ended, or when one can be asked again.
	why := WakeReason("")
	beat := b.beat
	if in != 0 && !b.asked.IsZero() { // before what is in hand ends
		beat = earlier(beat, b.asked.Add(b.part/3))
		wake = earlier(wake, beat)
	}
	due := clock.Until(beat, now) <= 0
	if due && !b.asked.IsZero() {
		why = WokenByPoll
	}
	floor := b.asked.Add(time.Millisecond)
	var room quorum.Set // members that may have room in their line again
	for i := range b.m {
		if retry := b.m[i].retry; !retry.IsZero() && states[i].Votes {
			if clock.Until(floor, retry) > 0 {
				retry = floor
			}
			if clock.Until(retry, now) <= 0 && b.m[i].crowded > 0 {
				room = room.With(i)
			} else if clock.Until(retry, now) <= 0 {
				if !due {
					why = WokenByExpiry
				}
				due = true
			}
			wake = earlier(wake, retry)
		}
		// Silence begins to count as an answer at a moment of its own.
		if m := &b.m[i]; m.pending > 0 || m.yielding {
			if end := m.since.Add(b.timeout); clock.Until(end, now) > 0 {
				wake = earlier(wake, end)
			}
		}
		if b.shared != nil && b.m[i].kept {
			wake = earlier(wake, b.shared.offers[i].at)
		}
	}
	if due {
		b.asked, b.beat, b.woken = now, now.Add(b.entry/3), 0
		for i := range b.m {
			b.m[i].retry = time.Time{}
		}
		return step{deed: deedAsk, to: quorum.All(n), why: why}
	}
	if to := b.woken | room; to != 0 {
		b.woken = 0
		for i := range b.m {
			if to.Has(i) {
				b.m[i].retry = time.Time{}
			}
		}
		return step{deed: deedAsk, to: to, why: WokenByMember}
	}
	if b.shared != nil {
		if to, freed := b.shared.ask(); to != 0 {
			why := WokenByMember
			if freed {
				why = WokenByGrant
			}
			return step{deed: deedAsk, to: to, freed: freed, why: why}
		}
	}
	return step{deed: deedWait, wake: wake}
}

// yield gives up every vote in hand that was not offered in vain already, and those whose yield was lost.
func (b *ballot) yield(now time.Time) (out []yielded) {
	for i := range b.m {
		m := &b.m[i]
		switch {
		case m.again:
		case m.token > 0 && !m.kept:
			m.yielded = m.token
		default:
			continue
		}
		out = append(out, yielded{i, m.yielded})
		m.vote = vote{}
		m.again, m.yielding = false, true
		if m.pending == 0 {
			m.since = now
		}
	}
	return out
}

func earlier(x, y time.Time) time.Time {
	if x.IsZero() || clock.Until(y, x) < 0 {
		return y
	}
	return x
}

// releaseAnswered reports whether nothing of the attempt is left at member i, as it should be. Where the
// lock was another's all along, "not yours" is what a release wants to hear; where it was ours, a loss.
func (b *ballot) releaseAnswered(i int, a answer) bool {
	m := &b.m[i]
	if a.outcome != member.Answered {
		return false
	}
	if !m.left { // a second release finds nothing
		m.left, m.disowned = true, a.n != 1
	}
	return a.n == 1 || m.token == 0 && !m.gone
}

// disowned counts the members that said, when it was released, that the lock was not ours.
func (b *ballot) disowned() (n int) {
	for i := range b.m {
		if b.m[i].disowned {
			n++
		}
	}
	return n
}

// renewed books a member's word in a renewal: the lease is its own there until end, or it is not there.
func (b *ballot) renewed(i int, ok bool, end time.Time) {
	m := &b.m[i]
	if !ok {
		m.gone = m.gone || m.token > 0
		m.vote = vote{}
		return
	}
	m.gone = false
	if m.token == 0 {
		m.vote = vote{token: b.token, voteOf: m.gen}
	}
	if m.end.IsZero() || clock.Until(end, m.end) > 0 {
		m.end = end
	}
}
