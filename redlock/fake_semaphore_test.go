package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// permit takes a permit, and waits for the members that did not decide.
func permit(t testing.TB, p *peer, name string, limit int, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	l, err := p.Semaphore(name, limit, opts...).Acquire(t.Context())
	require.NoError(t, err)
	synctest.Wait()
	return l
}

func TestSemaphoreHasAsManyHoldersAsSlots(t *testing.T) {
	three(t, func(t *testing.T, cluster *redistest.Cluster, a, b, c *peer) {
		x, y := permit(t, a, "k", 2), permit(t, b, "k", 2)
		require.ElementsMatch(t, []int{0, 1}, []int{x.Slot(), y.Slot()})
		for _, p := range []*peer{a, b, c} {
			_, err := p.Semaphore("k", 2).TryAcquire(t.Context())
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		require.Equal(t, []redlock.Slot{{Number: x.Slot(), Token: x.Token()}}, x.Slots())
		require.Equal(t, 3, x.Votes())
		lock := c.Lock(t, "k") // a mutex of the name is another lock
		require.Empty(t, lock.Slots())
		require.Zero(t, lock.Slot())
		unlock(t, lock)
		w := later(t.Context(), c.Semaphore("k", 2).Acquire)
		time.Sleep(10 * time.Second)
		require.True(t, w.Pending())
		unlock(t, y)
		time.Sleep(10 * time.Millisecond)
		z := w.Get(t)
		require.Equal(t, y.Slot(), z.Slot())
		require.Greater(t, z.Token(), y.Token(), "tokens of a slot rise")
		unlock(t, x, z)
		leftovers(t, cluster)
	})
}
