package redlock

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/redlock/internal/permit"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// kind has the rules of one kind of lock. There is one table for each, and the engine asks the
// table: it never asks which kind it has.
type kind struct {
	name Kind

	// lock makes the keys and the calls of a lock: package script has them as a table. The scripts
	// say what excludes what, the table also how a lease is renewed, and which calls a batch
	// carries.
	lock func(name string) script.Lock
	// rules say what a split comes to, and who succeeds.
	rules *wait.Rules
	// strict is the same lock, taken in strict order; nil: it is so already, or there is none.
	strict *kind
	// width is how many callers of one client ask the members for one name at a time: at least 1.
	width int
	// space sets the names of the kind apart from those of the mutex in what a client keeps by name;
	// "": they are the same locks.
	space string
	// format is that of the handoffs. Each kind but the mutex has one above 1: see handoffWire.
	format int
	// together says that leases of the kind are held at the same time. Whoever holds one cannot get
	// a lease of another kind of that name: ErrUpgrade.
	together bool
	// weaker is the kind that a downgrade makes of a lease; nil: there is none.
	weaker *kind

	hooks
}

// hooks are what a kind does at points of the engine. A kind embeds plain, and has those of its own.
type hooks interface {
	// shared makes a lock of the kind in the dialect that Redisson shares, if there is one.
	shared(name string) (l script.Lock, ok bool)
	// fits explains why no lock of the kind has such terms.
	fits(t *terms) error
	// handedOver reads what a handoff says besides; nil: it is none of the kind.
	handedOver(permits string, slots int) extra
	// obtain gets a lock for a caller whose owner has none.
	obtain(c *Client, ctx, in context.Context, w want) (*Lease, result, error)
	// held is told of each lease that an attempt has made.
	held(l *lease)
	// word is told each number above 0 that a member says of a lease in a renewal that was sent at that time. It is a yes.
	word(l *lease, member int, word int64, sent time.Time)
	// renewed is told of a lease that a majority have just renewed, on the goroutine that has read
	// the deciding answer.
	renewed(l *lease)
	// behind is told when a member says that another owner waits behind a vote of the hold.
	behind(h *hold)
	// regained is told of a vote that a member has given back, which the lease has wished for.
	regained(h *hold, member int)
	// told is told of a limit that a member has stored.
	told(h *hold, stored int64)
	// mend brings members into step whose votes are not those of the lease. Nobody waits for it.
	mend(h *hold, to memberset.Set, token int64, now time.Time)
	// ending is told before the release of a hold is submitted to those members. late is that of the release.
	ending(h *hold, to memberset.Set, late bool)
	// left is told when the release of a hold has been submitted.
	left(h *hold)
}

// plain are the hooks of a kind that needs none.
type plain struct{}

func (plain) shared(string) (l script.Lock, ok bool) { return l, false }

func (plain) fits(*terms) error { return nil }

func (plain) handedOver(permits string, _ int) extra {
	if _, some := permit.Parse(permits); some {
		return nil
	}
	return noExtra{}
}

func (plain) held(*lease) {}

func (plain) word(*lease, int, int64, time.Time) {}

func (plain) renewed(*lease) {}

func (plain) behind(*hold) {}

func (plain) regained(*hold, int) {}

func (plain) told(*hold, int64) {}

func (plain) mend(h *hold, to memberset.Set, token int64, now time.Time) {
	h.raise(to, token, now, true).Free()
}

func (plain) ending(*hold, memberset.Set, bool) {}

func (plain) left(*hold) {}

// extra is what the terms of a kind have besides.
type extra interface {
	// wide is how many callers of one client ask the members for one name at a time, in place of the width of the kind.
	wide(width int) int
	// asks adds to a lock what its calls say besides.
	asks(l script.Lock) script.Lock
	// bounds adds to what a ballot is to know.
	bounds(b *wait.Terms)
	// has is what a lease has that was handed off, and with returns the extra of one that has it.
	has() permit.List
	with(held permit.List) extra
	// slots is how many there are.
	slots() int
}

// noExtra is that of kinds whose terms have nothing besides.
type noExtra struct{}

func (noExtra) wide(width int) int { return width }

func (noExtra) asks(l script.Lock) script.Lock { return l }

func (noExtra) bounds(*wait.Terms) {}

func (noExtra) has() permit.List { return nil }

func (noExtra) with(permit.List) extra { return noExtra{} }

func (noExtra) slots() int { return 0 }

// kinds are all that there are.
var kinds []*kind

// register adds one.
func register(k *kind) *kind {
	kinds = append(kinds, k)
	return k
}

// kindOf finds a kind by its name; nil: there is none of that name.
func kindOf(name Kind) *kind {
	if i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name }); i >= 0 {
		return kinds[i]
	}
	return nil
}

// within explains why a configuration does not have the kind.
func (k *kind) within(c *Config) error {
	if c.Interop {
		if _, shares := k.shared(""); !shares {
			return fmt.Errorf("with Config.Interop there are mutexes only: other kinds are not Redisson's")
		}
	}
	return nil
}

// of is the lock of a name as some terms ask for it, in the dialect of a configuration.
func (k *kind) of(name string, c *Config, t *terms) script.Lock {
	key := c.keyOf(name)
	if c.Interop {
		if l, ok := k.shared(key); ok {
			return l
		}
	}
	return t.more().asks(k.lock(key))
}

// line is the name of the line in which callers of a lock stand.
func (k *kind) line(name string) string {
	if k.space != "" {
		return k.space + name
	}
	return name
}

// want is what a caller asks for.
type want struct {
	op    string // as errors name it
	name  string
	terms *terms
	try   bool // without waiting
}

// result is a grant and how it was obtained.
type result struct {
	wait.Grant
	waited bool
	met    bool // a call that does not wait was in the way of others, as they were in its way
}

// terms are what a lock asks for.
type terms struct {
	kind    *kind
	ttl     time.Duration
	renew   bool
	unfit   string // an option that the kind does not have; "": none
	maxHold time.Duration
	as      string
	extra   extra // of the kind
}

// more is what the terms have besides; nil terms are those of no caller.
func (t *terms) more() extra {
	if t == nil || t.extra == nil {
		return noExtra{}
	}
	return t.extra
}

// with returns the terms of a lease that has what is held.
func (t terms) with(held permit.List) terms {
	t.extra = t.more().with(held)
	return t
}

// check explains why no lock can have these terms.
func (t *terms) check(c *Config) error {
	if t.unfit != "" {
		return fmt.Errorf("a lock of kind %s has no option %s", t.kind.name, t.unfit)
	}
	if err := duration.Check(t.maxHold); err != nil {
		return fmt.Errorf("MaxHold %w", err)
	}
	if err := t.kind.fits(t); err != nil {
		return err
	}
	return t.kind.within(c)
}
