package redlock

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	mrand "math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/kinds/latch"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Latch is a countdown latch: Await returns when so many have arrived. It opens once and stays open,
// and nobody holds it. A Latch is safe for concurrent use, and cheap to make.
//
// An arrival counts once it is at a majority of the members. It survives as long as no more members
// than a minority forget, and longer: while the client that arrived is open, it arrives again at
// each member that has forgotten. So does a client in Await with all that it has heard.
//
// A latch ends by itself when nobody has touched it for its Life. If you use one name again, give
// each use a greater Round.
type Latch struct {
	c     *Client
	name  string
	count int
	terms latchTerms
}

// latchTerms are what options change.
type latchTerms struct {
	round uint64
	life  time.Duration
}

// LatchOption changes the terms of one latch. A nil LatchOption changes nothing.
type LatchOption func(*latchTerms)

// Round says which use of the name this is: 0 without the option, at most 2^53 - 1. A later round
// begins with nothing, and ends every earlier one: its calls return ErrPassed, unless this client
// knows that it had opened.
func Round(r uint64) LatchOption { return func(t *latchTerms) { t.round = r } }

// Life is how long the members keep the latch after it was last touched, less a tenth at most:
// 24 hours without the option, and at least 1 s, at most 366 days. Clients that use the same latch
// with different lives keep it for the longest.
func Life(d time.Duration) LatchOption { return func(t *latchTerms) { t.life = d } }

const (
	latchLife   = 24 * time.Hour
	minLife     = time.Second
	maxLife     = 366 * 24 * time.Hour
	mostRounds  = 1<<53 - 1
	mostCount   = math.MaxInt32
	mostOfOneID = 1 << 20 // arrivals: the digest is exact up to here
	longestID   = 256     // bytes
)

// Latch returns the latch of a name that opens when count have arrived: 1 to 2^31 - 1, or 0 if
// another user tells it. A latch that nobody has told a count does not open. Names are those of
// Mutex, and a mutex of the same name is another thing. All calls report mistakes in name, count
// and options.
func (c *Client) Latch(name string, count int, opts ...LatchOption) *Latch {
	l := &Latch{c: c, name: name, count: count, terms: latchTerms{life: latchLife}}
	apply(&l.terms, opts)
	return l
}

// CountDown arrives once more, and returns when a majority of the members has the arrival, or knows
// that the latch is open. ctx bounds this call and never the arrival: after an error but ErrPassed,
// ErrConflict, ErrInput and ErrClosed, the client goes on to tell the members. To repeat an arrival
// after an error, or after a crash, use Arrive.
//
// Errors:
//
//   - ErrNoQuorum or ErrQuarantined, wrapped with ctx's error, if ctx ended first. Await returns ctx's
//     error alone if a majority answered.
//   - ErrNoQuorum, if no majority could be asked for Config.NoQuorumAfter.
//   - ErrPassed, if a later round has begun.
//   - ErrConflict, if a majority has another count. The arrival is dropped.
//   - ErrForeignKey, ErrClosed, ErrInput.
func (l *Latch) CountDown(ctx context.Context) error { return l.arrive(ctx, opCountDown, "") }

// Arrive does what CountDown does, for a piece of work that the caller names: 1 to 256 bytes. It
// counts once, however often it is repeated and by whom. So a job that runs again after a crash can
// arrive again.
func (l *Latch) Arrive(ctx context.Context, id string) error {
	if id == "" || len(id) > longestID {
		return badInput(opArrive, "the id has %d bytes, must have 1 to %d", len(id), longestID)
	}
	return l.arrive(ctx, opArrive, id)
}

// Await returns when the latch is open, and a majority of the members knows that. Then Remaining is
// 0 for everybody who asks, as long as the members remember. The last arrival is pushed to whoever
// waits. Waiting costs each member one message per client and latch every third of Config.Entry.
// Awaiting a latch that nobody has made waits until it is made and opens.
//
// Errors: as for CountDown.
func (l *Latch) Await(ctx context.Context) error {
	return l.call(ctx, opAwait, func(ctx, in context.Context, r *latchRound) error { return r.await(ctx, in) })
}

