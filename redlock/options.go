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

// Keep has the client keep the lock for d after the last Unlock, so that its next Lock or TryLock with the same name and TTL
// finds it. Few of these calls wait for members, and those for one round: of a Mutex if its tokens are used up, or if the one before
// was a sixth of Config.Entry ago or more; of readers one in a third of Config.Entry. It is for names that one process uses
// several times a second: if uses are further apart, only Unlock gains. d must be positive and at most the TTL of the lease, which must renew itself.
//
// Nobody has a lease meanwhile: the former one has ended, with its context. Another client that waits for the lock gets it at once.
// But its TryLock is refused until d after the last use, because a refused call tells nobody that it wants the lock: take Lock
// with a deadline of 50 to 200 ms. A process that dies blocks what it keeps until the TTL is over, also names that nobody uses: choose a TTL of some
// seconds.
//
// The client keeps Config.KeepMost locks at most, and none that another client wanted within the last second, or while too few
// members can tell that somebody waits. If it wants a name that it keeps in another way, as for a set, it gives that up first.
// Client.Mutex and Client.RWMutex take the option, there for readers. It has no effect in a Multi, and with Fair, As of a Mutex, or
// Config.Interop calls return ErrInput.
func Keep(d time.Duration) LockOption {
	return func(t *terms) { t.keeps, t.keep = true, d }
}

// As names the owner for re-entry. While this client holds the lock for the same owner, Lock and
// TryLock return the same lease at once. The lock is freed after as many Unlocks. The client keeps
// the count, and the members see one lease. Without As, a second Lock waits for the first, even in
// the same goroutine. If its context ends with the first lease, it is ErrNested at once.
func As(owner string) LockOption {
	return func(t *terms) { t.as = owner }
}
