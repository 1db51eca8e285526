package wait

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Terms are what an attempt asks for, and the bounds that it keeps.
type Terms struct {
	core.Terms
	Rules   *Rules        // of the kind of lock; nil: Exclusive
	Timeout time.Duration // silence of a member that counts as no answer
	GiveUp  time.Duration // time without a majority to ask before NoQuorum; < 0: never
	Shared  bool          // Redisson shares the lock
	Gate    uint8         // the member that a split of these follows if it can
}

// Ballot is one attempt. The zero value is an attempt that has ended and has nothing.
type Ballot struct {
	core  core.Votes // what exclusion rests on
	owner string
	need  int
	terms Terms
	part  time.Duration // TTL of a vote granted while waiting: min(TTL, Entry)

	phase   phase
	readers bool // wait behind a vote of ours: see ReadersWait
	poll    poll // while asking or raising
	start   Start

	m   []Voter
	rtt time.Duration

	permits  *permits // nil unless Terms.Slots
	*besides          // nil before there is something of it: see more
}

// besides is what a ballot knows besides when it waits, comes after an attempt in vain, or hears of those that wait. Most attempts
// have the lock at once, and no memory for it.
type besides struct {
	again []again // by member

	next  []named // waiters that members named as the next in line, in order of hearing
	heard []named // waiters that announced themselves

	left
	asked          time.Time     // last submission of wait to all
	unheard        memberset.Set // members that could not be asked, or did not answer, when the attempt ended for want of a majority
	notListening   memberset.Set // members that could not be waited at: they are asked when they can be
	listenAgain    memberset.Set // members that can be waited at again, and have not been asked since
	minoritySince  time.Time     // since when fewer than a majority can be asked or answer; zero: not so
	heartbeat      time.Time     // next heartbeat
	heartbeatEvery time.Duration // from the last one, see pace; 0: none was sent
	split          time.Time     // when to yield, if still no majority; zero: no split seen

	shared  *shared  // nil unless Terms.Shared
	tickets *tickets // nil before a member has told a place
}

// again is when a member is asked again, and what for.
type again struct {
	retry time.Time     // when its lock ends by its own word: worth asking then
	lives time.Duration // of the entry there, as it said last; 0: Terms.Entry
	ear   uint64        // State.Ear when it could be waited at last
	// A holder of the lock has wished for the vote since it was yielded last: no answer to that says that it is kept.
	wished bool
}

// more makes room for what the ballot knows besides.
func (b *Ballot) more() *besides {
	if b.besides == nil {
		b.besides = &besides{again: make([]again, len(b.m))}
	}
	return b.besides
}

// Room is the memory of the members of an attempt. A caller provides it, and looks into none.
type Room struct {
	Votes   []core.Voter
	Voters  []Voter
	besides *besides // of a search alone
}

// NewRoom makes one for some members.
func NewRoom(members int) Room { return Room{make([]core.Voter, members), make([]Voter, members), nil} }

// Voter is one member, as an attempt sees it, besides its vote.
type Voter struct {
	yield      yield
	lastAnswer lastAnswer
	left       releaseAnswer

	sent      int32     // calls submitted that may have reached it: it is owed a release
	pending   int32     // acquire and wait calls without an answer
	overflows int32     // calls in a row that did not fit into its line
	since     time.Time // submission of the oldest of those without an answer, at most
	err       error     // why its last call failed, or one of an attempt before: see cause
}

// yield says how far the giving up of a vote has come.
type yield uint8

const (
	noYield     yield = iota // nothing was given up, or the member has given it to another
	yielding                 // a yield is on its way
	yieldedBack              // a yield gave the vote back: it is not offered again before something changes
	yieldLost                // a yield was lost: the member still keeps for us the vote that was to be given up
)

// lastAnswer is what the last answer said.
type lastAnswer uint8

const (
	open    lastAnswer = iota // nothing yet, or nothing that stands in the way of a vote
	refused                   // the lock is another's
	failed                    // the call failed: Voter.err
	// What an earlier attempt of the caller was told last, and this one has not been told anew. It decides nothing, and
	// says why an attempt fails.
	refusedBefore
	failedBefore
)

// releaseAnswer is what a release was answered.
type releaseAnswer uint8

const (
	unanswered releaseAnswer = iota // none has been answered
	freed                           // the vote was ours, and is free
	notOurs                         // there was no vote of ours
)

// New returns an attempt that Begin has begun.
func New(owner string, room Room, t Terms, past Past) (b Ballot) {
	b.Begin(owner, room, t, past)
	return b
}

