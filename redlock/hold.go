package redlock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
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

	traced *traced

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
	behind   memberset.Set // members to be released once more when it has been submitted
}

// name is that of the lock.
func (h *hold) name() string { return h.c.cfg.nameOf(h.wire.Name) }

func (h *hold) lock() LockName { return LockName{Kind: h.terms.kind.name, Key: h.name()} }

// Judge books an answer, on the goroutine that read it.
func (h *hold) Judge(r *quorum.Round, c *member.Call) (v quorum.Vote) {
	i := c.Index
	ans := h.decode(r, c)
	late, token := false, int64(0)
	h.mu.Lock()
	switch r.Op {
	case opAcquire, opWait:
		v = h.b.Answered(i, &ans)
		token, late = h.b.Late(i)
	case opYield:
		v = h.b.YieldAnswered(i, &ans)
	case opClaim:
		v = h.b.ClaimAnswered(i, &ans)
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
		h.terms.kind.heard(h, report{member: i, limit: ans.Limit})
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
	h.c.requested(h.traced.of(r.Op), h.lock(), r, c)
	return v
}

// decode is what a member answered, as the ballot takes it. No vote is trusted for longer than MaxTTL, which members in quarantine
// wait for.
func (h *hold) decode(r *quorum.Round, c *member.Call) wait.Answer {
	a := wait.Answer{Answer: core.Answer{
		Outcome: c.Outcome, Sent: r.Sent, At: c.At, From: c.State, Now: h.c.briefOf(c.Index, h.wire.Slot()),
	}, Err: c.Err}
	switch r.Op {
	case opAcquire, opWait, opYield, opClaim:
		a.TTL = min(r.TTL, h.c.cfg.MaxTTL)
	case opRaise:
		a.Raise = true
	}
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
	case counts && regained:
		h.terms.kind.heard(h, report{member: i, regained: true})
	case counts && !regained:
		h.c.woken(h.traced, h.lock(), WokenByGrant)
	}
}

// owed begins the release, and says to whom it is to go: to nobody while the hold has a lease that has not ended.
func (h *hold) owed() (to memberset.Set) {
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
		Op: opRelease, Sent: now, To: memberset.All(len(h.c.members)), Need: h.b.Need(), Judge: withdrawal{},
		Command:  h.holding(held).Release(cmd, h.former, ""),
		Delivery: member.Delivery{Always: true, Late: late, OweUntil: now.Add(longest + time.Second)},
	}).Free()
	h.c.buffers.Put(cmd)
}

// acquire asks members for their votes.
func (h *hold) acquire(s *wait.Step, sent time.Time) *quorum.Round {
	cmd := h.c.buffer()
	var q quorum.Question
	h.question(&q, s, sent, cmd)
	r := h.c.rounds.Start(h.c.members, &q)
	h.c.buffers.Put(cmd)
	return r
}

// question writes into q what acquire asks, encoded into a buffer.
func (h *hold) question(q *quorum.Question, s *wait.Step, sent time.Time, buf *[]byte) {
	*q = quorum.Question{
		Op: opAcquire, Sent: sent, TTL: h.terms.ttl, To: s.To, Need: s.Need, Judge: h,
		Command: h.wire.Acquire(buf, h.owner, h.terms.ttl), Delivery: member.Delivery{Ended: &h.ended},
	}
}

// register asks for the lock, now or when it is handed over.
func (h *hold) register(s *wait.Step, now time.Time) *quorum.Round {
	return h.ask(opWait, s.To, now, h.b.Part(), func(b *[]byte) member.Command {
		if s.Freed {
			return h.wire.WaitFreed(b, h.owner, h.b.Part(), h.c.cfg.Entry, s.Ticket)
		}
		return h.wire.Wait(b, h.owner, h.b.Part(), h.c.cfg.Entry, s.Ticket)
	}, false)
}

// yield gives up the votes of a step: they count no more.
func (h *hold) yield(s *wait.Step, now time.Time) {
	for _, o := range s.Offers {
		h.ask(opYield, memberset.Set(0).With(o.Member), now, h.b.Part(), func(b *[]byte) member.Command {
			return h.wire.Yield(b, h.owner, o.Given.Token(), h.b.Part(), h.c.cfg.Entry, o.Ticket)
		}, false).Free()
	}
}

// claim submits the claims of a step, and then its waits.
func (h *hold) claim(s *wait.Step, now time.Time) {
	ttl := h.terms.ttl
	if h.b.Waited() {
		ttl = h.b.Part()
	}
	for _, o := range s.Offers {
		h.ask(opClaim, memberset.Set(0).With(o.Member), now, ttl, func(b *[]byte) member.Command {
			return h.wire.Claim(b, h.owner, o.Given.List(), o.Slots, ttl, h.c.cfg.Entry, h.b.Waited())
		}, false).Free()
	}
	if s.To != 0 {
		h.register(s, now).Free()
	}
}

// ask submits one question about the hold to some members.
func (h *hold) ask(op string, to memberset.Set, sent time.Time, ttl time.Duration, encode func(*[]byte) member.Command, late bool) *quorum.Round {
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
func (h *hold) raise(to memberset.Set, token int64, now time.Time, late bool) *quorum.Round {
	return h.ask(opRaise, to, now, h.terms.ttl, func(b *[]byte) member.Command { return h.having().Raise(b, h.owner, token) }, late)
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

func (h *hold) submitRelease(to memberset.Set, late bool) *quorum.Round {
	cmd := h.c.buffer()
	var q quorum.Question
	h.releaseQuestion(&q, to, late, cmd)
	r := h.c.rounds.Start(h.c.members, &q)
	h.c.buffers.Put(cmd)
	return r
}

// leaving writes into q what a release asks, encoded into a buffer.
func (h *hold) releaseQuestion(q *quorum.Question, to memberset.Set, late bool, buf *[]byte) {
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

// lift brings members whose votes are not those of the lease into step. Nobody waits for it.
func (h *hold) lift(to memberset.Set, token int64, now time.Time) {
	h.terms.kind.mend(h, to, token, now)
}

// raiseLate brings a member whose vote came after the decision, and lies below the token, back into
// step. Nobody waits for it.
func (h *hold) raiseLate(i int, token int64) {
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	h.lift(memberset.Set(0).With(i), token, time.Now())
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
