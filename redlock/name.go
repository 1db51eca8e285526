package redlock

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/redquorum/redquorum/internal/printable"
)

// ownNames begins the name of each key that the library derives from the name of a lock, or has for a member. No lock has
// such a name, so no user can take a derived key for a lock. docs/protocol.md lists the words that follow it.
const ownNames = "redquorum:"

// theirCounters begins the names of the counters that Redisson keeps beside its locks.
const theirCounters = "redisson_lock_token:"

// checkName explains why no lock can have this name.
func checkName(name string, c Config) error {
	switch {
	case name == "":
		return fmt.Errorf("the name of a lock must not be empty")
	case strings.HasPrefix(name, ownNames):
		return fmt.Errorf("names that begin with %s are the library's own keys", ownNames)
	case c.Interop && strings.HasPrefix(c.keyOf(name), theirCounters):
		return fmt.Errorf("names that begin with %s are counters of Redisson's locks (Config.Interop)", theirCounters)
	case len(name) > longestName:
		return fmt.Errorf("the name has %d bytes, but at most %d are allowed", len(name), longestName)
	}
	return nil
}

// Terms of Config.Prefix.
const (
	longestPrefix = 128
	separators    = ":/._-"
)

// checkPrefix explains why no environment can have this prefix. A brace could begin or end a hash tag, and would decide
// the slots of all names. A prefix that ends with a separator begins no other that was meant to be another word: the
// locks of "dev" would lie among those of "dev2".
func checkPrefix(prefix string, c Config) error {
	if prefix == "" {
		return nil
	}
	odd := func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(separators, r))
	}
	quoted := printable.Quote(prefix)
	switch last := prefix[len(prefix)-1:]; {
	case len(prefix) > longestPrefix:
		return fmt.Errorf("the prefix has %d bytes, but at most %d are allowed", len(prefix), longestPrefix)
	case strings.ContainsFunc(prefix, odd):
		return fmt.Errorf("the prefix is %s, must have letters and digits of ASCII and %s only", quoted, separators)
	case !strings.Contains(separators, last):
		return fmt.Errorf("the prefix is %s, must end with one of %s: use %s", quoted, separators, printable.Quote(prefix+":"))
	case strings.HasPrefix(prefix, ownNames):
		return fmt.Errorf("the prefix is %s, but names that begin with %s are the library's own keys", quoted, ownNames)
	case c.Interop && strings.HasPrefix(prefix, theirCounters):
		return fmt.Errorf("the prefix is %s, but names that begin with %s are counters of Redisson's locks (Config.Interop)", quoted, theirCounters)
	}
	return nil
}

// keyOf is the key that a lock of this name has at the members. All other keys of the lock are siblings of that one.
func (c *Config) keyOf(name string) string { return c.Prefix + name }

// nameOf is the name of the lock with this key, which keyOf made.
func (c *Config) nameOf(key string) string { return key[len(c.Prefix):] }

// own is nameOf for a key that another client may have made.
func (c *Config) own(key string) (name string, err error) {
	name, ok := strings.CutPrefix(key, c.Prefix)
	if !ok {
		return "", fmt.Errorf("the lock %s is not under Config.Prefix, %s", printable.Quote(key), printable.Quote(c.Prefix))
	}
	return name, nil
}

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
