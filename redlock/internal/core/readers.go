package core

import "time"

// What the leases of readers have besides, and a writer's that becomes one of them. No mutex is downgraded, or shared by users.

// Succeed ends a term, and returns one that goes on until the same instant.
func (t *Term) Succeed(err error, now time.Time) (next Term, over Ended) {
	if t.err == nil {
		next = *t
	}
	return next, t.End(err, now)
}

// Part returns the term of a user of the lease, which ends at limit by itself. It is over, too, when that of the lease is.
func (t *Term) Part(limit time.Time) Term { return Term{until: limit, limit: limit, drift: t.drift} }

// Clone returns a copy that shares nothing with the original that either may change.
func (v *Votes) Clone() Votes { return Probe{v}.CloneInto(nil) }
