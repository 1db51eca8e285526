package redlock

import (
	"context"
)

// FromContext returns the lease whose context ctx is or comes from: that of Lease.Context, which Do
// gives to its function. If several leases are around each other, it returns the innermost. Inside a
// Multi it returns none, because none of its leases is more so than the others.
//
// The lease may have ended. Its Token is what a storage wants to see all the same: the storage
// judges it.
func FromContext(ctx context.Context) (*Lease, bool) {
	if ctx == nil {
		return nil, false
	}
	l, ok := ctx.Value(innermost{}).(*Lease)
	return l, ok && l != nil
}
