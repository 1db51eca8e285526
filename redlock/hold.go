package redlock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
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
// This file reads what members say of votes, and asks for them. When to ask is decided by the ballot, and what follows
// besides stands in holding.go.
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

	traced *traced

	mu   sync.Mutex
	b    wait.Ballot // the votes at each member, and how they were obtained
	open *openness   // it gives leases tokens of its own; nil: it has one lease
	over core.Ended  // the lease has ended, or the attempt was abandoned: it may be released

	wake     chan struct{} // capacity 1: something was heard; nil: no attempt waits for that
	settled  chan struct{} // is closed when no call is under way that may take a vote; nil: nobody waits for that
	longest  time.Duration // the longest TTL that a member was asked for
	taking   int           // rejoins and adoptions without an answer
	heir     *hold         // after a downgrade: it releases what the owner has
	from     *hold         // before a downgrade: its calls may still be under way
	released bool          // the release has been submitted
	left     bool          // Close need not wait for it any more
	behind   memberset.Set // members to be released once more when it has been submitted
}

// begin makes h the hold of an attempt under a new owner, with room for each member.
func (h *hold) begin(c *Client, wire script.Lock, t *terms, room wait.Room, past wait.Past) {
	h.c, h.wire, h.terms, h.longest = c, wire, *t, t.ttl
	h.owner, h.n = c.newOwner()
	if len(room.Votes) != len(c.members) {
		panic("redlock: a majority of other members")
	}
	h.b.Begin(h.owner, room, h.ballotTerms(), past)
}

// ballotTerms are what a ballot is to know of what was asked for, and of the configuration.
func (h *hold) ballotTerms() wait.Terms {
	c := &h.c.cfg
	t := h.terms.ballot(c)
	t.TTL, t.Entry, t.Drift = min(h.terms.ttl, c.MaxTTL), c.Entry, c.Drift
	return t
}

// name is that of the lock.
func (h *hold) name() string { return h.c.cfg.nameOf(h.wire.Name) }

func (h *hold) lock() LockName { return LockName{Kind: h.terms.kind.name, Key: h.name()} }

// next asks the ballot what to do, and writes the answer into s. It returns the instant at which it has asked, which is before
// any call of the answer. No other goroutine asks the ballot. So next reads without the mutex what Ballot.Next alone changes:
// see Ballot.Looks.
func (h *hold) next(s *wait.Step) (now time.Time) {
	var few fewStates
	var states []member.State
	if now = time.Now(); h.b.Looks() {
		states = h.c.appendStatesOf(few[:0], h.wire.Slot())
	}
	h.mu.Lock()
	h.b.Next(s, now, states)
	h.mu.Unlock()
	return now
}

// bookLocked books an answer to a question about votes.
func (h *hold) bookLocked(a *wait.Answer, r *quorum.Round, c *member.Call) quorum.Vote {
	switch r.Op {
	case opAcquire, opWait:
		return h.b.Answered(c.Index, a)
	case opYield:
		return h.b.YieldAnswered(c.Index, a)
	case opClaim:
		return h.b.ClaimAnswered(c.Index, a)
	case opRaise:
		return h.b.RaiseAnswered(c.Index, a)
	case opRelease:
		return wait.VoteOf(c.Outcome, h.b.ReleaseAnswered(c.Index, a))
	}
	return quorum.Open
}

// decode writes into a, which is zero, what a member answered, as the ballot takes it. No vote is trusted for longer than MaxTTL, which members in
// quarantine wait for.
func (h *hold) decode(a *wait.Answer, r *quorum.Round, c *member.Call) {
	a.Outcome, a.Sent, a.At, a.From, a.Err = c.Outcome, r.Sent, c.At, c.State, c.Err
	a.Now = h.c.briefOf(c.Index, h.wire.Slot())
	switch r.Op {
	case opAcquire, opWait, opYield, opClaim:
		a.TTL = min(r.TTL, h.c.cfg.MaxTTL)
	case opRaise, opReserve:
		a.Raise = true
	}
	if c.Outcome != member.Answered {
		return
	}
	if c.Reply.Kind == ':' { // most are
		a.N = c.Reply.Int
	} else if said, ok := script.ReadAnswer(&c.Reply); ok {
		a.N, a.Server, a.Permits = said.N, said.Server, said.Permits
		a.Next, a.Place, a.Limit, a.Lives = said.Next, said.Place, said.Limit, said.Lives
	} else {
		a.Outcome, a.Err = member.Refused, errReply
	}
	if r.Op == opRelease && c.Interrupted && a.Outcome == member.Answered {
		a.N = 1 // it is only stopped where it has freed the vote and is to hand it over
	}
}

