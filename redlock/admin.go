package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/kinds/latch"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Inspection is what the members say of one name: of a lock (Client.Inspect), of a semaphore
// (Client.InspectSemaphore), or of a latch or a barrier (Client.InspectLatch). Each member is asked
// at a moment of its own, so use an Inspection to look and never to decide. It shows each owner as a
// hash of six hexadecimal digits, because the name of an owner is the authority to release.
type Inspection struct {
	Key     string
	Kind    Kind        // of a lock KindRead if a member has readers, else KindMutex: members do not tell writers of an RWMutex from others
	Holders []Holder    // owners that a majority of the members name; of a lock at most one, unless they are readers
	Limit   int         // of a semaphore, the stored limit; -1: none is stored, and that of each caller applies
	Latch   *LatchState // of a latch, by what the members have together; nil: no member has it
	Members []MemberView

	key string // Key with the Config.Prefix of the client; "": of whoever asks
}

// Holder is an owner that a majority of the members name, of a semaphore for the same slots. It has
// the longest TTL of its votes, and the greatest tokens: those of its lease are at most these.
type Holder struct {
	VoteView
	Votes int // number of members that name the owner
}

// MemberView is what one member says.
type MemberView struct {
	Member  string
	Err     error       // why there is no view: the member failed, or the key is no lock; set alone
	State   string      // as in MemberInfo
	Votes   []VoteView  // votes that the member has given; of a lock at most one unless they are readers', of a semaphore by slot
	Counter uint64      // the last token that the lock's bucket gave out
	Queue   []Waiter    // waiters in order of arrival
	Limit   int         // of a semaphore, the limit that is stored there; -1: none
	Latch   *LatchState // of a latch; nil: the member does not have it
}

// VoteView is one vote that a member has given.
type VoteView struct {
	Owner string // hash of the owner's name, as Lease.Owner has it
	TTL   time.Duration
	Token uint64 // of a semaphore that of its first slot
	Reads bool   // the owner is a reader: it has the vote together with others
	Drawn uint64 // of a reader: the token with which its phase began at the member, at most Token; else 0
	Slots []Slot // of a semaphore: what the owner has
	Who   string // what its client tells of itself; "": see Config.Label

	owner  string // the SHA-1 of the owner's name, of which Owner is the beginning
	client string // under which its client tells who it is
}

// Waiter is one entry in a member's queue.
type Waiter struct {
	Owner   string
	Waiting time.Duration // time since the entry was registered
	Live    bool          // the entry has not run out, so the waiter can still be served
	Reads   bool          // the waiter is a reader: it has no place in line, and no time of its registration
	Permits int           // of a semaphore: how many slots it waits for
	Who     string        // as VoteView.Who

	client string // as VoteView.client
}

// LatchState is how far a latch is. Of a barrier, Count is the number of its parties.
type LatchState struct {
	Round     uint64 // the latest
	Count     int    // of that round; 0: nobody has told it
	Arrived   int
	Remaining int // 0: it is open; 1 if nobody has told the count
	Open      bool
	Waiting   int           // clients in Await
	Life      time.Duration // until the latch ends, if nobody touches it
}

// Inspect asks every member what it knows about a lock, and changes nothing. If a member fails, its
// MemberView says why. Then Inspect asks who the clients are, of at most 64 (Config.Label). Inspect
// returns when ctx ends, and waits at most Config.MemberTimeout for the answers to each question.
//
// Errors: ErrClosed, ErrInput.
func (c *Client) Inspect(ctx context.Context, name string) (*Inspection, error) {
	if err := c.check(ctx, opInspect, name, c.cfg.TTL); err != nil {
		return nil, err
	}
	k := c.cfg.lockOf(name)
	out := &Inspection{Key: name, Kind: KindMutex}
	out.ask(ctx, c, &k, (*MemberView).read)
	for _, m := range out.Members {
		if slices.ContainsFunc(m.Votes, func(v VoteView) bool { return v.Reads }) {
			out.Kind = KindRead
		}
	}
	return out, nil
}

