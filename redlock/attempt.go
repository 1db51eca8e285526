package redlock

import (
	"context"
	"errors"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// The questions of a round, as the Judge sees them.
const (
	opAcquire = "acquire"
	opWait    = "wait"
	opYield   = "yield"
	opClaim   = "claim"
	opRaise   = "raise"
	opRelease = "release"
	opExtend  = "extend"
	opRejoin  = "rejoin"
)

// attempt is one try to get one lock, under an owner name of its own that is never used again. It does what its ballot
// says: it submits, sleeps, and books. What it gets is its hold, which outlives it as the hold of a lease.
type attempt struct {
	hold

	// Of the caller that wants the lock, whose goroutine runs the attempt.
	round *quorum.Round // decides; nil: none does
	ear   chan struct{} // what wake was made as; nil: it has not come to wait
	timer *time.Timer   // with ear
	deaf  func()        // with ear: ends a subscription; nil: there is none
}

// newAttempt makes an attempt, and has pushes find it. in is the context of the acquisition for the tracer, nil without
// one. It returns nil if the client is closed.
func (c *Client) newAttempt(k script.Lock, t terms, past wait.Past, in context.Context) *attempt {
	if !c.alive.enter() {
		return nil
	}
	n := c.number()
	a, room := newAttempt(len(c.members))
	a.c, a.wire, a.terms, a.owner, a.n, a.longest = c, k, t, script.OwnerOf(c.uuid, n), n, t.ttl
	a.b.Begin(a.owner, room, c.cfg.ballotTerms(&t), past)
	if in != nil {
		a.traced = &traced{acquire: in}
	}
	c.holds.put(&a.hold)
	return a
}

// ballotTerms are what a ballot is to know of the configuration.
func (c *Config) ballotTerms(t *terms) wait.Terms {
	b := wait.Terms{
		Rules: t.kind.rules, TTL: t.ttl, Entry: c.Entry, Drift: c.Drift, Timeout: c.MemberTimeout, GiveUp: c.NoQuorumAfter, Shared: c.Interop,
	}
	t.more().bounds(&b)
	return b
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
	defer a.rest()
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
		now = time.Now()
		a.next(s, now)
	}
}

// next asks the ballot, and writes the answer into s. No other goroutine asks it. So next reads
// without the mutex what Ballot.Next alone changes: see Ballot.Looks.
func (a *attempt) next(s *wait.Step, now time.Time) {
	if !a.b.Looks() {
		a.mu.Lock()
		a.b.Next(s, now, nil)
		a.mu.Unlock()
		return
	}
	var few fewStates
	states := a.c.appendStatesOf(few[:0], a.wire.Slot())
	a.mu.Lock()
	a.b.Next(s, now, states)
	dark := a.b.DarkSince()
	a.mu.Unlock()
	if a.ear != nil {
		a.c.dark.set(dark)
	}
}

// do carries out a step, without waiting for anything.
func (a *attempt) do(s *wait.Step, now time.Time) {
	switch s.Do {
	case wait.Acquire:
		a.poll(a.acquire(s, now))
	case wait.Listen:
		a.listen()
	case wait.Register:
		a.woken(wokenBy[s.Why])
		if s.To != 0 {
			a.register(s, now).Free()
		}
	case wait.Yield:
		a.yield(s, now)
	case wait.Claim:
		a.claim(s, now)
	case wait.Raise:
		a.poll(a.raise(s.To, a.b.Agreed(), now, false))
	case wait.Win:
		if s.To != 0 {
			a.lift(s.To, s.Grant.Token(), now)
		}
	}
}

// sleep returns when the ballot is to be asked again. An error ends the attempt.
func (a *attempt) sleep(ctx context.Context, s *wait.Step, now time.Time) error {
	switch {
	case s.Do == wait.MakeRoom:
		return a.makeRoom(ctx, s.Pause)
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
	case <-a.ear:
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
		return &keyError{op: opWait, key: a.name(), err: ErrClosed}
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
	waitingOf.of(a.c).add(a)
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
	waitingOf.of(a.c).remove(a)
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
	wait.ByNothing: "", wait.ByPoll: WokenByPoll, wait.ByExpiry: WokenByExpiry, wait.ByMember: WokenByMember,
	wait.ByGrant: WokenByGrant,
}

// end is why the attempt has ended: nil where it has the lock.
func (a *attempt) end(ctx context.Context, s *wait.Step) error {
	if s.Do == wait.Win {
		a.c.dark.set(time.Time{}) // whatever was out of reach, a majority has just decided
		return nil
	}
	switch s.Cause {
	case wait.Refused:
		err := a.refusal(a.round, s.Early)
		if a.round.To.Len() < len(a.c.members) { // what the others said was said in an earlier round
			err = a.failure(opAcquire, a.reason(), nil)
		}
		if errors.Is(err, ErrHeld) {
			a.c.dark.set(time.Time{})
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

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // nil, or already signalled
	}
}
