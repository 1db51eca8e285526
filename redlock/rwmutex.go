package redlock

import (
	"context"

	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// RWMutex is a lock of one name that either one writer holds or any number of readers. It is the
// same lock as the Mutex of that name, so Lock and Mutex.Lock exclude each other, and each excludes
// readers. Like a Mutex it holds no state of its own.
//
// The order is phase-fair. While a writer waits, the members let no new reader in. The release of a
// writer lets in all readers that wait, in one step, also past other writers that wait. The release
// of the last reader serves a writer. So neither side starves.
//
// Use RWMutex for every writer of a name that has readers. A Mutex excludes the readers, and its
// release lets them in if they have told its owner that they wait. If what they told was lost, they
// tell again at their next heartbeat, after a third of Config.Entry at most.
//
// With Config.Interop, every call returns ErrInput.
type RWMutex struct{ write, read Mutex }

// RWMutex returns the lock with readers of a name. Names and options are those of Mutex, but
// for Fair, with which every call returns ErrInput. The options apply to writers and readers.
func (c *Client) RWMutex(name string, opts ...LockOption) *RWMutex {
	return &RWMutex{write: *c.mutex(&writeKind, name, opts), read: *c.mutex(&readKind, name, opts)}
}

// Lock waits until it gets the lock for a writer. It does what Mutex.Lock does, and fails as that
// does. If the owner (As) holds a read lease of this name, or if ctx ends with one, Lock
// returns ErrUpgrade at once, because it would wait for itself.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.write.Lock(ctx) }

// TryLock asks once for a writer, as Mutex.TryLock does.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.write.TryLock(ctx) }

// Do runs fn while a writer holds the lock, as Mutex.Do does. If fn downgrades the lease, its context
// ends at that moment, with ErrDowngraded. Do then returns fn's error alone, and the read lease that fn
// got goes on after it: the client renews it until somebody unlocks it, or for its MaxHold.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	return m.write.Do(ctx, fn)
}

// TryDo runs fn as Do does if it gets the lock at once, and says whether fn ran: see Mutex.TryDo.
func (m *RWMutex) TryDo(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (ran bool, err error) {
	return m.write.TryDo(ctx, fn)
}

// RLock waits until it gets the lock for a reader. It returns a lease like that of a writer, with a
// token that is greater than that of every earlier writer, and smaller than that of every later
// one, as far as Lease.Token says. Leases of readers may have equal tokens. A storage that keeps two numbers can refuse the
// late write of a writer as soon as one later reader has been there: see package fence.
//
// The readers of one client that renew their leases, with one name and one TTL, share what they
// hold. While one of them holds it, RLock asks the members only to find out whether a writer waits:
// once in a third of Config.Entry. If one does, the next readers wait behind it. Each reader has its
// own Lease, which ends alone by its Unlock or its MaxHold, and the last one frees the lock. If what
// they hold is lost, all of them end.
//
// If the owner (As) holds the write lease, RLock enters that one.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) {
	return m.read.acquire(ctx, opReadLock, false)
}

// TryRLock asks once for a reader. It fails with ErrHeld also if other readers have the lock and a
// writer waits.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.read.acquire(ctx, opTryReadLock, true)
}

// RDo runs fn while a reader holds the lock, as Do does for a writer.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) error {
	return m.read.during(ctx, opReadLock, false, fn)
}

// TryRDo runs fn as RDo does if it gets the lock at once, and says whether fn ran: see Mutex.TryDo.
func (m *RWMutex) TryRDo(ctx context.Context, fn func(ctx context.Context, lease *Lease) error) (ran bool, err error) {
	return m.read.duringTry(ctx, opTryReadLock, fn)
}

// What readers ask for.
const (
	opReadLock    = "read lock"
	opTryReadLock = "try read lock"
)

// writeKind is the kind of RWMutex.Lock. A mutex of the same name is the same lock to the members.
var (
	writeKind = kind{
		name: KindWrite, lock: script.Writing, rules: &writing, width: 1, format: 2, weaker: &readKind, extra: noExtra{}, hooks: plain{},
	}
	writing = wait.Writing(script.ReadersFirst)
)

// readKind is the kind of RWMutex.RLock. Members let all readers in that are there, so a crowd of
// this client's does not crowd out others; readWidth bounds what the members keep for it.
var readKind = kind{
	name: KindRead, lock: script.Reading, rules: &wait.Reading, width: readWidth, format: 2, together: true,
	extra: noExtra{}, own: true, hooks: readHooks{},
}

var _, _ = register(&writeKind), register(&readKind)

// readHooks have the readers of a client share what they hold.
type readHooks struct{ plain }

func (readHooks) obtain(c *Client, ctx, in context.Context, w want) (*Lease, result, error) {
	return c.share(ctx, in, &w)
}

func (readHooks) heard(h *hold, r report) {
	switch {
	case r.regained: // a vote that was given up by a writer: as a writer's
		h.downgradeAt(r.member)
	case r.waiter != "":
		readBehind(h)
	case r.renewal != 0:
		readWord(h, r.member, r.renewal, r.sent)
	}
}

const readWidth = 64

// lockOf is the lock of a name, whoever has it, as Inspect and ForceUnlock ask for it.
func (c *Config) lockOf(name string) script.Lock {
	if c.Interop {
		return exclusive.of(name, c, new(terms))
	}
	return writeKind.of(name, c, new(terms))
}
