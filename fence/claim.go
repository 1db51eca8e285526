package fence

import (
	"context"
	"errors"
	"fmt"
	"math"
)

// MaxToken is the greatest token that every guard of this module accepts: 2^63-1, because databases
// have signed integers.
const MaxToken = math.MaxInt64

// ErrTokenRange is matched by the error for a token above MaxToken. No acquisition has one.
var ErrTokenRange = errors.New("fence: token above 2^63-1")

// CheckToken reports whether token can be one of an acquisition. It returns nil, or an error that matches
// ErrNoToken for 0, or ErrTokenRange for more than MaxToken.
func CheckToken(resource string, token uint64) error {
	if token > MaxToken {
		return fmt.Errorf("%w for %q: %d", ErrTokenRange, resource, token)
	}
	return Admit(resource, 0, token)
}

// Claim shows the token of a lease to a guard, before the first read that a write of the holder
// depends on. It is g.Check with the lease's name and token, and returns its errors. A
// *redlock.Lease is a lease. If the storage knows the lock under another name than Key, call
// g.Check.
//
// The claim is as durable as the guard: Memory forgets it with the process.
func Claim(ctx context.Context, g Guard, lease interface {
	Key() string
	Token() uint64
}) error {
	return g.Check(ctx, lease.Key(), lease.Token())
}

// Step is a step of a holder at its storage.
type Step string

// The steps, in their order. A guard that cannot ask a step of its storage returns a *StepError.
const (
	StepProbe  Step = "probe"  // the storage shows that it keeps its conditions
	StepClaim  Step = "claim"  // nothing is written; the claim itself may have happened
	StepBegin  Step = "begin"  // nothing is written
	StepEnter  Step = "enter"  // nothing is written
	StepWrite  Step = "write"  // the error is that of the caller's function, or of its command
	StepCommit Step = "commit" // the write may have happened, or not
)

// StepError says at which step a storage failed, or a context ended. It is no refusal: that is a
// *StaleError. Of all steps only StepCommit, and StepWrite at a storage without transactions, leave
// open whether the write has happened. Then read, under the same token.
type StepError struct {
	Step     Step
	Resource string
	Token    uint64
	Err      error // never nil; of a context that ended, it matches the context's error
}

func (e *StepError) Error() string {
	if e.Token == 0 { // of a probe
		return fmt.Sprintf("fence: %s of %q: %v", e.Step, e.Resource, e.Err)
	}
	return fmt.Sprintf("fence: %s of %q with token %d: %v", e.Step, e.Resource, e.Token, e.Err)
}

// Unwrap returns Err.
func (e *StepError) Unwrap() error { return e.Err }