// hears reports whether a push is for the hold. If its release has begun, that stands behind the grant and frees it.
func (h *hold) hears(p *script.Push) bool { return p.Owner == h.owner && !h.ended.Load() }

// grantedLocked books a grant that a member has pushed, and reports whether it counts.
func (h *hold) grantedLocked(i int, p *script.Push, st member.State, at time.Time) bool {
	if !h.hears(p) || !p.Grant {
		return false
	}
	grant := core.Push{Token: p.Token, Server: p.Server, TTL: p.TTL, Permits: p.Permits}
	return h.b.Pushed(i, wait.Push{Push: grant, Next: p.Other}, st, at)
}

// leaves is told that the lease of the hold has ended.
func (h *hold) leaves(over core.Ended) {
	h.mu.Lock()
	h.over = over
	h.mu.Unlock()
}

// owed begins the release, and says to whom it is to go: to nobody while the hold has a lease that has not ended. An attempt
// without a lease wins nothing from then on.
func (h *hold) owed() (to memberset.Set) {
	h.ended.Store(true)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.wake = nil
	if !h.over.Yes() {
		h.over = h.b.Abandon()
	}
	if h.over.Yes() {
		to = h.b.Owed()
	}
	return to
}

// acquire asks members for their votes.
func (h *hold) acquire(s *wait.Step, sent time.Time) *quorum.Round {
	return h.question(s, sent).Start()
}

// question is the round of acquire.
func (h *hold) question(s *wait.Step, sent time.Time) *quorum.Round {
	r := h.c.round()
	r.Op, r.Sent, r.TTL, r.To, r.Need, r.Judge = opAcquire, sent, h.terms.ttl, s.To, s.Need, h
	r.Command, r.Ended = h.wire.Acquire(&r.Buf, h.owner, h.terms.ttl), &h.ended
	return r
}

// startAll starts so many rounds, which go to each member in one group.
func (c *Client) startAll(n int, round func(i int) *quorum.Round) []*quorum.Round {
	rounds := make([]*quorum.Round, n)
	for i := range rounds {
		rounds[i] = round(i)
	}
	if n > 0 {
		rounds[0].Start(rounds[1:]...)
	}
	return rounds
}

// ask submits one question about the hold to some members.
func (h *hold) ask(op string, to memberset.Set, sent time.Time, ttl time.Duration, encode func(*[]byte) member.Command, late bool) *quorum.Round {
	r := h.c.round()
	r.Question = quorum.Question{
		Op: op, Sent: sent, TTL: ttl, To: to, Need: h.b.Need(), Judge: h,
		Command: encode(&r.Buf), Delivery: member.Delivery{Late: late, Ended: &h.ended},
	}
	return r.Start()
}

// register asks for the lock, now or when it is handed over.
func (h *hold) register(s *wait.Step, now time.Time) *quorum.Round {
	ttl := h.b.Part()
	return h.ask(opWait, s.To, now, ttl, func(b *[]byte) member.Command {
		if s.Freed {
			return h.wire.WaitFreed(b, h.owner, ttl, h.c.cfg.Entry, s.Ticket)
		}
		return h.wire.Wait(b, h.owner, ttl, h.c.cfg.Entry, s.Ticket)
	}, false)
}

// yield gives up the votes of a step: they count no more.
func (h *hold) yield(s *wait.Step, now time.Time) {
	ttl := h.b.Part()
	for _, o := range s.Offers {
		h.ask(opYield, memberset.Set(0).With(o.Given.Member()), now, ttl, func(b *[]byte) member.Command {
			return h.wire.Yield(b, h.owner, o.Given.Token(), ttl, h.c.cfg.Entry, o.Ticket)
		}, false).Free()
	}
}

