// Package entry has the locks that the suite compares: one adapter per file, all behind one
// interface that adds as little as possible. An adapter uses its library as the library's
// documentation shows it. If a variant departs from the defaults, its Note says so.
//
// To add one, write a file with an init that calls register. Then run the conformance test
// (entry_test.go), which every registered entry must pass.
package entry

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Kind says which servers an entry talks to.
type Kind string

// These are the kinds of servers.
const (
	Redis     Kind = "redis"
	Postgres  Kind = "postgres"
	Etcd      Kind = "etcd"
	ZooKeeper Kind = "zookeeper"
)

// These are the shapes of work that an entry may be fit for.
const (
	Uncontended = "uncontended" // W1, W2, W4, W5, W8: no other caller wants the name
	Shared      = "shared"      // W3: contenders of one client
	Separate    = "separate"    // W3d, burst: contenders with a client each
	InOrder     = "in order"    // W3f: as Separate, and served in the order in which they came
	ReadWrite   = "read-write"  // W9, W9w, W9s: readers and writers
	Together    = "together"    // W9r, W9s: readers at the same time
	Sets        = "sets"        // W10: several names, all or none
	Room        = "room"        // W11: permits of a semaphore that has some left
	Permits     = "permits"     // W12: contenders with a client each for the permits of a semaphore
	Arrivals    = "arrivals"    // W13: a latch
	Leading     = "leading"     // W14: an election
	Returning   = "returning"   // W16: a member comes back without data
	Renewed     = "renewed"     // W6: leases that are held
	Memory      = "memory"      // W7
	Again       = "again"       // W20: one name again and again; whoever is fit for Uncontended is fit for that
)

// Env is what an entry is opened with.
type Env struct {
	Members []string      // addresses, host:port
	Lease   time.Duration // of every lock
	Shape   string        // the work that comes; only floors prepare for it
	Renew   bool          // locks are held for long, and must be renewed until they are released
	Slow    bool          // the client runs a hundred times as slowly as usual
}

// readers tells whether there are readers.
func (e *Env) readers() bool { return e.Shape == ReadWrite || e.Shape == Together }

// Locker is one client: a process would have one of them.
type Locker interface {
	// Acquire waits until it has the lock or ctx ends.
	Acquire(ctx context.Context, name string) (Held, error)
	// Close ends its connections.
	Close()
}

// ReadLocker is a Locker for ReadWrite. Its Acquire is for a writer.
type ReadLocker interface {
	// AcquireShared waits until it has the lock beside other readers, or ctx ends.
	AcquireShared(ctx context.Context, name string) (Held, error)
}

// SetLocker is a Locker for Sets.
type SetLocker interface {
	// AcquireAll waits until it has the locks of all names, or ctx ends. names are not kept.
	AcquireAll(ctx context.Context, names []string) (Held, error)
}

// PermitLocker is a Locker for Room and Permits.
type PermitLocker interface {
	// AcquirePermit waits until it has one of the limit permits of the name, or ctx ends.
	AcquirePermit(ctx context.Context, name string, limit int) (Held, error)
}

// Filler is a PermitLocker that takes several permits of a name at once better than one by one.
type Filler interface {
	// Fill takes n of the limit permits of the name, which are free.
	Fill(ctx context.Context, name string, limit, n int) (Held, error)
}

// Latcher is a Locker for Arrivals.
type Latcher interface {
	// Latch returns the latch of a name that nobody has used. It opens after count arrivals.
	Latch(ctx context.Context, name string, count int) (Latch, error)
}

// Latch is a countdown latch.
type Latch interface {
	// Arrive arrives once.
	Arrive(ctx context.Context) error
	// Await returns when the latch is open, or ctx ends.
	Await(ctx context.Context) error
}

// Elector is a Locker for Leading.
type Elector interface {
	// Campaign waits until it leads, and has proclaimed the value, or ctx ends. Release resigns.
	Campaign(ctx context.Context, name, value string) (Held, error)
	// Observe calls told with the value of each leader that it hears of, until ctx ends.
	Observe(ctx context.Context, name string, told func(value string)) error
}

