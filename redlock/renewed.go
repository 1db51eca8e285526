package redlock

import (
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// What follows from the answers to a renewal: who is told, what the keeper does next, and what is given back to members that lack it.

// requested tells the tracer.
func (n *renewal) requested(r *quorum.Round, c *member.Call) {
	var lock LockName // of several: none
	if len(n.items) == 1 {
		lock = n.items[0].l.hold.lock()
	}
	n.k.c.requested(n.ctx, lock, r, c)
}

// told tells the kind of each lease what a member says of it: which number it is may say more than yes.
func (n *renewal) told(i int, words []member.Reply) {
	for j := range words {
		if word := words[j].Int; word > 0 {
			h := n.items[j].l.hold
			h.terms.kind.heard(h, report{member: i, renewal: word, sent: n.sent})
		}
	}
}

// Judge books one member's answer for every lease of the script. Its vote is that for the first
// lease: only Extend, which asks for one, waits for the round.
func (n *renewal) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	n.requested(r, c)
	defer n.trace.heard(c.Outcome == member.Answered)
	if n.moves() {
		defer n.items[0].l.hold.took()
	}
	won, lost, ok := n.count(r, c, 0)
	if !ok {
		return wait.VoteOf(c.Outcome, false)
	}
	n.told(c.Index, c.Reply.Elems) // before anything is decided by it
	n.book(c, 0, c.Reply.Elems, won, lost)
	n.giveBack(c.Index, c.Reply.Elems)
	return wait.VoteOf(c.Outcome, c.Reply.Elems[0].Int > 0)
}

// book notes one member's word for the leases from first on, and acts where that has decided: a
// majority of ours renews a lease, a majority of refusals ends it at once. Silence is neither; the
// validity ends it in time. All of a script at once: with thousands of leases, what is done for
// each is what they cost.
func (n *renewal) book(c *member.Call, first int, words []member.Reply, won, lost uint64) {
	if won|lost != 0 {
		n.k.c.noQuorumSince.set(time.Time{}) // a majority has decided: see dark
	}
	var end time.Time
	ttl := time.Duration(-1)
	for j := range words {
		it := &n.items[first+j]
		if it.TTL() != ttl {
			ttl = it.TTL()
			end = n.end(ttl)
		}
		it.l.hold.mu.Lock()
		it.l.hold.b.Renewed(c.Index, c.State.Gen, words[j].Int > 0, end)
		it.l.hold.mu.Unlock()
	}
	if won|lost == 0 {
		return
	}
	renewed := n.lengthen(won)
	for j := range among(renewed) {
		n.items[j].l.hold.terms.kind.renewed(n.items[j].l)
	}
	now, next := time.Now(), time.Time{}
	n.k.mu.Lock()
	for j := range among(renewed) {
		next = n.k.putLocked(n.items[j].l, now, next)
	}
	n.k.nudgeLocked(next, now)
	n.k.mu.Unlock()
	for j := range among(lost) {
		n.lose(n.items[j].l)
	}
	n.mu.Lock()
	for j := range among(won | lost) {
		n.items[j].Done = true
	}
	n.mu.Unlock()
	n.trace.count(renewed, lost, won|lost)
}

// settle does what was decided of the first lease. Members are heard on goroutines of their own:
// the one that booked the deciding word may not have come to it when the round, by the others'
// words, has ended. It returns the verdict.
func (n *renewal) settle() quorum.Verdict {
	n.mu.Lock()
	it := n.items[0]
	n.mu.Unlock()
	v := it.Verdict()
	switch {
	case v == quorum.Undecided, it.Done:
	case v == quorum.Lost:
		n.lose(it.l)
	default:
		if n.lengthen(1) != 0 {
			n.k.update(it.l)
		}
	}
	return v
}

// lose ends a lease that a majority do not have. One that was to be adopted was nobody's here: who asked for it is told,
// and nobody else.
func (n *renewal) lose(l *lease) {
	if !n.adopt {
		l.lose(LostRefused)
		return
	}
	if _, owed := l.over(LostRefused); owed.release != nil {
		owed.release.release(true).Free()
	}
}

// giveBack gives leases back to a member that says that it does not have them. One that is being adopted is held only once a
// majority has confirmed it: see rejoin.
func (n *renewal) giveBack(i int, words []member.Reply) {
	for j := range words {
		if words[j].Int == 0 {
			n.rejoin(j, i)
		}
	}
}

// rejoin gives the lease back to a member that does not have it: one that forgot it, or was not
// reached before. Only while it is held and valid.
func (n *renewal) rejoin(j, i int) {
	l, ttl := n.items[j].l, n.items[j].TTL()
	if !n.k.c.inflight.enter() {
		return
	}
	defer n.k.c.inflight.leave() // not before what overtaken makes of it is submitted
	to := memberset.Set(0).With(i)
	h := l.hold
	now := time.Now()
	if !l.alive(now) || !h.takes(1) {
		return
	}
	n.trace.asks()
	h.mu.Lock()
	h.b.Submitted(i)
	h.mu.Unlock()
	h.rejoin(to, ttl, ttl, rejoinJudge{n, j})
	h.overtaken(i) // the lease may have ended since it was found alive
}

// rejoinJudge hears the answers to the re-join of one lease of a renewal.
type rejoinJudge struct {
	n *renewal
	j int
}

// Judge implements quorum.Judge.
func (r rejoinJudge) Judge(round *quorum.Round, c *member.Call) quorum.Vote {
	r.n.k.c.requested(r.n.ctx, r.n.items[r.j].l.hold.lock(), round, c)
	r.n.items[r.j].l.hold.rejoined(round, c)
	won, lost, ok := r.n.count(round, c, r.j)
	if ok {
		r.n.book(c, r.j, []member.Reply{{Int: 1}}, won, lost)
	}
	r.n.trace.heard(false)
	return wait.VoteOf(c.Outcome, ok)
}
