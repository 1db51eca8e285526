package fence_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/redlock"
)

// A lease of the library can be claimed.
var _ = func(ctx context.Context, g fence.Guard, l *redlock.Lease) error { return fence.Claim(ctx, g, l) }

func TestTokensOfAcquisitionsAreAboveZeroAndFitDatabases(t *testing.T) {
	for token, want := range map[uint64]error{
		0: fence.ErrNoToken, 1: nil, fence.MaxToken: nil,
		fence.MaxToken + 1: fence.ErrTokenRange, math.MaxUint64: fence.ErrTokenRange,
	} {
		assert.ErrorIs(t, fence.CheckToken("r", token), want, "%d", token)
	}
	assert.ErrorContains(t, fence.CheckToken("r", math.MaxUint64), `"r": 18446744073709551615`)
}

func TestStepErrorSaysWhichStepFailed(t *testing.T) {
	err := error(&fence.StepError{Step: fence.StepEnter, Resource: "r", Token: 7, Err: context.DeadlineExceeded})
	assert.EqualError(t, err, `fence: enter of "r" with token 7: context deadline exceeded`)
	assert.ErrorIs(t, err, context.DeadlineExceeded)
	assert.NotErrorIs(t, err, fence.ErrStale)
	err = &fence.StepError{Step: fence.StepProbe, Resource: "table", Err: context.DeadlineExceeded}
	assert.EqualError(t, err, `fence: probe of "table": context deadline exceeded`)
}
