package script

import (
	"strconv"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// These are arguments that the calls of the exclusive lock do not have.
const (
	argTicket word = argsOfKinds + iota // of a fair lock

	// Of a lock that Redisson shares: whether a wait comes because its channel said that the lock is free, and the
	// channels.
	argNotFreed
	argFreed
	argTheirs
	argOurs

	// Of a semaphore: the slots that the lease has, with tokens and without; for how long a rejoin wishes for what is
	// another's; the slot to try first by an acquire and by a wait; those that a claim asks for; the limit, and the one
	// that is known; and how many permits are asked for by any call and by a claim.
	argPermits
	argSlots
	argWish
	argFirstOnce
	argFirst
	argClaimed
	argLimit
	argKnown
	argWanted
	argClaims
)

// otherArg writes one of them.
func (l *Lock) otherArg(f *frame, w word, s *said) {
	var space [128]byte
	switch w {
	case argTicket:
		f.number(s.ticket)
	case argNotFreed:
		f.text("0")
	case argFreed:
		f.text("1")
	case argTheirs:
		f.text(l.beside.channels[0])
	case argOurs:
		f.text(l.beside.channels[1])
	case argPermits:
		f.b = resp.AppendBulk(f.b, s.had.Append(space[:0]))
	case argSlots:
		f.b = resp.AppendBulk(f.b, s.had.AppendSlots(space[:0]))
	case argWish:
		f.millis(l.asks.Wish)
	case argFirstOnce:
		f.number(int64(l.asks.first(s.owner, 0, false)))
	case argFirst:
		f.number(int64(l.asks.first(s.owner, s.ticket, true)))
	case argClaimed:
		f.b = resp.AppendBulk(f.b, appendSlots(space[:0], s.want, l.asks.first(s.owner, 0, true)))
	case argLimit:
		f.number(int64(l.asks.Limit))
	case argKnown:
		f.number(l.asks.Known)
	case argWanted:
		f.number(int64(l.asks.N))
	case argClaims:
		f.number(int64(s.n))
	}
}

// appendSlots writes what a claim asks for: the slots of want, or none and the lane of its owner.
func appendSlots(b []byte, want []int, lane int) []byte {
	if len(want) == 0 {
		return strconv.AppendInt(append(b, '-'), int64(lane), 10)
	}
	for i, n := range want {
		if i > 0 {
			b = append(b, ' ')
		}
		b = strconv.AppendInt(b, int64(n), 10)
	}
	return b
}

// Held returns what the lease of a semaphore has, as Asking said.
func (l *Lock) Held() permit.List {
	if l.asks == nil {
		return nil
	}
	return l.asks.Held
}

// Extends returns the script that lengthens a lease of the lock. All leases of one Renewal have the
// same script.
func (l *Lock) Extends() *Script { return l.how.extend.script }

// RenewalBytes returns how long the names are that a Renewal has of the lock.
func (l *Lock) RenewalBytes() int { return len(l.how.extend.keys) * len(l.Name) }

// Extend lengthens one lease, as a Renewal with one lease does. Only tests use it.
func (l *Lock) Extend(buf *[]byte, owner string, ttl time.Duration) member.Command {
	r := l.Renew(buf, 1)
	r.Lock(l.Name)
	r.Lease(owner, ttl, l.Held())
	return r.Command(l.Slot())
}

// ExtendedBy returns the lock with another script that lengthens its leases. Only tests use it: they
// need two kinds of lock.
func (l Lock) ExtendedBy(s *Script) Lock {
	how := *l.how
	how.extend.script, l.how = s, &how
	return l
}