// Voter is a Locker for Returning. The lease of its Env is the longest that it asks for.
type Voter interface {
	// Try acquires a lock that is free, or fails at once.
	Try(ctx context.Context, name string) (Held, error)
	// Voting tells how many members vote.
	Voting() int
	// Lost tells how often the client has lost a member other than the first.
	Lost() int64
}

// Cleaner is a Locker that keeps something of a name by design. Clean deletes that, when nobody uses the
// name any more.
type Cleaner interface {
	Clean(ctx context.Context, name string) error
}

// Held is a held lock.
type Held interface {
	Release(ctx context.Context) error
}

// Slotted is a Held of a PermitLocker that has a number: no two have the same at the same time.
type Slotted interface {
	Slot() int
}

// Extender is a Held that its user must renew. The suite does so every third of the lease.
type Extender interface {
	Extend(ctx context.Context) error
}

// RenewCounter is a Locker that renews by itself and counts how often.
type RenewCounter interface {
	Renewals() int64
}

// RoundCounter is a Locker that knows how many acquisitions took a second round.
type RoundCounter interface {
	Rounds() (acquired, second int64)
}

// WaiterCounter is a Locker that can tell how many waiters a server knows for a name.
type WaiterCounter interface {
	Registered(ctx context.Context, name string) (int, error)
}

// Spec describes an entry.
type Spec struct {
	Name    string
	Note    string
	Kind    Kind
	Module  string   // the module whose version is recorded; the suite's own if empty
	Members []int    // numbers of members that it can work with; nil: any
	Shapes  []string // work that it is fit for
	Alone   []string // work of Shapes that it is fit for with one member only
	Floor   bool     // no library: the least that any library has to do
	Level   bool     // its members' token counters are brought into step before it begins, as each slot's first use does
	Leaves  string   // why a minority of members may keep a key until its lease ends; empty: never
	Inner   []string // commands that only run inside its scripts, as INFO commandstats names them
	Child   *Child   // another runtime; nil: Open
	Open    func(ctx context.Context, env Env) (Locker, error)
}

// Child is an entry in another language, run as a process that speaks the protocol of package work.
type Child struct {
	Dir     string // below children/
	Command func(dir string) []string
	Ready   func(dir string) error // nil if it can run; the error says how to set it up
}

var all []*Spec

func register(s Spec) { all = append(all, &s) }

// All returns the entries: floors first, then redquorum, then the others by name.
func All() []*Spec {
	out := slices.Clone(all)
	rank := func(s *Spec) string {
		switch {
		case s.Name == "floor":
			return "0"
		case s.Floor:
			return "1" + s.Name
		case strings.HasPrefix(s.Name, "redquorum"):
			return "2" + s.Name
		case s.Kind == Redis:
			return "3" + s.Name
		}
		return "4" + s.Name
	}
	slices.SortFunc(out, func(a, b *Spec) int { return strings.Compare(rank(a), rank(b)) })
	return out
}

// Find returns the entry of that name, or an error that lists the names.
func Find(name string) (*Spec, error) {
	var names []string
	for _, s := range All() {
		if s.Name == name {
			return s, nil
		}
		names = append(names, s.Name)
	}
	return nil, fmt.Errorf("no entry %q; there are %s", name, strings.Join(names, ", "))
}

// Fits reports whether the entry takes part in such work with that many members.
func (s *Spec) Fits(members int, shape string) bool {
	if s.Members != nil && !slices.Contains(s.Members, members) || members > 1 && slices.Contains(s.Alone, shape) {
		return false
	}
	return slices.Contains(s.Shapes, shape) || shape == Again && slices.Contains(s.Shapes, Uncontended)
}

// Version returns the version of the entry's library in this binary.
func (s *Spec) Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || s.Module == "" {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path == s.Module {
			if m.Replace != nil && m.Replace.Version != "" {
				return m.Replace.Version
			}
			return m.Version
		}
	}
	return ""
}