// Remaining is how many arrivals are missing, by what a majority of the members has; 0 if the latch
// is open. It may say too much for a while after members have forgotten, and never too little. If
// nobody has told the count, it is 1. Decide by Await.
//
// Errors: as for CountDown. It waits at most Config.MemberTimeout for each member.
func (l *Latch) Remaining(ctx context.Context) (n int, err error) {
	err = l.call(ctx, opRemaining, func(ctx, _ context.Context, r *latchRound) error {
		n, err = r.remaining(ctx)
		return err
	})
	return n, err
}

// Delete frees the memory that the latch takes, and returns when a majority of the members has done
// so. It is not needed: a latch ends with its Life. Delete a latch only if nobody uses it any more:
// a call that is still under way makes it again. Errors: as for CountDown.
func (l *Latch) Delete(ctx context.Context) error {
	return l.call(ctx, opDeleteLatch, func(ctx, _ context.Context, r *latchRound) error { return r.delete(ctx) })
}

// check explains why a call cannot begin.
func (l *Latch) check(ctx context.Context, op string) error {
	if l.c == nil {
		return badInput(op, "a latch of no client: make it with Client.Latch")
	}
	if err := l.c.check(ctx, op, l.name, l.c.cfg.TTL); err != nil {
		return err
	}
	switch {
	case l.count < 0 || l.count > mostCount:
		return badInput(op, "the count is %d, must be 1 to %d, or 0 if another user tells it", l.count, mostCount)
	case l.terms.round > mostRounds:
		return badInput(op, "Round is %d, must be at most 2^53 - 1", l.terms.round)
	case l.terms.life < minLife || l.terms.life > maxLife:
		return badInput(op, "Life is %v, must be %v to %v", l.terms.life, minLife, maxLife)
	}
	if err := ctx.Err(); err != nil {
		return &keyError{op: op, key: l.name, err: err}
	}
	return nil
}

// call makes one call about the round that this client has, and tells the tracer.
func (l *Latch) call(ctx context.Context, op string, do func(ctx, in context.Context, r *latchRound) error) error {
	if err := l.check(ctx, op); err != nil {
		return err
	}
	if !l.c.inflight.enter() {
		return &keyError{op: op, key: l.name, err: ErrClosed}
	}
	defer l.c.inflight.leave()
	r := latchesOf.of(l.c).use(l.c, roundName{l.name, l.terms.round, l.count}, l.terms.life)
	defer latchesOf.of(l.c).leave(r)
	return l.traced(ctx, op, func(in context.Context) error { return do(ctx, in, r) })
}

// traced makes a call that the tracer hears of.
func (l *Latch) traced(ctx context.Context, op string, do func(in context.Context) error) error {
	call, start := CallStart{LockName: LockName{KindLatch, l.name}, Op: op}, time.Now()
	in := l.c.trace.start(ctx, call)
	err := l.c.orClosed(op, l.name, do(in))
	l.c.trace.end(in, CallEnd{CallStart: call, Err: err, Elapsed: clock.Elapsed(start, time.Now())})
	return err
}

// arrive is CountDown, and with an id Arrive.
func (l *Latch) arrive(ctx context.Context, op, id string) error {
	return l.call(ctx, op, func(ctx, in context.Context, r *latchRound) error { return r.arrive(ctx, in, op, id) })
}

// arrive books an arrival, has it told, and waits until a majority has it.
func (r *latchRound) arrive(ctx, in context.Context, op, id string) error {
	r.mu.Lock()
	n := int64(1)
	if id == "" {
		if r.counted == mostOfOneID || r.id == "" {
			r.id, r.counted = rand.Text(), 0
		}
		r.counted++
		id, n = r.id, r.counted
	}
	version := r.core.Arrive(id, n)
	r.in = in
	r.mu.Unlock()
	r.flush(false)
	err := r.until(ctx, op, version, func(states []member.State) (bool, error) {
		refused := r.core.Refused(id)
		switch {
		case !refused && r.core.Stored(version, states) || r.core.Open() && r.core.Passed():
			return true, nil
		case r.core.Passed():
			return true, ErrPassed
		case refused, r.core.Conflict():
			return true, conflict(r.core.Other(), r.terms.Count)
		}
		return false, nil
	})
	if errors.Is(err, ErrPassed) || errors.Is(err, ErrConflict) {
		r.mu.Lock()
		if r.core.Refuse(id); id == r.id {
			r.id = "" // the number of the next call would count this one
		}
		r.mu.Unlock()
	}
	return err
}

