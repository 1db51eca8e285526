package redlock

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// hold is what one owner has at the members: votes, places in queues, and the release that it owes
// for them. An attempt gathers it. If the attempt wins, its lease keeps the hold; if it fails, it
// releases the hold. Adopt makes a hold without an attempt.
//
// Its mutex guards the ballot, except what never changes in it, and what Looks and Waited tell: only
// the attempt's goroutine changes that. The mutex is never held around Submit, because a member may
// answer inside it.
type hold struct {
	c      *Client
	wire   script.Lock
	terms  terms
	owner  string      // whoever knows it can release the hold: it is never logged
	n      uint64      // the number in owner, by which pushes find the hold; 0 if it was adopted
	former string      // from whom it was adopted; "": from nobody, or it has the same owner
	ended  atomic.Bool // the release has begun: see member.Delivery.Ended

	adopted bool // the adoption has succeeded: what it has not moved is the hold's to free

	traced *traced // nil without a Tracer

	mu       sync.Mutex
	b        wait.Ballot   // the votes at each member, and how they were obtained
	wake     chan struct{} // capacity 1: something was heard; nil: no attempt waits for that
	settled  chan struct{} // is closed when no call is under way that may take a vote; nil: nobody waits for that
	longest  time.Duration // the longest TTL that a member was asked for
	taking   int           // rejoins and adoptions without an answer
	heir     *hold         // after a downgrade: it releases what the owner has
	from     *hold         // before a downgrade: its calls may still be under way
	released bool          // the release has been submitted
	left     bool          // Close need not wait for it any more
	over     core.Ended    // the lease has ended, or the attempt was abandoned: it may be released
	behind   quorum.Set    // members to be released once more when it has been submitted
}

// name is that of the lock.
func (h *hold) name() string { return h.c.cfg.nameOf(h.wire.Name) }

// lift brings members whose votes are not those of the lease into step. Nobody waits for it.
func (h *hold) lift(to quorum.Set, token int64, now time.Time) {
	h.terms.kind.mend(h, to, token, now)
}

// raiseLate brings a member whose vote came after the decision, and lies below the token, back into
// step. Nobody waits for it.
func (h *hold) raiseLate(i int, token int64) {
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	h.lift(quorum.Set(0).With(i), token, time.Now())
}

// Judge books an answer, on the goroutine that read it.
func (h *hold) Judge(r *quorum.Round, c *member.Call) (v quorum.Vote) {
	i := c.Index
	ans := decode(r, c, h.c.briefOf(i, h.wire.Slot()))
	late, token := false, int64(0)
	h.mu.Lock()
	switch r.Op {
	case opAcquire, opWait:
		v = h.b.Answered(i, &ans, r.TTL)
		token, late = h.b.Late(i)
	case opYield:
		v = h.b.YieldAnswered(i, &ans)
	case opClaim:
		v = h.b.ClaimAnswered(i, &ans, r.TTL)
		token, late = h.b.Late(i)
	case opRaise:
		v = h.b.RaiseAnswered(i, &ans)
	case opRelease:
		if c.Interrupted && ans.Outcome == member.Answered {
			ans.N = 1 // it is only stopped where it has freed the vote and is to hand it over
		}
		v = wait.VoteOf(c.Outcome, h.b.ReleaseAnswered(i, &ans))
	}
	wake := h.wake
	h.settledLocked()
	h.mu.Unlock()
	if ans.Limit != 0 {
		h.terms.kind.told(h, ans.Limit)
	}
	if ans.N < 0 && (r.Op == opAcquire || r.Op == opWait) {
		h.c.contended(h.terms.kind.line(h.name()), ans.At)
	}
	if late && !h.ended.Load() {
		h.raiseLate(i, token)
	}
	if ans.N > 0 && (r.Op == opAcquire || r.Op == opWait) {
		h.followed(ans.Next)
	}
	signal(wake)
	if h.c.trace.Request != nil {
		h.requested(r, c)
	}
	return v
}

// followed is called when a member that has a vote of the hold has named a waiter, or nobody.
func (h *hold) followed(waiter string) {
	if len(waiter) > 1 {
		h.terms.kind.behind(h)
	}
}

// decode is what a member answered, as the ballot takes it.
func decode(r *quorum.Round, c *member.Call, now member.Brief) wait.Answer {
	a := wait.Answer{Answer: core.Answer{Outcome: c.Outcome, Sent: r.Sent, At: c.At, From: c.State, Now: now}, Err: c.Err}
	if c.Outcome != member.Answered {
		return a
	}
	if c.Reply.Kind == ':' { // most are
		a.N = c.Reply.Int
		return a
	}
	said, ok := script.ReadAnswer(&c.Reply)
	if !ok {
		a.Outcome, a.Err = member.Refused, errReply
		return a
	}
	a.N, a.Server, a.Next, a.Place, a.Permits, a.Limit = said.N, said.Server, said.Next, said.Place, said.Permits, said.Limit
	a.Lives = said.Lives
	return a
}

