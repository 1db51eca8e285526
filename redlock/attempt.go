package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/ballot"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// The questions of a round, as the Judge sees them.
const (
	opAcquire = "acquire"
	opWait    = "wait"
	opYield   = "yield"
	opRaise   = "raise"
	opRelease = "release"
	opExtend  = "extend"
	opRejoin  = "rejoin"
)

// What a caller asks for, as errors name it.
const (
	opLock    = "lock"
	opTryLock = "try lock"
)

// attempt is one try to get one lock, under an owner name of its own that is never used again, and
// then the hold itself. It does what its ballot says: it submits, sleeps, and books.
//
// Its mutex guards the ballot. It is never held around Submit, because a member may answer inside it.
type attempt struct {
	c     *Client
	wire  script.Lock
	terms terms
	owner string
	n     uint64      // the number in owner: where pushes find it
	ended atomic.Bool // its release has begun: see member.Delivery.Ended

	traced *traced // nil without a Tracer

	// Of the caller that wants the lock, whose goroutine runs the attempt.
	round *quorum.Round // decides; nil: none does
	ear   chan struct{} // what wake was made as; nil: it has not come to wait
	timer *time.Timer   // with ear
	deaf  func()        // with ear: ends a subscription; nil: there is none

	mu       sync.Mutex
	b        ballot.Ballot
	wake     chan struct{} // capacity 1; nil unless waiting
	longest  time.Duration // the longest TTL that a member was asked for
	taking   int           // rejoins without an answer
	released bool          // the release has been submitted
	handed   bool          // there will be none: see handOff
	left     bool          // Close need not wait for it any more
	behind   quorum.Set    // members to be released once more then
}

// newAttempt: in is the context of the acquisition for the tracer, nil without one. nil: the client is closed.
func (c *Client) newAttempt(k script.Lock, t terms, past ballot.Past, in context.Context) *attempt {
	if !c.alive.enter() {
		return nil
	}
	n := c.number()
	a, voters := newAttempt(len(c.members))
	a.c, a.wire, a.terms, a.owner, a.n, a.longest = c, k, t, script.OwnerOf(c.uuid, n), n, t.ttl
	a.b = ballot.New(a.owner, voters, c.cfg.ballotTerms(t.ttl), past)
	if in != nil {
		a.traced = &traced{acquire: in}
	}
	c.attempts.put(a)
	return a
}

// ballotTerms are what a ballot is to know of the configuration.
func (c *Config) ballotTerms(ttl time.Duration) ballot.Terms {
	return ballot.Terms{
		TTL: ttl, Entry: c.Entry, Drift: c.Drift, Timeout: c.MemberTimeout, GiveUp: c.NoQuorumAfter, Shared: c.Interop,
	}
}

// newAttempt makes an attempt with its voters: in one piece of memory for the usual numbers of members.
func newAttempt(members int) (*attempt, []ballot.Voter) {
	switch members {
	case 1:
		x := new(struct {
			attempt
			voters [1]ballot.Voter
		})
		return &x.attempt, x.voters[:]
	case 3:
		x := new(struct {
			attempt
			voters [3]ballot.Voter
		})
		return &x.attempt, x.voters[:]
	case 5:
		x := new(struct {
			attempt
			voters [5]ballot.Voter
		})
		return &x.attempt, x.voters[:]
	}
	return new(attempt), make([]ballot.Voter, members)
}

// result is a grant and how it was obtained.
type result struct {
	ballot.Grant
	waited bool
}

// obtain makes one attempt after the other, until one has the lock or none can have it.
func (c *Client) obtain(ctx, in context.Context, op, name string, t terms, past ballot.Past) (*Lease, result, error) {
	k := c.cfg.lockOf(name)
	for {
		a := c.newAttempt(k, t, past, in)
		if a == nil {
			return nil, result{}, &keyError{op: op, key: name, err: ErrClosed}
		}
		s, err := a.run(ctx)
		next, waited := a.past()
		res := result{Grant: s.Grant, waited: waited && s.Do != ballot.Listen}
		if err == nil {
			l, err := a.hold(ctx, res)
			return l, res, err
		}
		a.abandon()
		if s.Do != ballot.Again || ctx.Err() != nil {
			return nil, res, err
		}
		past = next
	}
}

