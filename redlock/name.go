package redlock

import (
	"fmt"
	"strings"
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
	case c.Interop && strings.HasPrefix(name, theirCounters):
		return fmt.Errorf("names that begin with %s are counters of Redisson's locks (WithInterop)", theirCounters)
	case len(name) > c.MaxName:
		return fmt.Errorf("the name has %d bytes, but at most %d are allowed (Config.MaxName)", len(name), c.MaxName)
	}
	return nil
}
