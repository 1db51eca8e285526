package redlock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

func TestInspectTellsHolderTokensAndQueue(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		a, b := join(t, cluster), join(t, cluster)
		seen, err := a.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Empty(t, seen.Holder)
		held, err := a.Mutex("k", TTL(10*time.Second)).Lock(t.Context())
		require.NoError(t, err)
		synctest.Wait() // all five have voted
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			_, err := b.Mutex("k").Lock(ctx)
			require.ErrorIs(t, err, context.Canceled)
			close(done)
		}()
		time.Sleep(500 * time.Millisecond)
		cluster.Kill(4)
		time.Sleep(time.Millisecond)
		seen, err = b.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, held.Hash(), seen.Holder)
		require.Equal(t, held.Token(), seen.Token)
		require.Equal(t, 4, seen.Votes)
		require.Error(t, seen.Members[4].Err)
		require.Equal(t, MemberDown, seen.Members[4].State)
		for _, v := range seen.Members[:4] {
			require.NoError(t, v.Err)
			require.InDelta(t, 9.5, v.TTL.Seconds(), 0.1)
			require.Equal(t, held.Token(), v.Counter)
			require.Len(t, v.Queue, 1)
			require.True(t, v.Queue[0].Live)
			require.InDelta(t, 0.5, v.Queue[0].Waiting.Seconds(), 0.1)
			require.NotContains(t, v.Owner+v.Queue[0].Owner, ":")
			require.False(t, strings.HasPrefix(held.a.owner, v.Owner))
		}
		cancel()
		<-done
		require.NoError(t, held.Unlock(t.Context()))
	})
}

func TestForceUnlockServesTheNextWaiterAndEndsTheHolderAtItsNextRenewal(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		a, b, c := join(t, cluster), join(t, cluster), join(t, cluster)
		held, err := a.Mutex("k", AutoRenew(9*time.Second)).Lock(t.Context())
		require.NoError(t, err)
		got := make(chan *Lease, 1)
		go func() {
			l, err := b.Mutex("k").Lock(t.Context())
			require.NoError(t, err)
			got <- l
		}()
		time.Sleep(time.Second)
		at := time.Now()
		forced, err := c.ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, forced)
		next := <-got
		require.Less(t, time.Since(at), 100*time.Millisecond)
		require.Greater(t, next.Token(), held.Token())
		<-held.Done()
		require.LessOrEqual(t, time.Since(at), 3*time.Second, "a third of its TTL")
		require.ErrorIs(t, held.Err(), ErrLost)
		require.NoError(t, next.Err(), "the loser's release does not touch it")
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// Forced open with nobody waiting, the holder must not take it back when it renews.
func TestForceUnlockIsNotUndoneByARejoin(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		a, b := join(t, cluster), join(t, cluster)
		a.slow(0, time.Millisecond, 2*time.Millisecond, 3*time.Millisecond, 4*time.Millisecond) // refusals come one by one
		held, err := a.Mutex("k", AutoRenew(3*time.Second)).Lock(t.Context())
		require.NoError(t, err)
		time.Sleep(100 * time.Millisecond)
		forced, err := b.ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, forced)
		<-held.Done()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		leftovers(t, cluster)
		forced, err = b.ForceUnlock(t.Context(), "k")
		require.NoError(t, err)
		require.False(t, forced, "nobody held it")
	})
}

func TestForceUnlockLeavesForeignKeysAlone(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := join(t, cluster)
		for _, s := range cluster.Servers {
			_, err := s.Do(t.Context(), "SET", "k", "precious")
			require.NoError(t, err)
		}
		_, err := p.ForceUnlock(t.Context(), "k")
		require.ErrorIs(t, err, ErrForeignKey)
		v, err := cluster.Servers[0].Do(t.Context(), "GET", "k")
		require.NoError(t, err)
		require.Equal(t, "precious", v)
		seen, err := p.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Error(t, seen.Members[0].Err)
	})
}