// conflict is ErrConflict for a count where members know another one.
func conflict(other, count int64) error {
	return fmt.Errorf("%w: %d, and not %d", ErrConflict, other, count)
}

// until waits until something is so of the arrival of a version. is is asked with mu held. An error of
// is comes with the members' part in it: yes for one that has the arrival.
func (r *latchRound) until(ctx context.Context, op string, version int, is func(states []member.State) (bool, error)) error {
	var within reach
	var few [8]error
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		moved := r.c.changed()
		states := r.states()
		r.mu.Lock()
		done, err := is(states)
		heard := r.hearingLocked()
		hopeless, errs := r.c.hopeless(r.errs), append(few[:0], r.errs...)
		r.mu.Unlock()
		left, over := within.left(r.c, states, errs, time.Now())
		switch {
		case err != nil:
			return r.notStored(op, version, err, nil)
		case done:
			return nil
		case hopeless || over:
			return r.notStored(op, version, nil, nil)
		}
		timer.Reset(left)
		select {
		case <-heard:
		case <-moved:
		case <-timer.C:
		case <-ctx.Done():
			return r.notStored(op, version, nil, ctx.Err())
		case <-r.c.closed:
			return &keyError{op: op, key: r.name(), err: ErrClosed}
		}
	}
}

// notStored is failure for an arrival.
func (r *latchRound) notStored(op string, version int, kind, cause error) error {
	err := r.failure(op, kind, cause)
	r.mu.Lock()
	defer r.mu.Unlock()
	var q *QuorumError
	if errors.As(err, &q) {
		for i := range q.Votes {
			if v := &q.Votes[i]; v.Vote == quorum.Yes && !r.core.Has(i, version) {
				v.Vote = quorum.Open
			}
		}
	}
	return err
}

// await keeps a watch up until the latch is open. The callers of one client share the watch, and
// one of them keeps it up.
func (r *latchRound) await(ctx, in context.Context) error {
	r.enter()
	defer r.exit()
	over := func(states []member.State) (bool, error) {
		switch {
		case r.core.Open() && (r.core.Passed() || r.core.Known(states)):
			return true, nil
		case r.core.Passed():
			return true, ErrPassed
		case r.core.Conflict():
			return true, conflict(r.core.Other(), r.terms.Count)
		}
		return false, nil
	}
	for {
		states := r.states()
		r.mu.Lock()
		done, err := over(states)
		heard := r.hearingLocked()
		r.mu.Unlock()
		switch {
		case err != nil:
			return r.failure(opAwait, err, nil)
		case done:
			r.sayIfOpenBefore()
			return nil
		}
		select {
		case r.turn <- struct{}{}:
			err := r.lead(ctx, in, over)
			<-r.turn
			if err != nil {
				return err
			}
		case <-heard:
		case <-ctx.Done():
			return r.gaveUp(ctx)
		case <-r.c.closed:
			return &keyError{op: opAwait, key: r.name(), err: ErrClosed}
		}
	}
}

// sayIfOpenBefore logs, once, that a latch without Round was open before this client had to do with it: an earlier use of
// its name may have opened it.
func (r *latchRound) sayIfOpenBefore() {
	r.mu.Lock()
	say := r.terms.Round == 0 && !r.shut && !r.said && !r.core.Arrived()
	r.said = r.said || say
	r.mu.Unlock()
	if say {
		r.c.log.Info("latch was open before it was awaited: if its name is used again, give each use a Round", "key", logged(r.name()))
	}
}

// gaveUp is the error of a call of Await whose context has ended. Where a majority answers, nothing is
// wrong but that the latch is shut.
func (r *latchRound) gaveUp(ctx context.Context) error {
	r.mu.Lock()
	w := r.watch
	r.mu.Unlock()
	if w == nil {
		return r.failure(opAwait, nil, ctx.Err())
	}
	return shutOf(w.failure(ctx.Err()), opAwait, r.name(), errShut, ctx)
}

