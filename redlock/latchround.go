package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/kinds/latch"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// latchRound is what a client has of one round of a latch: its own arrivals, which it tells the
// members again, and what it has heard. It has no goroutine. Calls are submitted by the callers, by
// the readers of answers, and by a timer after a call that failed.
type latchRound struct {
	c    *Client
	wire script.Latch
	turn chan struct{} // capacity 1: the caller that keeps the watch up has it

	mu      sync.Mutex // never held around Submit
	terms   script.LatchTerms
	core    *latch.Latch
	id      string // of CountDown: nobody else has it
	counted int64  // with id
	in      context.Context
	errs    []error       // of each member, in its last answer
	asked   []int         // the core's life when each member was asked last for the watch
	deletes int           // calls of Delete that are under way
	deleted *atomic.Bool  // of the arrivals and words told until the next Delete: it has begun
	heard   chan struct{} // closed at the next change; nil: nobody waits for that
	users   int           // calls that are under way
	expires time.Time     // when the members may have forgotten it
	timer   *time.Timer   // of the next flush; nil: none was needed yet
	watch   *watch        // nil: nobody awaits
	waiting int           // calls of Await
	rtt     time.Duration // the longest of a heartbeat
	since   time.Time     // when the latch was first heard to be open; zero: not yet
	shut    bool          // a member has told somebody who awaits that it is not open
	said    bool          // the Logger was told that it was open before
}

// roundName is what a client tells rounds apart by. Users with different counts do not share one.
type roundName struct {
	name  string
	round uint64
	count int
}

var latchesOf = keep[latches]()

// latches are the rounds of a client.
type latches struct {
	mu sync.Mutex
	m  map[roundName]*latchRound
}

// mostKept is how many rounds without a caller, and how many arrivals in one of them, a client
// tells again to members that forget.
const mostKept = 4096

