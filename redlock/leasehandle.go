package redlock

import (
	"context"
	"fmt"
	"time"
)

func noLease(op string) error { return fmt.Errorf("redlock: %s: nil lease: %w", op, ErrNotHeld) }

// Key returns the name of the lock.
func (l *Lease) Key() string {
	if l.none() {
		return ""
	}
	return l.key
}

// Token returns the fencing token. Leases that exclude each other have different tokens, and one that the members were asked for
// after another had begun has the greater token, whatever clocks do. While exclusion holds, tokens rise in the order in which leases
// begin. A client whose hold was overtaken may share it until it hears of that, with tokens below those of the later hold. Give the
// token to the storage with each write, and let the storage refuse a lower one than it has seen (package
// fence).
func (l *Lease) Token() uint64 {
	if l.none() {
		return 0
	}
	return l.token
}

// Done returns a channel that is closed when the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Votes returns the number of members that have the lease, by their own last word. It still counts
// a member that has died or forgotten since, until what that member granted last would have ended: up to a
// TTL. Client.Inspect shows it at once.
func (l *Lease) Votes() int {
	if l.none() {
		return 0
	}
	now := time.Now()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.hold.b.Votes(now)
}

// Shared reports whether other leases of the same name may be held at the same time: those of
// RWMutex.RLock.
func (l *Lease) Shared() bool { return !l.none() && l.hold.terms.kind.together }

// values are those of the acquiring context. The lease's mutex is held.
func (l *lease) values() context.Context {
	if own := l.context(); own != nil {
		return own.values
	}
	return l.ctx
}

// ownLease is the key under which a context tells that it ends with the lease. Contexts of several
// leases may be children of each other, and end with all of them.
type ownLease struct{ l *lease }

// Value tells the lease, beside what the context of Lock has.
func (c *leaseContext) Value(key any) any {
	switch key {
	case ownLease{c.l}, innermost{}:
		return &c.l.own
	case around{}:
		return &enclosing{[]*Lease{&c.l.own}, c.Context}
	}
	return c.Context.Value(key)
}

// innermost is the key under which a context tells the lease that it ends with.
type innermost struct{}

// around is the key under which a context tells the innermost leases that it ends with: an *enclosing.
type around struct{}

// enclosing are leases that are around a call.
type enclosing struct {
	leases []*Lease
	end    context.Context // ends with the first of them that ends
}
