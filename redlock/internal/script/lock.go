package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/slot"
)

// Lock is one lock at a member: the names of its keys, all in one slot, and the calls about it. Each call replaces the bytes in a
// buffer, and may move them; nil: it uses new memory. The locks of a slot share their counter (the bucket).
type Lock struct {
	Name   string
	Bucket int64 // number of the slot

	how    *dialect
	beside *beside // the channels of a lock that Redisson shares, or nil
	asks   *Asked  // of a semaphore, what its calls say besides; else nil
}

// dialect is how the calls of a kind of lock are written. A call without a script is none.
type dialect struct {
	acquire, wait, waitFreed, release, yield, claim, raise, reserve, rejoin, adopt, limit, peek, force, downgrade call

	served call // release with a hint of ReadersFirst; none: release takes such a hint
	extend call // lengthens leases: its keys are those of each lock, its arguments those of each lease
}

// call is one call about a lock: its script, and what that is called with, in the order of KEYS and ARGV. The shared
// keys stand behind the first key, and the bucket before the arguments.
type call struct {
	script *Script
	shared uint8    // how many: the counters, or the marker as well
	keys   []string // prefixes of the name of the lock; "": the lock's own key
	args   []word
	item   *resp.Item
}

// asking is a call of most scripts.
func asking(s *Script, keys []string, args ...word) call {
	return call{script: s, shared: 2, keys: keys, args: args}
}

// word is one argument of a call.
type word uint8

const (
	argOwner word = iota
	argOther      // the hint of a release, the former owner of an adoption
	argTTL
	argEntry
	argToken
	argMost     // the greatest token that an owner may give to leases
	argsOfKinds // from here on, what the calls of other kinds have: see words.go
)

const (
	queuePrefix = "redquorum:q" // zset: waiting owner -> server time of its registration
	// hash: waiting owner -> its deadline and TTL; and, of a lock taken by force, until when nobody is re-joined
	waitersPrefix = "redquorum:w"
)

var (
	alone  = []string{""}
	queued = []string{"", queuePrefix, waitersPrefix}
	// recorded: and the record of an election
	recorded = []string{"", queuePrefix, waitersPrefix, recordPrefix}
)

var exclusive = dialect{
	acquire: call{script: &Acquire, shared: 2, keys: alone, args: []word{argOwner, argTTL}, item: &acquireItem},
	wait:    asking(&Wait, queued, argOwner, argTTL, argEntry),
	release: call{script: &Release, shared: 2, keys: queued, args: []word{argOwner, argOther}, item: &releaseItem},
	yield:   asking(&Yield, queued, argOwner, argToken, argTTL, argEntry),
	raise:   call{script: &Raise, shared: 1, keys: alone, args: []word{argOwner, argToken}},
	reserve: call{script: &Reserve, shared: 1, keys: []string{"", waitersPrefix}, args: []word{argOwner, argToken, argMost}},
	rejoin:  asking(&Rejoin, queued, argOwner, argTTL, argToken, argMost),
	adopt:   asking(&Adopt, recorded, argOwner, argTTL, argOther),
	peek:    asking(&Peek, queued, argOther),
	force:   asking(&Force, queued, argOwner, argTTL),
	served:  rwRelease,
	extend:  asking(&Extend, alone, argOwner, argTTL),
}

// Exclusive returns the lock of a name that has one holder.
func Exclusive(name string) Lock {
	return Lock{Name: name, Bucket: int64(slot.Of(name)), how: &exclusive}
}

// Slot returns the hash slot of all keys of the lock.
func (l *Lock) Slot() uint16 { return uint16(l.Bucket) }

// said is what a call says.
type said struct {
	owner, other  string
	ttl, entry    time.Duration
	token, ticket int64
	most          int64
	had           permit.List // of a semaphore, what the lease has
	want          []int       // of a claim, with n
	n             int
}

// say encodes a call.
func (l *Lock) say(buf *[]byte, c *call, s *said) member.Command {
	f := begin(buf, c.script, len(c.keys)+int(c.shared), 1+len(c.args))
	f.key(c.keys[0], l.Name)
	f.share(c.shared)
	for _, prefix := range c.keys[1:] {
		f.marks.Lean = int32(len(f.b))
		f.key(prefix, l.Name)
	}
	f.keysEnd()
	f.number(l.Bucket)
	f.marks.Owner = int32(len(f.b))
	for _, w := range c.args {
		f.marks.Last = int32(len(f.b))
		l.arg(&f, w, s)
	}
	return f.command(l.Slot(), c.item)
}

// arg writes one argument.
func (l *Lock) arg(f *frame, w word, s *said) {
	switch w {
	case argOwner:
		f.text(s.owner)
	case argOther:
		f.text(s.other)
	case argTTL:
		f.millis(s.ttl)
	case argEntry:
		f.millis(s.entry)
	case argToken:
		f.number(s.token)
	case argMost:
		f.number(s.most)
	default:
		l.otherArg(f, w, s)
	}
}

