package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
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

// attempt is one try to get one lock, under an owner name of its own that is never used again, and
// then the hold itself. It carries out what its ballot decides.
//
// Its mutex guards the ballot. It is never held around Submit, because a member may answer inside it.
type attempt struct {
	c     *Client
	keys  keys
	terms terms
	owner string
	n     uint64      // the number in owner: where pushes find it
	ended atomic.Bool // its release has begun: see member.Delivery.Ended

	traced *traced // nil without a Tracer

	mu       sync.Mutex
	b        ballot
	wake     chan struct{} // capacity 1; nil unless waiting
	longest  time.Duration // the longest TTL that a member was asked for
	taking   int           // rejoins without an answer
	released bool          // the release has been submitted
	handed   bool          // there will be none: see handOff
	left     bool          // Close need not wait for it any more
	behind   quorum.Set    // members to be released once more then
}

// newAttempt: in is the context of the acquisition for the tracer, nil without one. nil: the client is closed.
func (c *Client) newAttempt(k keys, t terms, in context.Context) *attempt {
	if !c.alive.enter() {
		return nil
	}
	n := c.number()
	a, voters := newAttempt(len(c.members))
	a.c, a.keys, a.terms, a.owner, a.n, a.longest = c, k, t, ownerOf(c.uuid, n), n, t.ttl
	a.b = ballotOf(a.owner, voters, t, &c.cfg)
	if in != nil {
		a.traced = &traced{acquire: in}
	}
	c.attempts.put(a)
	return a
}

// newAttempt makes an attempt with its voters: in one piece of memory for the usual numbers of members.
func newAttempt(members int) (*attempt, []voter) {
	switch members {
	case 1:
		x := new(struct {
			attempt
			voters [1]voter
		})
		return &x.attempt, x.voters[:]
	case 3:
		x := new(struct {
			attempt
			voters [3]voter
		})
		return &x.attempt, x.voters[:]
	case 5:
		x := new(struct {
			attempt
			voters [5]voter
		})
		return &x.attempt, x.voters[:]
	}
	return new(attempt), make([]voter, members)
}

// grant is what a won attempt was worth when it was decided.
type grant struct {
	token  int64
	until  time.Time
	votes  int
	raised bool
}

// spent is the end of an attempt that another one may succeed: it had a majority and could not make a lease of it,
// or, with back, it made room for those who can have one.
type spent struct {
	error
	back bool
	vain quorum.Set // with back: members that could be asked, and failed
}

func (e spent) Unwrap() error { return e.error }

// try asks once: docs/protocol.md, "Asking". nil error: won. The attempt must be released in any other case, unless
// it goes on waiting.
func (a *attempt) try(ctx context.Context) (grant, error) {
	r := a.acquire()
	defer r.Free()
	v, err := r.Wait(ctx, a.c.cfg.MemberTimeout)
	if err != nil {
		return grant{}, a.interrupted(opAcquire, r, err)
	}
	if v != quorum.Won {
		return grant{}, a.refusal(r, v)
	}
	return a.settle(ctx)
}

// perCaller is what the callers of a crowd leave each other: about what a lock and unlock cost.
const perCaller = 30 * time.Microsecond

