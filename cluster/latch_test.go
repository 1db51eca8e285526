package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// In a cluster the last arrival opens a latch by a push, in every slot, with sharded channels or
// without: heartbeats are too late to help.
func TestLatchesOfAClusterOpen(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(t *testing.T) redistest.RealConfig{"sharded": sharded, "not sharded": unsharded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, redistest.ShardedConfig{Server: server(t)})
			a, b := open(t, s, slow), open(t, s, slow)
			for _, name := range names {
				pushed(t, a, b, name, func() {}) // once both have subscribed
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				for round := range uint64(2) {
					mine := func(c *redlock.Client) *redlock.Latch { return c.Latch(name, 3, redlock.Round(round)) }
					opened := make(chan error, 1)
					require.NoError(t, mine(a).Arrive(ctx, "part"))
					require.NoError(t, mine(b).Arrive(ctx, "part"), "it counts once")
					go func() { opened <- mine(b).Await(ctx) }()
					require.Eventually(t, func() bool { // its watch is there
						in, err := a.InspectLatch(ctx, name)
						return err == nil && in.Members[0].Waiting == 1
					}, 20*time.Second, time.Millisecond)
					require.NoError(t, mine(a).CountDown(ctx))
					n, err := mine(b).Remaining(ctx)
					require.NoError(t, err)
					require.Equal(t, 1, n)
					require.Empty(t, opened)
					require.NoError(t, mine(a).CountDown(ctx))
					require.NoError(t, <-opened, "%q: round %d", name, round)
					require.NoError(t, mine(a).Await(ctx))
				}
				require.ErrorIs(t, b.Latch(name, 4).Arrive(ctx, "late"), redlock.ErrPassed)
				require.NoError(t, a.Latch(name, 3, redlock.Round(1)).Delete(ctx))
				in, err := a.InspectLatch(ctx, name)
				require.NoError(t, err)
				require.False(t, in.Known)
				cancel()
			}
		})
	}
}
