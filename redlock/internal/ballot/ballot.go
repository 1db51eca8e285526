package ballot

import (
	"slices"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// Terms are what an attempt asks for, and the bounds that it keeps.
type Terms struct {
	Rules   *Rules        // of the kind of lock; nil: Exclusive
	TTL     time.Duration // of a vote from acquire
	Entry   time.Duration // lifetime of an entry in the queues
	Drift   float64
	Timeout time.Duration // silence of a member that counts as no answer
	GiveUp  time.Duration // time without a majority to ask before NoQuorum; < 0: never
	Shared  bool          // Redisson shares the lock
	Permits uint8         // how many slots of a semaphore the attempt wants; 0: the lock has none
	Gate    uint8         // the member that a split of these follows if it can
}

// Ballot is one attempt. The zero value is an attempt that has ended and has nothing.
type Ballot struct {
	owner string
	need  int
	terms Terms
	part  time.Duration // TTL of a vote granted while waiting: min(TTL, Entry)

	phase   phase
	readers bool // wait behind a vote of ours: see ReadersWait
	poll    poll // while asking or raising
	start   Start
	tried   tried
	token   int64 // once won

	m     []Voter
	next  []named // waiters that members named as the next in line, in order of hearing
	heard []named // waiters that announced themselves
	rtt   time.Duration

	// While waiting.
	asked     time.Time     // last submission of wait to all
	notYet    time.Time     // do not ask before: a former attempt found that asking was in vain
	doubt     quorum.Set    // members that did not answer then, until they do
	off       quorum.Set    // members that could not be waited at: they are asked when they can be
	woken     quorum.Set    // members that can be waited at again, and have not been asked since
	lame      time.Time     // since when fewer than a majority can be asked or answer; zero: not so
	beat      time.Time     // next heartbeat
	every     time.Duration // from the last one, see pace; 0: none was sent
	split     time.Time     // when to yield, if still no majority; zero: no split seen
	darkSince time.Time     // since when fewer than a majority could be asked; zero: not so

	shared  *shared  // nil unless Terms.Shared
	tickets *tickets // nil before a member has told a place
	permits *permits // nil unless Terms.Permits
}

// Voter is one member, as an attempt sees it. A caller provides the memory of voters, and looks
// into none.
type Voter struct {
	vote
	has   standing
	yield yield
	word  word
	left  leaving
	// A holder of the lock has wished for the vote since it was yielded last: no answer to that says that it is kept.
	wished bool
	// The member keeps a wish of the lease: see Wishes.
	wishes bool

	sent    int32         // calls submitted that may have reached it: it is owed a release
	pending int32         // acquire and wait calls without an answer
	since   time.Time     // submission of the oldest of those, at most
	retry   time.Time     // when its lock ends by its own word: worth asking then
	crowded int           // calls in a row that did not fit into its line
	lives   time.Duration // of the entry there, as it said last; 0: Terms.Entry
	ear     uint64        // State.Ear when it could be waited at last
	err     error         // why its last call failed, or one of an attempt before: see cause

	// What follows belongs to a generation of the member (a restored counter may lie below a yielded
	// token, and its clock may be another's).
	gen     uint64
	yielded int64 // greatest token given up here: a vote counts only above it
	dating  dating
	anchor  clock.Anchor // of the latest wait answered, unless undated
	first   time.Time    // submission of the first wait
}

// vote is a grant: identified by member and token, trusted until end.
type vote struct {
	token  int64 // 0: none
	end    time.Time
	server int64 // server time of the grant, µs; 0 where it was not told
	voteOf uint64
}

// standing says what we have of a member. doc.go has the table of what it goes together with.
type standing uint8

const (
	none  standing = iota // no vote
	held                  // a vote, which counts until its end
	tardy                 // its last grant had ended by the time it was heard of
	gone                  // by the word of a renewal, the vote that it had for the lease is there no longer
)

// yield says how far the giving up of a vote has come.
type yield uint8

const (
	settled yield = iota // nothing was given up, or the member has given it to another
	offered              // a yield is on its way
	kept                 // a yield gave the vote back: it is not offered again before something changes
	undone               // a yield was lost: the member still keeps for us the vote that was to be given up
)

// word is what the last answer said.
type word uint8

const (
	open    word = iota // nothing yet, or nothing that stands in the way of a vote
	refused             // the lock is another's
	failed              // the call failed: Voter.err
	// What an earlier attempt of the caller was told last, and this one has not been told anew. It decides nothing, and
	// says why an attempt fails.
	refusedBefore
	failedBefore
)

// leaving is what a release was answered.
type leaving uint8

const (
	staying  leaving = iota // none has been answered
	freed                   // the vote was ours, and is free
	disowned                // there was no vote of ours
)

// dating says whether pushes of a member can be dated.
type dating uint8

const (
	undated dating = iota // no wait has been answered: only the first wait's submission is known
	dated                 // by the anchor
	stepped               // its clock stepped: a push proves nothing until two anchors agree
)

// New returns an attempt that Begin has begun.
func New(owner string, voters []Voter, t Terms, past Past) (b Ballot) {
	b.Begin(owner, voters, t, past)
	return b
}

// Begin begins an attempt in b, which is a zero Ballot, under an owner of its own, with room for
// its members. past says how the first attempt of a caller begins, or what the attempts before this
// one left.
func (b *Ballot) Begin(owner string, voters []Voter, t Terms, past Past) {
	if t.Rules == nil {
		t.Rules = &Exclusive
	}
	b.owner, b.need, b.m, b.terms, b.part = owner, member.Majority(len(voters)), voters, t, min(t.TTL, t.Entry)
	b.rtt, b.phase, b.start = time.Millisecond, fresh, past.Start
	b.tried, b.doubt, b.notYet, b.darkSince = past.tried, past.doubt, past.notYet, past.dark
	for i, s := range past.words {
		b.m[i].word, b.m[i].err = s.word, s.err
	}
	switch {
	case t.Permits > 0:
		b.permits = newPermits(len(voters), &t)
		b.permits.anew = past.ticket
	case past.ticket > 0:
		b.tickets = newTickets(len(voters), past.ticket)
	}
	if t.Shared {
		b.shared = &shared{pauses: make([]pause, len(voters))}
	}
}

// Adopt returns an attempt that another client made and won with token. Each member may have its
// vote, so all of them are owed the release.
func Adopt(owner string, voters []Voter, t Terms, token int64) Ballot {
	b := New(owner, voters, t, Past{})
	b.phase, b.token = over, token
	for i := range b.m {
		b.m[i].sent = 1
	}
	return b
}

// Heir returns a ballot that goes on with the votes of this one, under other terms. What is booked
// in one from then on the other does not know.
func (b *Ballot) Heir(t Terms) Ballot {
	h := New(b.owner, slices.Clone(b.m), t, Past{})
	h.phase, h.token, h.next, h.heard = over, b.token, slices.Clone(b.next), slices.Clone(b.heard)
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

// registers books a wait. The first of a generation is the only anchor there is before its answer.
func (m *Voter) registers(gen uint64, at time.Time) {
	m.enter(gen)
	if m.first.IsZero() {
		m.first = at
	}
	m.reconsider()
	m.asks(at)
}

// reconsider makes a vote that a yield gave back one that may be offered again.
func (m *Voter) reconsider() {
	if m.yield == kept {
		m.yield = settled
	}
}

// enter drops what belonged to an earlier generation.
func (m *Voter) enter(gen uint64) {
	if gen <= m.gen {
		return
	}
	m.gen, m.yielded, m.dating, m.anchor, m.first = gen, 0, undated, clock.Anchor{}, time.Time{}
	if m.yield == undone {
		m.yield = settled
	}
	if m.voteOf != gen {
		m.drop()
	}
}

// take books a vote. What was to be given up is past with it.
func (m *Voter) take(v vote) {
	m.vote, m.has, m.wishes = v, held, false
	if m.yield == undone {
		m.yield = settled
	}
}

// drop forgets the vote.
func (m *Voter) drop() {
	m.vote = vote{}
	if m.has == held {
		m.has = none
	}
}

// valid reports whether the vote of member i counts now.
func (b *Ballot) valid(i int, now time.Time, states []member.State) bool {
	m := &b.m[i]
	return m.token > 0 && states[i].Votes && m.voteOf == states[i].Gen && clock.Until(m.end, now) > 0
}

// tally counts the votes in hand: their set, the greatest token, how many have exactly that, and until
// when a majority of them is trusted (the need-th latest of their ends).
func (b *Ballot) tally(now time.Time, states []member.State) (in quorum.Set, token int64, exact int, until time.Time) {
	if b.permits != nil {
		return b.tallySlots(now, states)
	}
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
func (b *Ballot) mayHaveVoted(in quorum.Set) quorum.Set {
	for i := range b.m {
		if b.m[i].pending > 0 {
			in = in.With(i)
		}
	}
	return in
}

// confirmed is tally over the votes that the raise to the token has confirmed. A vote above the token came
// after the one that was confirmed: another may have held the lock, and drawn as much, in between.
func (b *Ballot) confirmed(now time.Time, states []member.State) (in quorum.Set, until time.Time) {
	var buf [quorum.MaxMembers]time.Time
	ends := buf[:0]
	for i := range b.m {
		if b.poll.yes.Has(i) && b.below(i) && b.valid(i, now, states) {
			in = in.With(i)
			ends = append(ends, b.m[i].end)
		}
	}
	return in, nthLatest(ends, b.need)
}

// below reports whether the vote of member i is one that a raise can confirm.
func (b *Ballot) below(i int) bool {
	if b.permits != nil {
		return b.agrees(i)
	}
	return b.m[i].token <= b.poll.token
}

// nthLatest returns the n-th latest instant, zero if there are fewer.
func nthLatest(ends []time.Time, n int) time.Time {
	if len(ends) < n {
		return time.Time{}
	}
	slices.SortFunc(ends, func(x, y time.Time) int { return y.Compare(x) })
	return ends[n-1]
}

// Late reports whether a vote that came after the decision lies below the token, or is for other
// slots. The member's counter must then be lifted, and nobody waits for that.
func (b *Ballot) Late(i int) (token int64, late bool) {
	return b.token, b.token > 0 && b.lags(i)
}

// lags is Late for an attempt that has won. Most answers come before that, so Late is inlined and
// this is not.
//
//go:noinline
func (b *Ballot) lags(i int) bool {
	m := &b.m[i]
	if b.permits != nil {
		return m.token > 0 && b.strays(i)
	}
	return m.token > 0 && m.token < b.token
}

// Taking counts the calls without an answer that may take a vote.
func (b *Ballot) Taking() (n int) {
	for i := range b.m {
		n += int(b.m[i].pending)
	}
	return n
}

// Owed returns the members that a release must go to: all that a write may have reached.
func (b *Ballot) Owed() quorum.Set {
	var s quorum.Set
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
func (b *Ballot) Lacks(i int, now time.Time) bool {
	return !b.ours(i) || clock.Until(b.m[i].end, now) <= 0
}

// Wishes books that member i, which has generation gen, has refused a re-join that was submitted at sent, and keeps it as a
// wish. A push that grants it comes later, and is dated by that at least.
func (b *Ballot) Wishes(i int, gen uint64, sent time.Time) {
	m := &b.m[i]
	if gen < m.gen {
		return
	}
	m.enter(gen)
	if m.token > 0 && b.permits == nil {
		m.vote, m.has = vote{}, gone
	}
	m.dating, m.first, m.wishes = undated, sent, true
}

// Wishing reports whether the next grant of member i is what the lease has wished for.
func (b *Ballot) Wishing(i int) bool { return b.m[i].wishes }

// Renewed books a member's word in a renewal: it has the lease until end, or it does not have it.
func (b *Ballot) Renewed(i int, ok bool, end time.Time) {
	m := &b.m[i]
	if !ok {
		if m.token > 0 {
			m.vote, m.has = vote{}, gone
		}
		return
	}
	if m.token == 0 {
		m.take(vote{token: b.token, voteOf: m.gen})
	}
	if b.permits != nil {
		b.permits.at[i].list = b.permits.agreed
	}
	m.has, m.wishes = held, false
	if m.end.IsZero() || clock.Until(end, m.end) > 0 {
		m.end = end
	}
}

// ReleaseAnswered reports whether the attempt has left nothing at member i, as it should be. If
// another owner had the lock all along, "not yours" is the answer that a release expects. If the
// lock was ours, it is a loss.
func (b *Ballot) ReleaseAnswered(i int, a *Answer) bool {
	m := &b.m[i]
	if a.Outcome != member.Answered {
		return false
	}
	if m.left == staying { // a second release finds nothing
		if m.left = freed; a.N != 1 {
			m.left = disowned
		}
	}
	return a.N == 1 || m.has != gone && !b.ours(i)
}

// Disowned counts the members that answered the release with "not yours".
func (b *Ballot) Disowned() (n int) {
	for i := range b.m {
		if b.m[i].left == disowned {
			n++
		}
	}
	return n
}

// Standing is the part of a member in an attempt that fails.
type Standing uint8

const (
	Undecided Standing = iota // the member has not answered yet
	Votes                     // the member votes for us
	Refuses                   // another owner has the lock, or what we need of it
	Fails                     // the last call to the member failed
	Silent                    // the member has not answered for Terms.Timeout
	Unasked                   // the member has not been asked
)

// Standing returns the part of member i, and why its last call failed.
func (b *Ballot) Standing(i int, now time.Time, states []member.State) (Standing, error) {
	switch m := &b.m[i]; {
	case b.valid(i, now, states):
		if b.permits != nil {
			if in, _, _, _ := b.tally(now, states); !in.Has(i) { // other slots than most
				return Refuses, nil
			}
		}
		return Votes, nil
	case m.word == failed:
		return Fails, m.err
	case m.word == refused:
		return Refuses, nil
	case m.pending > 0 && clock.Elapsed(m.since, now) >= b.terms.Timeout:
		return Silent, nil
	case m.word == failedBefore:
		return Fails, m.err
	case m.word == refusedBefore:
		return Refuses, nil
	case m.pending > 0:
		return Undecided, nil
	}
	return Unasked, nil
}

// said is what a member has told of the lock last.
type said struct {
	word word
	err  error
}

// words are what the members have told last, for the next attempt to report; nil: nothing that stands in the way.
func (b *Ballot) words() (out []said) {
	for i := range b.m {
		s := said{b.m[i].word, b.m[i].err}
		switch s.word {
		case open:
			continue
		case refused:
			s.word = refusedBefore
		case failed:
			s.word = failedBefore
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
	if m.word == failed {
		return m.err
	}
	return nil
}