// crowdedOut waits until an attempt that was refused by this client's own full lines may try again. False: it was not, or
// ctx or the client has ended.
func (a *attempt) crowdedOut(ctx context.Context) bool {
	var few fewStates
	states, now := a.c.appendStatesOf(few[:0], a.keys.slot()), time.Now()
	a.mu.Lock()
	pause := a.b.crowdedOut(now, states)
	a.mu.Unlock()
	if pause == 0 {
		return false
	}
	crowd := a.c.crowd.Add(1)
	defer a.c.crowd.Add(-1)
	timer := time.NewTimer(max(pause, a.b.spread(2*time.Duration(crowd)*perCaller, int(crowd))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-a.c.closed:
	}
	return false
}

// acquire asks all members for their votes.
func (a *attempt) acquire() *quorum.Round {
	all := quorum.All(len(a.c.members))
	sent := time.Now()
	a.mu.Lock()
	for i := range a.b.m {
		a.b.submitted(i, true, sent)
	}
	a.mu.Unlock()
	cmd := a.c.buffer()
	*cmd = a.keys.acquire((*cmd)[:0], a.owner, a.terms.ttl)
	r := a.c.rounds.Start(a.c.members, quorum.Question{
		Op: opAcquire, Sent: sent, TTL: a.terms.ttl, To: all, Need: a.b.need, Judge: a,
		Command: a.keys.command(*cmd, acquireItem), Delivery: member.Delivery{Ended: &a.ended},
	})
	a.c.buffers.Put(cmd)
	return r
}

// settle turns a majority of votes into a token and a validity, with a second round where the counters
// disagree.
func (a *attempt) settle(ctx context.Context) (grant, error) {
	var few fewStates
	states := a.c.appendStatesOf(few[:0], a.keys.slot())
	a.mu.Lock()
	in, token, exact, until := a.b.tally(time.Now(), states)
	if in.Len() < a.b.need {
		a.mu.Unlock()
		return grant{}, a.tooSlow()
	}
	if exact >= a.b.need {
		return a.wonLocked(token, until, in.Len(), 0), nil
	}
	in = a.b.mayHaveVoted(in) // so that one slow confirmation of those that decided does not hold it up
	a.mu.Unlock()
	return a.raise(ctx, token, in)
}

// raise makes sure that a majority that still holds for us has its counter at the token, so that every
// later attempt draws a greater one. Why no clock is needed: docs/protocol.md, "Fencing tokens".
func (a *attempt) raise(ctx context.Context, token int64, in quorum.Set) (grant, error) {
	r := a.ask(opRaise, in, time.Now(), 0, func(b []byte) []byte { return a.keys.raise(b, a.owner, token) }, false)
	defer r.Free()
	v, err := r.Wait(ctx, a.c.cfg.MemberTimeout)
	if err != nil {
		return grant{}, a.interrupted(opRaise, r, err)
	}
	if v != quorum.Won {
		votes := r.Votes(a.c.members)
		return grant{}, spent{error: a.quorumError(opRaise, votes, ErrNoQuorum, nil)}
	}
	states := a.c.statesOf(a.keys.slot())
	a.mu.Lock()
	// Votes may have ended while the members answered: only what is confirmed and still counts, counts.
	confirmed, until := a.b.confirmed(token, time.Now(), states)
	if confirmed.Len() < a.b.need {
		a.mu.Unlock()
		return grant{}, a.tooSlow()
	}
	return a.wonLocked(token, until, confirmed.Len(), in), nil
}

func (a *attempt) tooSlow() error {
	return spent{error: &keyError{op: opAcquire, key: a.keys.name, err: ErrTooSlow}}
}

// wonLocked books the win and unlocks. raised: the members that were asked to lift their counters.
func (a *attempt) wonLocked(token int64, until time.Time, votes int, raised quorum.Set) grant {
	a.b.token = token
	a.wake = nil
	var behind quorum.Set
	for i := range a.b.m {
		if a.b.late(i) && !raised.Has(i) {
			behind = behind.With(i)
		}
	}
	a.mu.Unlock()
	if behind != 0 {
		a.raiseLate(behind, token)
	}
	return grant{token: token, until: until, votes: votes, raised: raised != 0}
}

// raiseLate brings members whose vote lies below the token back into step. Nobody waits for it.
func (a *attempt) raiseLate(to quorum.Set, token int64) {
	a.ask(opRaise, to, time.Now(), 0, func(b []byte) []byte { return a.keys.raise(b, a.owner, token) }, true).Free()
}

// ask submits one question of this attempt to some members.
func (a *attempt) ask(op string, to quorum.Set, sent time.Time, ttl time.Duration, encode func([]byte) []byte, late bool) *quorum.Round {
	a.mu.Lock()
	for i := range a.b.m {
		if to.Has(i) {
			a.b.submitted(i, op == opWait, sent)
		}
	}
	a.mu.Unlock()
	cmd := a.c.buffer()
	*cmd = encode((*cmd)[:0])
	q := quorum.Question{
		Op: op, Sent: sent, TTL: ttl, To: to, Need: a.b.need, Judge: a,
		Command: a.keys.command(*cmd, member.Item{}), Delivery: member.Delivery{Late: late, Ended: &a.ended},
	}
	r := a.c.rounds.Start(a.c.members, q)
	a.c.buffers.Put(cmd)
	return r
}

// command is a script call about this lock, as members take it. item says how it may travel with others; those of
// Config.Interop travel alone.
func (k *keys) command(cmd []byte, item member.Item) member.Command {
	return member.Command{Cmd: cmd, Tagged: true, Slot: k.slot(), Shared: k.sharedAt(cmd), Item: k.item(item)}
}

// Judge books an answer, on the goroutine that read it.
func (a *attempt) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	i := c.Index
	ans := decode(r, c, a.c.stateOf(i, a.keys.slot()))
	yes := false
	late, token := false, int64(0)
	a.mu.Lock()
	switch r.Op {
	case opAcquire, opWait:
		a.b.answered(i, ans, r.TTL)
		yes = ans.n > 0 && a.b.m[i].token > 0
		late, token = a.b.late(i), a.b.token
	case opYield:
		a.b.yieldAnswered(i, ans)
	case opRaise:
		yes = a.b.raiseAnswered(i, ans)
	case opRelease:
		if c.Interrupted && ans.outcome == member.Answered {
			ans.n = 1 // it is only stopped where it has freed the vote and is to hand it over
		}
		yes = a.b.releaseAnswered(i, ans)
	}
	wake := a.wake
	orphaned := a.handed && mayHaveLeft(r.Op, ans)
	a.mu.Unlock()
	if orphaned {
		a.orphaned(i)
	}
	a.leave()
	if ans.n < 0 && (r.Op == opAcquire || r.Op == opWait) {
		a.c.contended(a.keys.name, ans.at)
	}
	if late && !a.ended.Load() {
		a.raiseLate(quorum.Set(0).With(i), token)
	}
	signal(wake)
	if a.c.trace.request != nil {
		a.requested(r, c)
	}
	if r.Op != opRelease && ans.idle() {
		return quorum.Unsure // an answer that does not count is no refusal either
	}
	return voteOf(c.Outcome, yes)
}

