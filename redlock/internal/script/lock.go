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

// Lock is one lock at a member: the names of its keys, all in one slot, and the calls about it.
// Each call is encoded into a buffer. It replaces the bytes there, and may move them. With a nil
// buffer, it uses new memory.
//
// The locks of a slot share their counter (the bucket), so that no key is left behind per name.
type Lock struct {
	Name   string
	Bucket int64 // number of the slot

	how    *dialect
	beside *beside // what else the lock has where Redisson shares it, or nil
	asks   *Asked  // of a semaphore, what its calls say besides; else nil
}

// dialect is how the calls of a kind of lock are written.
type dialect struct {
	acquire, wait, waitFreed, release, yield, claim, raise, rejoin, limit, peek, force call

	adopt     call
	downgrade call    // without a script: there is none
	served    call    // release with a hint of ReadersFirst; without a script: release takes such a hint
	extend    *Script // lengthens leases, several in one call: see Renewal
	watched   bool    // extend has the queue of each lock, too
	places    *places // of a semaphore; nil: the first key of each call is the name of the lock
}

// call is one call about a lock. Its keys are the name of the lock, the shared ones, and those of reach; its arguments the
// bucket, those that the call is made with, what is fixed, and those of reach.
type call struct {
	script *Script
	shared uint8 // how many: the counters, or the marker as well
	reach  reach
	args   int    // that the call is made with
	ticket bool   // the last of those is the owner's ticket
	fixed  string // "" for none
	item   *resp.Item
}

// reach says which keys of its own a call needs besides the name of the lock.
type reach uint8

const (
	nameAlone  reach = iota
	withQueue        // queue and waiters
	withRecord       // these, and the record of an election
	withBeside       // queue and waiters, and the keys of beside, with its channels as the last arguments
)

var exclusive = dialect{
	acquire:   call{script: &Acquire, shared: 2, args: 2, item: &acquireItem},
	wait:      call{script: &Wait, shared: 2, reach: withQueue, args: 3},
	waitFreed: call{script: &Wait, shared: 2, reach: withQueue, args: 3},
	release:   call{script: &Release, shared: 2, reach: withQueue, args: 2, item: &releaseItem},
	yield:     call{script: &Yield, shared: 2, reach: withQueue, args: 4},
	raise:     call{script: &Raise, shared: 1, args: 2},
	rejoin:    call{script: &Rejoin, shared: 2, reach: withQueue, args: 3},
	peek:      call{script: &Peek, shared: 2, reach: withQueue, args: 1},
	force:     call{script: &Force, shared: 2, reach: withQueue, args: 2},
	adopt:     adopting,
	served:    rwRelease,
	extend:    &Extend,
}

// adopting is the same for all that share the lock's key.
var adopting = call{script: &Adopt, shared: 2, reach: withRecord, args: 3}

// Exclusive returns the lock of a name that has one holder.
func Exclusive(name string) Lock {
	return Lock{Name: name, Bucket: int64(slot.Of(name)), how: &exclusive}
}

const (
	queuePrefix   = "redquorum:q" // zset: waiting owner -> server time of its registration
	waitersPrefix = "redquorum:w" // hash: waiting owner -> its deadline and TTL; and, of a lock taken by force, until when nobody is re-joined
)

// Slot returns the hash slot of all keys of the lock.
func (l *Lock) Slot() uint16 { return uint16(l.Bucket) }

