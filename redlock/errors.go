package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// Callers branch on these errors with errors.Is. The structs below carry details for logs. A
// QuorumError also unwraps to the cause of every member, and a context's error is always wrapped.
var (
	// ErrHeld: another owner has the lock. Wait for it with Lock, or try again later.
	ErrHeld = errors.New("lock is held")
	// ErrNoQuorum: too few members could be asked. The state of the lock is unknown.
	ErrNoQuorum = errors.New("no quorum")
	// ErrTooSlow: a majority agreed, but so late that no validity was left. Nothing of the call stays at the members, so try
	// again. If it comes often, use a longer TTL, or nearer members.
	ErrTooSlow = errors.New("no validity left when the majority had answered: try again, and if this comes often," +
		" with a longer TTL or nearer members")
	// ErrLost: the lease ended and its holder did not end it. Stop working on what the lock
	// protects.
	ErrLost = errors.New("lease lost")
	// ErrReleased: the holder unlocked the lease.
	ErrReleased = errors.New("lease released")
	// ErrHandedOff: the lease was handed off and continues elsewhere (Lease.Handoff).
	ErrHandedOff = errors.New("lease handed off")
	// ErrDowngraded: the holder made the lease one of a reader (Lease.Downgrade), which goes on.
	ErrDowngraded = errors.New("lease downgraded")
	// ErrUpgrade: the owner has a lease of a reader, and asks for that of a writer. It would wait
	// for itself. Unlock the lease first, and expect that others write in between.
	ErrUpgrade = errors.New("a reader cannot become a writer")
	// ErrNested: the context of the call ends with a lease of the same lock, so the call would wait for
	// itself. If both calls name one owner (As), the inner one enters the lease of the outer one.
	ErrNested = errors.New("the context ends with a lease of this lock, so the call would wait for itself;" +
		" give both calls one owner (As), or take a context that outlives the lease")
	// ErrNotHeld: the lease was unlocked or handed off before, or a majority of the members does
	// not have the lease that Adopt was given.
	ErrNotHeld = errors.New("lease is not held")
	// ErrInDoubt: too few members confirmed a release. The client goes on delivering it in the
	// background. A member that it does not reach frees the lock when the lease's TTL ends.
	ErrInDoubt = errors.New("release in doubt")
	// ErrQuarantined: too many members do not vote yet, because they may have forgotten their
	// votes. The chain has a *member.QuarantineError for each of these members, which says until
	// when.
	ErrQuarantined = member.ErrQuarantined
	// ErrForeignKey: the key exists on the members and is not a lock: it has another type, or no
	// TTL, or is a hash with other fields than those of a lock. Waiting would never end. Choose
	// another name, or delete the key.
	ErrForeignKey = errors.New("key is not a lock, so take another name, or delete the key")
	// ErrTokensExhausted: so many members have no token left for this lock that a majority is
	// impossible. The counter of its bucket has reached 2^53. Either a server's clock went beyond
	// the year 2255, or somebody set the counter by hand.
	ErrTokensExhausted = member.ErrTokensExhausted
	// ErrClosed: the client was closed.
	ErrClosed = errors.New("client is closed")
	// ErrDuplicateMember: two addresses lead to one Redis, which would vote twice.
	ErrDuplicateMember = errors.New("one Redis is listed twice")
	// ErrOrder: a Multi would have to wait for a name, while its owner (As) holds another one that
	// comes behind it in the order of names. Two such callers could wait for each other. Take all
	// names in one call.
	ErrOrder = errors.New("locks are not taken in their order")
	// ErrPassed: a later round of the latch has begun. Nobody remembers whether the round that was
	// asked for had opened.
	ErrPassed = errors.New("round of the latch has passed")
	// ErrConflict: so many members were told another count for this round of the latch that no
	// majority has this one. Every user of a latch must give the same count, or none (0). Of a barrier:
	// others have told another number of parties, or as many others are its parties.
	ErrConflict = errors.New("latch or barrier has another count")
	// ErrLimit: a stored limit of the semaphore is below the permits that were asked for at once.
	// They cannot be had before somebody raises it: see Semaphore.SetLimit. If the limit is 0, Acquire
	// waits for that, and the error says so when its context has ended.
	ErrLimit = errors.New("more permits than the stored limit allows")
	// ErrRan: the function of Do has run. Every error of a Do whose function has run matches it, and no
	// other. It is the function's own; or ErrLost, if the lease was lost meanwhile; or ErrInDoubt, if its
	// release is; or several of these joined.
	ErrRan = errors.New("the function has run")
	// ErrInput: an argument cannot work. The error says which one and why.
	ErrInput = errors.New("bad input")
)