// mayHaveLeft reports whether a call has left a vote or a place in the queue at the member, or may have.
func mayHaveLeft(op string, ans answer) bool {
	switch {
	case op != opAcquire && op != opWait:
		return false
	case ans.outcome == member.Answered:
		return op == opWait || ans.n > 0
	}
	return ans.outcome == member.Unknown
}

func voteOf(o member.Outcome, yes bool) quorum.Vote {
	switch {
	case o == member.Unknown:
		return quorum.Unsure
	case yes:
		return quorum.Yes
	}
	return quorum.No
}

// decode reads the three shapes of reply that the scripts give.
func decode(r *quorum.Round, c *member.Call, now member.State) answer {
	a := answer{outcome: c.Outcome, err: c.Err, sent: r.Sent, at: c.At, from: c.State, now: now}
	if c.Outcome != member.Answered {
		return a
	}
	switch rep := &c.Reply; {
	case rep.Kind == ':':
		a.n = rep.Int
	case rep.Kind == '*' && len(rep.Elems) >= 2:
		a.n, a.server = rep.Elems[0].Int, rep.Elems[1].Int
		if len(rep.Elems) > 2 && len(rep.Elems[2].Str) > 1 {
			a.next = string(rep.Elems[2].Str)
		}
	default:
		a.outcome, a.err = member.Refused, errReply
	}
	return a
}

var errReply = errors.New("reply of an unexpected shape")

