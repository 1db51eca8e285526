package redlock

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/permit"
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

// ask submits one question about the hold to some members.
func (h *hold) ask(op string, to quorum.Set, sent time.Time, ttl time.Duration, encode func(*[]byte) member.Command, late bool) *quorum.Round {
	cmd := h.c.buffer()
	command := encode(cmd)
	r := h.c.rounds.Start(h.c.members, &quorum.Question{
		Op: op, Sent: sent, TTL: ttl, To: to, Need: h.b.Need(), Judge: h,
		Command: command, Delivery: member.Delivery{Late: late, Ended: &h.ended},
	})
	h.c.buffers.Put(cmd)
	return r
}

// raise lifts the counters of members to the token.
func (h *hold) raise(to quorum.Set, token int64, now time.Time, late bool) *quorum.Round {
	return h.ask(opRaise, to, now, h.terms.ttl, func(b *[]byte) member.Command { return h.having().Raise(b, h.owner, token) }, late)
}

// lift brings members whose votes are not those of the lease into step. Nobody waits for it.
func (h *hold) lift(to quorum.Set, token int64, now time.Time) {
	if mend := h.terms.kind.mend; mend != nil {
		mend(h, to)
		return
	}
	h.raise(to, token, now, true).Free()
}

// having is the lock with what the owner has won of it, or is about to.
func (h *hold) having() *script.Lock { return h.holding(h.b.Permits()) }

// holding is the lock with what its owner has of it; nil: the calls do not say.
func (h *hold) holding(p permit.List) *script.Lock {
	if p == nil {
		return &h.wire
	}
	l := h.wire.Holding(p)
	return &l
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
	if h.c.trace.request != nil {
		h.requested(r, c)
	}
	return v
}

