package redlock

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/kinds/election"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Observe yields who leads: at first the leader of that moment, then each value that a leader
// proclaims, and a Leader that is None when nobody leads. The members push each change, so an
// observer hears of it one way after the member did. After a crash of the leader it hears within the
// TTL and a round trip. Between two leaders it may yield None, or not.
//
//   - The tokens never fall, and the values of one leader come in the order of its calls.
//   - A majority of the members named each leader that is yielded, each at a moment of its own.
//   - None comes once, until somebody leads again. That may be the same leader: members that forgot
//     its lease have taken it back.
//   - If the loop is slow, it misses what was replaced meanwhile, and gets the latest. What is replaced
//     or resigned within a round trip may be skipped in any case.
//   - While too few members can be asked to tell, nothing is yielded.
//
// The sequence ends when ctx ends, or when the client is closed. If the name or an option cannot work, it yields that error
// once, beside a Leader that is None. No other error comes, so most loops need none: for leader := range. Observe runs on the
// goroutine of the loop, and costs each member one message every third of Config.Entry.
func (e *Election) Observe(ctx context.Context) iter.Seq2[Leader, error] {
	return func(yield func(Leader, error) bool) {
		c := e.lock.c
		if err := e.check(ctx, opObserve, nil); err != nil {
			if errors.Is(err, ErrInput) {
				yield(Leader{None: true}, err)
			}
			return
		}
		o := newObserver(e)
		w, err := c.newWatch(opObserve, LockName{Kind: e.lock.terms.kind.name, Key: e.lock.name}, o.wire.Slot(), ctx, o)
		if err != nil {
			return
		}
		defer w.end()
		for {
			changed := c.changed()
			if w.next(ctx) == nil {
				for l, ok := o.look(time.Now()); ok; l, ok = o.look(time.Now()) {
					if !yield(l, nil) {
						return
					}
				}
				continue
			}
			again := time.NewTimer(c.cfg.Entry / 3)
			select { // too few members vote, or can tell
			case <-changed:
			case <-w.wakeup:
			case <-again.C:
			case <-ctx.Done():
				return
			case <-c.closed:
				return
			}
			again.Stop()
		}
	}
}

// observer is the watcher of Observe.
type observer struct {
	c    *Client
	wire script.Lock

	mu  sync.Mutex // guards the fields below
	out election.Outlook
	gen []uint64 // of each member, when it was asked
}

func newObserver(e *Election) *observer {
	c := e.lock.c
	return &observer{
		c: c, wire: e.lock.terms.kind.of(e.lock.name, &c.cfg, &e.lock.terms),
		out: election.Outlook{State: election.New(len(c.members), c.need)}, gen: make([]uint64, len(c.members)),
	}
}

// question implements watcher.
func (o *observer) question(buf *[]byte, _ memberset.Set, watch string, entry time.Duration) member.Command {
	return o.wire.Observe(buf, watch, entry)
}

// answered implements watcher. When the vote should have ended, there is something to ask. Its TTL
// is that of a moment when the question had arrived: the next one takes as long.
func (o *observer) answered(i int, c *member.Call, sent time.Time) (again time.Duration, err error) {
	said, ok := script.ReadElection(&c.Reply)
	if !ok {
		return 0, errReply
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out.Heard(i, said, sent, c.At)
	o.gen[i] = c.State.Gen
	if said.TTL > 0 {
		again = max(said.TTL-clock.Elapsed(sent, c.At), 0) + time.Millisecond
	}
	return again, nil
}

// pushed implements watcher. A push says what was proclaimed, and not who has the vote.
func (o *observer) pushed(int, script.News, member.State, time.Time) (dropped, ask bool) {
	return false, true
}

// look returns what the observer is to be told now, if anything. Members that cannot be asked any
// more are silent.
func (o *observer) look(now time.Time) (Leader, bool) {
	states := o.c.statesOf(o.wire.Slot())
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, st := range states {
		if !st.Votes || st.Gen != o.gen[i] {
			o.out.Silent(i)
		}
	}
	l, ok := o.out.Next(now)
	l.Value = slices.Clone(l.Value)
	return Leader(l), ok
}
