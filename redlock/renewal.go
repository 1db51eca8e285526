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
)

// renewal is one call for up to perCall leases, by the script that lengthens them all. It goes to
// all members. Each lease is decided on its own: docs/protocol.md, "Renewal".
type renewal struct {
	k      *keeper
	sent   time.Time
	manual bool            // asked for by a caller, who waits for the round
	adopt  bool            // the lease is not held before a majority has confirmed it
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
	n.trace, n.ctx = k.c.traceRenewal(n.ctx, now, len(n.items), func(i int) tracedLease {
		return tracedLease{n.items[i].l.hold, n.end(n.items[i].TTL())}
	})
	h, delivery := n.items[0].l.hold, member.Delivery{Late: !n.manual}
	if n.moves() {
		h.takes(len(k.c.members))
		delivery.Ended = &h.ended
	}
	r := k.c.round()
	r.Question = quorum.Question{
		Op: opExtend, Sent: now, TTL: n.items[0].TTL(), To: memberset.All(len(k.c.members)), Need: k.c.need, Judge: j,
		Command: n.encode(&r.Buf), Delivery: delivery,
	}
	r.Start()
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

// end is until when a member that has a lease keeps it, by its answer to this renewal.
func (n *renewal) end(ttl time.Duration) time.Time {
	return n.sent.Add(clock.Validity(ttl, n.k.c.cfg.Drift))
}

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

// count counts what a member answers. A script tells of each lease: above 0 the member has it, at 0 it has not, and below 0 there
// is another's data under the name. A re-join tells of lease j: a member that took it back is a vote of the renewal, because it did
// so after the renewal was sent, and for as long. count returns the leases that a majority renews by that, those that a majority
// has refused, and whether the answer counts.
func (n *renewal) count(r *quorum.Round, c *member.Call, j int) (won, lost uint64, ok bool) {
	words, slot := c.Reply.Elems, n.items[0].l.hold.wire.Slot() // that of all, where a member has several servers
	a := core.Answer{Outcome: c.Outcome, Sent: r.Sent, At: c.At, From: c.State, Now: n.k.c.briefOf(c.Index, slot)}
	switch {
	case c.Outcome != member.Answered || a.Idle():
		return 0, 0, false
	case r.Op == opRejoin && (c.Reply.Int <= 0 || r.TTL < n.items[j].TTL()):
		return 0, 0, false
	case r.Op == opRejoin:
		words = []member.Reply{{Int: c.Reply.Int}}
	case len(words) != len(n.items):
		return 0, 0, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range words {
		a.N = words[k].Int
		has, lacks := n.items[j+k].Book(c.Index, &a)
		if has {
			won |= 1 << (j + k)
		}
		if lacks {
			lost |= 1 << (j + k)
		}
	}
	return won, lost, true
}

// lengthen renews those of some leases for which a majority was counted, and returns them.
func (n *renewal) lengthen(won uint64) (renewed uint64) {
	now := time.Now()
	for j := range among(won) {
		it := &n.items[j]
		if it.l.renewed(&it.Count, n.sent, n.manual, now) {
			renewed |= 1 << j
		}
	}
	return renewed
}