// begin encodes a call up to the bucket.
func (l *Lock) begin(buf *[]byte, c *call) frame {
	keys, args := 1+int(c.shared), 1+c.args
	if c.fixed != "" {
		args++
	}
	switch c.reach {
	case withQueue:
		keys += 2
	case withRecord:
		keys += 3
	case withBeside:
		keys, args = keys+2+len(l.beside.keys), args+len(l.beside.channels)
	}
	f := begin(buf, c.script, keys, args)
	queue, waiters := queuePrefix, waitersPrefix
	if p := l.how.places; p == nil {
		f.text(l.Name)
	} else {
		f.sibling(p.permits, l.Name)
		queue, waiters = p.queue, p.waiters
	}
	f.share(c.shared)
	if c.reach != nameAlone {
		var space [128]byte // as in sibling, and once for both
		f.b = resp.AppendBulk(f.b, slot.AppendSibling(space[:0], queue, l.Name))
		f.marks.Lean = int32(len(f.b))
		f.b = resp.AppendBulk(f.b, slot.AppendSibling(space[:0], waiters, l.Name))
	}
	if c.reach == withRecord {
		f.sibling(recordPrefix, l.Name)
	}
	if c.reach == withBeside {
		for _, key := range l.beside.keys {
			f.text(key)
		}
	}
	f.keysEnd()
	f.number(l.Bucket)
	f.marks.Owner = int32(len(f.b))
	return f
}

// end encodes the rest of a call.
func (l *Lock) end(f *frame, c *call) member.Command {
	if c.fixed != "" {
		f.text(c.fixed)
	}
	if c.reach == withBeside {
		for _, channel := range l.beside.channels {
			f.text(channel)
		}
	}
	return f.command(l.Slot(), c.item)
}

// Acquire asks for the lock once. The reply is an Answer.
func (l *Lock) Acquire(buf *[]byte, owner string, ttl time.Duration) member.Command {
	f := l.begin(buf, &l.how.acquire)
	f.text(owner)
	f.marks.Last = int32(len(f.b))
	f.millis(ttl)
	if l.asks != nil {
		l.asks.encode(&f, owner, 0, false)
	}
	return l.end(&f, &l.how.acquire)
}

// Wait asks for the lock. If another owner has it, Wait registers this owner for the duration
// entry. ticket is the owner's place in a lock that serves strictly in order, 0 before one is
// agreed; other locks have none. The reply is an Answer.
func (l *Lock) Wait(buf *[]byte, owner string, ttl, entry time.Duration, ticket int64) member.Command {
	return l.waiting(buf, &l.how.wait, owner, ttl, entry, ticket)
}

// WaitFreed is Wait after Redisson has said that the lock is free. See Channels.
func (l *Lock) WaitFreed(buf *[]byte, owner string, ttl, entry time.Duration, ticket int64) member.Command {
	return l.waiting(buf, &l.how.waitFreed, owner, ttl, entry, ticket)
}

func (l *Lock) waiting(buf *[]byte, c *call, owner string, ttl, entry time.Duration, ticket int64) member.Command {
	f := l.begin(buf, c)
	f.text(owner)
	f.millis(ttl)
	f.millis(entry)
	switch {
	case c.ticket:
		f.number(ticket)
	case l.asks != nil:
		l.asks.encode(&f, owner, ticket, true)
	}
	cmd := l.end(&f, c)
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
	f := l.begin(buf, c)
	f.text(owner)
	f.marks.Last = int32(len(f.b))
	f.text(hint)
	if l.asks != nil {
		f.slots(l.asks.Held)
	}
	cmd := l.end(&f, c)
	cmd.Unlooked = true
	return cmd
}

// Yield gives up a vote with this token, unless its owner comes first among all waiters. The reply
// is an Answer. ticket is that of Wait, or the owner's place at this member; 0: neither is known.
func (l *Lock) Yield(buf *[]byte, owner string, token int64, ttl, entry time.Duration, ticket int64) member.Command {
	f := l.begin(buf, &l.how.yield)
	f.text(owner)
	f.number(token)
	f.millis(ttl)
	f.millis(entry)
	if l.how.yield.ticket {
		f.number(ticket)
	}
	return l.end(&f, &l.how.yield)
}

// Raise lifts the counter to a token if the owner still has the vote. The reply is an Answer.
func (l *Lock) Raise(buf *[]byte, owner string, token int64) member.Command {
	f := l.begin(buf, &l.how.raise)
	f.text(owner)
	if l.asks != nil {
		f.permits(l.asks.Held)
	} else {
		f.number(token)
	}
	return l.end(&f, &l.how.raise)
}

