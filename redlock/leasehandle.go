package redlock

import (
	"fmt"
)

func noLease(op string) error { return fmt.Errorf("redlock: %s: nil lease: %w", op, ErrNotHeld) }

// Key returns the name of the lock.
func (l *Lease) Key() string {
	if l.none() {
		return ""
	}
	return l.key
}

// Token returns the fencing token: greater than that of every earlier lease of this name. Give it
// to the storage with each write, and let the storage refuse a lower one than it has seen (package
// fence).
func (l *Lease) Token() uint64 {
	if l.none() {
		return 0
	}
	return l.token
}

// Done returns a channel that is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }
