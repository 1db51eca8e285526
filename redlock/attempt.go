package redlock

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// attempt is one try to get one lock, under an owner name of its own that is never used again. It does what its ballot
// says: it submits, sleeps, and books. What it gets is its hold, which outlives it as the hold of a lease.
type attempt struct {
	hold

	// Of the caller that wants the lock, whose goroutine runs the attempt.
	round       *quorum.Round // decides; nil: none does
	wakeup      chan struct{} // what wake was made as; nil: it has not come to wait
	timer       *time.Timer   // with ear
	unsubscribe func()        // with ear: ends a subscription; nil: there is none
}

// newAttempt makes an attempt, and has pushes find it. in is the context of the acquisition for the tracer, nil without
// one. It returns nil if the client is closed.
func (c *Client) newAttempt(k script.Lock, t *terms, past wait.Past, in context.Context) *attempt {
	if !c.inflight.enter() {
		return nil
	}
	c.giveWay(k.Name, t.kind)
	a, room := newAttempt(len(c.members))
	a.begin(c, k, t, room, past)
	if in != nil {
		a.traced = &traced{acquire: in}
	}
	c.holds.shard(a.n).put(a.n, &a.hold)
	return a
}

// newAttempt makes an attempt with room for its members: in one piece of memory for the usual numbers of members.
func newAttempt(members int) (*attempt, wait.Room) {
	switch members {
	case 1:
		x := new(struct {
			attempt
			votes  [1]core.Voter
			voters [1]wait.Voter
		})
		return &x.attempt, wait.Room{Votes: x.votes[:], Voters: x.voters[:]}
	case 3:
		x := new(struct {
			attempt
			votes  [3]core.Voter
			voters [3]wait.Voter
		})
		return &x.attempt, wait.Room{Votes: x.votes[:], Voters: x.voters[:]}
	case 5:
		x := new(struct {
			attempt
			votes  [5]core.Voter
			voters [5]wait.Voter
		})
		return &x.attempt, wait.Room{Votes: x.votes[:], Voters: x.voters[:]}
	}
	return new(attempt), wait.NewRoom(members)
}

// past is what the attempt leaves to another one. Answers may still come to it.
func (a *attempt) past() wait.Past {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.b.Past()
}

// run does what the ballot says, from the step s that it said at now, until the attempt has the
// lock or has ended. Unless it has the lock, it must be released then. run leaves the last step in
// s.
func (a *attempt) run(ctx context.Context, s *wait.Step, now time.Time) error {
	defer a.stopListening()
	for {
		if s.Do == wait.Listen && ctx.Err() != nil { // perhaps only now: the refusal does not tell
			return a.failure(opAcquire, a.reason(), ctx.Err())
		}
		a.do(s, now)
		if s.Ends() {
			return a.end(ctx, s)
		}
		if err := a.sleep(ctx, s, now); err != nil {
			return err
		}
		now = a.next(s)
	}
}

// next is next of its hold. A waiting attempt tells the client what it knows of majorities.
func (a *attempt) next(s *wait.Step) (now time.Time) {
	looks := a.b.Looks()
	if now = a.hold.next(s); looks && a.wakeup != nil {
		a.c.noQuorumSince.set(a.b.NoQuorumSince())
	}
	return now
}

// do carries out a step, without waiting for anything.
func (a *attempt) do(s *wait.Step, now time.Time) {
	switch s.Do {
	case wait.Acquire:
		a.poll(a.acquire(s, now))
	case wait.Listen:
		a.listen()
	case wait.Register:
		a.c.woken(a.traced, a.lock(), wokenBy[s.Why])
		if s.To != 0 {
			a.register(s, now).Free()
		}
	case wait.Yield:
		a.yield(s, now)
	case wait.Claim:
		a.claim(s, now)
	case wait.Raise:
		a.poll(a.raise(s.To, now, false))
	case wait.Win:
		if s.To != 0 {
			a.lift(s.To, now)
		}
	}
}

// claim submits the claims of a step, and then its waits.
func (h *hold) claim(s *wait.Step, now time.Time) {
	ttl := h.terms.ttl
	if h.b.Waited() {
		ttl = h.b.Part()
	}
	for _, o := range s.Offers {
		h.ask(opClaim, memberset.Set(0).With(o.Given.Member()), now, ttl, func(b *[]byte) member.Command {
			return h.wire.Claim(b, h.owner, o.Given.List(), o.Slots, ttl, h.c.cfg.Entry, h.b.Waited())
		}, false).Free()
	}
	if s.To != 0 {
		h.register(s, now).Free()
	}
}

