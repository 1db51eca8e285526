package cluster_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// In a cluster an observer hears of its leaders by pushes, in every slot, with sharded channels or
// without: its heartbeats are too late to help.
func TestLeadersOfAClusterAreObserved(t *testing.T) {
	t.Parallel()
	for name, server := range map[string]func(t *testing.T) redistest.RealConfig{"sharded": sharded, "not sharded": unsharded} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, redistest.ShardedConfig{Server: server(t)})
			a, b := open(t, s, slow), open(t, s, slow)
			for _, name := range names {
				pushed(t, a, b, name, func() {}) // once both have subscribed
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				told := make(chan redlock.Leader, 9)
				done := make(chan struct{})
				go func() {
					defer close(done)
					for l := range b.Election(name).Observe(ctx) {
						told <- l
					}
				}()
				hears := func(value string, token uint64) {
					t.Helper()
					select {
					case l := <-told:
						require.Equal(t, redlock.Leader{Value: []byte(value), Token: token}, l)
					case <-ctx.Done():
						t.Fatalf("%q: not told that %s leads", name, value)
					}
				}
				vacant := func() {
					t.Helper()
					select {
					case l := <-told:
						require.True(t, l.None)
					case <-ctx.Done():
						t.Fatalf("%q: not told that nobody leads", name)
					}
				}
				vacant()
				e := a.Election(name)
				l, err := e.Campaign(ctx, []byte("one"))
				require.NoError(t, err)
				hears("one", l.Token())
				require.NoError(t, e.Proclaim(ctx, l, []byte("two")))
				hears("two", l.Token())
				got, err := b.Election(name).Leader(ctx)
				require.NoError(t, err)
				require.Equal(t, redlock.Leader{Value: []byte("two"), Token: l.Token()}, got)
				require.NoError(t, e.Resign(ctx, l))
				vacant()
				cancel()
				<-done
			}
		})
	}
}
