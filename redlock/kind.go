package redlock

import (
	"context"
	"errors"
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
	// shared says that Redisson has such locks: see Config.Interop.
	shared bool
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
	// passes says that callers of one client pass on what they hold.
	passes bool
	// lapses says that a lease of a fixed TTL may end by itself: nobody is told that it was lost.
	lapses bool
	// own says that obtain is a hook of its own. The engine does not ask the plain one: what a hook is given must be a copy.
	own bool
	// extra is what terms of the kind have besides if a caller says nothing.
	extra extra

	hooks
}

// hooks are what a kind does at points of the engine. A kind embeds plain, and has those of its own.
type hooks interface {
	// obtain gets a lock for a caller whose owner has none.
	obtain(c *Client, ctx, in context.Context, w want) (*Lease, result, error)
	// held is told of each lease that an attempt has made.
	held(l *lease)
	// heard is told what a member says of a hold besides.
	heard(h *hold, r report)
	// renewed is told of a lease that a majority have just renewed, on the goroutine that has read
	// the deciding answer.
	renewed(l *lease)
	// mend brings members into step whose votes are not those of the lease. Nobody waits for it.
	mend(h *hold, to memberset.Set, now time.Time)
	// ending is told before the release of a hold is submitted to those members. late is that of the release.
	ending(h *hold, to memberset.Set, late bool)
	// left is told when the release of a hold has been submitted.
	left(h *hold)
}

// report is what a member says of a hold besides: one of these.
type report struct {
	member   int
	waiter   string    // another owner that waits behind a vote of the hold; "": nobody
	readers  bool      // readers wait there
	limit    int64     // that the member has stored; 0: none
	regained bool      // it has given back a vote that the lease has wished for
	renewal  int64     // the number above 0 that it says of the lease in a renewal, which is a yes; 0: it is of no renewal
	sent     time.Time // when that renewal was sent
}

// plain are the hooks of a kind that needs none.
type plain struct{}

func (plain) held(*lease) {}

func (plain) heard(*hold, report) {}

func (plain) renewed(*lease) {}

func (plain) mend(h *hold, to memberset.Set, now time.Time) {
	h.raise(to, now, true).Free()
}

func (plain) ending(*hold, memberset.Set, bool) {}

func (plain) left(*hold) {}

// followed is called when a member that has a vote of the hold has named a waiter, or nobody.
func (h *hold) followed(waiter string) {
	if len(waiter) > 1 {
		h.terms.kind.heard(h, report{waiter: waiter})
	}
}

// extra is what the terms of a kind have besides.
type extra interface {
	// fits explains why no lock of the kind has such terms.
	fits(t *terms) error
	// wide is how many callers of one client ask the members for one name at a time, in place of the width of the kind.
	wide(width int) int
	// asks adds to a lock what its calls say besides.
	asks(l script.Lock) script.Lock
	// bounds adds to what a ballot is to know.
	bounds(b wait.Terms) wait.Terms
	// has is what a lease has that was handed off, and with returns the extra of one that has it, of so many slots.
	has() permit.List
	with(held permit.List, slots int) extra
	// slots is how many there are.
	slots() int
}

// noExtra is that of kinds whose terms have nothing besides.
type noExtra struct{}

func (noExtra) fits(*terms) error { return nil }

func (noExtra) wide(width int) int { return width }

func (noExtra) asks(l script.Lock) script.Lock { return l }

func (noExtra) bounds(b wait.Terms) wait.Terms { return b }

func (noExtra) has() permit.List { return nil }

func (noExtra) with(permit.List, int) extra { return noExtra{} }

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
	if c.Interop && !k.shared {
		return fmt.Errorf("with Config.Interop there are mutexes only: other kinds are not Redisson's")
	}
	return nil
}

// of is the lock of a name as some terms ask for it, in the dialect of a configuration.
func (k *kind) of(name string, c *Config, t *terms) script.Lock {
	key := c.keyOf(name)
	if c.Interop && k.shared {
		return script.ExclusiveWithRedisson(key)
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
	set   bool // with others, all or none
	turn  turn
}

// turn says whether a caller has its turn in the line of its client.
type turn uint8

const (
	noTurn turn = iota
	hasTurn
	leftLine // with what it wanted
)

// passes reports whether others of the client may pass on to the caller what they have, and the caller to them.
func (w *want) passes(c *Config) bool {
	t := w.terms
	return t.kind.passes && t.renew && t.as == "" && !w.set && !c.Interop
}

// result is a grant and how it was obtained.
type result struct {
	wait.Grant
	waited bool
	met    bool // a call that does not wait was in the way of others, as they were in its way
	passed bool // by another caller of the client
}

// terms are what a lock asks for.
type terms struct {
	kind    *kind
	ttl     time.Duration
	renew   bool
	keeps   bool          // what is unlocked is kept
	keep    time.Duration // for so long
	unfit   string        // an option that the kind does not have; "": none
	maxHold time.Duration
	as      string
	extra   extra // of the kind
}

// ballot is what waiting rests on.
func (t *terms) ballot(c *Config) wait.Terms {
	return t.more().bounds(wait.Terms{Rules: t.kind.rules, Timeout: c.MemberTimeout, GiveUp: c.NoQuorumAfter, Shared: c.Interop})
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
	t.extra = t.more().with(held, t.more().slots())
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
	if err := t.more().fits(t); err != nil {
		return err
	}
	if err := t.fitsKeep(c); err != nil {
		return err
	}
	return t.kind.within(c)
}

// fitsKeep explains why nothing with these terms can be kept.
func (t *terms) fitsKeep(c *Config) error {
	why := ""
	switch {
	case !t.keeps:
		return nil
	case !t.kind.passes && !t.kind.together && t.kind.weaker == nil:
		return fmt.Errorf("a lock of kind %s has no option Keep", t.kind.name)
	case t.keep <= 0:
		why = "must be positive"
	case !t.renew:
		why = "is of leases that renew themselves, not of a fixed TTL"
	case t.keep > t.ttl:
		why = fmt.Sprintf("must not be longer than the TTL of %v", t.ttl)
	case t.kind.passes && t.as != "":
		return errors.New("a lock for an owner (As) is not kept: leave Keep or As away")
	case c.Interop:
		why = "is not for locks that Redisson shares (Config.Interop)"
	default:
		return nil
	}
	return fmt.Errorf("Keep is %v: it %s", t.keep, why)
}
