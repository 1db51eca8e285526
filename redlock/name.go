package redlock

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ownNames begins the name of each key that the library derives from the name of a lock, or has for a member. No lock has
// such a name, so no user can take a derived key for a lock. docs/protocol.md lists the words that follow it.
const ownNames = "redquorum:"

// theirCounters begins the names of the counters that Redisson keeps beside its locks.
const theirCounters = "redisson_lock_token:"

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

const longestLabel = 128 // bytes

// checkLabel explains why no client can have this label.
func checkLabel(label string) error {
	switch {
	case len(label) > longestLabel:
		return fmt.Errorf("the label has %d bytes, but at most %d are allowed", len(label), longestLabel)
	case !utf8.ValidString(label) || strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }):
		return errors.New("the label has a character that cannot be printed")
	}
	return nil
}
