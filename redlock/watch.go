package redlock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
	watching "github.com/redquorum/redquorum/redlock/internal/watch"
)

// watcher is what a watch is for. Its methods run on goroutines that read a member's answers, of
// several members at once. They must not block, and no mutex of the watch is held around them.
type watcher interface {
	// question encodes what asks some members and registers the watch there for entry. If entry is
	// 0, it withdraws the watch and asks nothing. It may be called from any goroutine.
	question(buf *[]byte, to memberset.Set, watch string, entry time.Duration) member.Command
	// answered takes the reply of member i to a question that was submitted at sent. The reply is
	// valid only during the call, and c.State is the member at the submission. again is when there
	// will be something to ask before the next heartbeat; 0: not before. A reply that cannot be
	// read is errReply.
	answered(i int, c *member.Call, sent time.Time) (again time.Duration, err error)
	// pushed takes a push of member i. dropped: the member has withdrawn the watch. ask: the member
	// is to be asked, because the push says less than an answer.
	pushed(i int, n script.News, from member.State, at time.Time) (dropped, ask bool)
}

// watch is a registration at every member, with whom to ask again and when: see internal/watch. It
// has no goroutine. Whoever wants news calls next, one at a time, and the watch is kept up meanwhile.
type watch struct {
	c      *Client
	op     string // as errors name it
	lock   LockName
	slot   uint16
	owner  watcher
	id     string // at the members
	n      uint64 // by which pushes find it
	ended  atomic.Bool
	wakeup chan struct{} // capacity 1: something was heard

	mu    sync.Mutex
	core  *watching.Watch
	reach reach
	news  bool        // since next returned last
	errs  []error     // of each member, in its last answer
	sent  []time.Time // of the question that is under way at each member; zero: none is
	in    context.Context
}

// newWatch makes a watch about a name, and asks nobody yet. in is the context for the tracer, nil
// without one. It fails if the client is closed. end must follow.
func (c *Client) newWatch(op string, lock LockName, slot uint16, in context.Context, owner watcher) (*watch, error) {
	if !c.inflight.enter() {
		return nil, &keyError{op: op, key: lock.Key, err: ErrClosed}
	}
	id, n := c.newOwner()
	w := &watch{
		c: c, op: op, lock: lock, slot: slot, owner: owner, id: id, n: n, in: in,
		wakeup: make(chan struct{}, 1), errs: make([]error, len(c.members)), sent: make([]time.Time, len(c.members)),
		core: watching.New(len(c.members), watching.Terms{Entry: c.cfg.Entry, Retry: c.cfg.MemberTimeout}),
	}
	watchesOf.of(c).put(n, w)
	return w, nil
}

// next asks the members that are due, and returns when one of them has answered or pushed something
// since next returned last. One goroutine at a time may call it. Errors: a QuorumError with ctx's
// error; ErrNoQuorum or ErrQuarantined after Config.NoQuorumAfter without a majority; ErrForeignKey or
// ErrNoQuorum if so many members refuse for good that no majority is left; ErrClosed.
func (w *watch) next(ctx context.Context) error {
	var timer *time.Timer
	for {
		if err := ctx.Err(); err != nil {
			return w.failure(err)
		}
		now := time.Now()
		states := w.c.statesOf(w.slot)
		w.mu.Lock()
		news := w.news
		w.news = false
		to, wake := w.core.Due(now, states)
		w.core.Asked(to, states)
		for i := range w.sent {
			if to.Has(i) {
				w.sent[i] = now
			}
		}
		left, over := w.reach.left(w.c, states, w.errs, now)
		hopeless := w.c.hopeless(w.errs)
		w.mu.Unlock()
		pause := min(left, wake.Sub(now))
		if to != 0 {
			w.ask(to, now, w.c.cfg.Entry)
		}
		switch {
		case news:
			return nil
		case over || hopeless:
			return w.failure(nil)
		case timer == nil:
			timer = time.NewTimer(pause)
			defer timer.Stop()
		default:
			timer.Reset(pause)
		}
		select {
		case <-w.wakeup:
		case <-timer.C:
		case <-ctx.Done():
		case <-w.c.closed:
			return &keyError{op: w.op, key: w.lock.Key, err: ErrClosed}
		}
	}
}

// ask submits the question to some members. entry 0 withdraws the watch.
func (w *watch) ask(to memberset.Set, now time.Time, entry time.Duration) {
	r := w.c.round()
	r.Question = quorum.Question{
		Op: w.op, Sent: now, TTL: entry, To: to, Need: w.c.need, Judge: w,
		Command: w.owner.question(&r.Buf, to, w.id, entry),
	}
	if entry != 0 {
		r.Ended = &w.ended
	} else {
		r.Always, r.OweUntil = true, now.Add(w.c.cfg.Entry+time.Second)
	}
	r.Start().Free()
}

