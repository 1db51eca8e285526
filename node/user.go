package node

import (
	"context"
	"fmt"
	"time"
)

// DialerError says that Config.Dialer broke its contract: it returned neither a connection nor an
// error, or it did not return when its context ended. An error that the Dialer returned is passed on
// as it is.
type DialerError struct {
	addr string // that was to be dialled
	err  error
}

func (e *DialerError) Error() string { return fmt.Sprintf("Config.Dialer, of %s: %v", e.addr, e.err) }

func (e *DialerError) Unwrap() error { return e.err }

// within calls f, a function of the user that may ignore ctx, on a goroutine of its own. It returns
// what f returned, or false when ctx ended grace ago. Then nobody waits for the goroutine any more,
// and late gets what f returns at last.
func within[T any](ctx context.Context, grace time.Duration, f func() T, late func(T)) (T, bool) {
	done, left := make(chan T), make(chan struct{})
	go func() {
		result := f()
		select {
		case done <- result:
		case <-left:
			late(result)
		}
	}()
	select {
	case result := <-done:
		return result, true
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case result := <-done:
		return result, true
	case <-timer.C:
		close(left)
		var none T
		return none, false
	}
}

// stuck is the error of a function of the user that did not return.
func stuck(ctx context.Context) error {
	return fmt.Errorf("it did not return when its context ended: %w", ctx.Err())
}

// dialError marks an error that came from our own dialer, before anything secret was sent.
type dialError struct {
	step string // as a prefix
	err  error
}

func (e *dialError) Error() string { return e.step + e.err.Error() }

func (e *dialError) Unwrap() error { return e.err }
