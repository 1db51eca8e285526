package redlock

import (
	"context"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// InspectSemaphore asks every member what it knows about a semaphore, and changes nothing. It
// returns as Inspect does, and with the same errors.
func (c *Client) InspectSemaphore(ctx context.Context, name string) (*Inspection, error) {
	if err := c.check(ctx, opInspectSemaphore, name, c.cfg.TTL); err != nil {
		return nil, err
	}
	if err := permitKind.within(&c.cfg); err != nil {
		return nil, badInput(opInspectSemaphore, "%v", err)
	}
	lock := script.Semaphore(c.cfg.keyOf(name))
	out := &Inspection{Key: name, key: lock.Name, Kind: KindSemaphore, Limit: -1, Members: make([]MemberView, len(c.members))}
	infos, stored := c.Members(), int64(0)
	c.askAll(ctx, lock.Peek(nil), func(i int, r member.Reply, err error) {
		v := MemberView{Member: infos[i].Name, State: standingOf(c.stateOf(i, lock.Slot())), Err: err, Limit: -1}
		if err == nil {
			stored = max(stored, v.readPermits(&r))
		}
		out.Members[i] = v
	})
	if _, n, set := script.LimitOf(stored); set {
		out.Limit = n
	}
	out.Holders = holders(out.Members, c.need)
	c.identify(ctx, out.told)
	return out, nil
}

// readPermits takes what the member replied to a Peek of a semaphore, and returns the limit that is stored there.
func (v *MemberView) readPermits(r *member.Reply) (stored int64) {
	seen, ok := script.ReadPermits(r)
	if !ok {
		v.Err = errReply
		return 0
	}
	if _, n, set := script.LimitOf(seen.Limit); set {
		v.Limit = n
	}
	for _, h := range seen.Holders {
		vote := VoteView{Owner: shown(h.Owner), TTL: h.TTL, Slots: slotsOf(h.Permits), owner: h.Owner, client: h.Client}
		if len(vote.Slots) > 0 {
			vote.Token = vote.Slots[0].Token
		}
		v.Votes = append(v.Votes, vote)
	}
	for _, w := range seen.Queue {
		v.Queue = append(v.Queue, Waiter{Owner: shown(w.Owner), Waiting: w.Waiting, Live: w.Live, Permits: w.Permits, client: w.Client})
	}
	return seen.Limit
}
