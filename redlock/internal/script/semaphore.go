package script

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// The semaphore has numbered slots, each with one owner at a member. It shares no key with the lock of
// its name, only the slot: the permits take the place of the lock's key.
var semaphore = dialect{
	acquire: asking(&SemAcquire, seats, argOwner, argTTL, argFirstOnce, argLimit, argKnown, argWanted),
	wait:    asking(&SemWait, seats, argOwner, argTTL, argEntry, argFirst, argLimit, argKnown, argWanted),
	release: asking(&SemRelease, seats, argOwner, argOther, argSlots),
	claim:   asking(&SemClaim, seats, argOwner, argPermits, argClaimed, argTTL, argEntry, argLimit, argKnown, argClaims),
	raise:   call{script: &SemRaise, shared: 1, keys: seats[:1], args: []word{argOwner, argPermits}},
	rejoin:  asking(&SemRejoin, seats, argOwner, argTTL, argPermits, argWish),
	adopt:   asking(&SemAdopt, seats, argOwner, argTTL, argOther, argSlots),
	limit:   asking(&SemLimit, seats, argToken),
	peek:    asking(&SemPeek, seats, argOther),
	force:   asking(&SemForce, seats, argOwner, argTTL),
	extend:  asking(&SemExtend, seats[:1], argOwner, argTTL, argSlots),
}

var seats = []string{
	"redquorum:s1", // hash: slot -> owner, and owner -> its deadline and permits
	"redquorum:sq", // as the queue of a lock, one for all slots
	"redquorum:sw", // as the waiters of a lock; and which owner wishes for which slot
}

// Asked is what the calls about a semaphore say besides. Nobody changes it once a Lock has it.
type Asked struct {
	Want  int   // the slot to try first; below 0: one that depends on the owner
	Once  bool  // Want is for an acquire alone: who waits tries one that depends on the owner
	Limit int   // how many slots there are
	Known int64 // the stored limit that the client knows; 0: none
	N     int   // how many permits the owner wants

	Held permit.List   // what the lease has: for its release, raise, rejoin and extend
	Wish time.Duration // for how long a rejoin wishes for slots that are another's; 0: it does not
}

// Semaphore returns the semaphore of a name. Each of its calls needs an Asking.
func Semaphore(name string) Lock {
	l := Exclusive(name)
	l.how, l.asks = &semaphore, &Asked{Limit: 1, N: 1}
	return l
}

// Asking returns the semaphore with what its calls are to say.
func (l Lock) Asking(a *Asked) Lock {
	l.asks = a
	return l
}

// Holding returns the semaphore with what the lease of an owner has.
func (l Lock) Holding(p permit.List) Lock {
	a := *l.asks
	a.Held = p
	return l.Asking(&a)
}

// Wishing returns the semaphore whose rejoin wishes for that long. The rejoin of any other lock says nothing of that.
func (l Lock) Wishing(d time.Duration) Lock {
	if l.asks == nil {
		return l
	}
	a := *l.asks
	a.Wish = d
	return l.Asking(&a)
}

// Asks returns what Asking set; nil: this is no semaphore.
func (l *Lock) Asks() *Asked { return l.asks }

// Claim gives up the vote had, and asks for the slots of want alone; nil: for none, so that the
// owner goes back to its lane for the duration entry. A slot that is in both stays the owner's. If
// the member has given the owner something else than had, it only says what. An owner that is given
// nothing stands in the member's line, if it waits. The reply is an Answer.
func (l *Lock) Claim(buf *[]byte, owner string, had permit.List, want []int, ttl, entry time.Duration, waits bool) member.Command {
	n := 0
	if waits {
		n = l.asks.N
	}
	return l.say(buf, &l.how.claim, &said{owner: owner, ttl: ttl, entry: entry, had: had, want: want, n: n})
}

