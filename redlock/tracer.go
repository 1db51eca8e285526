package redlock

import (
	"context"
	"time"
)

// Tracer hears what a client does, for metrics and spans. Further events are heard by implementing
// the optional interfaces below on the same value; they are found once, when the client is made.
// Methods are called concurrently, never under a lock of the library, and must be quick: some run on
// the goroutine that reads a member's answers. No event holds a secret.
type Tracer interface {
	// AcquireStart is called by Lock and TryLock; the context it returns goes to AcquireEnd.
	AcquireStart(ctx context.Context, e AcquireStart) context.Context
	AcquireEnd(ctx context.Context, e AcquireEnd)
}

// AcquireStart tells of a Lock or TryLock that begins.
type AcquireStart struct {
	Key string
	Try bool
	TTL time.Duration
}

// AcquireEnd tells how it ended. Err is nil for a grant.
type AcquireEnd struct {
	Key         string
	Err         error
	Token       uint64
	Votes       int           // members that had granted when it was decided
	Elapsed     time.Duration // of the whole call
	Validity    time.Duration // left when it was decided
	SecondRound bool          // the token needed a raise
	Waited      bool          // it was refused first
}

// LostTracer hears of leases that end without their holder.
type LostTracer interface{ Lost(e *LostError) }

// ReleaseTracer hears of unlocks; err is what Unlock returned.
type ReleaseTracer interface {
	Released(key string, held time.Duration, err error)
}

// RenewTracer hears of every renewal that was decided.
type RenewTracer interface {
	Renewed(key string, ok bool, validity time.Duration)
}

// MemberTracer hears of members that come and go.
type MemberTracer interface {
	Member(name string, up bool, cause error)
}

// GuardTracer hears of each step of the restart guard at a member: "marked" and "forgot" by this client,
// or found "quarantined", with the end of the quarantine; "lifted" with the moment from which it votes;
// "restored", or "tokens_by_clock" where order goes on from its clock.
type GuardTracer interface {
	Guard(member, step string, until time.Time)
}

type tracers struct {
	Tracer
	lost    LostTracer
	release ReleaseTracer
	renew   RenewTracer
	member  MemberTracer
}

func newTracers(t Tracer) tracers {
	out := tracers{Tracer: t}
	out.lost, _ = t.(LostTracer)
	out.release, _ = t.(ReleaseTracer)
	out.renew, _ = t.(RenewTracer)
	out.member, _ = t.(MemberTracer)
	return out
}