// use finds or makes the round of a latch, for a call that ends with leave.
func (s *latches) use(c *Client, name roundName, life time.Duration) *latchRound {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.m[name]
	if r == nil {
		if s.m == nil {
			s.m = make(map[roundName]*latchRound)
		}
		s.sweepLocked(now)
		r = &latchRound{
			c: c, wire: script.LatchOf(c.cfg.keyOf(name.name)), turn: make(chan struct{}, 1), errs: make([]error, len(c.members)), asked: make([]int, len(c.members)),
			terms: script.LatchTerms{Round: int64(name.round), Count: int64(name.count)},
		}
		r.core, r.deleted = latch.New(len(c.members), r.coreTerms()), new(atomic.Bool)
		s.m[name] = r
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users++
	r.terms.Life = max(r.terms.Life, life)
	r.expires = now.Add(r.terms.Life)
	return r
}

// name is that of the latch.
func (r *latchRound) name() string { return r.c.cfg.nameOf(r.wire.Name) }

func (r *latchRound) coreTerms() latch.Terms {
	return latch.Terms{
		Round: r.terms.Round, Count: r.terms.Count, Need: r.c.need, Most: script.MostArrivals, Retry: r.c.cfg.MemberTimeout,
	}
}

// leave ends a call. A round that has nothing to tell again is forgotten with its last caller.
func (s *latches) leave(r *latchRound) {
	s.mu.Lock()
	defer s.mu.Unlock()
	states := r.states()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.users--
	r.core.Trim(mostKept, states, r.waiting > 0)
	if r.users == 0 {
		r.core.Idle(states)
	}
	if r.users == 0 && (r.core.Passed() || !r.core.Open() && r.core.Kept() == 0) {
		s.forgetLocked(r)
	}
}

// forgetLocked drops a round. Both mutexes are held.
func (s *latches) forgetLocked(r *latchRound) {
	for name, one := range s.m {
		if one == r {
			delete(s.m, name)
		}
	}
	if r.timer != nil {
		r.timer.Stop()
	}
}

// sweepLocked drops rounds without a caller whose life is over, and others if there are too many.
func (s *latches) sweepLocked(now time.Time) {
	spare := len(s.m) - mostKept
	for name, r := range s.m {
		r.mu.Lock()
		if r.users == 0 && (spare >= 0 || clock.Until(r.expires, now) <= 0) {
			delete(s.m, name)
			spare--
			if r.timer != nil {
				r.timer.Stop()
			}
		}
		r.mu.Unlock()
	}
}

// memberChanged implements changing: it has every round told to members that may have forgotten it.
func (s *latches) memberChanged() {
	s.mu.Lock()
	all := make([]*latchRound, 0, len(s.m))
	for _, r := range s.m {
		all = append(all, r)
	}
	s.mu.Unlock()
	for _, r := range all {
		r.flush(true)
	}
}

func (r *latchRound) states() []member.State { return r.c.statesOf(r.wire.Slot()) }

// flush submits all calls that members need now. late says that the goroutine must not write to a
// socket.
func (r *latchRound) flush(late bool) {
	for !r.c.isClosed() {
		now := time.Now()
		states := r.states()
		r.mu.Lock()
		quiet := r.quietLocked(now)
		b, wake, ok := r.core.Due(now, states, quiet > 0)
		terms := r.terms
		if !ok {
			if !wake.IsZero() && (quiet == 0 || wake.Sub(now) < quiet) {
				quiet = wake.Sub(now)
			}
			if quiet > 0 {
				r.laterLocked(quiet)
			}
		} else if b.Open {
			terms.Count = 0 // true for members with another count as well
		}
		in, deleted := r.in, r.deleted
		r.mu.Unlock()
		if !ok {
			return
		}
		q := r.c.round()
		q.Question = quorum.Question{
			Op: opArrive, Sent: now, To: b.To, Need: r.c.need, Judge: &latchCall{r: r, b: b, in: in},
			Delivery: member.Delivery{Late: late, Ended: deleted},
		}
		if b.Known {
			q.Command = r.wire.Tell(&q.Buf, terms)
		} else {
			q.Command = r.wire.Arrive(&q.Buf, terms, b.Open, wired(b.Arrivals))
		}
		q.Start().Free()
	}
}

// quietLocked is for how long the members' own pushes are waited for before they are told that the
// latch is open. mu is held.
func (r *latchRound) quietLocked(now time.Time) time.Duration {
	if r.waiting == 0 || r.since.IsZero() {
		return 0
	}
	return max(0, max(2*r.rtt, time.Millisecond)-clock.Elapsed(r.since, now))
}

// laterLocked has flush called again. mu is held.
func (r *latchRound) laterLocked(d time.Duration) {
	if r.timer == nil {
		r.timer = time.AfterFunc(d, func() { r.flush(false) }) // it ends with that call
	} else {
		r.timer.Reset(d)
	}
}

// hearingLocked is closed at the next change of what is known. mu is held.
func (r *latchRound) hearingLocked() <-chan struct{} {
	if r.heard == nil {
		r.heard = make(chan struct{})
	}
	return r.heard
}

// changedLocked wakes whoever waits for a change. mu is held.
func (r *latchRound) changedLocked() {
	if r.core.Open() && r.since.IsZero() {
		r.since = time.Now()
	}
	if r.heard != nil {
		close(r.heard)
		r.heard = nil
	}
}

// opened is changedLocked for a caller without the mutex.
func (r *latchRound) opened() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.changedLocked()
}

// latchCall hears the answers to one call of flush.
type latchCall struct {
	r  *latchRound
	b  latch.Batch
	in context.Context
}

// Judge implements quorum.Judge, on the goroutine that read the answer.
func (k *latchCall) Judge(q *quorum.Round, c *member.Call) quorum.Vote {
	r := k.r
	r.c.requested(k.in, LockName{Kind: KindLatch, Key: r.name()}, q, c)
	s, err := latchSaid(c)
	r.mu.Lock()
	if r.errs[c.Index] = err; err == nil {
		r.core.Told(c.Index, &k.b, stateOf(s), c.State)
	} else {
		r.core.Failed(c.Index, time.Now())
	}
	r.changedLocked()
	w := r.watch
	r.mu.Unlock()
	if w != nil {
		w.poke()
	}
	r.flush(true)
	return quorum.No // nobody waits for this one
}

