package redlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// Sentinels for what callers branch on, with errors.Is. What they log is in the structs below; a
// QuorumError also unwraps to every member's own cause, and a context's error is always wrapped.
var (
	// ErrHeld: the lock is another's. Wait for it with Lock, or come back later.
	ErrHeld = errors.New("lock is held")
	// ErrNoQuorum: too few members could be asked. Nothing is known of the lock.
	ErrNoQuorum = errors.New("no quorum")
	// ErrTooSlow: a majority agreed, but so late that no validity was left. Use a longer TTL.
	ErrTooSlow = errors.New("no validity left when the majority had answered")
	// ErrLost: the lease ended other than by its holder. Stop working on what it protects.
	ErrLost = errors.New("lease lost")
	// ErrReleased: the lease was unlocked by its holder.
	ErrReleased = errors.New("lease released")
	// ErrHandedOff: the lease goes on elsewhere (Lease.Handoff).
	ErrHandedOff = errors.New("lease handed off")
	// ErrNotHeld: unlock or extend of a lease that has been unlocked before, or was never ours.
	ErrNotHeld = errors.New("lease is not held")
	// ErrInDoubt: a release that too few members confirmed. It is still being delivered in the
	// background; where it does not arrive, the member frees the lock when the lease's TTL ends.
	ErrInDoubt = errors.New("release in doubt")
	// ErrQuarantined: too many members may have forgotten what they granted and do not vote yet. The
	// chain has a *member.QuarantineError per member, which says until when.
	ErrQuarantined = member.ErrQuarantined
	// ErrForeignKey: the key exists on the members and is no lock of ours: another type, or without
	// a TTL. Waiting would be for ever. Choose another name, or delete the key.
	ErrForeignKey = errors.New("key is not a lock")
	// ErrTokensExhausted: at so many members that a majority is impossible no token is left for this lock, since the
	// counter of its bucket has reached 2^53. The clock of a server beyond the year 2255 set it there, or a hand.
	ErrTokensExhausted = member.ErrTokensExhausted
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client is closed")
	// ErrDuplicateMember: two addresses lead to one Redis, which would vote twice.
	ErrDuplicateMember = errors.New("one Redis is listed twice")
	// ErrInput: an argument that cannot work. The error is an *InputError that says which and why.
	ErrInput = errors.New("bad input")
)

// QuorumError reports an operation that too few members confirmed. It matches ErrHeld when the lock is
// another's at so many members that a majority is impossible, ErrForeignKey when keys are in the way that
// are no locks, ErrTokensExhausted when they have no token left, ErrQuarantined when members that do not vote yet would make the difference, and
// ErrNoQuorum otherwise. Through its members' causes it may match further ones: test for ErrHeld first.
type QuorumError struct {
	quorum.Failure
	kind  error
	cause error // a context's error, where that ended it
}

func (e *QuorumError) Error() string {
	text := "redlock: " + e.kind.Error() + ": " + e.Failure.Error()
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

// Unwrap returns the sentinel, the context's error if one ended the operation, and the members' causes.
func (e *QuorumError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.kind, e.cause, e.Failure.Unwrap()} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// LostError says why a lease ended without its holder. It matches ErrLost.
type LostError struct {
	Key    string
	Kind   Kind
	Token  uint64
	Reason LostReason
	Until  time.Time // the validity it had
}

// LostReason names what ended a lease.
type LostReason string

const (
	LostExpired LostReason = "expired"  // validity ended: no majority renewed it in time, or it was not to be renewed
	LostRefused LostReason = "refused"  // a majority of members no longer had it
	LostMaxHold LostReason = "max_hold" // the cap on an auto-renewed lease was reached
	LostClosed  LostReason = "closed"   // Client.Close released it
)

func (e *LostError) Error() string {
	return fmt.Sprintf("redlock: lease %s (token %d) lost: %s", member.Quote(e.Key), e.Token, e.Reason)
}

// Is matches ErrLost, and ErrClosed where the client was closed.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || target == ErrClosed && e.Reason == LostClosed
}

// InputError names an argument that cannot work, and what would. It matches ErrInput.
type InputError struct {
	Op      string
	Problem string
}

func (e *InputError) Error() string        { return "redlock: " + e.Op + ": " + e.Problem }
func (e *InputError) Is(target error) bool { return target == ErrInput }

func badInput(op, format string, args ...any) error {
	return &InputError{Op: op, Problem: fmt.Sprintf(format, args...)}
}

// keyError ties a sentinel to an operation and a key.
type keyError struct {
	op, key string
	err     error
	cause   error
}

func (e *keyError) Error() string {
	text := "redlock: " + e.op + " " + member.Quote(e.key) + ": " + e.err.Error()
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	return text
}

func (e *keyError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.err}
	}
	return []error{e.err, e.cause}
}
