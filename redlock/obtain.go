package redlock

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// How a lock of any kind is obtained: what is checked first, the caller's place in the lines of its
// client, and the attempts.

// What callers of a Mutex ask for.
const (
	opLock    = "lock"
	opTryLock = "try lock"
)

// check explains why a call about a lock cannot begin.
func (c *Client) check(ctx context.Context, op, name string, ttl time.Duration) error {
	if ctx == nil {
		return badInput(op, "nil context")
	}
	if c == nil { // the zero Mutex, or the like
		return badInput(op, "a lock of no client: make it with Client.Mutex or the like")
	}
	if err := checkName(name, &c.cfg); err != nil {
		return badInput(op, "%v", err)
	}
	if err := checkTTL(ttl, &c.cfg); err != nil {
		return badInput(op, "TTL: %v", err)
	}
	if c.isClosed() {
		return &keyError{op: op, key: name, err: ErrClosed}
	}
	return nil
}

// acquire obtains a lock for a caller, and tells the tracer. The tracer's context is for its events
// alone: the lease has the values of the caller's.
func (c *Client) acquire(ctx context.Context, w *want) (lease *Lease, err error) {
	if err = c.check(ctx, w.op, w.name, w.terms.ttl); err != nil {
		return nil, err
	}
	if err = w.terms.check(&c.cfg); err != nil {
		return nil, badInput(w.op, "%v", err)
	}
	if !c.trace.ofCalls() { // the stack of a caller that waits is as small as can be
		lease, _, err = c.obtain(ctx, nil, w)
	} else {
		lease, err = c.obtainTraced(ctx, w)
	}
	return lease, c.withWho(ctx, w, err)
}

// obtainTraced is obtain whose start and end the tracer is told of.
func (c *Client) obtainTraced(ctx context.Context, w *want) (*Lease, error) {
	call, start := CallStart{LockName: LockName{w.terms.kind.name, w.name}, Op: w.op, TTL: w.terms.ttl}, time.Now()
	in := c.trace.start(ctx, call)
	lease, res, err := c.obtain(ctx, in, w)
	c.trace.end(in, ended(call, start, time.Now(), lease, res, err))
	return lease, err
}

// ended describes the end of a call that was to get a lease.
func ended(call CallStart, start, now time.Time, lease *Lease, res result, err error) CallEnd {
	e := CallEnd{
		CallStart: call, Err: err, Elapsed: clock.Elapsed(start, now),
		Votes: res.In.Len(), SecondRound: res.Raised, Waited: res.waited, Passed: res.passed,
	}
	if err == nil {
		e.Token, e.Validity = lease.Token(), clock.Until(lease.ValidUntil(), now)
	}
	return e
}

// obtain gets a lock by re-entry or as its kind does. in is the context of the acquisition for the
// tracer, nil without one.
func (c *Client) obtain(ctx, in context.Context, w *want) (*Lease, result, error) {
	if err := ctx.Err(); err != nil {
		return nil, result{}, &keyError{op: w.op, key: w.name, err: err}
	}
	if w.mayReenter() {
		if l, err := c.again(w); l != nil || err != nil {
			return l, result{}, err
		}
	}
	if err := c.nested(ctx, w); err != nil {
		return nil, result{}, err
	}
	if w.terms.kind.own {
		return w.terms.kind.obtain(c, ctx, in, *w)
	}
	return c.byAttempts(ctx, in, w)
}

// byAttempts gets a lock by attempts of the caller's own. A caller that waits stands in the line of the
// name first.
func (c *Client) byAttempts(ctx, in context.Context, w *want) (*Lease, result, error) {
	if l, res := c.takes(ctx, w); l != nil {
		return l, res, nil
	}
	if w.try {
		return c.atOnce(ctx, in, w)
	}
	if err := c.unlessUnreachable(ctx, w); err != nil { // callers that come again and again cost the members that come back no time
		return nil, result{waited: true}, err
	}
	place, contended, err := c.standInLine(ctx, w)
	for ; err == nil && place != nil && place.share != nil; place, contended, err = c.standInLine(ctx, w) {
		if l, ok := place.share.begin(time.Now()); ok {
			return l, result{Grant: wait.Grant{In: place.share.of.in}, waited: !place.kept, passed: true}, nil
		}
	}
	if err != nil {
		return nil, result{waited: !errors.Is(err, ErrClosed)}, err
	}
	w.turn = hasTurn
	defer func() {
		if w.turn == hasTurn {
			c.leaveLine(w, place)
		}
	}()
	if w.mayReenter() { // another goroutine of the same owner may have been before us in line
		if l, err := c.again(w); l != nil || err != nil {
			return l, result{}, err
		}
	}
	past := wait.Past{Start: wait.AskFirst}
	if contended {
		past.Start = wait.WaitFirst
	}
	return c.attempts(ctx, in, w, past)
}