// sleep returns when the ballot is to be asked again. An error ends the attempt.
func (a *attempt) sleep(ctx context.Context, s *wait.Step, now time.Time) error {
	switch {
	case s.Do == wait.BackOff:
		return a.backOff(ctx, s.Pause)
	case s.Poll:
		if _, err := a.round.Wait(ctx, now, max(clock.Until(s.Wake, now), 1)); err != nil {
			return a.interrupted(a.round.Op, a.round, err)
		}
		return nil
	case s.Do != wait.Sleep:
		return nil
	}
	wait, timer := max(0, clock.Until(s.Wake, now)), a.timer
	if wait < briefWait {
		timer = time.NewTimer(wait)
		defer timer.Stop()
	} else {
		timer.Reset(wait)
	}
	select {
	case <-a.wakeup:
	case <-timer.C:
	case <-ctx.Done():
		return a.failure(opWait, a.reason(), ctx.Err())
	case <-a.c.closed:
		return &keyError{op: opWait, key: a.name(), err: ErrClosed}
	}
	return nil
}

// briefWait bounds the waits that have a timer of their own, as for the other votes when one has come. Before a timer
// that was set anew fires, the runtime looks through all timers of a processor. In a process with 10,000 clients it would
// do so hundreds of times a second. A new timer is put where it belongs, and nearly always taken back.
const briefWait = 50 * time.Millisecond

// perCaller is what the callers of a crowd leave each other: about what a lock and unlock cost.
const perCaller = 30 * time.Microsecond

// backOff leaves the client's own lines alone for a pause, or for longer where many callers are in the way of each
// other.
func (a *attempt) backOff(ctx context.Context, pause time.Duration) error {
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
		return &keyError{op: opWait, key: a.name(), err: ErrClosed}
	}
}

// listen has the attempt woken by what is heard from now on.
func (a *attempt) listen() {
	a.poll(nil)
	a.wakeup, a.timer = make(chan struct{}, 1), time.NewTimer(time.Hour)
	noQuorumSince := a.c.noQuorumSince.get()
	a.mu.Lock()
	a.wake = a.wakeup
	a.b.Dark(noQuorumSince)
	a.mu.Unlock()
	waitingOf.of(a.c).put(a, a)
	if _, _, ok := a.wire.Channels(); ok {
		a.unsubscribe = a.subscribe()
	}
}

// rest ends what the attempt has used to get the lock.
func (a *attempt) stopListening() {
	a.poll(nil)
	if a.wakeup == nil {
		return
	}
	a.timer.Stop()
	waitingOf.of(a.c).take(a)
	a.mu.Lock()
	a.wake = nil
	a.mu.Unlock()
	if a.unsubscribe != nil {
		a.unsubscribe()
	}
	a.wakeup, a.timer, a.unsubscribe = nil, nil, nil // a lease may be held for long
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
	wait.ByNothing: "", wait.ByPoll: wokenByPoll, wait.ByExpiry: wokenByExpiry, wait.ByMember: wokenByMember,
	wait.ByGrant: wokenByGrant,
}

// end is why the attempt has ended: nil where it has the lock.
func (a *attempt) end(ctx context.Context, s *wait.Step) error {
	if s.Do == wait.Win {
		a.c.noQuorumSince.set(time.Time{}) // whatever was out of reach, a majority has just decided
		return nil
	}
	switch s.Cause {
	case wait.Refused:
		err := a.refusal(a.round, s.Early)
		if a.round.To.Len() < len(a.c.members) { // what the others said was said in an earlier round
			err = a.failure(opAcquire, a.reason(), nil)
		}
		if errors.Is(err, ErrHeld) {
			a.c.noQuorumSince.set(time.Time{})
		}
		return err
	case wait.Foreign:
		return a.failure(opWait, ErrForeignKey, nil)
	case wait.TooSlow:
		return &keyError{op: opAcquire, key: a.name(), err: ErrTooSlow}
	case wait.Unconfirmed:
		e := a.quorumError(opRaise, a.round.Votes(a.c.members), ErrNoQuorum, nil)
		a.c.waited(&e.Failure, a.round.Verdict(), nil)
		return e
	case wait.Stuck:
		return a.failure(opWait, ErrHeld, ctx.Err())
	case wait.StoodBack:
		return a.failure(opWait, ErrNoQuorum, ctx.Err())
	}
	return a.failure(opWait, a.hopeless(), nil)
}