// ask has every member say what it knows of a lock, and then who the clients are.
func (in *Inspection) ask(ctx context.Context, c *Client, lock *script.Lock, read func(v *MemberView, r *member.Reply)) {
	in.key, in.Members = lock.Name, make([]MemberView, len(c.members))
	infos := c.Members()
	c.askAll(ctx, lock.Peek(nil), func(i int, r member.Reply, err error) {
		v := MemberView{Member: infos[i].Name, State: standingOf(c.stateOf(i, lock.Slot())), Err: err, Limit: in.Limit}
		if err == nil {
			read(&v, &r)
		}
		in.Members[i] = v
	})
	in.Holders = holders(in.Members, c.need)
	c.identify(ctx, in.told)
}

// holders are the owners that enough members name, of a semaphore for the same slots and in order of
// these. Else they are in the order in which the members name them.
func holders(members []MemberView, need int) []Holder {
	var all []Holder
	for _, m := range members {
		for _, v := range m.Votes {
			i := slices.IndexFunc(all, func(h Holder) bool {
				return h.owner == v.owner && slices.EqualFunc(h.Slots, v.Slots, func(x, y Slot) bool { return x.Number == y.Number })
			})
			if i < 0 {
				i = len(all)
				all = append(all, Holder{VoteView: v})
				all[i].Slots = slices.Clone(v.Slots)
			}
			h := &all[i]
			h.Votes++
			h.TTL, h.Token, h.Drawn = max(h.TTL, v.TTL), max(h.Token, v.Token), max(h.Drawn, v.Drawn)
			for k, s := range v.Slots {
				h.Slots[k].Token = max(h.Slots[k].Token, s.Token)
			}
		}
	}
	all = slices.DeleteFunc(all, func(h Holder) bool { return h.Votes < need })
	slices.SortStableFunc(all, func(x, y Holder) int {
		if len(x.Slots) == 0 || len(y.Slots) == 0 {
			return 0
		}
		return x.Slots[0].Number - y.Slots[0].Number
	})
	return all
}

// read takes what the member replied to a Peek.
func (v *MemberView) read(r *member.Reply) {
	seen, ok := script.ReadView(r)
	switch {
	case !ok:
		v.Err = errReply
		return
	case seen.Foreign:
		v.Err = &member.ReplyError{Kind: member.KindForeign, Text: "FOREIGN no ttl"}
		return
	}
	v.Counter = uint64(seen.Counter)
	if seen.Owner != "" {
		v.Votes = []VoteView{{Owner: shown(seen.Owner), TTL: seen.TTL, Token: uint64(seen.Token), owner: seen.Owner, client: seen.Client}}
	}
	for _, r := range seen.Readers {
		if r.TTL <= 0 { // its time is over; the member forgets it with the next that comes or goes
			continue
		}
		v.Votes = append(v.Votes, VoteView{Owner: shown(r.Owner), TTL: r.TTL, Token: uint64(seen.Token), Reads: true, Drawn: uint64(seen.Drawn), owner: r.Owner, client: r.Client})
	}
	for _, w := range seen.Queue {
		v.Queue = append(v.Queue, Waiter{Owner: shown(w.Owner), Waiting: w.Waiting, Live: w.Live, Reads: w.Reads, client: w.Client})
	}
}