// atOnce gets a lock by an attempt that does not wait, and perhaps by one more.
func (c *Client) atOnce(ctx, in context.Context, w *want) (*Lease, result, error) {
	if err := ctx.Err(); err != nil { // it has waited for answers about what is kept, which stays
		return nil, result{}, &keyError{op: w.op, key: w.name, err: err}
	}
	once := retry{began: time.Now()}
	l, res, err := c.attempts(ctx, in, w, wait.Past{Start: wait.TryOnce})
	for err != nil && c.comesBack(ctx, w.slot(&c.cfg), err, &once) {
		l, res, err = c.attempts(ctx, in, w, wait.Past{Start: wait.TryOnce})
	}
	if err != nil && c.isClosed() {
		err = &keyError{op: w.op, key: w.name, err: ErrClosed}
	}
	return l, res, err
}

// unlessUnreachable is why a caller that would wait need not begin. It says so after Config.MemberTimeout, unless a majority can
// be asked by then: a caller that waits has the time, and one that calls in a loop must not have a processor for itself.
func (c *Client) unlessUnreachable(ctx context.Context, w *want) error {
	if c.unreachable(w) == nil {
		return nil
	}
	timer := time.NewTimer(c.cfg.MemberTimeout)
	defer timer.Stop()
	for {
		changed := c.changed() // before the look, so that no change between the two is missed
		err := c.unreachable(w)
		if err == nil {
			return nil
		}
		select {
		case <-changed:
			continue
		case <-timer.C:
		case <-ctx.Done():
			err.cause = ctx.Err()
		case <-c.closed:
			return &keyError{op: w.op, key: w.name, err: ErrClosed}
		}
		return err
	}
}

// unreachable is why a caller that would wait need not begin, nil if it should. Its attempt would give up, and ask members for votes
// that are of no use here until then.
func (c *Client) unreachable(w *want) *QuorumError {
	noQuorumSince := c.noQuorumSince.get()
	if noQuorumSince.IsZero() || w.try || c.isClosed() {
		return nil
	}
	return c.unreachableSince(noQuorumSince, w)
}

func (c *Client) unreachableSince(noQuorumSince time.Time, w *want) *QuorumError {
	var few fewStates
	wire := w.terms.kind.of(w.name, &c.cfg, w.terms)
	states := c.appendStatesOf(few[:0], wire.Slot())
	within := reach{lost: noQuorumSince}
	if _, over := within.left(c, states, nil, time.Now()); !over {
		return nil
	}
	votes := make([]quorum.MemberVote, len(states))
	for i := range votes {
		votes[i] = memberVote(c.members[i].Name(), &states[i], wait.Unasked, nil)
	}
	return &QuorumError{
		Failure: quorum.Failure{Op: opWait, Key: w.name, Need: c.need, Votes: votes}, kind: ErrNoQuorum,
	}
}

// mayReenter reports whether again has anything to look at.
func (w *want) mayReenter() bool { return w.terms.as != "" }

// again gets a lock by re-entry. An owner that has a lease beside others cannot get one alone.
func (c *Client) again(w *want) (*Lease, error) {
	l, held := ownersOf.of(c).again(w.name, w.terms.as, w.terms.kind.together)
	if held && l == nil {
		return nil, &keyError{op: w.op, key: w.name, err: ErrUpgrade}
	}
	if l == nil {
		return nil, nil
	}
	return &l.own, nil
}

// slot is that of the lock.
func (w *want) slot(c *Config) uint16 {
	wire := w.terms.kind.of(w.name, c, w.terms)
	return wire.Slot()
}