// raise lifts the counters of members to the token that the votes have agreed on.
func (h *hold) raise(to memberset.Set, now time.Time, late bool) *quorum.Round {
	return h.ask(opRaise, to, now, h.terms.ttl, func(b *[]byte) member.Command { return h.having().Raise(b, h.owner, h.b.Agreed()) }, late)
}

// reserve asks all members to lift their counters to most.
func (h *hold) reserve(most int64, now time.Time, late bool) *quorum.Round {
	to := memberset.All(len(h.c.members))
	return h.ask(opReserve, to, now, 0, func(b *[]byte) member.Command { return h.wire.Reserve(b, h.owner, h.b.Lease(), most) }, late)
}

// bookReserved books an answer to that.
func (h *hold) bookReserved(a *wait.Answer, i int) (longer bool) {
	var few fewStates
	states := h.c.appendStatesOf(few[:0], h.wire.Slot())
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.b.ReserveAnswered(&h.open.Range, i, a, time.Now(), states)
}

// most is the greatest token that the hold may give to leases.
func (h *hold) most() int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.b.Lease(), h.open.mostTokens())
}

// rejoin has members take the lease back for ttl, where they do not have it: those that an adoption has not reached move the vote
// first, which is the former owner's still. For what is another's there, they keep a wish for so long.
func (h *hold) rejoin(to memberset.Set, ttl, wish time.Duration, j quorum.Judge) {
	now, late := time.Now(), member.Delivery{Late: true, Ended: &h.ended}
	if h.former != "" {
		r := h.c.round()
		r.Question = quorum.Question{
			Op: opExtend, Sent: now, To: to, Need: 1, Judge: withdrawal{}, Command: h.having().Adopt(&r.Buf, h.owner, h.former, ttl), Delivery: late,
		}
		r.Start().Free()
	}
	r, wire := h.c.round(), h.having().Wishing(wish)
	r.Question = quorum.Question{
		Op: opRejoin, Sent: now, TTL: ttl, To: to, Need: 1, Judge: j,
		Command: wire.Rejoin(&r.Buf, h.owner, ttl, h.b.Lease(), h.most()), Delivery: late,
	}
	r.Start().Free()
}

// having is the lock with what the owner has won of it, or is about to. Of a lock without slots, the calls do not say.
func (h *hold) having() *script.Lock {
	p := h.b.Permits()
	if p == nil {
		return &h.wire
	}
	l := h.wire.Holding(p)
	return &l
}

// releaseQuestion is the round of a release. It asks nobody while the hold has a lease that has not ended.
func (h *hold) releaseQuestion(judge quorum.Judge, to memberset.Set, late bool) *quorum.Round {
	h.mu.Lock()
	hint, wire, longest := h.b.Hint(), h.having(), max(h.longest, h.c.cfg.Entry)
	if h.b.Waited() {
		longest = max(longest, script.LongestLife(h.c.cfg.Entry))
	}
	if !h.over.Yes() {
		to = 0
	}
	h.mu.Unlock()
	r, now := h.c.round(), time.Now()
	r.Op, r.Sent, r.To, r.Need, r.Judge = opRelease, now, to, h.b.Need(), judge
	r.Deny = int32(len(h.c.members) - r.Need + 1)
	r.Command = wire.Release(&r.Buf, h.owner, hint)
	r.Delivery = member.Delivery{Always: true, Late: late, OweUntil: now.Add(longest + time.Second)}
	return r
}

func (h *hold) submitRelease(judge quorum.Judge, to memberset.Set, late bool) *quorum.Round {
	return h.releaseQuestion(judge, to, late).Start()
}

// releaseFormer frees the votes that an adoption has not moved. A majority had the lease for the new owner: so they are the
// lease's, and nobody else has the former owner.
func (h *hold) releaseFormer(late bool) {
	h.mu.Lock()
	held := h.former != "" && h.over.Held()
	h.mu.Unlock()
	if !held {
		return
	}
	r := h.releaseQuestion(withdrawal{}, memberset.All(len(h.c.members)), late)
	r.Command = h.having().Release(&r.Buf, h.former, "")
	r.Start().Free()
}

// withdrawal is the Judge of what the client asks for and does not use.
type withdrawal struct{}

// Judge implements quorum.Judge.
func (withdrawal) Judge(_ *quorum.Round, c *member.Call) quorum.Vote {
	return wait.VoteOf(c.Outcome, false)
}
