package redlock_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Strict order on real servers, one of which dies while the callers come.
func TestFairOrderOnRealServersWhileAMemberIsDead(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	var clients []*peer
	for range 3 {
		clients = append(clients, join(t, cluster, patient))
	}
	held, err := clients[0].Mutex("k", redlock.Fair()).Lock(ending(t))
	require.NoError(t, err)
	q := &turns{t: t}
	var want []string
	servers := cluster.Servers
	for n, c := range []int{1, 1, 2, 0, 1, 2, 2, 0, 0, 1} {
		if n == 4 {
			cluster.Kill(2)
			servers = servers[:2]
		}
		who := fmt.Sprint(c, ":", n)
		q.call(clients[c], who, redlock.Fair())
		want = append(want, who)
		require.NoError(t, inLine(t.Context(), servers, "k", int64(n+1)))
		var lines []string
		for start := time.Now(); len(lines) == 0 || lines[0] != lines[1]; time.Sleep(time.Millisecond) {
			require.Less(t, time.Since(start), 20*time.Second, "a ticket is agreed")
			lines = queues(t, cluster, "k", 0, 1)
		}
	}
	require.NoError(t, held.Unlock(t.Context()))
	require.Equal(t, strings.Join(want, " "), q.order())
	require.NoError(t, cluster.Restart(false, 2))
	clean(t, cluster)
}

// Callers that do and do not ask for strict order contend, while members die and come back.
func TestFairAndPlainCallersContendWhileMembersDie(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	h := newHistory()
	var clients []*redlock.Client
	for range 6 {
		clients = append(clients, dialed(t, cluster, patient, quickQuarantine))
	}
	var over atomic.Bool
	go func() {
		defer over.Store(true)
		for i := range 2 {
			time.Sleep(700 * time.Millisecond)
			cluster.Kill(i % 3)
			time.Sleep(300 * time.Millisecond)
			if err := cluster.Restart(false, i%3); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(1500 * time.Millisecond) // its quarantine
		}
	}()
	together(t, len(clients), func(i int) error {
		var opts []redlock.LockOption
		if i%3 > 0 {
			opts = append(opts, redlock.Fair())
		}
		for !over.Load() {
			if err := h.tenure(t.Context(), clients[i], i, "k", func(*redlock.Lease) { time.Sleep(time.Millisecond) }, opts...); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%d tenures", h.len())
	require.Greater(t, h.len(), 100)
	h.verify(t)
	clean(t, cluster)
}