var waitingOf = keep[waiting]()

// waiting are the attempts that wait, to be woken when a member comes or goes.
type waiting struct{ table[*attempt, *attempt] }

// memberChanged implements changing.
func (w *waiting) memberChanged() {
	for _, a := range w.values() {
		a.mu.Lock()
		wake := a.wake
		a.mu.Unlock()
		signal(wake)
	}
}

// lease makes a lease of a grant; with a tenure, it is a share in that. If that fails, the attempt has released its hold.
func (a *attempt) lease(ctx context.Context, res result, t *tenure) (*Lease, error) {
	now := time.Now()
	var asked terms
	if t != nil {
		asked, a.terms.maxHold = a.terms, -1 // that is of shares; this field alone: late answers look at others
	}
	a.mu.Lock()
	term, ok := a.b.Start(res.Grant, now)
	a.mu.Unlock()
	if !ok {
		t.fails()
		a.abandon()
		return nil, &keyError{op: opAcquire, key: a.name(), err: ErrTooSlow}
	}
	l := newLease(ctx, &a.hold, term, res.waited, now)
	l.as = a.terms.as
	if t != nil {
		l.bond, l.ctx = t, context.Background()
	}
	if !a.c.keeper.add(l) {
		t.fails()
		a.abandon()
		return nil, &keyError{op: opAcquire, key: l.key, err: ErrClosed}
	}
	ownersOf.of(a.c).put(l)
	a.terms.kind.held(l)
	if a.c.log.Enabled(ctx, slog.LevelDebug) && l.own.Votes() <= a.c.need && len(a.c.members) > 1 {
		a.c.log.Debug("held by a bare majority", "key", logged(l.key), "token", l.token)
	}
	if t != nil {
		first, ok := t.begun(ctx, &asked, l, res, now).begin(now)
		if !ok && a.c.isClosed() {
			return nil, &keyError{op: opAcquire, key: l.key, err: ErrClosed}
		}
		return first, nil
	}
	return &l.own, nil
}

// refusal explains a round that was not won. One that was decided is not waited out: a member without an
// answer is not silent then, and where a majority could be asked it was the refusals that decided.
func (a *attempt) refusal(r *quorum.Round, early bool) error {
	votes := r.Votes(a.c.members)
	kind := reasonOf(votes, a.b.Need())
	if early && kind == ErrNoQuorum && len(votes)-failed(votes) >= a.b.Need() {
		kind = ErrHeld
	}
	e := a.quorumError(opAcquire, votes, kind, nil)
	if e.Early = early; !early {
		a.c.silent(votes)
	}
	return e
}

func (a *attempt) interrupted(op string, r *quorum.Round, cause error) error {
	votes := r.Votes(a.c.members)
	e := a.quorumError(op, votes, reasonOf(votes, a.b.Need()), cause)
	e.Early = true
	return e
}

func (a *attempt) quorumError(op string, votes []quorum.MemberVote, kind, cause error) *QuorumError {
	return &QuorumError{
		Failure: quorum.Failure{Op: op, Key: a.name(), Need: a.b.Need(), Votes: votes},
		kind:    kind, cause: cause,
	}
}

// failure explains why waiting ended, from what is known of each member.
func (a *attempt) failure(op string, kind, cause error) error {
	e := a.quorumError(op, a.memberVotes(), kind, cause)
	e.Early = true // who was silent for too long is said to have been
	return e
}

// hopeless is why an attempt stops waiting for a majority that it can ask.
func (a *attempt) hopeless() error {
	if why := a.reason(); why == ErrTokensExhausted {
		return why
	}
	return ErrNoQuorum
}

func (a *attempt) reason() error { return reasonOf(a.memberVotes(), a.b.Need()) }

// standing is each member's part in a wait, as votes.
func (a *attempt) memberVotes() []quorum.MemberVote {
	states := a.c.statesOf(a.wire.Slot())
	out := make([]quorum.MemberVote, len(states))
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range out {
		part, err := a.b.Status(i, now, states)
		if part == wait.Silent {
			err = &silentError{within: a.c.cfg.MemberTimeout}
		}
		out[i] = memberVote(a.c.members[i].Name(), &states[i], part, err)
	}
	return out
}
