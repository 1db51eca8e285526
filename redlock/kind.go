package redlock

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// Kind names a kind of lock. Handoffs, inspections, events and metrics carry it, because one client
// may use locks of several kinds. A client that reads an unknown kind refuses it.
type Kind string

const (
	// KindMutex is the exclusive lock of Client.Mutex: at most one lease of a name is valid at a
	// time.
	KindMutex Kind = "mutex"
	// KindWrite and KindRead are the two sides of Client.RWMutex: one lease of a writer, or any
	// number of leases of readers.
	KindWrite Kind = "write"
	KindRead  Kind = "read"
	// KindElection is the lock of KindMutex whose holder leads: see Client.Election.
	KindElection Kind = "election"
	// KindSemaphore is that of Client.Semaphore: as many leases as there are slots, each with some of
	// its own.
	KindSemaphore Kind = "semaphore"
)

// KindFair is the lock of KindMutex, taken in strict order: see Fair.
const KindFair Kind = "fair"

// KindLatch is the countdown latch of Client.Latch, which nobody holds. It is in events, and in no
// handoff.
const KindLatch Kind = "latch"

// LockName identifies a lock within a deployment.
type LockName struct {
	Kind Kind
	Key  string
}

// kind has the rules of one kind of lock. There is one table for each, and the engine asks the
// table: it never asks which kind it has.
type kind struct {
	name Kind

	// lock makes the keys and the calls of a lock: package script has them as a table. The scripts
	// say what excludes what, the table also how a lease is renewed, and which calls a batch
	// carries.
	lock func(name string) script.Lock
	// shared makes the same lock in the dialect that Redisson shares; nil: there is none.
	shared func(name string) script.Lock
	// rules say what a split comes to, and who succeeds.
	rules *wait.Rules
	// strict is the same lock, taken in strict order; nil: it is so already, or there is none.
	strict *kind
	// width is how many callers of one client ask the members for one name at a time: at least 1.
	width int
	// wide is the width if the terms of a caller say it; nil: width.
	wide func(t *terms) int
	// space sets the names of the kind apart from those of the mutex in what a client keeps by name;
	// "": they are the same locks.
	space string
	// fits explains why no lock of the kind has such terms; nil: each has.
	fits func(t *terms) error
	// asks adds to a lock what its calls say besides; nil: nothing.
	asks func(l script.Lock, t *terms, c *Config) script.Lock
	// format is that of the handoffs. Each kind but the mutex has one above 1: see handoffWire.
	format int
	// together says that leases of the kind are held at the same time. Whoever holds one cannot get
	// a lease of another kind of that name: ErrUpgrade.
	together bool
	// weaker is the kind that a downgrade makes of a lease; nil: there is none.
	weaker *kind
	// obtain gets a lock for a caller whose owner has none. nil: as Client.compete does.
	obtain func(c *Client, ctx, in context.Context, w want) (*Lease, result, error)
	// word is told each number above 0 that a member says of a lease in a renewal that was sent at
	// that time. nil: such a number is a yes, and says no more.
	word func(l *lease, member int, word int64, sent time.Time)
	// renewed is told of a lease that a majority have just renewed, on the goroutine that has read
	// the deciding answer. nil: nobody wants to know.
	renewed func(l *lease)
	// ending is told before the release of a hold is submitted to those members. late is that of the
	// release. nil: nobody wants to know.
	ending func(h *hold, to quorum.Set, late bool)
	// behind is told when a member says that another owner waits behind a vote of the hold. nil:
	// nobody wants to know.
	behind func(h *hold)
	// held is told of each lease that an attempt has made. nil: nobody wants to know.
	held func(l *lease)
	// mend brings members into step whose votes are not those of the lease. nil: a raise does.
	mend func(h *hold, to quorum.Set)
	// told is told of a limit that a member has stored. nil: members of such a lock have none.
	told func(h *hold, stored int64)
	// left is told when the release of a hold has been submitted. nil: nobody wants to know.
	left func(h *hold)
}

// exclusive is the kind of Client.Mutex.
var exclusive = kind{
	name: KindMutex, lock: script.Exclusive, shared: script.ExclusiveWithRedisson,
	rules: &besideReaders, strict: &fair, width: 1, format: 1,
}

// The rules of kinds without readers, as they are if others have readers of the same name.
var (
	besideReaders     = wait.Beside(wait.Exclusive, script.ReadersFirst)
	fairBesideReaders = wait.Beside(wait.Fair, script.ReadersFirst)
)

// fair is the kind of Client.Mutex with Fair. The members order all callers, so each of them asks.
var fair = kind{
	name: KindFair, lock: script.Fair, rules: &fairBesideReaders, width: math.MaxInt, format: 2,
}

// kinds are all that there are.
var kinds = []*kind{&exclusive, &fair, &writeKind, &readKind, &electionKind, &permitKind}

// kindOf finds a kind by its name; nil: there is none of that name.
func kindOf(name Kind) *kind {
	if i := slices.IndexFunc(kinds, func(k *kind) bool { return k.name == name }); i >= 0 {
		return kinds[i]
	}
	return nil
}

// within explains why a configuration does not have the kind.
func (k *kind) within(c *Config) error {
	if c.Interop && k.shared == nil {
		return fmt.Errorf("with Config.Interop there are mutexes only: other kinds are not Redisson's")
	}
	return nil
}

// of is the lock of a name as some terms ask for it, in the dialect of a configuration.
func (k *kind) of(name string, c *Config, t *terms) script.Lock {
	key := c.keyOf(name)
	if c.Interop && k.shared != nil {
		return k.shared(key)
	}
	if k.asks != nil {
		return k.asks(k.lock(key), t, c)
	}
	return k.lock(key)
}

// line is the name of the line in which callers of a lock stand.
func (k *kind) line(name string) string {
	if k.space != "" {
		return k.space + name
	}
	return name
}
