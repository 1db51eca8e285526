package redlock

import (
	"context"
)

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
