// Package outcome has the word for how a call ended, which is the same in metrics and in spans.
package outcome

import (
	"context"
	"errors"

	"github.com/redquorum/redquorum/redlock"
)

// Of is that of a call for a lock.
func Of(err error) string {
	switch {
	case err == nil:
		return "granted"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, redlock.ErrHeld): // also where a deadline passed while it waited
		return "held"
	case errors.Is(err, redlock.ErrTooSlow):
		return "expired"
	case errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, redlock.ErrQuarantined):
		return "no_quorum"
	case errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return "error"
}

// OfLatch is that of a call for a latch.
func OfLatch(err error) string {
	switch {
	case err == nil:
		return "done"
	case errors.Is(err, redlock.ErrPassed):
		return "passed"
	case errors.Is(err, redlock.ErrConflict):
		return "conflict"
	case errors.Is(err, context.DeadlineExceeded): // also where it was waited for, and nothing was wrong
		return "canceled"
	}
	return Of(err)
}