// hear takes a push for this attempt.
func (a *attempt) hear(i int, p push, st member.State, at time.Time) {
	if a.ended.Load() {
		return // the release that ended it stands behind the grant and frees it
	}
	counts := false
	a.mu.Lock()
	switch {
	case p.grant:
		counts = a.b.pushed(i, p, st, at)
	case p.gone:
		a.b.withdrawn(p.other)
	default:
		a.b.announced(i, p.other)
	}
	late, token := a.b.late(i), a.b.token
	wake := a.wake
	a.mu.Unlock()
	if !p.grant && !p.gone {
		a.c.contended(a.keys.name, at)
	}
	if late {
		a.raiseLate(quorum.Set(0).With(i), token)
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

// wait goes on where try was refused: docs/protocol.md, "Waiting". The attempt is registered at the members, keeps the
// votes it has, and is told of those it gets. nil error: won.
func (a *attempt) wait(ctx context.Context) (grant, error) {
	a.mu.Lock()
	a.wake = make(chan struct{}, 1)
	if a.b.darkSince.IsZero() {
		a.b.darkSince = a.c.dark.get()
	}
	wake := a.wake
	a.mu.Unlock()
	a.c.waiting.add(a)
	defer a.c.waiting.remove(a)
	if a.keys.shared != nil {
		defer a.listen()()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		now := time.Now()
		states := a.c.statesOf(a.keys.slot())
		a.mu.Lock()
		s := a.b.advance(now, states)
		dark := a.b.darkSince
		a.mu.Unlock()
		a.c.dark.set(dark)
		switch s.deed {
		case deedDecide:
			return a.settle(ctx)
		case deedAsk:
			a.woken(s.why)
			if s.freed {
				a.askFreed(s.to, now, states)
			} else {
				a.askWait(s.to, now, states)
			}
			continue
		case deedYield:
			for _, y := range s.yields {
				a.ask(opYield, quorum.Set(0).With(y.member), now, a.b.part, func(b []byte) []byte {
					return a.keys.yield(b, a.owner, y.token, a.b.part, a.b.entry)
				}, false).Free()
			}
			continue
		case deedForeign:
			return grant{}, a.failure(opWait, ErrForeignKey, nil)
		case deedTooSlow:
			return grant{}, a.tooSlow()
		case deedNoQuorum:
			return grant{}, a.failure(opWait, a.hopeless(), nil)
		case deedStandBack:
			return grant{}, spent{a.failure(opWait, ErrNoQuorum, nil), true, s.in}
		}
		timer.Reset(max(0, clock.Until(s.wake, now)))
		select {
		case <-wake:
		case <-timer.C:
		case <-ctx.Done():
			return grant{}, a.failure(opWait, a.reason(), ctx.Err())
		case <-a.c.closed:
			return grant{}, &keyError{op: opWait, key: a.keys.name, err: ErrClosed}
		}
	}
}

// askWait registers at every member of the set whose inbox subscription is confirmed: a grant that
// cannot be heard of helps nobody.
func (a *attempt) askWait(to quorum.Set, now time.Time, states []member.State) {
	a.registerAt(to, now, states, func(b []byte) []byte {
		return a.keys.wait(b, a.owner, a.b.part, a.b.entry)
	})
}

func (a *attempt) registerAt(to quorum.Set, now time.Time, states []member.State, encode func([]byte) []byte) {
	var at quorum.Set
	a.mu.Lock()
	for i, st := range states {
		if to.Has(i) && st.Votes && st.Inbox {
			at = at.With(i)
			a.b.waitSubmitted(i, st.Gen, now)
		}
	}
	a.mu.Unlock()
	if at == 0 {
		return
	}
	a.ask(opWait, at, now, a.b.part, encode, false).Free()
}

// release frees every vote and every place in line, at all members that a write may have reached, in
// order behind it: docs/protocol.md, "Lost". It belongs to the client and not to any caller: no context ends it. late: on a
// goroutine that must not write to a socket. The caller frees the round.
func (a *attempt) release(late bool) *quorum.Round {
	a.ended.Store(true)
	a.mu.Lock()
	to := a.b.owed()
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
	leave := !a.left && (a.released || a.handed && a.takingLocked() == 0)
	a.left = a.left || leave
	a.mu.Unlock()
	if leave {
		a.c.alive.leave()
	}
}

// takingLocked counts the calls without an answer that may take a vote.
func (a *attempt) takingLocked() int {
	n := a.taking
	for i := range a.b.m {
		n += a.b.m[i].pending
	}
	return n
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
	b := appendEval((*cmd)[:0], extendScript, 1, 2)
	b = resp.AppendBulk(b, a.keys.name)
	b = resp.AppendBulk(b, a.owner)
	*cmd = resp.AppendInt(b, 1) // which lengthens nothing
	a.c.rounds.Start(a.c.members, quorum.Question{
		Op: opExtend, Sent: time.Now(), To: quorum.All(len(a.c.members)), Need: a.b.need,
		Judge:   &orphan{a: a, at: i, open: len(a.c.members)},
		Command: member.Command{Cmd: *cmd, Slot: a.keys.slot(), Tagged: true}, Delivery: member.Delivery{Late: true},
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
	release, last := gone && o.gone == o.a.b.need, o.open == 0
	o.mu.Unlock()
	if release {
		o.a.submitRelease(quorum.Set(0).With(o.at), true).Free()
	}
	if last {
		o.a.c.alive.leave()
	}
	return voteOf(c.Outcome, gone)
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
	hint, longest := a.b.hint(), max(a.longest, a.b.entry)
	a.mu.Unlock()
	cmd := a.c.buffer()
	*cmd = a.keys.release((*cmd)[:0], a.owner, hint)
	now := time.Now()
	r := a.c.rounds.Start(a.c.members, quorum.Question{
		Op: opRelease, Sent: now, To: to, Need: a.b.need, Judge: a,
		Command:  a.keys.command(*cmd, releaseItem),
		Delivery: member.Delivery{Always: true, Late: late, OweUntil: now.Add(longest + time.Second)},
	})
	a.c.buffers.Put(cmd)
	return r
}

// abandon is a release that nobody waits for.
func (a *attempt) abandon() { a.release(false).Free() }

// refusal explains a round that was not won. One that was decided is not waited out: a member without an
// answer is not silent then, and where a majority could be asked it was the refusals that decided.
func (a *attempt) refusal(r *quorum.Round, v quorum.Verdict) error {
	votes := r.Votes(a.c.members)
	kind := reasonOf(votes, a.b.need)
	if v == quorum.Lost && kind == ErrNoQuorum && len(votes)-failed(votes) >= a.b.need {
		kind = ErrHeld
	}
	e := a.quorumError(opAcquire, votes, kind, nil)
	e.Early = v == quorum.Lost
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
	return a.quorumError(op, votes, reasonOf(votes, a.b.need), cause)
}

func (a *attempt) quorumError(op string, votes []quorum.MemberVote, kind, cause error) *QuorumError {
	return &QuorumError{
		Failure: quorum.Failure{Op: op, Key: a.keys.name, Need: a.b.need, Votes: votes},
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

func (a *attempt) reason() error { return reasonOf(a.standing(), a.b.need) }

// standing is each member's part in a wait, as votes.
func (a *attempt) standing() []quorum.MemberVote {
	states := a.c.statesOf(a.keys.slot())
	out := make([]quorum.MemberVote, len(states))
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range out {
		m := &a.b.m[i]
		v := quorum.MemberVote{Member: a.c.members[i].Name(), Vote: quorum.No, Err: m.err}
		switch {
		case a.b.valid(i, now, states):
			v.Vote, v.Err = quorum.Yes, nil
		case !states[i].Quarantine.IsZero():
			v.Err = &member.QuarantineError{Until: states[i].Quarantine}
		case !states[i].Up:
			v.Err = states[i].Err
			if v.Err == nil {
				v.Err = member.ErrDown
			}
		case m.err == nil && !states[i].Inbox && states[i].Deaf != nil:
			v.Err = states[i].Deaf
		case m.err == nil && !m.refused:
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
		case kindOf(v.Err) == member.KindExhausted:
			spentOut++
		case kindOf(v.Err) == member.KindForeign:
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

// kindOf classifies a member's cause.
func kindOf(err error) member.Kind {
	var reply *member.ReplyError
	if errors.As(err, &reply) {
		return reply.Kind
	}
	return member.KindOther
}