// Acquire asks for the lock once. The reply is an Answer.
func (l *Lock) Acquire(buf *[]byte, owner string, ttl time.Duration) member.Command {
	return l.say(buf, &l.how.acquire, &said{owner: owner, ttl: ttl})
}

// Wait asks for the lock. If another owner has it, Wait registers this owner for the duration entry. ticket is the owner's place in
// a lock that serves strictly in order, 0 before one is agreed. The reply is an Answer.
func (l *Lock) Wait(buf *[]byte, owner string, ttl, entry time.Duration, ticket int64) member.Command {
	cmd := l.say(buf, &l.how.wait, &said{owner: owner, ttl: ttl, entry: entry, ticket: ticket})
	cmd.Unlooked = l.how.wait.script == &Wait // every plain member with another marker than the tag refuses that
	return cmd
}

// Release gives up the owner's vote and its entry in the queue. hint is the waiter that the member
// should prefer, or "", or what ReadersFirst makes of either. The reply is an Answer.
func (l *Lock) Release(buf *[]byte, owner, hint string) member.Command {
	c := &l.how.release
	if l.how.served.script != nil && strings.HasPrefix(hint, readersFirst) {
		c = &l.how.served
	}
	cmd := l.say(buf, c, &said{owner: owner, other: hint, had: l.Held()})
	cmd.Unlooked = true // it gives no vote
	return cmd
}

// Yield gives up a vote with this token, unless its owner comes first among all waiters. The reply
// is an Answer. ticket is that of Wait, or the owner's place at this member; 0: neither is known.
func (l *Lock) Yield(buf *[]byte, owner string, token int64, ttl, entry time.Duration, ticket int64) member.Command {
	return l.say(buf, &l.how.yield, &said{owner: owner, token: token, ttl: ttl, entry: entry, ticket: ticket})
}

// Raise lifts the counter to a token if the owner still has the vote. The reply is an Answer.
func (l *Lock) Raise(buf *[]byte, owner string, token int64) member.Command {
	return l.say(buf, &l.how.raise, &said{owner: owner, token: token, had: l.Held()})
}

// Reserve lifts the counter to most, up to which the owner may then give tokens itself, if it still has the vote with no token above
// that of its hold. The reply is an Answer: 1 if nobody waits, 2 if somebody may, 3 if nothing is reserved, 0 without the vote.
func (l *Lock) Reserve(buf *[]byte, owner string, token, most int64) member.Command {
	return l.say(buf, &l.how.reserve, &said{owner: owner, token: token, most: most})
}

// Rejoin gives the lease with this token a further vote, where the owner may give tokens up to most. The reply is an Answer.
func (l *Lock) Rejoin(buf *[]byte, owner string, ttl time.Duration, token, most int64) member.Command {
	return l.say(buf, &l.how.rejoin, &said{owner: owner, ttl: ttl, token: token, most: most, had: l.Held()})
}

// Adopt makes the vote of the owner former the vote of owner, and lengthens it. The reply is that of a Renewal with
// one lease.
func (l *Lock) Adopt(buf *[]byte, owner, former string, ttl time.Duration) member.Command {
	return l.say(buf, &l.how.adopt, &said{owner: owner, ttl: ttl, other: former, had: l.Held()})
}

// Renewal lengthens several leases in one call, all by the same script. It has the name of each lock
// first, then the owner and TTL of each. The reply is an array with one number per lease:
//
//   - above 0: the lease is lengthened. Of readers, Closed and NotDowngraded say more.
//   - 0: the owner does not have the lock.
//   - below 0: the key is not a lock.
type Renewal struct {
	f frame
	c *call
}

// Renew begins a Renewal of the given number of leases by the script that lengthens those of the
// lock, see Extends.
func (l *Lock) Renew(buf *[]byte, leases int) Renewal {
	c := &l.how.extend
	return Renewal{begin(buf, c.script, len(c.keys)*leases, len(c.args)*leases), c}
}

// Lock writes the keys of a lock.
func (r *Renewal) Lock(name string) {
	for _, prefix := range r.c.keys {
		r.f.key(prefix, name)
	}
}

// Lease writes an owner, the TTL that its key must have at least, and, of a semaphore, the slots of the lease.
func (r *Renewal) Lease(owner string, ttl time.Duration, permits permit.List) {
	if r.f.marks.Args == 0 {
		r.f.share(0)
		r.f.keysEnd()
	}
	s := said{owner: owner, ttl: ttl, had: permits}
	for _, w := range r.c.args {
		(*Lock)(nil).arg(&r.f, w, &s)
	}
}

// Command ends the call. If a member spreads slots over several servers, all locks must be in this slot.
func (r *Renewal) Command(slot uint16) member.Command { return r.f.command(slot, nil) }

// OwnerOf returns the name of an owner: the client, and a number that no other attempt of the client has.
func OwnerOf(client string, n uint64) string {
	var space [64]byte
	b := append(space[:0], client...)
	b = append(b, ':')
	return string(strconv.AppendUint(b, n, 10))
}
