package redlock

import (
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// acquire asks members for their votes.
func (a *attempt) acquire(s *wait.Step, sent time.Time) *quorum.Round {
	cmd := a.c.buffer()
	var q quorum.Question
	a.question(&q, s, sent, cmd)
	r := a.c.rounds.Start(a.c.members, &q)
	a.c.buffers.Put(cmd)
	return r
}

// question writes into q what acquire asks, encoded into a buffer.
func (a *attempt) question(q *quorum.Question, s *wait.Step, sent time.Time, buf *[]byte) {
	*q = quorum.Question{
		Op: opAcquire, Sent: sent, TTL: a.terms.ttl, To: s.To, Need: s.Need, Judge: &a.hold,
		Command: a.wire.Acquire(buf, a.owner, a.terms.ttl), Delivery: member.Delivery{Ended: &a.ended},
	}
}

// register asks for the lock, now or when it is handed over.
func (a *attempt) register(s *wait.Step, now time.Time) *quorum.Round {
	return a.ask(opWait, s.To, now, a.b.Part(), func(b *[]byte) member.Command {
		if s.Freed {
			return a.wire.WaitFreed(b, a.owner, a.b.Part(), a.c.cfg.Entry, s.Ticket)
		}
		return a.wire.Wait(b, a.owner, a.b.Part(), a.c.cfg.Entry, s.Ticket)
	}, false)
}

// yield gives up the votes of a step: they count no more.
func (a *attempt) yield(s *wait.Step, now time.Time) {
	for _, o := range s.Offers {
		a.ask(opYield, quorum.Set(0).With(o.Member), now, a.b.Part(), func(b *[]byte) member.Command {
			return a.wire.Yield(b, a.owner, o.Given.Token(), a.b.Part(), a.c.cfg.Entry, o.Ticket)
		}, false).Free()
	}
}

// claim submits the claims of a step, and then its waits.
func (a *attempt) claim(s *wait.Step, now time.Time) {
	ttl := a.terms.ttl
	if a.b.Waited() {
		ttl = a.b.Part()
	}
	for _, o := range s.Offers {
		a.ask(opClaim, quorum.Set(0).With(o.Member), now, ttl, func(b *[]byte) member.Command {
			return a.wire.Claim(b, a.owner, o.Given.List(), o.Slots, ttl, a.c.cfg.Entry, a.b.Waited())
		}, false).Free()
	}
	if s.To != 0 {
		a.register(s, now).Free()
	}
}

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