// first is the slot to try first. Waiters whose slots depend on their owners are spread over all
// slots, so each slot has about as many of them.
func (a *Asked) first(owner string, anew int64, waits bool) int {
	if a.Want >= 0 && anew == 0 && !(waits && a.Once) {
		return a.Want
	}
	sum := uint32(2166136261) // FNV-1a
	for i := range len(owner) {
		sum = (sum ^ uint32(owner[i])) * 16777619
	}
	return int((sum + uint32(anew)*2654435761) % uint32(a.Limit))
}

// StoredLimit is a limit that the members keep: the version goes before, so that of two limits the
// later one is the greater. Without a limit, NoLimit has the place of it.
func StoredLimit(version int64, limit int) int64 { return version<<limitBits | int64(limit) }

// LimitOf takes a StoredLimit apart. If set is false, the limit is that of each caller.
func LimitOf(stored int64) (version int64, limit int, set bool) {
	version, limit = stored>>limitBits, int(stored&NoLimit)
	return version, limit, version > 0 && limit != NoLimit
}

// NoLimit stands for no limit in a StoredLimit.
const NoLimit = 1<<limitBits - 1

// limitBits leave a version 40 bits: a member counts exactly up to 2^53.
const limitBits = 13

// Limit stores a StoredLimit at the member, unless it has a greater one; 0 stores nothing. The reply
// is an Answer, of which N is the one that the member has then.
func (l *Lock) Limit(buf *[]byte, stored int64) member.Command {
	return l.say(buf, &l.how.limit, &said{token: stored})
}

// Permits is what one member knows of a semaphore.
type Permits struct {
	Limit   int64 // the StoredLimit, 0 if there is none
	Holders []Holder
	Queue   []Waiter // in order of arrival
}

// Holder is an owner that has permits, or the vote, at a member.
type Holder struct {
	Owner   string        // its Hash
	Client  string        // its ClientHash
	TTL     time.Duration // until they end, above 0
	Permits permit.List   // of a semaphore
}

// Named is the same at all members that name the owner, with the same slots.
func (h *Holder) Named() string {
	name := h.Owner
	for _, p := range h.Permits {
		name += " " + strconv.Itoa(p.Slot)
	}
	return name
}

// ReadPermits decodes the reply to Peek of a semaphore. If the reply has another shape, ok is false.
func ReadPermits(r *member.Reply) (p Permits, ok bool) {
	e := r.Elems
	if len(e) != 4 || len(e[2].Elems)%2 != 0 || len(e[3].Elems)%3 != 0 {
		return Permits{}, false
	}
	now := e[0].Int
	p.Limit = number(e[1])
	for h := e[2].Elems; len(h) > 0; h = h[2:] {
		deadline, text, _ := strings.Cut(string(h[1].Str), " ")
		ms, err := strconv.ParseInt(deadline, 10, 64)
		one := Holder{Owner: Hash(h[0].Str), Client: ClientHash(h[0].Str), TTL: time.Duration(ms*1000-now) * time.Microsecond}
		if one.Permits, ok = permit.Parse(text); err != nil || !ok {
			return Permits{}, false
		}
		if one.TTL > 0 {
			p.Holders = append(p.Holders, one)
		}
	}
	slices.SortFunc(p.Holders, func(x, y Holder) int { return x.Permits[0].Slot - y.Permits[0].Slot })
	for w := e[3].Elems; len(w) > 0; w = w[3:] {
		entry := strings.Fields(string(w[2].Str)) // deadline ttl n want limit
		one := Waiter{Owner: Hash(w[0].Str), Client: ClientHash(w[0].Str), Waiting: time.Duration(now-number(w[1])) * time.Microsecond}
		if len(entry) == 5 {
			deadline, _ := strconv.ParseInt(entry[0], 10, 64)
			one.Live = deadline*1000 >= now
			one.Permits, _ = strconv.Atoi(entry[2])
		}
		p.Queue = append(p.Queue, one)
	}
	return p, true
}
