package redlock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func TestClientForgetsWhatAFormerLeaderSaid(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		kept := func(c *Peer) int {
			synctest.Wait()
			speakersOf.of(c.Client).mu.Lock()
			defer speakersOf.of(c.Client).mu.Unlock()
			return len(speakersOf.of(c.Client).m)
		}
		e := p.Election("boss")
		elected := func(opts ...LockOption) *Lease {
			l := rt.Must(p.Election("boss", opts...).Campaign(t.Context(), []byte("me")))(t)
			require.Equal(t, 1, kept(p))
			return l
		}
		l := elected()
		require.NoError(t, e.Proclaim(t.Context(), l, nil))
		require.NoError(t, l.Unlock(t.Context()))
		require.Zero(t, kept(p), "resigned")
		require.Error(t, e.Proclaim(t.Context(), l, nil))
		require.NotNil(t, speakersOf.of(p.Client).of(l.lease), "a call that has found the lease held")
		require.Zero(t, kept(p))

		l = elected()
		h := rt.Must(l.Handoff())(t)
		require.Zero(t, kept(p), "handed off")
		m := rt.Must(q.Adopt(t.Context(), h))(t)
		require.Zero(t, kept(q), "it has said nothing here")
		require.NoError(t, q.Election("boss").Proclaim(t.Context(), m, nil))
		require.Equal(t, 1, kept(q))
		require.NoError(t, m.Unlock(t.Context()))
		require.Zero(t, kept(q))

		elected(TTL(time.Second))
		time.Sleep(2 * time.Second)
		require.Zero(t, kept(p), "expired")

		held := q.Lock(t, "boss")
		require.ErrorIs(t, rt.Err(e.lock.TryLock(t.Context())), ErrHeld)
		require.NoError(t, held.Unlock(t.Context()))
		elected()
		require.NoError(t, p.Close())
		require.Zero(t, kept(p), "closed")
	}, Quiet)
}
