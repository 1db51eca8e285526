package redlock

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// What a hold does besides votes: who waits behind whom, who is told, what is brought into step, and its end.

// Judge books an answer, on the goroutine that read it, and does what follows from it.
func (h *hold) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	if r.Op == opReserve {
		return h.judgeReserved(r, c)
	}
	var a wait.Answer
	h.decode(&a, r, c)
	h.mu.Lock()
	v := h.bookLocked(&a, r, c)
	_, late := h.b.Late(c.Index)
	wake := h.wake
	h.settledLocked()
	h.mu.Unlock()
	asked := r.Op == opAcquire || r.Op == opWait
	if a.Limit != 0 {
		h.terms.kind.heard(h, report{member: c.Index, limit: a.Limit})
	}
	if asked && a.N < 0 {
		h.c.contended(h.terms.kind.line(h.name()), a.At, false, true)
	}
	if late && (asked || r.Op == opClaim) && !h.ended.Load() {
		h.raiseLate(c.Index)
	}
	if asked && a.N > 0 {
		h.followed(a.Next)
	}
	signal(wake)
	if h.c.trace.Request != nil {
		h.c.requested(h.traced.of(r.Op), h.lock(), r, c)
	}
	return v
}

// judgeReserved books what a member answers to a reservation, and tells what it brings.
func (h *hold) judgeReserved(r *quorum.Round, c *member.Call) quorum.Vote {
	var a wait.Answer
	h.decode(&a, r, c)
	said := reserved{more: h.bookReserved(&a, c.Index)}
	h.mu.Lock()
	h.open.count(&said, c.Index, &a, h.b.Need())
	h.mu.Unlock()
	h.c.requested(h.traced.of(r.Op), h.lock(), r, c)
	if said.more || said.alone || said.lost || said.waits {
		h.open.to.reserved(said)
	}
	return wait.VoteOf(c.Outcome, said.more)
}

// hear takes a push for the owner, and does what follows from it.
func (h *hold) hear(i int, p script.Push, st member.State, at time.Time) {
	if !h.hears(&p) {
		return
	}
	h.mu.Lock()
	regained := p.Grant && h.b.Wishing(i)
	counts := h.grantedLocked(i, &p, st, at)
	if !p.Grant {
		h.noticedLocked(i, &p, at)
	}
	_, late := h.b.Late(i)
	wake := h.wake
	h.mu.Unlock()
	if !p.Gone && (!p.Grant || len(p.Other) > 1) { // a grant names the waiter that is next
		h.c.contended(h.terms.kind.line(h.name()), at, h.c.owns(p.Other), false)
	}
	if late {
		h.raiseLate(i)
	}
	switch {
	case p.Readers:
		h.terms.kind.heard(h, report{readers: true})
	case !p.Gone:
		h.followed(p.Other)
	}
	signal(wake)
	switch {
	case counts && regained:
		h.terms.kind.heard(h, report{member: i, regained: true})
	case counts:
		h.c.woken(h.traced, h.lock(), wokenByGrant)
	}
}

// noticedLocked books a push that is no grant.
func (h *hold) noticedLocked(i int, p *script.Push, at time.Time) {
	switch {
	case p.Gone:
		h.b.Withdrawn(p.Other)
	case p.Readers:
		h.b.ReadersWait()
	case p.Wish:
		h.b.Wished(i, p.Other)
	default:
		h.b.Announced(i, p.Other, at)
	}
}

// lift brings members whose votes are not those of the lease into step. Nobody waits for it.
func (h *hold) lift(to memberset.Set, now time.Time) {
	h.terms.kind.mend(h, to, now)
}

// raiseLate brings a member whose vote came after the decision, and lies below the token, back into
// step. Nobody waits for it.
func (h *hold) raiseLate(i int) {
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	h.lift(memberset.Set(0).With(i), time.Now())
}

// settledLocked tells who waits for the last call under way.
func (h *hold) settledLocked() {
	if h.settled != nil && h.taking+h.b.Taking() == 0 {
		close(h.settled)
		h.settled = nil
	}
}

// release frees every vote and every place in line, at all members that a write may have reached,
// in order behind that write: docs/protocol.md, "Lost". It belongs to the client and not to any
// caller, so no context ends it. late says that the goroutine must not write to a socket. The
// caller frees the round.
func (h *hold) release(late bool) *quorum.Round { return h.releaseFor(h, late) }

// releaseFor is release whose answers another judge hears.
func (h *hold) releaseFor(judge quorum.Judge, late bool) *quorum.Round {
	to := h.owed()
	h.terms.kind.ending(h, to, late)
	r := h.submitRelease(judge, to, late)
	h.afterRelease(late)
	return r
}

// releaseAll is release for several holds of one client, whose calls go to each member in one group.
func (c *Client) releaseAll(holds []*hold, late bool) []*quorum.Round {
	rounds := c.startAll(len(holds), func(i int) *quorum.Round {
		return holds[i].releaseQuestion(holds[i], holds[i].owed(), late)
	})
	for _, h := range holds {
		h.afterRelease(late)
	}
	return rounds
}

// gone is called when the release has been submitted.
func (h *hold) afterRelease(late bool) {
	h.mu.Lock()
	h.released = true
	again := h.behind
	h.mu.Unlock()
	if again != 0 {
		h.submitRelease(h, again, late).Free()
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
		h.c.inflight.leave()
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
		h.submitRelease(h, memberset.Set(0).With(i), true).Free()
	}
}

// abandon is a release that nobody waits for.
func (h *hold) abandon() { h.release(false).Free() }

// owes books that member i may have something of the owner besides.
func (h *hold) owes(i int) {
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	h.overtaken(i)
}

// opens makes a hold with a lease an open one, which gives leases tokens of its own. to is told what its reservations bring.
func (h *hold) opens(to reserver) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = &openness{Range: h.b.Range(), to: to}
}

// nextToken takes the next token of an open hold, if there is one.
func (h *hold) nextToken() (token int64, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open.next()
}

// tokensLeft counts those that can be taken, and reports whether a reservation is under way.
func (h *hold) tokensLeft(now time.Time) (n int64, asking bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open.Left(), h.open.asking(now, len(h.c.members))
}

// reserving reports whether a reservation is under way, or one that was booked is about to be submitted by another goroutine.
func (h *hold) reserving(now, booked time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.open.asking(now, len(h.c.members)) || clock.Until(booked, h.open.asked.sent) > 0
}

// reserveMore asks all members for further tokens, and whether anybody waits, unless that is under way or the term t of the lease is
// over. It reports whether it asks. late says that the goroutine must not write to a socket.
func (h *hold) reserveMore(t core.Term, late bool) bool {
	now := time.Now()
	h.mu.Lock()
	if !t.Held(now) || h.open.asking(now, len(h.c.members)) {
		h.mu.Unlock()
		return false
	}
	most := h.open.reserve(&t, now, h.c.cfg.MemberTimeout)
	h.mu.Unlock()
	h.reserve(most, now, late).Free()
	return true
}
