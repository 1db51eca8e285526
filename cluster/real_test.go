package cluster_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// start starts a Redis Cluster that ends with the test.
func start(t testing.TB, c redistest.ShardedConfig) *redistest.Sharded {
	t.Helper()
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := redistest.StartSharded(ctx, c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func urlOf(s *redistest.Sharded) string { return "redis-cluster://" + strings.Join(s.Addrs(), ",") }

func quick(c *redlock.Config) {
	c.FreshMembers = true
	c.PingInterval = 200 * time.Millisecond
}

func open(t testing.TB, s *redistest.Sharded, opts ...redlock.Option) *redlock.Client {
	t.Helper()
	return openAll(t, []string{urlOf(s)}, opts...)
}

func openAll(t testing.TB, urls []string, opts ...redlock.Option) *redlock.Client {
	t.Helper()
	c, err := redlock.Open(t.Context(), urls, append([]redlock.Option{quick, redlock.WithLogger(slog.New(slog.NewTextHandler(&testLog{t}, &slog.HandlerOptions{Level: slog.LevelDebug})))}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// testLog writes into the test's log.
type testLog struct{ t testing.TB }

func (l *testLog) Write(p []byte) (int, error) {
	l.t.Log(time.Now().Format("05.000 ") + strings.TrimSpace(string(p)))
	return len(p), nil
}

func TestLocksAreTakenHeldAndHandedOverInACluster(t *testing.T) {
	s := start(t, redistest.ShardedConfig{})
	a, b := open(t, s), open(t, s)
	for i := range 20 {
		name := fmt.Sprintf("k%d", i)
		lease, err := a.Mutex(name).Lock(t.Context())
		require.NoError(t, err)
		_, err = b.Mutex(name).TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		got := make(chan *redlock.Lease, 1)
		errs := make(chan error, 1)
		go func() {
			l, err := b.Mutex(name).Lock(t.Context())
			errs <- err
			got <- l
		}()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, lease.Extend(t.Context(), 20*time.Second))
		at := time.Now()
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, <-errs)
		next := <-got
		t.Log("handed over after", time.Since(at))
		require.Greater(t, next.Token(), lease.Token())
		require.NoError(t, next.Unlock(t.Context()))
	}
}