// told gives each place that names a client, and where to note who it is.
func (in *Inspection) told(each func(client string, who *string)) {
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

// shown is what people see of a hash.
func shown(hash string) string { return hash[:min(6, len(hash))] }

// Owner returns the name under which Inspect shows the owner of this lease.
func (l *Lease) Owner() string {
	if l.none() {
		return ""
	}
	return shown(script.Hash([]byte(l.hold.owner)))
}

// ForceUnlock takes a lock from its holder at every member that it can reach. The next waiter gets
// the lock, as after an Unlock. It is for a person who knows that the holder is gone. If you have
// inspected the holder, use ForceUnlockSeen instead.
//
// If ForceUnlock reaches a majority, the result is final: no renewal gives the lock back. The
// context of the former holder ends at its next renewal, or when its validity ends, whichever comes
// first. Until then two holders believe in their leases, and only fencing tells them apart.
//
// Two things can surprise:
//
//   - A member that was reached restores no lease of this name for up to Config.MaxTTL, not even
//     one of a later holder.
//   - A holder that got the lock by waiting, less than Config.Entry ago, may still have an entry at
//     a member that did not vote for it. That member can serve the entry. ForceUnlockSeen removes
//     it.
//
// held reports whether a majority of the members had a holder. Errors:
//
//   - ErrNoQuorum: fewer than a majority answered. The members that answered have freed the lock.
//   - ErrForeignKey: the key is not a lock.
//   - ErrClosed, ErrInput.
func (c *Client) ForceUnlock(ctx context.Context, name string) (held bool, err error) {
	freed, err := c.force(ctx, c.cfg.lockOf(name), []string{""})
	return err == nil && freed >= c.need, err
}

// ForceUnlockSeen takes the lock, or the slots of a semaphore, only from the Holders of seen. Leave
// those out that are to keep what they have. Each member compares the holder in the step that takes
// the vote. So an owner that got the lock in the meantime keeps it, however late the request
// arrives. If there are no Holders, ForceUnlockSeen takes the votes of every owner that seen shows. Of
// a semaphore it takes all slots of an owner, wherever it has any, and its place in line.
//
// freed is the number of members that took a vote away, of one holder or of several readers. If
// freed is 0, the holder has changed and nothing was done. A Redisson thread that unlocks and
// locks again remains the same holder.
//
// seen may come from another client of the same deployment. Errors: as for ForceUnlock.
func (c *Client) ForceUnlockSeen(ctx context.Context, seen *Inspection) (freed int, err error) {
	switch {
	case seen == nil:
		return 0, badInput(opForceUnlock, "nil inspection: pass what Inspect returned")
	case seen.Kind == KindLatch:
		return 0, badInput(opForceUnlock, "nobody holds a latch")
	}
	name, err := c.cfg.own(cmp.Or(seen.key, c.cfg.keyOf(seen.Key)))
	if err != nil {
		return 0, badInput(opForceUnlock, "%v", err)
	}
	from := seen.Holders
	if len(from) == 0 {
		from = holders(seen.Members, 1)
	}
	lock := c.cfg.lockOf(name)
	if seen.Kind == KindSemaphore {
		if err := permitKind.within(&c.cfg); err != nil {
			return 0, badInput(opForceUnlock, "%v", err)
		}
		lock = script.Semaphore(c.cfg.keyOf(name))
	}
	owners := make([]string, len(from))
	for i, h := range from {
		if owners[i] = h.owner; h.owner == "" { // it would be taken from anybody
			return 0, badInput(opForceUnlock, "a holder that no inspection has shown")
		}
	}
	return c.force(ctx, lock, owners)
}

// What an operator asks for, as errors name it.
const (
	opInspect          = "inspect"
	opInspectSemaphore = "inspect semaphore"
	opInspectLatch     = "inspect latch"
	opForceUnlock      = "force unlock"
)

// force takes the lock from the owners with these hashes; "": from whoever holds it. freed is the number of members that took a
// vote away, of one owner or of several.
func (c *Client) force(ctx context.Context, lock script.Lock, owners []string) (freed int, err error) {
	name := c.cfg.nameOf(lock.Name)
	if err := c.check(ctx, opForceUnlock, name, c.cfg.TTL); err != nil {
		return 0, err
	}
	took := make([]bool, len(c.members))
	for _, owner := range owners {
		if oneErr := c.forceOne(ctx, lock, owner, took); err == nil { // the next one's is of the same members
			err = oneErr
		}
	}
	for _, t := range took {
		if t {
			freed++
		}
	}
	if freed > 0 {
		c.log.Warn("lock forced open", "key", logged(name), "members_freed", freed, "members_asked", len(c.members))
	}
	return freed, err
}

// forceOne takes the lock from one owner, as force does, and marks the members that took its vote.
func (c *Client) forceOne(ctx context.Context, lock script.Lock, owner string, took []bool) error {
	votes := make([]quorum.MemberVote, len(c.members))
	answered := 0
	c.askAll(ctx, lock.Force(nil, owner, c.cfg.MaxTTL), func(i int, r member.Reply, err error) {
		votes[i] = quorum.MemberVote{Member: c.members[i].Name(), Vote: quorum.No, Err: err}
		if err == nil {
			answered++
			if votes[i].Vote = quorum.Yes; r.Int == 1 {
				took[i] = true
			}
		}
	})
	if answered < c.need {
		kind := reasonOf(votes, c.need)
		name := c.cfg.nameOf(lock.Name)
		return c.orClosed(opForceUnlock, name, &QuorumError{
			Failure: quorum.Failure{Op: opForceUnlock, Key: name, Need: c.need, Votes: votes},
			kind:    kind, cause: ctx.Err(),
		})
	}
	return nil
}

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
	out, stored := &Inspection{Key: name, Kind: KindSemaphore, Limit: -1}, int64(0)
	out.ask(ctx, c, &lock, func(v *MemberView, r *member.Reply) { stored = max(stored, v.readPermits(r)) })
	if _, n, set := script.LimitOf(stored); set {
		out.Limit = n
	}
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

// InspectLatch asks every member what it knows of a latch, and changes nothing. If no member has one, it
// asks for the barrier of the name: Arrived says how many parties have come; of a process that died, an
// arrival may be counted here until the next party comes. If a member fails, its MemberView says why. It waits at most Config.MemberTimeout for each answer, and for a page
// of arrivals. Errors: ErrClosed, ErrInput.
func (c *Client) InspectLatch(ctx context.Context, name string) (*Inspection, error) {
	l := c.Latch(name, 0)
	if err := l.check(ctx, opInspectLatch); err != nil {
		return nil, err
	}
	r := latchesOf.of(c).use(c, roundName{name: name}, l.terms.life)
	defer latchesOf.of(c).leave(r)
	out := &Inspection{Key: name, key: r.wire.Name, Kind: KindLatch, Members: make([]MemberView, len(c.members))}
	infos := c.Members()
	pages := make([]latchPages, len(c.members))
	each(len(pages), func(i int) { pages[i] = r.readOne(ctx, i, r.wire.Read) })
	last := int64(-1)
	if !slices.ContainsFunc(pages, func(p latchPages) bool { return p.err == nil && p.state.Round >= 0 }) {
		barrier := script.BarrierOf(r.wire.Name)
		each(len(pages), func(i int) {
			if p := &pages[i]; p.err == nil {
				*p = r.readOne(ctx, i, barrier.Read)
				p.state.Sum, p.watches = int64(len(p.arrivals)), len(p.arrivals)
				if p.state.Open {
					p.watches = 0
				}
			}
		})
	}
	for i, p := range pages {
		v := MemberView{Member: infos[i].Name, State: standingOf(c.stateOf(i, r.wire.Slot())), Err: p.err}
		if p.err == nil && p.state.Round >= 0 {
			last = max(last, p.state.Round)
			v.Latch = &LatchState{
				Round: uint64(p.state.Round), Count: int(p.state.Count), Arrived: int(p.state.Sum), Open: p.state.Open, Waiting: p.watches, Life: p.life,
			}
			v.Latch.Remaining = missing(p.state.Open, v.Latch.Count, v.Latch.Arrived)
		}
		out.Members[i] = v
	}
	if last < 0 {
		return out, nil
	}
	seen, all := latch.New(len(pages), latch.Terms{Round: last, Need: c.need}), &LatchState{Round: uint64(last)}
	for i, p := range pages {
		if p.err == nil {
			seen.Join(p.state, p.arrivals)
		}
		if one := out.Members[i].Latch; one != nil && one.Round == all.Round {
			all.Count, all.Arrived = max(all.Count, one.Count), max(all.Arrived, one.Arrived)
			all.Waiting, all.Life = max(all.Waiting, one.Waiting), max(all.Life, one.Life)
		}
	}
	all.Open, all.Remaining = seen.Open(), int(min(seen.Remaining(), mostCount))
	all.Arrived = max(all.Arrived, all.Count-all.Remaining)
	out.Latch = all
	return out, nil
}

// missing is how many arrivals one member lacks.
func missing(open bool, count, arrived int) int {
	switch {
	case open:
		return 0
	case count == 0:
		return 1
	}
	return max(0, count-arrived)
}
