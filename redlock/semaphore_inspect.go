package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// SemaphoreInspection is what the members say of one semaphore. As with Inspection, each member is
// asked at a moment of its own, so use it to look and never to decide.
type SemaphoreInspection struct {
	Key     string
	Limit   int            // the stored limit; -1: none is stored, and that of each caller applies
	Holders []PermitHolder // owners that a majority of the members name for the same slots, by slot
	Members []PermitView
}

// PermitHolder is an owner that has slots at a majority of the members.
type PermitHolder struct {
	Owner string // hash of the owner's name, as Lease.Hash has it
	Slots []Slot // with the greatest token of each
	Votes int    // number of members that name the owner for these slots
	Who   string // as Holder.Who

	owner  string // the SHA-1 of the owner's name, of which Owner is the beginning
	client string // as VoteView.client
}

// PermitView is what one member says about a semaphore.
type PermitView struct {
	Member string
	Err    error        // why there is no view; set alone
	State  string       // as in MemberInfo
	Limit  int          // the limit that is stored there; -1: none
	Votes  []PermitVote // in order of their slots
	Queue  []PermitWaiter
}

// PermitVote is what a member has given to one owner.
type PermitVote struct {
	Owner string
	TTL   time.Duration
	Slots []Slot
	Who   string

	owner, client string
}

// PermitWaiter is one entry in a member's line.
type PermitWaiter struct {
	Owner   string
	Waiting time.Duration // time since the entry was registered
	Live    bool          // the entry has not run out, so the waiter can still be served
	Permits int           // how many slots it waits for
	Who     string        // as Holder.Who

	client string
}

// InspectSemaphore asks every member what it knows about a semaphore, and changes nothing. It
// returns as Inspect does, and with the same errors.
func (c *Client) InspectSemaphore(ctx context.Context, name string) (*SemaphoreInspection, error) {
	if err := c.check(ctx, opInspectSemaphore, name, c.cfg.TTL); err != nil {
		return nil, err
	}
	if err := permitKind.within(&c.cfg); err != nil {
		return nil, badInput(opInspectSemaphore, "%v", err)
	}
	lock := script.Semaphore(c.cfg.keyOf(name))
	out := &SemaphoreInspection{Key: name, Limit: -1, Members: make([]PermitView, len(c.members))}
	infos, stored := c.Members(), int64(0)
	c.askAll(ctx, lock.Peek(nil), func(i int, r member.Reply, err error) {
		v := PermitView{Member: infos[i].Name, State: standingOf(c.stateOf(i, lock.Slot())), Err: err, Limit: -1}
		if err == nil {
			stored = max(stored, v.read(&r))
		}
		out.Members[i] = v
	})
	if _, n, set := script.LimitOf(stored); set {
		out.Limit = n
	}
	out.Holders = permitHolders(out.Members, c.need)
	c.identify(ctx, out.told)
	return out, nil
}

// told is as Inspection.told.
func (in *SemaphoreInspection) told(each func(client string, who *string)) {
	for i := range in.Holders {
		each(in.Holders[i].client, &in.Holders[i].Who)
	}
	for i := range in.Members {
		m := &in.Members[i]
		for k := range m.Votes {
			each(m.Votes[k].client, &m.Votes[k].Who)
		}
		for k := range m.Queue {
			each(m.Queue[k].client, &m.Queue[k].Who)
		}
	}
}

// read takes what the member replied to a Peek, and returns the limit that is stored there.
func (v *PermitView) read(r *member.Reply) (stored int64) {
	seen, ok := script.ReadPermits(r)
	if !ok {
		v.Err = errReply
		return 0
	}
	if _, n, set := script.LimitOf(seen.Limit); set {
		v.Limit = n
	}
	for _, h := range seen.Holders {
		v.Votes = append(v.Votes, PermitVote{Owner: shown(h.Owner), TTL: h.TTL, Slots: slotsOf(h.Permits), owner: h.Owner, client: h.Client})
	}
	for _, w := range seen.Queue {
		v.Queue = append(v.Queue, PermitWaiter{Owner: shown(w.Owner), Waiting: w.Waiting, Live: w.Live, Permits: w.Permits, client: w.Client})
	}
	return seen.Limit
}

func slotsOf(l permit.List) []Slot {
	out := make([]Slot, len(l))
	for i := range l {
		out[i] = Slot{Number: l[i].Slot, Token: uint64(l[i].Token)}
	}
	return out
}

// permitHolders are the owners that enough members name for the same slots.
func permitHolders(members []PermitView, need int) []PermitHolder {
	var all []PermitHolder
	for _, m := range members {
		for _, v := range m.Votes {
			i := slices.IndexFunc(all, func(h PermitHolder) bool {
				return h.owner == v.owner && slices.EqualFunc(h.Slots, v.Slots, func(x, y Slot) bool { return x.Number == y.Number })
			})
			if i < 0 {
				i = len(all)
				all = append(all, PermitHolder{Owner: v.Owner, owner: v.owner, client: v.client, Slots: slices.Clone(v.Slots)})
			}
			all[i].Votes++
			for k, s := range v.Slots {
				all[i].Slots[k].Token = max(all[i].Slots[k].Token, s.Token)
			}
		}
	}
	all = slices.DeleteFunc(all, func(h PermitHolder) bool { return h.Votes < need })
	slices.SortFunc(all, func(x, y PermitHolder) int { return x.Slots[0].Number - y.Slots[0].Number })
	return all
}

// ForcePermits takes all slots of one holder at every member that it can reach, wherever it has any,
// and its place in line. Waiters get them, as after an Unlock. It is for a person who knows that the
// holder is gone. What ForceUnlock says of a former holder, and of the members, holds here too.
//
// held reports whether a majority of the members had something of the holder. Errors: ErrNoQuorum,
// if fewer than a majority answered, and the members that answered have freed the slots; ErrClosed,
// ErrInput.
func (c *Client) ForcePermits(ctx context.Context, name string, holder PermitHolder) (held bool, err error) {
	if holder.owner == "" {
		return false, badInput(opForcePermits, "a holder that no inspection has shown")
	}
	if err := permitKind.within(&c.cfg); err != nil {
		return false, badInput(opForcePermits, "%v", err)
	}
	freed, err := c.force(ctx, opForcePermits, script.Semaphore(c.cfg.keyOf(name)), []string{holder.owner})
	return err == nil && freed >= c.need, err
}