// Begin begins an attempt in b, which is a zero Ballot, under an owner of its own, with room for
// its members. past says how the first attempt of a caller begins, or what the attempts before this
// one left.
func (b *Ballot) Begin(owner string, room Room, t Terms, past Past) {
	if t.Rules == nil {
		t.Rules = &Exclusive
	}
	voters := room.Voters
	b.owner, b.need, b.m, b.terms, b.part = owner, member.Majority(len(voters)), voters, t, min(t.TTL, t.Entry)
	b.core.Begin(room.Votes, t.Terms)
	b.rtt, b.phase, b.start = time.Millisecond, fresh, past.Start
	if past.Start == WaitFirst || t.Slots > 0 {
		b.more()
	}
	if t.Slots > 0 {
		b.permits = newPermits(len(voters), &t)
	}
	if t.Shared {
		b.more().shared = &shared{pauses: make([]pause, len(voters))}
	}
	if past.left != nil {
		b.comesAfter(past.left)
	}
}

// Adopt returns an attempt that another client made and won with token. Each member may have its
// vote, so all of them are owed the release.
func Adopt(owner string, room Room, t Terms, token int64) Ballot {
	b := New(owner, room, t, Past{})
	b.phase = over
	b.core.Adopt(token)
	for i := range b.m {
		b.m[i].sent = 1
	}
	return b
}

// Successor returns a ballot that goes on with the votes of this one, under other terms. What is booked
// in one from then on the other does not know.
func (b *Ballot) Successor(t Terms) Ballot {
	h := New(b.owner, Room{Voters: slices.Clone(b.m)}, t, Past{})
	h.core = b.core.Clone()
	if h.phase = over; b.besides != nil {
		h.more()
		h.next, h.heard = slices.Clone(b.next), slices.Clone(b.heard)
	}
	for i := range h.m {
		h.m[i].pending = 0 // it has none of its own
	}
	return h
}

// Need returns how many votes decide.
func (b *Ballot) Need() int { return b.need }

// Part returns the TTL of a vote that is granted while waiting.
func (b *Ballot) Part() time.Duration { return b.part }

// Waited reports whether the attempt has begun to wait.
func (b *Ballot) Waited() bool { return b.start == WaitFirst }

// Submitted notes that a call is about to go to member i that no Step asked for.
func (b *Ballot) Submitted(i int) { b.m[i].sent++ }

// asks books a call that may give a vote.
func (m *Voter) asks(at time.Time) {
	m.sent++
	if m.pending == 0 {
		m.since = at
	}
	m.pending++
}

// registers books a wait at member i.
func (b *Ballot) registers(i int, gen uint64, at time.Time) {
	b.enter(i, gen)
	b.core.Registers(i, at)
	b.m[i].mayYieldAgain()
	b.m[i].asks(at)
}

// mayYieldAgain makes a vote that a yield gave back one that may be offered again.
func (m *Voter) mayYieldAgain() {
	if m.yield == yieldedBack {
		m.yield = noYield
	}
}

// enter drops what belonged to an earlier generation of member i.
func (b *Ballot) enter(i int, gen uint64) {
	if !b.core.Enter(i, gen) {
		return
	}
	b.m[i].found()
	if b.permits != nil {
		b.permits.at[i].stillTold = nil
	}
}

// found books that what was to be given up is past: the member has voted anew, or has forgotten.
func (m *Voter) found() {
	if m.yield == yieldLost {
		m.yield = noYield
	}
}

// mayHaveVoted adds to in the members with a call under way that may give a vote. What is submitted now
// reaches them behind it.
func (b *Ballot) mayHaveVoted(in memberset.Set) memberset.Set {
	for i := range b.m {
		if b.m[i].pending > 0 {
			in = in.With(i)
		}
	}
	return in
}

// Late reports whether a vote that came after the decision lies below the token, or is for other
// slots. The member's counter must then be lifted, and nobody waits for that.
func (b *Ballot) Late(i int) (token int64, late bool) { return b.core.Late(i) }

// Lease returns the token of the lease, 0 before there is one.
func (b *Ballot) Lease() int64 { return b.core.Lease() }

// Start begins the term of what the attempt has won: see core.Votes.Start.
func (b *Ballot) Start(g Grant, now time.Time) (core.Term, bool) { return b.core.Start(g, now) }

// Await is Start for what was adopted.
func (b *Ballot) Await() core.Term { return b.core.Await() }

// Abandon ends the attempt, unless it has begun a term.
func (b *Ballot) Abandon() core.Ended { return b.core.Abandon() }

// Taking counts the calls without an answer that may take a vote.
func (b *Ballot) Taking() (n int) {
	for i := range b.m {
		n += int(b.m[i].pending)
	}
	return n
}

// Owed returns the members that a release must go to: all that a write may have reached.
func (b *Ballot) Owed() memberset.Set {
	var s memberset.Set
	for i := range b.m {
		if b.m[i].sent > 0 {
			s = s.With(i)
		}
	}
	return s
}

