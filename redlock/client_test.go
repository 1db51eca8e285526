package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// A snapshot of a machine that is started twice: both have the client's name, and the number of its next attempt.
func TestCopyOfAProcessIsAnotherOwner(t *testing.T) {
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		one, two := Join(t, cluster), Join(t, cluster)
		two.uuid = one.uuid
		two.seq.Store(one.seq.Load())
		l := one.Hold(t, "k")
		_, err := two.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, ErrHeld)
		require.NoError(t, l.Unlock(t.Context()))
	})
}