// past is what the attempt leaves to another one, and whether it has waited. Answers may still come to it.
func (a *attempt) past() (past ballot.Past, waited bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.b.Past(), a.b.Waited()
}

// run does what the ballot says, until the attempt has the lock or has ended. It must be released then, unless it has
// the lock.
func (a *attempt) run(ctx context.Context) (ballot.Step, error) {
	defer a.rest()
	for {
		now := time.Now()
		s := a.next(now)
		if s.Do == ballot.Listen && ctx.Err() != nil { // perhaps only now: the refusal does not tell
			return s, a.failure(opAcquire, a.reason(), ctx.Err())
		}
		a.do(&s, now)
		if s.Ends() {
			return s, a.end(ctx, &s)
		}
		if err := a.sleep(ctx, &s, now); err != nil {
			return s, err
		}
	}
}

// next asks the ballot.
func (a *attempt) next(now time.Time) ballot.Step {
	var few fewStates
	states := a.c.appendStatesOf(few[:0], a.wire.Slot())
	a.mu.Lock()
	s := a.b.Next(now, states)
	dark := a.b.DarkSince()
	a.mu.Unlock()
	if a.ear != nil {
		a.c.dark.set(dark)
	}
	return s
}

// do carries out a step, without waiting for anything.
func (a *attempt) do(s *ballot.Step, now time.Time) {
	switch s.Do {
	case ballot.Acquire:
		a.poll(a.acquire(now))
	case ballot.Listen:
		a.listen()
	case ballot.Register:
		a.woken(wokenBy[s.Why])
		if s.To != 0 {
			a.register(s.To, s.Freed, now).Free()
		}
	case ballot.Yield:
		for _, o := range s.Offers {
			a.ask(opYield, quorum.Set(0).With(o.Member), now, a.b.Part(), func(b *[]byte) member.Command {
				return a.wire.Yield(b, a.owner, o.Token, a.b.Part(), a.c.cfg.Entry)
			}, false).Free()
		}
	case ballot.Raise:
		a.poll(a.raise(s.To, s.Token, now, false))
	case ballot.Win:
		if s.To != 0 {
			a.raise(s.To, s.Grant.Token, now, true).Free()
		}
	}
}

// sleep returns when the ballot is to be asked again. An error ends the attempt.
func (a *attempt) sleep(ctx context.Context, s *ballot.Step, now time.Time) error {
	switch {
	case s.Do == ballot.MakeRoom:
		return a.makeRoom(ctx, s.Pause)
	case s.Poll:
		if _, err := a.round.Wait(ctx, max(clock.Until(s.Wake, now), 1)); err != nil {
			return a.interrupted(a.round.Op, a.round, err)
		}
		return nil
	case s.Do != ballot.Sleep:
		return nil
	}
	a.timer.Reset(max(0, clock.Until(s.Wake, now)))
	select {
	case <-a.ear:
	case <-a.timer.C:
	case <-ctx.Done():
		return a.failure(opWait, a.reason(), ctx.Err())
	case <-a.c.closed:
		return &keyError{op: opWait, key: a.wire.Name, err: ErrClosed}
	}
	return nil
}

// perCaller is what the callers of a crowd leave each other: about what a lock and unlock cost.
const perCaller = 30 * time.Microsecond

