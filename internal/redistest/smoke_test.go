package redistest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func TestSmoke(t *testing.T) {
	for _, c := range []*redistest.Cluster{rt.Embedded(t, 2), rt.Real(t, 2)} {
		require.NoError(t, c.Restart(true, 1))
		cl, err := redistest.DialClient(t.Context(), c.Servers[1].Dialer(), "x:1")
		require.NoError(t, err)
		v, err := cl.Do(t.Context(), "HSET", "a", "b", "c")
		require.NoError(t, err)
		require.EqualValues(t, 1, v)
		v, err = cl.Do(t.Context(), "EVAL", "return redis.call('TIME')", "0")
		t.Log(v, err)
		v, err = c.Servers[1].Do(t.Context(), "INFO", "server")
		t.Log(v, err)
		l, err := c.Leftovers(t.Context())
		t.Log(l, err)
		cl.Close()
	}
}

func TestSmokeBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := rt.Embedded(t, 5)
		cl, err := redistest.DialClient(t.Context(), c.Servers[1].Dialer(), "x:1")
		require.NoError(t, err)
		c.Faults(1).SetDelay(redistest.Delay{Fixed: time.Minute}, redistest.Delay{Fixed: time.Minute})
		s := time.Now()
		v, err := cl.Do(t.Context(), "HSET", "a", "b", "c")
		require.NoError(t, err)
		require.EqualValues(t, 1, v)
		require.Equal(t, 2*time.Minute, time.Since(s))
		cl.Close()
	})
}
