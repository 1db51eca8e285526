package fence

import (
	"context"
	"errors"
	"fmt"
)

var (
	// ErrStale is matched by the error for a token below the greatest accepted one. A later holder
	// has been here, and the caller's lock is gone. Trying again with the same token cannot
	// succeed.
	ErrStale = errors.New("fence: stale token")

	// ErrNoToken is matched by the error for token 0, which no acquisition has. The caller forgot
	// to pass the token on.
	ErrNoToken = errors.New("fence: no token")
)

// StaleError reports a refused token. It matches ErrStale.
type StaleError struct {
	Resource string
	Token    uint64 // the refused token
	Highest  uint64 // the greatest token accepted so far, above Token
}

func (e *StaleError) Error() string {
	return fmt.Sprintf("fence: stale token %d for %q: %d has been accepted", e.Token, e.Resource, e.Highest)
}

// Is reports whether target is ErrStale.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Guard remembers the greatest token that was accepted for each resource, and refuses smaller ones.
//
// Check accepts a token that is not below the greatest accepted one of the resource, and remembers
// it. It accepts an equal token, because a holder writes more than once. Check returns:
//
//   - nil, if it accepts the token.
//   - a *StaleError, for a smaller token.
//   - an error that matches ErrNoToken, for token 0.
//   - any other error, if the guard cannot tell. The guard may or may not have remembered the
//     token, and the caller must not make the write.
//
// Resources are arbitrary names and independent of each other. Implementations are safe for
// concurrent use: a call that begins after a greater token was accepted is refused. ctx bounds the
// call.
//
// The answer is about the moment of the call. A storage that checks first and writes afterwards
// needs AtomicGuard or a transaction of its own. See the package comment.
type Guard interface {
	Check(ctx context.Context, resource string, token uint64) error
}

// AtomicGuard can check a token and run the write that it guards as one step.
//
// Do checks the token as Check does. If it accepts the token, it runs write before Check or Do
// accepts any other token of the resource. Do returns the error of write as it is. The token stays
// accepted whatever write returns, because a write that failed may have happened in part. Writes of
// different resources may run at the same time. ctx bounds the wait for the resource, not the
// write.
type AtomicGuard interface {
	Guard
	Do(ctx context.Context, resource string, token uint64, write func() error) error
}

// SharedGuard can also judge readers of a lock that readers hold together (redlock.RWMutex).
//
// CheckShared judges the token of a reader as AdmitShared says. After it, Check and Do refuse the
// writers before that reader, and readers do not refuse each other. Its results are those of Check.
type SharedGuard interface {
	Guard
	CheckShared(ctx context.Context, resource string, token uint64) error
}

// AdmitShared is the rule for a reader of a lock that readers hold together (redlock.RWMutex).
// Readers of one phase may have different tokens, and do not overtake each other. written is the
// greatest token that Admit accepted, for a writer, or 0 for none. If AdmitShared returns nil, the
// caller stores the greater of token and the greatest token of any, and leaves written as it is.
// From then on Admit, which compares with the greatest token of any, refuses the writers before
// this reader. Otherwise AdmitShared returns an error as Admit does: a later writer has been here.
func AdmitShared(resource string, written, token uint64) error {
	return Admit(resource, written, token)
}

// Admit is the rule of every guard, for storages that keep the greatest token themselves. highest
// is the greatest token accepted before, or 0 for none. If token may write to resource, Admit
// returns nil. The caller then stores token as the greatest one, in the same transaction as the
// write. Otherwise Admit returns the error that Guard.Check promises.
func Admit(resource string, highest, token uint64) error {
	switch {
	case token == 0:
		return fmt.Errorf("%w for %q", ErrNoToken, resource)
	case token < highest:
		return &StaleError{Resource: resource, Token: token, Highest: highest}
	}
	return nil
}
