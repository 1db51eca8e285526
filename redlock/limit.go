package redlock

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// How the limit of a semaphore is changed at run time: docs/protocol.md, "Stored limit".

// laterLimit is the version of a limit that follows heard, the greatest one that is known. clocks are
// the members' times in µs, 0 for none, and now is this client's. In hundredths of a second, the
// version is also at least the greatest of clocks. So it is above those of before even if all members
// have forgotten them, while some client still tells them: docs/protocol.md, "Stored limit".
//
// A clock that is more than an hour beyond this client's is wrong, and is left out: it would take all
// later versions with it. Members count a stored limit exactly below 2^53. Clocks are there in 2318.
func laterLimit(heard int64, clocks []int64, now time.Time) int64 {
	version, _, _ := script.LimitOf(heard)
	version++
	for _, clock := range clocks {
		if clock <= now.Add(time.Hour).UnixMicro() {
			version = max(version, clock/1e4)
		}
	}
	return version
}

// askLimit has all members store a limit, 0 for none, and returns what a majority has then. What a
// member says counts only while its generation lasts: it may have forgotten it since.
func (c *Client) askLimit(ctx context.Context, op, name string, stored int64) (*limits, error) {
	if !c.inflight.enter() {
		return nil, &keyError{op: op, key: name, err: ErrClosed}
	}
	defer c.inflight.leave()
	lock, once := script.Semaphore(c.cfg.keyOf(name)), retry{began: time.Now()}
	for {
		j := &limits{c: c, slot: lock.Slot(), gens: make([]uint64, len(c.members)), clocks: make([]int64, len(c.members))}
		r, sent := c.round(), time.Now()
		r.Question = quorum.Question{
			Op: op, Sent: sent, To: memberset.All(len(c.members)), Need: c.need, Judge: j, Command: lock.Limit(&r.Buf, stored),
		}
		v, cause := r.Start().Wait(ctx, sent, c.cfg.MemberTimeout)
		votes := r.Votes(c.members)
		r.Free()
		known := j.seen()
		limitsOf.of(c).put(name, known.greatest)
		switch {
		case c.isClosed():
			return nil, &keyError{op: op, key: name, err: ErrClosed}
		case v != quorum.Won:
			e := &QuorumError{Failure: quorum.Failure{Op: op, Key: name, Need: c.need, Votes: votes}, kind: reasonOf(votes, c.need), cause: cause}
			c.waited(&e.Failure, v, cause)
			if c.comesBack(ctx, lock.Slot(), e, &once) {
				continue
			}
			return nil, e
		case known.current() >= c.need && clock.Elapsed(sent, time.Now()) < c.cfg.MaxTTL:
			return known, nil
		case ctx.Err() != nil:
			return nil, &keyError{op: op, key: name, err: ErrNoQuorum, cause: ctx.Err()}
		}
	}
}

// limits is what members say of a stored limit.
type limits struct {
	c    *Client
	slot uint16

	mu       sync.Mutex
	greatest int64
	said     memberset.Set
	gens     []uint64 // of those that said something
	clocks   []int64  // their times, µs
}

// Judge implements quorum.Judge.
func (j *limits) Judge(_ *quorum.Round, c *member.Call) quorum.Vote {
	st := j.c.stateOf(c.Index, j.slot)
	a, ok := script.Answer{}, false
	if c.Outcome == member.Answered {
		a, ok = script.ReadAnswer(&c.Reply)
	}
	switch {
	case !ok:
		return wait.VoteOf(c.Outcome, false)
	case !st.Votes || st.Gen != c.State.Gen: // no refusal either
		return quorum.Unsure
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.greatest = max(j.greatest, a.N)
	j.said, j.gens[c.Index], j.clocks[c.Index] = j.said.With(c.Index), st.Gen, a.Server
	return quorum.Yes
}

// seen is what was said until now.
func (j *limits) seen() *limits {
	j.mu.Lock()
	defer j.mu.Unlock()
	return &limits{c: j.c, slot: j.slot, greatest: j.greatest, said: j.said, gens: slices.Clone(j.gens), clocks: slices.Clone(j.clocks)}
}

// current counts the members that cannot have forgotten what they said.
func (j *limits) current() (n int) {
	for i, gen := range j.gens {
		if st := j.c.stateOf(i, j.slot); j.said.Has(i) && st.Votes && st.Gen == gen {
			n++
		}
	}
	return n
}

var limitsOf = keep[storedLimits]()

// storedLimits are those that the client has heard of, by the name of the semaphore. Its calls tell
// them to the members, so that one which was away hears of them.
type storedLimits struct {
	mu     sync.Mutex // a leaf
	m      map[string]int64
	askers map[*asker]struct{}
}

// asker is a caller that a limit of a semaphore may be too low for.
type asker struct {
	name string
	n    int                // how many permits it wants
	end  context.CancelFunc // of its attempts
}

// tooLow reports whether nobody gets n permits at once while a limit is in force, although others may
// get fewer. A limit of 0 is none that anybody can stand in the way of.
func tooLow(stored int64, n int) bool {
	_, limit, set := script.LimitOf(stored)
	return set && limit > 0 && limit < n
}

// unlessNone says that the stored limit is 0, where a refusal would say that others have all permits.
func (c *Client) unlessNone(ctx context.Context, w *want, err error) error {
	if err == nil || !errors.Is(err, ErrHeld) {
		return err
	}
	if _, limit, set := script.LimitOf(limitsOf.of(c).get(w.name)); !set || limit != 0 {
		return err
	}
	cause := errors.New("the limit in force is 0, so nobody gets a permit before it is raised")
	if ctx.Err() != nil {
		cause = fmt.Errorf("%w: %w", cause, ctx.Err())
	}
	return &keyError{op: w.op, key: w.name, err: ErrLimit, cause: cause}
}

// within returns a context that ends with ctx, or as soon as a limit is heard of that is too low for n
// permits. done must follow.
func (s *storedLimits) within(ctx context.Context, name string, n int) (within context.Context, done func()) {
	within, end := context.WithCancel(ctx)
	a := &asker{name: name, n: n, end: end}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.askers == nil {
		s.askers = make(map[*asker]struct{})
	}
	s.askers[a] = struct{}{}
	return within, func() {
		s.mu.Lock()
		delete(s.askers, a)
		s.mu.Unlock()
		end()
	}
}

func (s *storedLimits) get(name string) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.m[name]
}

func (s *storedLimits) put(name string, stored int64) {
	if stored == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = make(map[string]int64)
	}
	if _, known := s.m[name]; !known && len(s.m) == slotNames { // any other makes room: the members tell it again
		for other := range maps.Keys(s.m) {
			delete(s.m, other)
			break
		}
	}
	s.m[name] = max(s.m[name], stored)
	for a := range s.askers {
		if a.name == name && tooLow(s.m[name], a.n) {
			a.end()
		}
	}
}

// slotNames bounds for how many names something is remembered.
const slotNames = 1024
