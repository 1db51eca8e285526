package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// Inspection is what the members say of one lock, each at a moment of its own: good for looking, never
// for deciding. It tells owners by a hash of six hexadecimal digits, because an owner's name is the authority to
// release.
type Inspection struct {
	Key     string
	Kind    Kind     // the kind of lock that was looked for
	Holders []Holder // the owners that a majority of the members name; of a mutex one at most
	Members []MemberView
}

// Holder is an owner that a majority of the members name.
type Holder struct {
	Owner string // hash of its name
	Token uint64 // the greatest token of its votes; its lease's own is this or smaller
	Votes int    // members that name it

	owner string // as VoteView.owner
}

// MemberView is what one member says.
type MemberView struct {
	Member  string
	Err     error      // it could not be asked, or the key is no lock; nothing else is set then
	State   string     // as in MemberInfo
	Votes   []VoteView // that it has given; of a mutex one at most
	Counter uint64     // the last token given out in this lock's bucket
	Queue   []Waiter   // in order of arrival
}

// VoteView is one vote that a member has given.
type VoteView struct {
	Owner string // hash of its owner's name
	TTL   time.Duration
	Token uint64

	owner string // the SHA-1 of the owner's name, of which Owner is the beginning
}

// Waiter is one standing request at one member.
type Waiter struct {
	Owner   string
	Waiting time.Duration // since it registered here
	Live    bool          // its entry has not run out: it would be served
}

// Inspect asks every member what it knows of a lock. It changes nothing. What is wrong with a member
// stands in its view. ctx bounds it, and Config.MemberTimeout each member. Errors: ErrClosed, ErrInput.
func (c *Client) Inspect(ctx context.Context, name string) (*Inspection, error) {
	if err := c.Mutex(name).check("inspect", ctx); err != nil {
		return nil, err
	}
	k := c.cfg.lockOf(name)
	out := &Inspection{Key: name, Kind: KindMutex, Members: make([]MemberView, len(c.members))}
	infos := c.Members()
	c.askAll(ctx, k.Peek(nil), func(i int, r member.Reply, err error) {
		v := MemberView{Member: infos[i].Name, State: standingOf(c.stateOf(i, k.Slot())), Err: err}
		if err == nil {
			v.read(&r)
		}
		out.Members[i] = v
	})
	out.Holders = holders(out.Members, c.need)
	return out, nil
}

// holders are the owners that enough members name, in the order in which the members name them.
func holders(members []MemberView, need int) []Holder {
	var all []Holder
	for _, m := range members {
		for _, v := range m.Votes {
			i := slices.IndexFunc(all, func(h Holder) bool { return h.owner == v.owner })
			if i < 0 {
				i = len(all)
				all = append(all, Holder{Owner: v.Owner, owner: v.owner})
			}
			all[i].Votes++
			all[i].Token = max(all[i].Token, v.Token)
		}
	}
	return slices.DeleteFunc(all, func(h Holder) bool { return h.Votes < need })
}

// askAll puts one command to every member at once and reports each answer from one goroutine at a time.
func (c *Client) askAll(ctx context.Context, cmd member.Command, report func(i int, r member.Reply, err error)) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.MemberTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i, m := range c.members {
		wg.Go(func() {
			r, err := member.Ask(ctx, m, cmd)
			mu.Lock()
			defer mu.Unlock()
			report(i, r, err)
		})
	}
	wg.Wait()
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
		v.Votes = []VoteView{{Owner: shown(seen.Owner), TTL: seen.TTL, Token: uint64(seen.Token), owner: seen.Owner}}
	}
	for _, w := range seen.Queue {
		v.Queue = append(v.Queue, Waiter{Owner: shown(w.Owner), Waiting: w.Waiting, Live: w.Live})
	}
}

// shown is what people see of a hash.
func shown(hash string) string { return hash[:min(6, len(hash))] }

// Hash is how Inspect names the owner of this lease.
func (l *Lease) Hash() string { return shown(script.Hash([]byte(l.a.owner))) }

// ForceUnlock takes a lock from whoever holds it, at every member that can be reached. The next waiter
// gets it, as after an Unlock. Where a majority was reached that is final: the holder's context ends at its next renewal, at
// the latest when its validity is over, and no renewal gives it the lock back. Until then two believe that they hold, and only
// fencing tells them apart. (A member that was reached takes no lease of the name back from a later holder either, until the
// longest lease could have ended: Config.MaxTTL. And a holder that got the lock by waiting, less than Config.Entry ago, may
// still stand in line at a member whose vote it has not, and be served there; ForceUnlockSeen takes its place away.) It is for
// a person who knows that the holder is gone; ForceUnlockSeen, for one who has looked at it.
//
// It returns whether anybody held it at a majority. Errors: ErrNoQuorum if fewer than a majority
// answered (what answered has been freed), ErrForeignKey, ErrInput.
func (c *Client) ForceUnlock(ctx context.Context, name string) (held bool, err error) {
	freed, err := c.force(ctx, name, "")
	return err == nil && freed >= c.need, err
}

// ForceUnlockSeen is ForceUnlock for the holders that seen shows, and for nobody else: each member compares,
// in the step that takes the vote, so that who got the lock meanwhile keeps it, however late the request
// arrives. Where no holder is shown, votes are taken from those who are shown to have one.
//
// It returns at how many members the lock was taken; 0: the holder has changed, and nothing was done.
// (A Redisson thread is the same holder when it has unlocked and locked again.) seen is of this client or of another one
// of the same deployment. Errors as of ForceUnlock.
func (c *Client) ForceUnlockSeen(ctx context.Context, seen *Inspection) (freed int, err error) {
	if seen == nil {
		return 0, badInput("force unlock", "nothing was seen: give it what Inspect returned")
	}
	from := seen.Holders
	if len(from) == 0 {
		from = holders(seen.Members, 1)
	}
	for _, h := range from {
		n, oneErr := c.force(ctx, seen.Key, h.owner)
		freed, err = freed+n, errors.Join(err, oneErr)
	}
	return freed, err
}

// force takes the lock from the owner with this hash; "": from whoever holds it.
func (c *Client) force(ctx context.Context, name, owner string) (freed int, err error) {
	if err := c.Mutex(name).check("force unlock", ctx); err != nil {
		return 0, err
	}
	k := c.cfg.lockOf(name)
	votes := make([]quorum.MemberVote, len(c.members))
	answered := 0
	c.askAll(ctx, k.Force(nil, owner, c.cfg.MaxTTL), func(i int, r member.Reply, err error) {
		votes[i] = quorum.MemberVote{Member: c.members[i].Name(), Vote: quorum.No, Err: err}
		if err == nil {
			answered++
			if votes[i].Vote = quorum.Yes; r.Int == 1 {
				freed++
			}
		}
	})
	if freed > 0 {
		c.log.Warn("redlock: lock forced open", "key", member.Quote(name), "members_freed", freed, "members_asked", len(c.members))
	}
	if answered < c.need {
		kind := reasonOf(votes, c.need)
		return freed, &QuorumError{
			Failure: quorum.Failure{Op: "force unlock", Key: name, Need: c.need, Votes: votes},
			kind:    kind, cause: ctx.Err(),
		}
	}
	return freed, nil
}