// shutOf is the error of a watch whose caller's context has ended: shut where a majority answers.
func shutOf(err error, op, name string, shut error, ctx context.Context) error {
	var q *QuorumError
	if errors.As(err, &q) {
		if yes, _, _ := q.Counts(); yes >= q.Need {
			return &keyError{op: op, key: name, err: shut, cause: ctx.Err()}
		}
	}
	return err
}

var (
	errShut    = errors.New("the latch is not open")
	errMissing = errors.New("not all parties have come")
)

// lead keeps the watch up until over says so.
func (r *latchRound) lead(ctx, in context.Context, over func(states []member.State) (bool, error)) error {
	w, err := r.watched(in)
	if err != nil {
		return err
	}
	for {
		states := r.states()
		r.mu.Lock()
		done, err := over(states)
		to := r.core.Unequal(states)
		r.mu.Unlock()
		if done || err != nil {
			return nil // await says which
		}
		if to != 0 {
			if r.mine(ctx, to) {
				r.repair(ctx, to)
			} else {
				r.mu.Lock()
				r.core.Repaired()
				r.mu.Unlock()
			}
			continue
		}
		if err := w.next(ctx); err != nil {
			if ctx.Err() != nil {
				return r.gaveUp(ctx)
			}
			return err
		}
	}
}

// mine reports whether this client is to repair the members. All that wait notice at the same moment that
// members differ, and one of them is enough: of so many watches as a member has, each is chosen with the same
// chance. If none is, or several are, the next two answers of each member tell.
func (r *latchRound) mine(ctx context.Context, to memberset.Set) bool {
	watches := make([]int, len(r.c.members))
	each(len(watches), func(i int) {
		if !to.Has(i) {
			return
		}
		if reply, err := r.ask(ctx, i, r.wire.Read(nil, "0", 1)); err == nil {
			if p, ok := script.ReadLatchPage(&reply); ok {
				watches[i] = p.Watches
			}
		}
	})
	return mrand.IntN(max(slices.Max(watches), 1)) == 0
}

// repair reads what members have, joins it, and tells each what it lacks.
func (r *latchRound) repair(ctx context.Context, to memberset.Set) {
	pages := r.read(ctx, to)
	r.mu.Lock()
	for _, p := range pages {
		if p.err == nil {
			r.core.Join(p.state, p.arrivals)
		}
	}
	r.core.Repaired()
	lacking := make([][]latch.Arrival, len(pages))
	for i, p := range pages {
		if p.err == nil && to.Has(i) {
			lacking[i] = r.core.Lacking(p.arrivals)
		}
	}
	terms := r.terms
	r.mu.Unlock()
	each(len(pages), func(i int) {
		for rest := lacking[i]; len(rest) > 0; rest = rest[min(len(rest), script.MostArrivals):] {
			cmd := r.wire.Arrive(nil, terms, false, wired(rest[:min(len(rest), script.MostArrivals)]))
			if reply, err := r.ask(ctx, i, cmd); err != nil || !r.joinReply(reply) {
				return
			}
		}
	})
	r.opened()
	r.flush(false)
}

// joinReply takes the state that a member replied to an arrival that is not this client's own.
func (r *latchRound) joinReply(reply member.Reply) bool {
	s, ok := script.ReadLatch(&reply)
	if ok {
		r.mu.Lock()
		r.core.Join(stateOf(s), nil)
		r.mu.Unlock()
	}
	return ok
}

// latchPages is all that a member has of a latch.
type latchPages struct {
	state    latch.State
	arrivals map[string]int64
	life     time.Duration
	watches  int
	err      error
}

// read reads what members have, at once. A member that is not in to has errNotAsked.
func (r *latchRound) read(ctx context.Context, to memberset.Set) []latchPages {
	all := make([]latchPages, len(r.c.members))
	each(len(all), func(i int) {
		if !to.Has(i) {
			all[i].err = errNotAsked
			return
		}
		all[i] = r.readOne(ctx, i, r.wire.Read)
	})
	return all
}

var errNotAsked = errors.New("not asked")

// pageSize is about how many arrivals travel in one reply.
const pageSize = 1000