// Rejoin gives the lease with this token a further vote. The reply is an Answer.
func (l *Lock) Rejoin(buf *[]byte, owner string, ttl time.Duration, token int64) member.Command {
	f := l.begin(buf, &l.how.rejoin)
	f.text(owner)
	f.millis(ttl)
	if l.asks != nil {
		f.permits(l.asks.Held)
		f.millis(l.asks.Wish)
	} else {
		f.number(token)
	}
	return l.end(&f, &l.how.rejoin)
}

// Adopt makes the vote of the owner former the vote of owner, and lengthens it. The reply is that of a Renewal with one lease.
func (l *Lock) Adopt(buf *[]byte, owner, former string, ttl time.Duration) member.Command {
	f := l.begin(buf, &l.how.adopt)
	f.text(owner)
	f.millis(ttl)
	f.text(former)
	if l.asks != nil {
		f.slots(l.asks.Held)
	}
	return l.end(&f, &l.how.adopt)
}

// Extend lengthens one lease. The reply is that of a Renewal with one lease.
func (l *Lock) Extend(buf *[]byte, owner string, ttl time.Duration) member.Command {
	r := l.Renew(buf, 1)
	r.Lock(l.Name)
	r.Lease(owner, ttl, l.Held())
	return r.Command(l.Slot())
}

// Extends returns the script that lengthens a lease of the lock. All leases of one Renewal have the
// same script.
func (l *Lock) Extends() *Script { return l.how.extend }

// ExtendedBy returns the lock with another script that lengthens its leases. Only tests use it: they
// need two kinds of lock.
func (l Lock) ExtendedBy(s *Script) Lock {
	how := *l.how
	how.extend, l.how = s, &how
	return l
}

// Renewal lengthens several leases in one call, all by the same script. It has the name of each lock
// first, then the owner and TTL of each. The reply is an array with one number per lease:
//
//   - above 0: the lease is lengthened. Of readers, Closed and NotDowngraded say more.
//   - 0: the owner does not have the lock.
//   - below 0: the key is not a lock.
type Renewal struct {
	f   frame
	how *dialect
}

// Renew begins a Renewal of the given number of leases by the script that lengthens those of the
// lock, see Extends.
func (l *Lock) Renew(buf *[]byte, leases int) Renewal {
	keys := leases
	if l.how.watched {
		keys *= 2
	}
	each := 2
	if l.how.places != nil {
		each = 3
	}
	return Renewal{begin(buf, l.how.extend, keys, each*leases), l.how}
}

// RenewalBytes returns how long the names are that a Renewal has of the lock.
func (l *Lock) RenewalBytes() int {
	if l.how.watched {
		return 2 * len(l.Name)
	}
	return len(l.Name)
}

// Lock writes the keys of a lock.
func (r *Renewal) Lock(name string) {
	if p := r.how.places; p != nil {
		r.f.sibling(p.permits, name)
		return
	}
	r.f.text(name)
	if r.how.watched {
		r.f.sibling(queuePrefix, name)
	}
}

// Lease writes an owner, and the TTL that its key must have at least. Of a semaphore, it writes the
// slots of the lease too; other locks have no permits.
func (r *Renewal) Lease(owner string, ttl time.Duration, permits permit.List) {
	if r.f.marks.Args == 0 {
		r.f.share(0)
		r.f.keysEnd()
	}
	r.f.text(owner)
	r.f.millis(ttl)
	if r.how.places != nil {
		r.f.slots(permits)
	}
}

// Command ends the call. If a member spreads slots over several servers, all locks must be in this
// slot.
func (r *Renewal) Command(slot uint16) member.Command { return r.f.command(slot, nil) }

// OwnerOf returns the name of an owner: the client, and a number that no other attempt of the
// client has.
func OwnerOf(client string, n uint64) string {
	var space [64]byte
	b := append(space[:0], client...)
	b = append(b, ':')
	return string(strconv.AppendUint(b, n, 10))
}