// followed is called when a member that has a vote of the hold has named a waiter, or nobody.
func (h *hold) followed(waiter string) {
	if told := h.terms.kind.behind; told != nil && len(waiter) > 1 {
		told(h)
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
	if tell := h.terms.kind.ending; tell != nil {
		tell(h, to, late)
	}
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
	if left := h.terms.kind.left; left != nil {
		left(h)
	}
	h.leave()
}

// releaseFormer frees the votes that an adoption has not moved. They are the lease's, and nobody else has the former owner.
func (h *hold) releaseFormer(late bool) {
	if !h.adopted {
		return
	}
	now, cmd := time.Now(), h.c.buffer()
	h.mu.Lock()
	held, longest := h.b.Permits(), max(h.longest, h.c.cfg.Entry)
	h.mu.Unlock()
	h.c.rounds.Start(h.c.members, &quorum.Question{
		Op: opRelease, Sent: now, To: quorum.All(len(h.c.members)), Need: h.b.Need(), Judge: withdrawal{},
		Command:  h.holding(held).Release(cmd, h.former, ""),
		Delivery: member.Delivery{Always: true, Late: late, OweUntil: now.Add(longest + time.Second)},
	}).Free()
	h.c.buffers.Put(cmd)
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

// handOff leaves the votes to the client that adopts the lease, which releases them on connections of its own. No call that
// takes a vote or a place begins from now on.
func (h *hold) handOff() {
	h.c.holds.remove(h)
	h.mu.Lock()
	h.ended.Store(true)
	h.mu.Unlock()
}

// settle waits until no call of the owner is under way by which a member may give a vote, or a place in its queue; or until
// late has ended, or the lease is over.
func (h *hold) settle(late context.Context, over <-chan struct{}) {
	for ; h != nil; h = h.from {
		h.mu.Lock()
		settled := h.settled
		if h.taking+h.b.Taking() > 0 && settled == nil {
			settled = make(chan struct{})
			h.settled = settled
		}
		h.mu.Unlock()
		if settled == nil {
			continue
		}
		select {
		case <-settled:
		case <-late.Done():
			return
		case <-over:
			return
		}
	}
}

// settledLocked tells who waits for the last call under way.
func (h *hold) settledLocked() {
	if h.settled != nil && h.taking+h.b.Taking() == 0 {
		close(h.settled)
		h.settled = nil
	}
}

// withdrawal is the Judge of what the client asks for and does not use.
type withdrawal struct{}

// Judge implements quorum.Judge.
func (withdrawal) Judge(_ *quorum.Round, c *member.Call) quorum.Vote {
	return wait.VoteOf(c.Outcome, false)
}

// rejoined books the answer to a rejoin, by which the member may have taken the lease back, or keeps
// a wish for it.
func (h *hold) rejoined(r *quorum.Round, c *member.Call) {
	if c.Outcome == member.Answered && c.Reply.Int == 0 {
		h.mu.Lock()
		h.b.Wishes(c.Index, c.State.Gen, r.Sent)
		h.mu.Unlock()
	}
	h.took()
}

// takes books calls that may take a vote or a place. It reports false if the hold has ended: they must not go out then.
func (h *hold) takes(calls int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended.Load() {
		return false
	}
	h.taking += calls
	return true
}

// took books the end of one of them.
func (h *hold) took() {
	h.mu.Lock()
	h.taking--
	h.settledLocked()
	h.mu.Unlock()
}

// lacks reports whether the lease has no vote of a member, which is about to be asked for it then.
func (h *hold) lacks(i int, now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	lacks := h.b.Lacks(i, now)
	if lacks {
		h.b.Submitted(i)
	}
	return lacks
}

// regain asks members to give the lease back, outside of a renewal. A semaphore's free the owner's
// other slots and its place in line, and give it the slots of the lease if these are free. For those
// that are another's there, they keep a wish for that long; members of other locks do so for the TTL.
func (h *hold) regain(to quorum.Set, ttl, wish time.Duration) {
	if !h.c.alive.enter() {
		return
	}
	defer h.c.alive.leave() // not before what overtaken makes of it is submitted
	if !h.takes(to.Len()) {
		return
	}
	now := time.Now()
	h.mu.Lock()
	token, _ := h.b.Late(0)
	h.mu.Unlock()
	h.c.keeper.rejoins.Add(int64(to.Len()))
	cmd := h.c.buffer()
	h.adoptFirst(cmd, to, ttl, now)
	wire := h.having().Wishing(wish)
	h.c.rounds.Start(h.c.members, &quorum.Question{
		Op: opRejoin, Sent: now, TTL: ttl, To: to, Need: 1, Judge: regained{h},
		Command: wire.Rejoin(cmd, h.owner, ttl, token), Delivery: member.Delivery{Late: true, Ended: &h.ended},
	}).Free()
	h.c.buffers.Put(cmd)
	for i := range h.c.members {
		if to.Has(i) {
			h.overtaken(i)
		}
	}
}

// adoptFirst has members that an adoption has not reached move the vote, which is the former owner's still.
func (h *hold) adoptFirst(cmd *[]byte, to quorum.Set, ttl time.Duration, now time.Time) {
	if h.former == "" {
		return
	}
	h.c.rounds.Start(h.c.members, &quorum.Question{
		Op: opExtend, Sent: now, To: to, Need: 1, Judge: withdrawal{},
		Command: h.having().Adopt(cmd, h.owner, h.former, ttl), Delivery: member.Delivery{Late: true, Ended: &h.ended},
	}).Free()
}

// regained hears the answers to regain.
type regained struct{ h *hold }

// Judge implements quorum.Judge.
func (r regained) Judge(round *quorum.Round, c *member.Call) quorum.Vote {
	h, i := r.h, c.Index
	h.c.keeper.regained()
	took := c.Outcome == member.Answered && c.Reply.Int > 0
	yes := took && c.State.Gen == h.c.briefOf(i, h.wire.Slot()).Gen
	h.mu.Lock()
	switch {
	case yes:
		h.b.Renewed(i, c.State.Gen, true, round.Sent.Add(clock.Validity(round.TTL, h.c.cfg.Drift)))
	case c.Outcome == member.Answered && h.b.Permits() != nil:
		h.b.GaveUp(i)
	}
	h.mu.Unlock()
	if h.c.trace.request != nil {
		h.requested(round, c)
	}
	h.rejoined(round, c)
	return wait.VoteOf(c.Outcome, yes)
}

// asks notes the TTL of a request.
func (h *hold) asks(ttl time.Duration) {
	h.mu.Lock()
	h.longest = max(h.longest, ttl)
	h.mu.Unlock()
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

func (h *hold) submitRelease(to quorum.Set, late bool) *quorum.Round {
	cmd := h.c.buffer()
	var q quorum.Question
	h.leaving(&q, to, late, cmd)
	r := h.c.rounds.Start(h.c.members, &q)
	h.c.buffers.Put(cmd)
	return r
}

// leaving writes into q what a release asks, encoded into a buffer.
func (h *hold) leaving(q *quorum.Question, to quorum.Set, late bool, buf *[]byte) {
	h.mu.Lock()
	hint, held, longest := h.b.Hint(), h.b.Permits(), max(h.longest, h.c.cfg.Entry)
	if h.b.Waited() {
		longest = max(longest, script.LongestLife(h.c.cfg.Entry))
	}
	h.mu.Unlock()
	now := time.Now()
	*q = quorum.Question{
		Op: opRelease, Sent: now, To: to, Need: h.b.Need(), Deny: int32(len(h.c.members) - h.b.Need() + 1), Judge: h,
		Command:  h.holding(held).Release(buf, h.owner, hint),
		Delivery: member.Delivery{Always: true, Late: late, OweUntil: now.Add(longest + time.Second)},
	}
}

// abandon is a release that nobody waits for.
func (h *hold) abandon() { h.release(false).Free() }