// Votes counts the members that have the lease, by the last word of each.
func (b *Ballot) Votes(now time.Time) (n int) {
	for i := range b.m {
		if !b.Lacks(i, now) {
			n++
		}
	}
	return n
}

// Lacks reports whether the lease has no vote of member i, by its last word.
func (b *Ballot) Lacks(i int, now time.Time) bool { return b.core.Lacks(i, now) }

// Wishes books that member i, which has generation gen, has refused a re-join that was submitted at sent, and keeps it as a
// wish.
func (b *Ballot) Wishes(i int, gen uint64, sent time.Time) {
	b.enter(i, gen)
	b.core.Wishes(i, gen, sent)
}

// Wishing reports whether the next grant of member i is what the lease has wished for.
func (b *Ballot) Wishing(i int) bool { return b.core.Wishing(i) }

// Renewed books a member's word in a renewal or re-join of generation gen: it has the lease until end, or it does not
// have it.
func (b *Ballot) Renewed(i int, gen uint64, ok bool, end time.Time) {
	if ok { // else the next word of the generation that gives a vote back would drop it
		b.enter(i, gen)
	}
	b.core.Renewed(i, ok, end)
	if ok {
		b.m[i].found()
	}
}

// Range begins the range of the lease.
func (b *Ballot) Range() core.Range { return b.core.Range() }

// ReserveAnswered books what member i answers to a reservation, and reports whether the range is longer.
func (b *Ballot) ReserveAnswered(r *core.Range, i int, a *Answer, now time.Time, states []member.State) bool {
	return b.core.Reserved(r, i, &a.Answer, now, states)
}

// ReleaseAnswered reports whether the attempt has left nothing at member i, as it should be. If
// another owner had the lock all along, "not yours" is the answer that a release expects. If the
// lock was ours, it is a loss.
func (b *Ballot) ReleaseAnswered(i int, a *Answer) bool {
	m := &b.m[i]
	if a.Outcome != member.Answered {
		return false
	}
	if m.left == unanswered { // a second release finds nothing
		if m.left = freed; a.N != 1 {
			m.left = notOurs
		}
	}
	return a.N == 1 || b.core.Has(i) != core.Lost && !b.core.Ours(i)
}

// NotOurs counts the members that answered the release with "not yours".
func (b *Ballot) NotOurs() (n int) {
	for i := range b.m {
		if b.m[i].left == notOurs {
			n++
		}
	}
	return n
}

// Status is the part of a member in an attempt that fails.
type Status uint8

const (
	Undecided Status = iota // the member has not answered yet
	Votes                   // the member votes for us
	Refuses                 // another owner has the lock, or what we need of it
	Fails                   // the last call to the member failed
	Silent                  // the member has not answered for Terms.Timeout
	Unasked                 // the member has not been asked
)

// Status returns the part of member i, and why its last call failed.
func (b *Ballot) Status(i int, now time.Time, states []member.State) (Status, error) {
	switch m := &b.m[i]; {
	case b.core.Valid(i, now, states):
		if in, _, _, _ := b.core.Tally(now, states); !in.Has(i) { // other slots than most
			return Refuses, nil
		}
		return Votes, nil
	case m.lastAnswer == failed:
		return Fails, m.err
	case b.besides != nil && b.unheard.Has(i) && (m.lastAnswer == refused || m.lastAnswer == refusedBefore): // before that, or since: it is not why it ended
		return Silent, nil
	case m.lastAnswer == refused:
		return Refuses, nil
	case m.pending > 0 && clock.Elapsed(m.since, now) >= b.terms.Timeout:
		return Silent, nil
	case m.lastAnswer == failedBefore:
		return Fails, m.err
	case m.lastAnswer == refusedBefore:
		return Refuses, nil
	case m.pending > 0:
		return Undecided, nil
	}
	return Unasked, nil
}

// said is what a member has told of the lock last.
type said struct {
	lastAnswer lastAnswer
	err        error
}

// lastAnswers are what the members have told last, for the next attempt to report; nil: nothing that stands in the way.
func (b *Ballot) lastAnswers() (out []said) {
	for i := range b.m {
		s := said{b.m[i].lastAnswer, b.m[i].err}
		switch s.lastAnswer {
		case open:
			continue
		case refused:
			s.lastAnswer = refusedBefore
		case failed:
			s.lastAnswer = failedBefore
		}
		if out == nil {
			out = make([]said, len(b.m))
		}
		out[i] = s
	}
	return out
}

// cause is why the last call of this attempt failed.
func (m *Voter) cause() error {
	if m.lastAnswer == failed {
		return m.err
	}
	return nil
}