// Judge implements quorum.Judge: it books an answer, on the goroutine that read it.
func (w *watch) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	w.c.requested(w.in, w.lock, r, c)
	if r.TTL == 0 || w.ended.Load() {
		return quorum.No
	}
	err, again := c.Err, time.Duration(0)
	answered := c.Outcome == member.Answered
	if answered {
		again, err = w.owner.answered(c.Index, c, r.Sent)
	}
	w.mu.Lock()
	w.core.Answered(c.Index, err == nil && answered, c.State, time.Now(), again)
	w.errs[c.Index], w.sent[c.Index] = err, time.Time{}
	w.news = w.news || err == nil
	w.mu.Unlock()
	signal(w.wakeup)
	return quorum.No // nobody waits for the round
}

// hear takes a push for the watch.
func (w *watch) hear(i int, n script.News, st member.State, at time.Time) {
	if w.ended.Load() {
		return
	}
	dropped, ask := w.owner.pushed(i, n, st, at)
	w.mu.Lock()
	if dropped {
		w.core.Dropped(i)
	}
	if ask {
		w.core.Pushed(i)
	}
	w.news = true
	w.mu.Unlock()
	signal(w.wakeup)
}

// askAll has every member asked again: the question is another one.
func (w *watch) askAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.sent {
		w.core.Pushed(i)
	}
}

// abandon leaves what members have of the watch to end by itself.
func (w *watch) abandon() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.sent {
		w.core.Dropped(i)
	}
}

// poke has next return: what its caller waits for has changed by other means.
func (w *watch) poke() {
	w.mu.Lock()
	w.news = true
	w.mu.Unlock()
	signal(w.wakeup)
}

// dropped books that member i has no entry of the watch.
func (w *watch) dropped(i int) {
	w.mu.Lock()
	w.core.Dropped(i)
	w.mu.Unlock()
}

// end withdraws the watch from the members that may have it. Nobody waits for that: a member owes it,
// and an entry that is not withdrawn ends by itself. No call of next may run or follow.
func (w *watch) end() {
	w.ended.Store(true)
	watchesOf.of(w.c).take(w.n)
	w.mu.Lock()
	to := w.core.Entries()
	w.mu.Unlock()
	if to != 0 {
		w.ask(to, time.Now(), 0)
	}
	w.c.inflight.leave()
}

// failure explains why waiting ended: from what is known of each member, and by ctx's error if that
// ended it.
func (w *watch) failure(cause error) error { return w.failing(nil, cause) }

// failing is failure of a kind. kind nil: by what the members are good for.
func (w *watch) failing(kind, cause error) *QuorumError {
	votes := w.votes()
	if kind == nil {
		if kind = reasonOf(votes, w.c.need); kind == ErrHeld {
			kind = ErrNoQuorum
		}
	}
	return &QuorumError{
		Failure: quorum.Failure{Op: w.op, Key: w.lock.Key, Need: w.c.need, Votes: votes}, kind: kind, cause: cause,
	}
}

// votes are what each member is good for: yes for one that answers, open for one that has
// been silent for longer than Config.MemberTimeout.
func (w *watch) votes() []quorum.MemberVote {
	states := w.c.statesOf(w.slot)
	w.mu.Lock()
	errs, sent := slices.Clone(w.errs), slices.Clone(w.sent)
	w.mu.Unlock()
	votes := w.c.votesOf(states, errs)
	for i, at := range sent {
		if votes[i].Vote == quorum.Yes && !at.IsZero() && clock.Elapsed(at, time.Now()) >= w.c.cfg.MemberTimeout {
			votes[i].Vote, votes[i].Err = quorum.Open, &silentError{within: w.c.cfg.MemberTimeout}
		}
	}
	return votes
}

var watchesOf = keep[watches]()

// watches finds a watch by the number in its name.
type watches struct{ table[uint64, *watch] }

// hear passes on a push, if it is one for a watch.
func (s *watches) hear(i int, msg []byte, st member.State, at time.Time) {
	n, ok := script.ParseNews(string(msg))
	if !ok {
		return
	}
	if w := s.get(n.N); w != nil && w.id == n.Watch {
		w.hear(i, n, st, at)
	}
}

// memberChanged implements changing: it has every watch look at the members again.
func (s *watches) memberChanged() {
	for _, w := range s.values() {
		signal(w.wakeup)
	}
}