// latchSaid is what a member replied to an arrival or to somebody who awaits.
func latchSaid(c *member.Call) (script.LatchState, error) {
	if c.Outcome != member.Answered {
		return script.LatchState{}, c.Err
	}
	s, ok := script.ReadLatch(&c.Reply)
	if !ok {
		return s, errReply
	}
	return s, nil
}

// enter and exit are around each call of Await.
func (r *latchRound) enter() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting++
}

func (r *latchRound) exit() {
	r.mu.Lock()
	r.waiting--
	w := r.watch
	if r.waiting > 0 {
		w = nil
	} else {
		r.watch = nil
	}
	r.mu.Unlock()
	if w != nil {
		w.end()
	}
}

// watched is the watch, for the caller whose turn it is to keep it up.
func (r *latchRound) watched(in context.Context) (*watch, error) {
	r.mu.Lock()
	w := r.watch
	r.mu.Unlock()
	if w != nil {
		return w, nil
	}
	w, err := r.c.newWatch(opAwait, LockName{Kind: KindLatch, Key: r.name()}, r.wire.Slot(), in, r)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	r.watch = w
	r.mu.Unlock()
	return w, nil
}

// question implements watcher.
func (r *latchRound) question(buf *[]byte, to memberset.Set, watch string, entry time.Duration) member.Command {
	r.mu.Lock()
	terms := r.terms
	for i := range r.asked {
		if to.Has(i) {
			r.asked[i] = r.core.Life()
		}
	}
	r.mu.Unlock()
	return r.wire.Await(buf, terms, watch, entry)
}

// answered implements watcher.
func (r *latchRound) answered(i int, c *member.Call, sent time.Time) (time.Duration, error) {
	s, err := latchSaid(c)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	r.core.Heard(i, stateOf(s), c.State, r.asked[i])
	r.shut = r.shut || !s.Open
	r.rtt = max(r.rtt, c.At.Sub(sent))
	r.changedLocked()
	open, w := r.core.Open(), r.watch
	r.mu.Unlock()
	if s.Open && w != nil {
		w.dropped(i) // it was not registered
	}
	if open {
		r.flush(true)
	}
	return 0, nil
}

// pushed implements watcher.
func (r *latchRound) pushed(i int, n script.News, from member.State, _ time.Time) (dropped, ask bool) {
	if n.Word != 'o' {
		return false, false
	}
	r.mu.Lock()
	if r.deletes > 0 { // it may be of before
		r.mu.Unlock()
		return true, true
	}
	r.core.Pushed(i, n.Values[0], from)
	r.changedLocked()
	open := r.core.Open()
	r.mu.Unlock()
	if open {
		r.flush(true)
	}
	return true, false
}

// ask puts one command to one member, and waits for at most Config.MemberTimeout.
func (r *latchRound) ask(ctx context.Context, i int, cmd member.Command) (member.Reply, error) {
	ctx, cancel := r.c.within(ctx)
	defer cancel()
	return askOne(ctx, r.c.members[i], cmd)
}

// What callers ask of a latch, as errors and the tracer name it.
const (
	opCountDown   = "count down"
	opArrive      = "arrive"
	opAwait       = "await"
	opRemaining   = "remaining"
	opDeleteLatch = "delete latch"
)

func stateOf(s script.LatchState) latch.State {
	return latch.State{Round: s.Round, Count: s.Count, Sum: s.Sum, Digest: s.Digest, Open: s.Open}
}

func wired(all []latch.Arrival) []script.Arrival {
	out := make([]script.Arrival, len(all))
	for i, a := range all {
		out[i] = script.Arrival(a)
	}
	return out
}