var errReply = errors.New("reply of an unexpected shape")

// hear takes a push for the owner.
func (h *hold) hear(i int, p script.Push, st member.State, at time.Time) {
	if p.Owner != h.owner || h.ended.Load() {
		return // or the release that ended it stands behind the grant and frees it
	}
	counts, regained := false, false
	h.mu.Lock()
	switch {
	case p.Grant:
		regained = h.b.Wishing(i)
		counts = h.b.Pushed(i, wait.Push{Push: core.Push{Token: p.Token, Server: p.Server, TTL: p.TTL, Permits: p.Permits}, Next: p.Other}, st, at)
	case p.Gone:
		h.b.Withdrawn(p.Other)
	case p.Readers:
		h.b.ReadersWait()
	case p.Wish:
		h.b.Wished(i, p.Other)
	default:
		h.b.Announced(i, p.Other, at)
	}
	token, late := h.b.Late(i)
	wake := h.wake
	h.mu.Unlock()
	if !p.Gone && (!p.Grant || len(p.Other) > 1) { // a grant names the waiter that is next
		h.c.contended(h.terms.kind.line(h.name()), at)
	}
	if late {
		h.raiseLate(i, token)
	}
	if !p.Gone {
		h.followed(p.Other)
	}
	signal(wake)
	switch {
	case counts && regained && h.terms.kind.together: // it was given up by a writer: as a writer's
		h.downgradeAt(i)
	case counts && !regained:
		h.woken(WokenByGrant)
	}
}

// release frees every vote and every place in line, at all members that a write may have reached,
// in order behind that write: docs/protocol.md, "Lost". It belongs to the client and not to any
// caller, so no context ends it. late says that the goroutine must not write to a socket. The
// caller frees the round.
func (h *hold) release(late bool) *quorum.Round {
	to := h.owed()
	h.terms.kind.ending(h, to, late)
	r := h.submitRelease(to, late)
	h.gone(late)
	return r
}

// releaseAll is release for several holds of one client, whose calls go to each member in one group.
func (c *Client) releaseAll(holds []*hold, late bool) []*quorum.Round {
	questions := make([]quorum.Question, len(holds))
	buffers := make([]*[]byte, len(holds))
	for i, h := range holds {
		buffers[i] = c.buffer()
		h.leaving(&questions[i], h.owed(), late, buffers[i])
	}
	rounds := c.rounds.StartAll(c.members, questions)
	for i, h := range holds {
		c.buffers.Put(buffers[i])
		h.gone(late)
	}
	return rounds
}

// owed begins the release, and says to whom it is to go: to nobody while the hold has a lease that has not ended.
func (h *hold) owed() (to quorum.Set) {
	h.ended.Store(true)
	h.mu.Lock()
	h.wake = nil
	if !h.over.Yes() {
		h.over = h.b.Abandon()
	}
	if h.over.Yes() {
		to = h.b.Owed()
	}
	h.mu.Unlock()
	return to
}

// leaves is told that the lease of the hold has ended.
func (h *hold) leaves(over core.Ended) {
	h.mu.Lock()
	h.over = over
	h.mu.Unlock()
}

// gone is called when the release has been submitted.
func (h *hold) gone(late bool) {
	h.mu.Lock()
	h.released = true
	again := h.behind
	h.mu.Unlock()
	if again != 0 {
		h.submitRelease(again, late).Free()
	}
	h.releaseFormer(late)
	h.c.holds.remove(h)
	h.terms.kind.left(h)
	h.leave()
}

// leave tells Close when nothing about the hold is left to be submitted.
func (h *hold) leave() {
	h.mu.Lock()
	first := !h.left
	h.left = true
	h.mu.Unlock()
	if first {
		h.c.alive.leave()
	}
}

// overtaken is called after a call that may take a vote was submitted to member i. If the hold had
// ended by then, its release may stand before that call, and the member is released once more,
// behind it. That release never comes before the first one, whose answers tell whether the lease
// was held.
func (h *hold) overtaken(i int) {
	if !h.ended.Load() {
		return
	}
	h.mu.Lock()
	released, heir := h.released, h.heir
	if !released {
		h.behind = h.behind.With(i) // release sees to it
	}
	h.mu.Unlock()
	switch {
	case heir != nil:
		heir.owes(i)
	case released:
		h.submitRelease(quorum.Set(0).With(i), true).Free()
	}
}

// abandon is a release that nobody waits for.
func (h *hold) abandon() { h.release(false).Free() }