// readOne reads what one member has, by a call for each page.
func (r *latchRound) readOne(ctx context.Context, i int, page func(buf *[]byte, cursor string, about int) member.Command) (all latchPages) {
	all.arrivals = map[string]int64{}
	for cursor := "0"; ; {
		reply, err := r.ask(ctx, i, page(nil, cursor, pageSize))
		if err != nil {
			return latchPages{err: err}
		}
		p, ok := script.ReadLatchPage(&reply)
		if !ok {
			return latchPages{err: errReply}
		}
		if all.state.Round != p.Round { // another round began between two pages
			clear(all.arrivals)
		}
		all.state, all.life, all.watches = stateOf(p.LatchState), p.Life, p.Watches
		for _, a := range p.Arrivals {
			all.arrivals[a.ID] = max(all.arrivals[a.ID], a.N)
		}
		if cursor = p.Next; cursor == "0" {
			return all
		}
	}
}

// remaining asks the members that vote.
func (r *latchRound) remaining(ctx context.Context) (int, error) {
	states := r.states()
	pages := r.read(ctx, voters(states))
	errs := make([]error, len(pages))
	r.mu.Lock()
	round, seen := r.terms.Round, latch.New(len(pages), r.coreTerms())
	r.mu.Unlock()
	answered := 0
	for i, p := range pages {
		if errs[i] = p.err; p.err == nil {
			answered++
			seen.Join(p.state, p.arrivals)
		}
	}
	switch {
	case answered < r.c.need:
		return 0, r.c.latchError(opRemaining, r.name(), nil, ctx.Err(), states, errs)
	case seen.Passed():
		err := r.c.latchError(opRemaining, r.name(), ErrPassed, nil, states, errs)
		return 0, refusal(err, true, func(i int) bool { return pages[i].err == nil && pages[i].state.Round > round })
	}
	return int(min(seen.Remaining(), mostCount)), nil
}

// voters are the members that vote.
func voters(states []member.State) (to memberset.Set) {
	for i, st := range states {
		if st.Votes {
			to = to.With(i)
		}
	}
	return to
}

// delete asks all members, and forgets what this client would tell them again.
func (r *latchRound) delete(ctx context.Context) error {
	states := r.states()
	r.mu.Lock()
	r.core.Forget(states)
	r.deleted.Store(true) // a call that a member repeats would be executed behind the deletion
	r.id, r.counted, r.since, r.deleted = "", 0, time.Time{}, new(atomic.Bool)
	r.deletes++
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		r.deletes--
		r.mu.Unlock()
	}()
	errs := make([]error, len(states))
	each(len(errs), func(i int) {
		_, errs[i] = r.ask(ctx, i, r.wire.Delete(nil))
	})
	answered := 0
	for _, err := range errs {
		if err == nil {
			answered++
		}
	}
	if answered < r.c.need {
		return r.c.latchError(opDeleteLatch, r.name(), nil, ctx.Err(), states, errs)
	}
	return nil
}

// failure explains why a call about the round ended. kind nil: by what the members are good for.
func (r *latchRound) failure(op string, kind, cause error) error {
	r.mu.Lock()
	errs := append([]error(nil), r.errs...)
	r.mu.Unlock()
	err := r.c.latchError(op, r.name(), kind, cause, r.states(), errs)
	r.mu.Lock()
	defer r.mu.Unlock()
	return refusal(err, kind != nil, r.core.Refuses)
}

// refusal tells the members that refuse from those that have the arrival. decided: those that refuse
// ended the call, so it did not wait for the others.
func refusal(err *QuorumError, decided bool, refuses func(i int) bool) error {
	err.Early = decided
	for i := range err.Votes {
		switch v := &err.Votes[i]; {
		case v.Vote != quorum.Yes:
		case refuses(i):
			v.Vote = quorum.No
		case decided:
			v.Vote = quorum.Open
		}
	}
	return err
}

func (c *Client) latchError(op, name string, kind, cause error, states []member.State, errs []error) *QuorumError {
	votes := c.votesOf(states, errs)
	if kind == nil {
		if kind = reasonOf(votes, c.need); kind == ErrHeld {
			kind = ErrNoQuorum
		}
	}
	return &QuorumError{Failure: quorum.Failure{Op: op, Key: name, Need: c.need, Votes: votes}, kind: kind, cause: cause}
}
