package fenceredis

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/slot"
)

//go:embed guard.lua
var script string

// MaxWords is how many words a command may have, its name included: Lua passes no more on.
const MaxWords = 7000

var (
	// ErrSlot is matched by the error for a key that a Redis Cluster may keep elsewhere than the
	// token of the resource.
	ErrSlot = errors.New("fenceredis: key in another slot than the resource")

	// ErrGuardKey is matched by the error for a command on the key of the guard itself: it would
	// forget the token.
	ErrGuardKey = errors.New("fenceredis: key of the guard")

	// ErrDamaged is matched by the error for a key of the guard that has no token. The guard accepts
	// nothing until an operator has put it right.
	ErrDamaged = errors.New("fenceredis: damaged token")

	// ErrReply is matched by the error for a reply of EVAL that the script does not give.
	ErrReply = errors.New("fenceredis: unexpected reply")
)

// Eval calls EVAL with a script, its keys and its arguments, on the server that has the data, or the
// master of the keys' slot. It returns the reply: an array as []any, a string as string or []byte,
// and an integer as int64. It must not repeat a call that may have been executed, unless the command
// may be executed twice.
type Eval func(ctx context.Context, script string, keys []string, args ...string) (any, error)

// Guard is a fence.Guard in a server. It is safe for concurrent use if Eval is.
type Guard struct {
	eval Eval
}

var _ fence.Guard = (*Guard)(nil)

// New returns the guard of the server that eval asks. It panics if eval is nil.
func New(eval Eval) *Guard {
	if eval == nil {
		panic("fenceredis: nil Eval")
	}
	return &Guard{eval}
}

// Key returns the key that has the greatest accepted token of a resource, as decimal text.
func Key(resource string) string { return slot.Sibling("redquorum:fence", resource) }

// Check is the claim. See fence.Guard for its results; if the server cannot be asked, the error is a
// *fence.StepError with StepClaim.
func (g *Guard) Check(ctx context.Context, resource string, token uint64) error {
	_, err := g.ask(ctx, fence.StepClaim, resource, token, nil, nil)
	return err
}

// Run checks the token and runs a command, as one step. keys are all keys that the command touches,
// in the slot of the resource. It returns the reply of the command as Eval gives it: nil for none.
//
// Errors:
//   - those of Guard.Check for the token. The command has not run.
//   - one that matches ErrSlot or ErrGuardKey, or says that the command is empty or too long. Nothing
//     was sent.
//   - a *fence.StepError with StepEnter. The command has not run: ctx had ended, or ErrDamaged.
//   - a *fence.StepError with StepWrite. If it is a *CommandError, the server has refused the
//     command. Otherwise the command may have run.
func (g *Guard) Run(ctx context.Context, resource string, token uint64, keys []string, command ...string) (any, error) {
	if len(command) == 0 || len(command) > MaxWords {
		return nil, fmt.Errorf("fenceredis: a command of %d words, not 1 to %d", len(command), MaxWords)
	}
	return g.ask(ctx, fence.StepWrite, resource, token, keys, command)
}

// CommandError is the error reply to a command that has passed the guard.
type CommandError struct {
	Reply string // as the server gave it
}

func (e *CommandError) Error() string { return "fenceredis: " + e.Reply }

func (g *Guard) ask(ctx context.Context, step fence.Step, resource string, token uint64, keys, command []string) (any, error) {
	if err := fence.CheckToken(resource, token); err != nil {
		return nil, err
	}
	key := Key(resource)
	for _, k := range keys {
		if k == key {
			return nil, fmt.Errorf("%w: %q", ErrGuardKey, k)
		}
		if slot.Of(k) != slot.Of(key) {
			return nil, fmt.Errorf("%w: %q is not in that of %q; a key with the hash tag {%s} is", ErrSlot, k, resource, slot.Tag(key))
		}
	}
	failed := func(err error) (any, error) {
		return nil, &fence.StepError{Step: step, Resource: resource, Token: token, Err: err}
	}
	before := func(err error) (any, error) { // nothing has run
		if step == fence.StepWrite {
			step = fence.StepEnter
		}
		return failed(err)
	}
	if err := ctx.Err(); err != nil {
		return before(err)
	}
	args := append([]string{strconv.FormatUint(token, 10)}, command...)
	reply, err := g.eval(ctx, script, append([]string{key}, keys...), args...)
	if err != nil {
		return failed(err)
	}
	parts, _ := reply.([]any)
	if len(parts) == 0 {
		return failed(fmt.Errorf("%w: a %T", ErrReply, reply))
	}
	switch word, _ := text(parts[0]); {
	case word == "done" && len(parts) == 1:
		return nil, nil
	case word == "done" && len(parts) == 2:
		return parts[1], nil
	case word == "failed" && len(parts) == 2:
		why, _ := text(parts[1])
		return failed(&CommandError{why})
	case word == "damaged":
		return before(fmt.Errorf("%w in %q", ErrDamaged, key))
	case word == "stale" && len(parts) == 2:
		top, _ := text(parts[1])
		highest, err := strconv.ParseUint(top, 10, 64)
		if err != nil || highest <= token {
			return before(fmt.Errorf("%w in %q", ErrDamaged, key))
		}
		return nil, &fence.StaleError{Resource: resource, Token: token, Highest: highest}
	}
	return failed(fmt.Errorf("%w: %d parts", ErrReply, len(parts)))
}

func text(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case []byte:
		return string(v), true
	}
	return "", false
}
