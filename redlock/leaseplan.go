package redlock

import (
	"time"
)

// plan is when a lease is renewed.
type plan struct {
	ttl     time.Duration
	renewAt time.Time // zero: not to be renewed (any more)
}

// inKeeper is where the keeper has a lease.
type inKeeper struct {
	gone   bool  // never to be put there again
	queued bool  // to be renewed now
	pos    int32 // in the keeper's heap, -1: not in it
}
