package redlock

import (
	"time"
)

// apply carries out options of any sort, in their order. It passes over those that are nil.
func apply[T any, O ~func(*T)](to *T, opts []O) {
	for _, o := range opts {
		if o != nil {
			o(to)
		}
	}
}

// LockOption changes the terms of one lock. Client.Mutex takes it, and every other kind of lock
// does too. A nil LockOption changes nothing.
type LockOption func(*terms)

// TTL asks for a lease of fixed length that the client does not renew. The lease ends after d at
// the latest. d must leave a validity after the drift allowance, so with the default Drift it is more
// than 2 ms; from 10 ms on, the validity is most of it. It is at most Config.MaxTTL. Of TTL and AutoRenew
// the last one in the list applies.
func TTL(d time.Duration) LockOption {
	return func(t *terms) { t.ttl, t.renew = d, false }
}

// AutoRenew asks for a lease of d that the client renews every third of d. Renewal stops when the
// lease is unlocked, is lost, or has been held for MaxHold. A Mutex without options uses
// AutoRenew(Config.TTL). Of TTL and AutoRenew the last one in the list applies.
func AutoRenew(d time.Duration) LockOption {
	return func(t *terms) { t.ttl, t.renew = d, true }
}

// MaxHold caps a renewed lease and replaces Config.MaxHold. If d is negative, there is no limit. If
// d is 0, Config.MaxHold applies.
func MaxHold(d time.Duration) LockOption {
	return func(t *terms) {
		if d != 0 {
			t.maxHold = d
		}
	}
}

// As names the owner for re-entry. While this client holds the lock for the same owner, Lock and
// TryLock return the same lease at once. The lock is freed after as many Unlocks. The client keeps
// the count, and the members see one lease. Without As, a second Lock waits for the first, even in
// the same goroutine. If its context ends with the first lease, it is ErrNested at once.
func As(owner string) LockOption {
	return func(t *terms) { t.as = owner }
}
