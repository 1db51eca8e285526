package redlock

import (
	"context"
	"sync"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// renewal is one call for up to perCall leases, by the script that lengthens them all. It goes to
// all members. Each lease is decided on its own: docs/protocol.md, "Renewal".
type renewal struct {
	k      *keeper
	sent   time.Time
	manual bool            // asked for by a caller, who waits for the round
	adopt  bool            // not known to be held: nothing is given back to members that do not have it
	ctx    context.Context // of the caller, or of the round's own trace; or nil
	trace  *renewalTrace

	mu    sync.Mutex // guards the counts of the items; never held around Submit
	items []renewItem
}

// renewItem is a lease, and what the members say of it. Its lease and TTL never change.
type renewItem struct {
	l *lease
	core.Count
}

// toRenew is the lease, as the members are asked to keep it for ttl.
func (l *lease) toRenew(ttl time.Duration) renewItem {
	return renewItem{l, core.Asks(min(ttl, l.c.cfg.MaxTTL), len(l.c.members))}
}

func (k *keeper) renew(n *renewal, now time.Time) *quorum.Round { return k.start(n, n, now) }

// start submits a renewal whose answers go to j.
func (k *keeper) start(n *renewal, j quorum.Judge, now time.Time) *quorum.Round {
	n.k, n.sent = k, now
	if t := &k.c.trace; t.RenewalStart != nil || t.RenewalEnd != nil {
		all := make([]tracedLease, len(n.items))
		for i := range n.items {
			all[i] = tracedLease{n.items[i].l.hold, n.end(n.items[i].TTL())}
		}
		n.trace = k.c.traceRenewal(n.ctx, now, all)
		n.ctx = n.trace.ctx
	}
	h, delivery := n.items[0].l.hold, member.Delivery{Late: !n.manual}
	if n.moves() {
		h.takes(len(k.c.members))
		delivery.Ended = &h.ended
	}
	cmd := k.c.buffer()
	command := n.encode(cmd)
	r := k.c.rounds.Start(k.c.members, &quorum.Question{
		Op: opExtend, Sent: now, TTL: n.items[0].TTL(), To: memberset.All(len(k.c.members)), Need: k.c.need, Judge: j,
		Command:  command,
		Delivery: delivery,
	})
	k.c.buffers.Put(cmd)
	if n.moves() { // some may have refused while others were not asked yet
		for i := range k.c.members {
			h.overtaken(i)
		}
	}
	return r
}

// moves reports whether the members are to move the votes of a former owner: a call that comes late leaves a vote, as a
// re-join does.
func (n *renewal) moves() bool { return n.adopt && n.items[0].l.hold.former != "" }

func (n *renewal) encode(buf *[]byte) member.Command {
	first := n.items[0].l.hold
	if n.moves() {
		return first.having().Adopt(buf, first.owner, first.former, n.items[0].TTL())
	}
	renewal := first.wire.Renew(buf, len(n.items))
	for i := range n.items {
		renewal.Lock(n.items[i].l.hold.wire.Name)
	}
	for i := range n.items {
		renewal.Lease(n.items[i].l.hold.owner, n.items[i].TTL(), n.items[i].l.hold.b.Permits())
	}
	return renewal.Command(first.wire.Slot())
}

// Judge books one member's answer for every lease of the script. Its vote is that for the first
// lease: only Extend, which asks for one, waits for the round.
func (n *renewal) Judge(r *quorum.Round, c *member.Call) quorum.Vote {
	n.requested(r, c)
	defer n.trace.heard(c.Outcome == member.Answered)
	if n.moves() {
		defer n.items[0].l.hold.took()
	}
	a := n.answer(r, c)
	if c.Outcome != member.Answered || len(c.Reply.Elems) != len(n.items) || a.Idle() {
		return wait.VoteOf(c.Outcome, false)
	}
	// Above 0: it is ours there, and which number it is may say more. 0: it is not. Below 0: there is
	// another's data under the name, and nothing to be had.
	for j := range c.Reply.Elems {
		if word := c.Reply.Elems[j].Int; word > 0 { // before anything is decided by it
			h := n.items[j].l.hold
			h.terms.kind.heard(h, report{member: c.Index, renewal: word, sent: n.sent})
		}
	}
	n.book(c.Index, &a, 0, c.Reply.Elems)
	for j := range c.Reply.Elems {
		if c.Reply.Elems[j].Int == 0 && !n.adopt {
			n.rejoin(j, c.Index)
		}
	}
	return wait.VoteOf(c.Outcome, c.Reply.Elems[0].Int > 0)
}

// answer is what a member answers, but for its words.
func (n *renewal) answer(r *quorum.Round, c *member.Call) core.Answer {
	slot := n.items[0].l.hold.wire.Slot() // that of all, where a member has several servers
	return core.Answer{Outcome: c.Outcome, Sent: r.Sent, At: c.At, From: c.State, Now: n.k.c.briefOf(c.Index, slot)}
}

// requested tells the tracer.
func (n *renewal) requested(r *quorum.Round, c *member.Call) {
	var lock LockName // of several: none
	if len(n.items) == 1 {
		lock = n.items[0].l.hold.lock()
	}
	n.k.c.requested(n.ctx, lock, r, c)
}

// book counts one member's word for the leases from first on, and acts where that decides: a
// majority of ours renews a lease, a majority of refusals ends it at once. Silence is neither; the
// validity ends it in time. All of a script at once: with thousands of leases, what is done for
// each is what they cost.
func (n *renewal) book(i int, a *core.Answer, first int, words []member.Reply) {
	var won, lost uint64 // by item; perCall of them
	n.mu.Lock()
	for j := range words {
		a.N = words[j].Int
		switch n.items[first+j].Book(i, a) {
		case quorum.Won:
			won |= 1 << (first + j)
		case quorum.Lost:
			lost |= 1 << (first + j)
		}
	}
	n.mu.Unlock()
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
		it.l.hold.b.Renewed(i, a.From.Gen, words[j].Int > 0, end)
		it.l.hold.mu.Unlock()
	}
	if won|lost == 0 {
		return
	}
	now := time.Now()
	var renewed uint64
	for j := range among(won) {
		it := &n.items[j]
		ok := it.l.renewed(&it.Count, n.sent, n.manual, now)
		if ok {
			renewed |= 1 << j
			it.l.hold.terms.kind.renewed(it.l)
		}
	}
	var next time.Time
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

// end is until when a member that has a lease keeps it, by its answer to this renewal.
func (n *renewal) end(ttl time.Duration) time.Time {
	return n.sent.Add(clock.Validity(ttl, n.k.c.cfg.Drift))
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
		if it.l.renewed(&it.Count, n.sent, n.manual, time.Now()) {
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
	cmd := n.k.c.buffer()
	h.adoptFirst(cmd, to, ttl, now)
	wire := h.having().Wishing(ttl)
	command := wire.Rejoin(cmd, h.owner, ttl, int64(l.token))
	n.k.c.rounds.Start(n.k.c.members, &quorum.Question{
		Op: opRejoin, Sent: now, To: to, Need: 1, Judge: rejoinJudge{n, j},
		Command: command, Delivery: member.Delivery{Late: true, Ended: &h.ended},
	}).Free()
	n.k.c.buffers.Put(cmd)
	h.overtaken(i) // the lease may have ended since it was found alive
}

type rejoinJudge struct {
	n *renewal
	j int
}

// Judge counts a member that took the lease back as a vote of the renewal: it did so after the
// renewal was sent.
func (r rejoinJudge) Judge(round *quorum.Round, c *member.Call) quorum.Vote {
	r.n.k.c.requested(r.n.ctx, r.n.items[r.j].l.hold.lock(), round, c)
	took := c.Outcome == member.Answered && c.Reply.Int > 0
	r.n.items[r.j].l.hold.rejoined(round, c)
	a := r.n.answer(round, c)
	yes := took && !a.Idle()
	if yes {
		r.n.book(c.Index, &a, r.j, []member.Reply{{Int: 1}})
	}
	r.n.trace.heard(false)
	return wait.VoteOf(c.Outcome, yes)
}