// standInLine waits for the caller's turn among the callers of this process.
func (c *Client) standInLine(ctx context.Context, w *want) (p *place, contended bool, err error) {
	line, width := w.line()
	var terms *terms
	if w.passes(&c.cfg) {
		terms = w.terms
	}
	p, contended, err = sitesOf.of(c).enter(ctx, line, width, c.closed, terms)
	switch {
	case errors.Is(err, ErrClosed):
		err = &keyError{op: w.op, key: w.name, err: ErrClosed}
	case err != nil:
		err = &keyError{op: w.op + ": in line behind callers of this process:", key: w.name, err: ErrHeld, cause: err}
	}
	return p, contended, err
}

// enter joins the line of a name and waits for the caller's turn, which lasts until leave. It begins
// when nobody stands before the caller and fewer than width callers have their turn. A caller with a
// greater width may join later. Those who have a tenure of the name pass it on to a caller with terms:
// then the place has a share of it, and there is no turn, and nothing to leave. contended says whether
// others want the lock. An error is ctx's, or ErrClosed.
func (l *sites) enter(ctx context.Context, name string, width int, closed <-chan struct{}, terms *terms) (p *place, contended bool, err error) {
	sh, done := l.shard(name), ctx.Done()
	sh.mu.Lock()
	s := sh.site(name)
	t := s.passing(terms)
	if len(s.places) == 0 && s.busy < width && t == nil {
		s.busy++
		contended = !s.contended.IsZero() && clock.Elapsed(s.contended, time.Now()) < contendedFor
		sh.mu.Unlock()
		return nil, contended, nil
	}
	p = &place{turn: make(chan struct{}), width: width, terms: terms, ctx: ctx, done: done}
	if err = sh.standLocked(s, p, closed); err == nil || !l.leave(name, p) { // it may have got its share since
		return p, true, nil
	}
	return nil, true, err
}

// stepIntoLine takes the caller's turn if it comes at once.
func (c *Client) stepIntoLine(w *want) bool {
	line, width := w.line()
	return sitesOf.of(c).enterNow(line, width)
}

// leaveLine gives up the caller's turn.
func (c *Client) leaveLine(w *want, p *place) {
	line, _ := w.line()
	sitesOf.of(c).leave(line, p)
}

// line is where a caller stands, and how many of those in it ask the members at a time. Callers of
// one owner ask one by one, because the first that has the lock has it for all of them.
func (w *want) line() (name string, width int) {
	if w.terms.as != "" && w.terms.kind.width > 1 {
		return ownNames + strconv.Itoa(len(w.name)) + w.name + w.terms.as, 1 // no lock has this name
	}
	return w.terms.kind.line(w.name), w.terms.more().wide(w.terms.kind.width)
}

// attempts makes one attempt after the other, until one has the lock or none can have it.
func (c *Client) attempts(ctx, in context.Context, w *want, past wait.Past) (*Lease, result, error) {
	if err := c.unreachable(w); err != nil { // it may have become so while the caller stood in line
		return nil, result{waited: true}, err
	}
	a := c.newAttempt(w.terms.kind.of(w.name, &c.cfg, w.terms), w.terms, past, in)
	if a == nil {
		return nil, result{}, &keyError{op: w.op, key: w.name, err: ErrClosed}
	}
	var s wait.Step
	now := a.next(&s)
	return c.follow(ctx, in, w, a, &s, now)
}

// follow goes on with an attempt whose ballot said s at now, and with those that come after it.
func (c *Client) follow(ctx, in context.Context, w *want, a *attempt, s *wait.Step, now time.Time) (*Lease, result, error) {
	for {
		err := a.run(ctx, s, now)
		res := result{Grant: s.Grant, waited: s.Do != wait.Listen && a.b.Waited(), met: s.Do == wait.Lose && s.Cause == wait.Stuck}
		if err == nil {
			t := c.won(w, &a.hold)
			l, err := a.lease(ctx, res, t)
			return l, res, err
		}
		past := a.past()
		a.abandon()
		if s.Do != wait.Again || ctx.Err() != nil {
			return nil, res, err
		}
		if a = c.newAttempt(a.wire, w.terms, past, in); a == nil {
			return nil, result{}, &keyError{op: w.op, key: w.name, err: ErrClosed}
		}
		now = a.next(s)
	}
}

func (plain) obtain(c *Client, ctx, in context.Context, w want) (*Lease, result, error) {
	return c.byAttempts(ctx, in, &w)
}