// QuorumError reports an operation that too few members confirmed. It matches one of these:
//
//   - ErrHeld, if another owner has the lock at so many members that a majority is impossible, or if a
//     majority answered and other owners have the votes that are missing.
//   - ErrForeignKey, if keys that are not locks make a majority impossible.
//   - ErrTokensExhausted, if members without a token left make a majority impossible.
//   - ErrQuarantined, if a majority would be possible with the members that do not vote yet.
//   - ErrInDoubt for an Unlock, ErrNotHeld for an Adopt, ErrDuplicateMember for an Open.
//   - ErrNoQuorum otherwise.
//
// Through the causes of its members it may match further errors, so test for ErrHeld first.
type QuorumError struct {
	quorum.Failure
	// Who has the lock, where a try of a client with a Config.Label was refused: those of the holders whose clients have one,
	// too, as VoteView.Who, each once.
	Who   []string
	kind  error
	cause error // a context's error, where that ended it
}

func (e *QuorumError) Error() string {
	text := "redlock: " + e.kind.Error() + ": " + e.Failure.Error()
	if e.cause != nil {
		text += ": " + e.cause.Error()
	}
	if len(e.Who) > 0 {
		text += ": held by " + strings.Join(e.Who, ", ")
	}
	return text
}

// Unwrap returns the sentinel, the context's error if one ended the operation, and the causes of
// the members.
func (e *QuorumError) Unwrap() []error {
	var all []error
	for _, err := range []error{e.kind, e.cause, e.Failure.Unwrap()} {
		if err != nil {
			all = append(all, err)
		}
	}
	return all
}

// ranError is the error of a Do whose function has run: it matches ErrRan.
type ranError struct{ error }

func (e *ranError) Unwrap() []error { return []error{e.error, ErrRan} }

// LostError says why a lease ended although its holder did not end it. It matches ErrLost.
type LostError struct {
	LockName
	Token  uint64
	Reason LostReason
	Until  time.Time // the end of the validity that the lease had
}

// LostReason names what ended a lease.
type LostReason string

const (
	// The validity ended: no majority renewed the lease in time, or it had a fixed length.
	LostExpired LostReason = "expired"
	LostRefused LostReason = "refused"  // a majority of the members no longer had the lease
	LostMaxHold LostReason = "max_hold" // a renewed lease reached its MaxHold
	LostClosed  LostReason = "closed"   // Client.Close released the lease
)

func (e *LostError) Error() string {
	return fmt.Sprintf("redlock: lease %s (token %d) lost: %s", printable.Quote(e.Key), e.Token, e.Reason)
}

// Is reports whether target is ErrLost, or ErrClosed if Client.Close released the lease.
func (e *LostError) Is(target error) bool {
	return target == ErrLost || target == ErrClosed && e.Reason == LostClosed
}

// inputError names an argument that cannot work, and says what would. It matches ErrInput.
type inputError struct{ op, problem string }

func (e *inputError) Error() string        { return "redlock: " + e.op + ": " + e.problem }
func (e *inputError) Is(target error) bool { return target == ErrInput }

func badInput(op, format string, args ...any) error {
	return &inputError{op, fmt.Sprintf(format, args...)}
}

// logged is a lock's name as an attribute of a log, which quotes it where it must. It is cut after as
// many bytes as in an error.
func logged(key string) string {
	const most = 64
	text := printable.Text(key[:min(len(key), most)], 6*most)
	if len(key) > most {
		text += fmt.Sprintf("… (%d bytes)", len(key))
	}
	return text
}

// keyError ties a sentinel to an operation and a key.
type keyError struct {
	op, key string
	err     error
	cause   error
}

func (e *keyError) Error() string {
	text := "redlock: " + e.op + " " + printable.Quote(e.key) + ": " + e.err.Error()
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

var errReply = errors.New("reply of an unexpected shape")