// makeRoom leaves the client's own lines alone for a pause, or for longer where many callers are in the way of each
// other.
func (a *attempt) makeRoom(ctx context.Context, pause time.Duration) error {
	crowd := a.c.crowd.Add(1)
	defer a.c.crowd.Add(-1)
	timer := time.NewTimer(max(pause, a.b.Spread(2*time.Duration(crowd)*perCaller, int(crowd))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return a.failure(opAcquire, a.reason(), ctx.Err())
	case <-a.c.closed:
		return &keyError{op: opWait, key: a.wire.Name, err: ErrClosed}
	}
}

// listen has the attempt woken by what is heard from now on.
func (a *attempt) listen() {
	a.poll(nil)
	a.ear, a.timer = make(chan struct{}, 1), time.NewTimer(time.Hour)
	dark := a.c.dark.get()
	a.mu.Lock()
	a.wake = a.ear
	a.b.Dark(dark)
	a.mu.Unlock()
	a.c.waiting.add(a)
	if _, _, ok := a.wire.Channels(); ok {
		a.deaf = a.subscribe()
	}
}

// rest ends what the attempt has used to get the lock.
func (a *attempt) rest() {
	a.poll(nil)
	if a.ear == nil {
		return
	}
	a.timer.Stop()
	a.c.waiting.remove(a)
	a.mu.Lock()
	a.wake = nil
	a.mu.Unlock()
	if a.deaf != nil {
		a.deaf()
	}
	a.ear, a.timer, a.deaf = nil, nil, nil // a lease may be held for long
}

// poll makes r the round that decides.
func (a *attempt) poll(r *quorum.Round) {
	if a.round != nil {
		a.round.Free()
	}
	a.round = r
}

// wokenBy are the tracer's words.
var wokenBy = [...]WakeReason{
	ballot.ByNothing: "", ballot.ByPoll: WokenByPoll, ballot.ByExpiry: WokenByExpiry, ballot.ByMember: WokenByMember,
	ballot.ByGrant: WokenByGrant,
}

// end is why the attempt has ended: nil where it has the lock.
func (a *attempt) end(ctx context.Context, s *ballot.Step) error {
	if s.Do == ballot.Win {
		return nil
	}
	switch s.Cause {
	case ballot.Refused:
		return a.refusal(a.round, s.Early)
	case ballot.Foreign:
		return a.failure(opWait, ErrForeignKey, nil)
	case ballot.TooSlow:
		return &keyError{op: opAcquire, key: a.wire.Name, err: ErrTooSlow}
	case ballot.Unconfirmed:
		return a.quorumError(opRaise, a.round.Votes(a.c.members), ErrNoQuorum, nil)
	case ballot.StoodBack:
		return a.failure(opWait, ErrNoQuorum, ctx.Err())
	}
	return a.failure(opWait, a.hopeless(), nil)
}

// acquire asks all members for their votes.
func (a *attempt) acquire(sent time.Time) *quorum.Round {
	cmd := a.c.buffer()
	command := a.wire.Acquire(cmd, a.owner, a.terms.ttl)
	r := a.c.rounds.Start(a.c.members, quorum.Question{
		Op: opAcquire, Sent: sent, TTL: a.terms.ttl, To: quorum.All(len(a.c.members)), Need: a.b.Need(), Judge: a,
		Command: command, Delivery: member.Delivery{Ended: &a.ended},
	})
	a.c.buffers.Put(cmd)
	return r
}

// register asks for the lock, now or when it is handed over.
func (a *attempt) register(to quorum.Set, freed bool, now time.Time) *quorum.Round {
	return a.ask(opWait, to, now, a.b.Part(), func(b *[]byte) member.Command {
		if freed {
			return a.wire.WaitFreed(b, a.owner, a.b.Part(), a.c.cfg.Entry)
		}
		return a.wire.Wait(b, a.owner, a.b.Part(), a.c.cfg.Entry)
	}, false)
}

// raise lifts the counters of members to the token.
func (a *attempt) raise(to quorum.Set, token int64, now time.Time, late bool) *quorum.Round {
	return a.ask(opRaise, to, now, 0, func(b *[]byte) member.Command { return a.wire.Raise(b, a.owner, token) }, late)
}

// raiseLate brings a member whose vote came after the decision, and lies below the token, back into step. Nobody
// waits for it.
func (a *attempt) raiseLate(i int, token int64) {
	a.mu.Lock()
	a.b.Submitted(i)
	a.mu.Unlock()
	a.raise(quorum.Set(0).With(i), token, time.Now(), true).Free()
}

// ask submits one question of this attempt to some members.
func (a *attempt) ask(op string, to quorum.Set, sent time.Time, ttl time.Duration, encode func(*[]byte) member.Command, late bool) *quorum.Round {
	cmd := a.c.buffer()
	command := encode(cmd)
	r := a.c.rounds.Start(a.c.members, quorum.Question{
		Op: op, Sent: sent, TTL: ttl, To: to, Need: a.b.Need(), Judge: a,
		Command: command, Delivery: member.Delivery{Late: late, Ended: &a.ended},
	})
	a.c.buffers.Put(cmd)
	return r
}

// Judge books an answer, on the goroutine that read it.
func (a *attempt) Judge(r *quorum.Round, c *member.Call) (v quorum.Vote) {
	i := c.Index
	ans := decode(r, c, a.c.stateOf(i, a.wire.Slot()))
	late, token := false, int64(0)
	a.mu.Lock()
	switch r.Op {
	case opAcquire, opWait:
		v = a.b.Answered(i, ans, r.TTL)
		token, late = a.b.Late(i)
	case opYield:
		v = a.b.YieldAnswered(i, ans)
	case opRaise:
		v = a.b.RaiseAnswered(i, ans)
	case opRelease:
		if c.Interrupted && ans.Outcome == member.Answered {
			ans.N = 1 // it is only stopped where it has freed the vote and is to hand it over
		}
		v = ballot.VoteOf(c.Outcome, a.b.ReleaseAnswered(i, ans))
	}
	wake := a.wake
	orphaned := a.handed && mayHaveLeft(r.Op, &ans)
	a.mu.Unlock()
	if orphaned {
		a.orphaned(i)
	}
	a.leave()
	if ans.N < 0 && (r.Op == opAcquire || r.Op == opWait) {
		a.c.contended(a.wire.Name, ans.At)
	}
	if late && !a.ended.Load() {
		a.raiseLate(i, token)
	}
	signal(wake)
	if a.c.trace.request != nil {
		a.requested(r, c)
	}
	return v
}

// mayHaveLeft reports whether a call has left a vote or a place in the queue at the member, or may have.
func mayHaveLeft(op string, ans *ballot.Answer) bool {
	switch {
	case op != opAcquire && op != opWait:
		return false
	case ans.Outcome == member.Answered:
		return op == opWait || ans.N > 0
	}
	return ans.Outcome == member.Unknown
}

// decode is what a member answered, as the ballot takes it.
func decode(r *quorum.Round, c *member.Call, now member.State) ballot.Answer {
	a := ballot.Answer{Outcome: c.Outcome, Err: c.Err, Sent: r.Sent, At: c.At, From: c.State, Now: now}
	if c.Outcome != member.Answered {
		return a
	}
	said, ok := script.ReadAnswer(&c.Reply)
	if !ok {
		a.Outcome, a.Err = member.Refused, errReply
		return a
	}
	a.N, a.Server, a.Next = said.N, said.Server, said.Next
	return a
}

var errReply = errors.New("reply of an unexpected shape")

// hear takes a push for this attempt.
func (a *attempt) hear(i int, p script.Push, st member.State, at time.Time) {
	if a.ended.Load() {
		return // the release that ended it stands behind the grant and frees it
	}
	counts := false
	a.mu.Lock()
	switch {
	case p.Grant:
		counts = a.b.Pushed(i, ballot.Push{Token: p.Token, Server: p.Server, Next: p.Other, TTL: p.TTL}, st, at)
	case p.Gone:
		a.b.Withdrawn(p.Other)
	default:
		a.b.Announced(i, p.Other)
	}
	token, late := a.b.Late(i)
	wake := a.wake
	a.mu.Unlock()
	if !p.Grant && !p.Gone {
		a.c.contended(a.wire.Name, at)
	}
	if late {
		a.raiseLate(i, token)
	}
	signal(wake)
	if counts {
		a.woken(WokenByGrant)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // nil, or already signalled
	}
}

// release frees every vote and every place in line, at all members that a write may have reached, in
// order behind it: docs/protocol.md, "Lost". It belongs to the client and not to any caller: no context ends it. late: on a
// goroutine that must not write to a socket. The caller frees the round.
func (a *attempt) release(late bool) *quorum.Round {
	a.ended.Store(true)
	a.mu.Lock()
	to := a.b.Owed()
	a.wake = nil
	a.mu.Unlock()
	r := a.submitRelease(to, late)
	a.mu.Lock()
	a.released = true
	again := a.behind
	a.mu.Unlock()
	if again != 0 {
		a.submitRelease(again, late).Free()
	}
	a.c.attempts.remove(a)
	a.leave()
	return r
}

// leave tells Close that nothing of the attempt is left to be submitted: its release has been, or, where the lease was
// handed off, every call is answered that may take a vote.
func (a *attempt) leave() {
	a.mu.Lock()
	leave := !a.left && (a.released || a.handed && a.taking+a.b.Taking() == 0)
	a.left = a.left || leave
	a.mu.Unlock()
	if leave {
		a.c.alive.leave()
	}
}

// handOff leaves the votes to whoever adopts the lease. Its release is that client's, and goes another way than the
// calls of this attempt which are still under way: see orphaned.
func (a *attempt) handOff() {
	a.c.attempts.remove(a)
	a.mu.Lock()
	a.handed = true
	a.mu.Unlock()
	a.leave()
}

// rejoined books the answer to a rejoin, by which the member may have taken the lease back.
func (a *attempt) rejoined(i int, mayHave bool) {
	a.mu.Lock()
	a.taking--
	orphaned := a.handed && mayHave
	a.mu.Unlock()
	if orphaned {
		a.orphaned(i)
	}
	a.leave()
}

// orphaned is called when member i has, or may have, given a vote or a place in its queue after the lease was handed off.
// If a majority no longer has the lease, then its release has been at the member before that, which is nobody's then. (A
// lease that a majority does not have never comes back, so that nobody can be hurt; while a majority has it, its release
// is still to come.)
func (a *attempt) orphaned(i int) {
	if !a.c.alive.enter() {
		return
	}
	cmd := a.c.buffer()
	command := a.wire.Extend(cmd, a.owner, time.Millisecond) // which lengthens nothing
	a.c.rounds.Start(a.c.members, quorum.Question{
		Op: opExtend, Sent: time.Now(), To: quorum.All(len(a.c.members)), Need: a.b.Need(),
		Judge:   &orphan{a: a, at: i, open: len(a.c.members)},
		Command: command, Delivery: member.Delivery{Late: true},
	}).Free()
	a.c.buffers.Put(cmd)
}

// orphan counts who still has a lease that was handed off.
type orphan struct {
	a  *attempt
	at int // the member with a vote, or a place, that may be nobody's

	mu   sync.Mutex
	open int
	gone int
}

// Judge implements quorum.Judge.
func (o *orphan) Judge(_ *quorum.Round, c *member.Call) quorum.Vote {
	gone := c.Outcome == member.Answered && len(c.Reply.Elems) == 1 && c.Reply.Elems[0].Int == 0
	o.mu.Lock()
	o.open--
	if gone {
		o.gone++
	}
	release, last := gone && o.gone == o.a.b.Need(), o.open == 0
	o.mu.Unlock()
	if release {
		o.a.submitRelease(quorum.Set(0).With(o.at), true).Free()
	}
	if last {
		o.a.c.alive.leave()
	}
	return ballot.VoteOf(c.Outcome, gone)
}

// asks notes the TTL of a request.
func (a *attempt) asks(ttl time.Duration) {
	a.mu.Lock()
	a.longest = max(a.longest, ttl)
	a.mu.Unlock()
}

// overtaken is called after something that may take a vote was submitted to member i: if the attempt had
// ended by then, its release may stand before that, and the member is released once more, behind it.
// Never before the release itself, whose answers tell whether the lease was held.
func (a *attempt) overtaken(i int) {
	if !a.ended.Load() {
		return
	}
	a.mu.Lock()
	released := a.released
	if !released {
		a.behind = a.behind.With(i) // release sees to it
	}
	a.mu.Unlock()
	if released {
		a.submitRelease(quorum.Set(0).With(i), true).Free()
	}
}

func (a *attempt) submitRelease(to quorum.Set, late bool) *quorum.Round {
	a.mu.Lock()
	hint, longest := a.b.Hint(), max(a.longest, a.c.cfg.Entry)
	a.mu.Unlock()
	cmd := a.c.buffer()
	command := a.wire.Release(cmd, a.owner, hint)
	now := time.Now()
	r := a.c.rounds.Start(a.c.members, quorum.Question{
		Op: opRelease, Sent: now, To: to, Need: a.b.Need(), Judge: a,
		Command:  command,
		Delivery: member.Delivery{Always: true, Late: late, OweUntil: now.Add(longest + time.Second)},
	})
	a.c.buffers.Put(cmd)
	return r
}

// abandon is a release that nobody waits for.
func (a *attempt) abandon() { a.release(false).Free() }

// refusal explains a round that was not won. One that was decided is not waited out: a member without an
// answer is not silent then, and where a majority could be asked it was the refusals that decided.
func (a *attempt) refusal(r *quorum.Round, early bool) error {
	votes := r.Votes(a.c.members)
	kind := reasonOf(votes, a.b.Need())
	if early && kind == ErrNoQuorum && len(votes)-failed(votes) >= a.b.Need() {
		kind = ErrHeld
	}
	e := a.quorumError(opAcquire, votes, kind, nil)
	e.Early = early
	return e
}

// failed counts the members that could not be asked, or did not say.
func failed(votes []quorum.MemberVote) (n int) {
	for _, v := range votes {
		if v.Vote == quorum.Unsure || v.Vote == quorum.No && v.Err != nil {
			n++
		}
	}
	return n
}

func (a *attempt) interrupted(op string, r *quorum.Round, cause error) error {
	votes := r.Votes(a.c.members)
	return a.quorumError(op, votes, reasonOf(votes, a.b.Need()), cause)
}

func (a *attempt) quorumError(op string, votes []quorum.MemberVote, kind, cause error) *QuorumError {
	return &QuorumError{
		Failure: quorum.Failure{Op: op, Key: a.wire.Name, Need: a.b.Need(), Votes: votes},
		kind:    kind, cause: cause,
	}
}

// failure explains why waiting ended, from what is known of each member.
func (a *attempt) failure(op string, kind, cause error) error {
	return a.quorumError(op, a.standing(), kind, cause)
}

// hopeless is why an attempt stops waiting for a majority that it can ask.
func (a *attempt) hopeless() error {
	if why := a.reason(); why == ErrTokensExhausted {
		return why
	}
	return ErrNoQuorum
}

func (a *attempt) reason() error { return reasonOf(a.standing(), a.b.Need()) }

// standing is each member's part in a wait, as votes.
func (a *attempt) standing() []quorum.MemberVote {
	states := a.c.statesOf(a.wire.Slot())
	out := make([]quorum.MemberVote, len(states))
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range out {
		part, err := a.b.Standing(i, now, states)
		v := quorum.MemberVote{Member: a.c.members[i].Name(), Vote: quorum.No, Err: err}
		switch {
		case part == ballot.Votes:
			v.Vote = quorum.Yes
		case !states[i].Quarantine.IsZero():
			v.Err = &member.QuarantineError{Until: states[i].Quarantine}
		case !states[i].Up:
			v.Err = states[i].Err
			if v.Err == nil {
				v.Err = member.ErrDown
			}
		case part != ballot.Fails && !states[i].Inbox && states[i].Deaf != nil:
			v.Err = states[i].Deaf
		case part == ballot.Undecided:
			v.Vote = quorum.Open
		}
		out[i] = v
	}
	return out
}

// reasonOf says why a majority was not to be had: refusals alone, keys that are no locks, members that
// may have forgotten, or members that could not be asked. Silence is never reported as "held".
func reasonOf(votes []quorum.MemberVote, need int) error {
	refused, foreign, spentOut, resting, failed := 0, 0, 0, 0, 0
	for _, v := range votes {
		switch {
		case ballot.KindOf(v.Err) == member.KindExhausted:
			spentOut++
		case ballot.KindOf(v.Err) == member.KindForeign:
			foreign++
		case v.Vote == quorum.No && v.Err == nil:
			refused++
		case errors.Is(v.Err, ErrQuarantined):
			resting++
		case v.Vote != quorum.Yes:
			failed++
		}
	}
	switch n := len(votes); {
	case n-foreign < need:
		return ErrForeignKey
	case n-spentOut < need:
		return ErrTokensExhausted
	case n-foreign-refused < need:
		return ErrHeld
	case resting > 0 && n-foreign-refused-failed >= need:
		return ErrQuarantined
	}
	return ErrNoQuorum
}
