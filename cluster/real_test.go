package cluster_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

func start(t testing.TB, c redistest.ShardedConfig) *redistest.Sharded {
	t.Helper()
	rt.Needs(t)
	ctx := rt.Within(t, 2*time.Minute)
	s := rt.Must(redistest.StartSharded(ctx, c))(t)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// urlOf has no failover lag: where a test stops the former master it is known that it grants nothing.
func urlOf(s *redistest.Sharded) string {
	return "redis-cluster://" + strings.Join(s.Addrs(), ",") + "?failover_lag=0s"
}

// quick looks often, and is patient with a machine that has other things to do.
func quick(c *redlock.Config) {
	c.FreshMembers = true
	c.PingInterval = 200 * time.Millisecond
	c.MemberTimeout, c.DialTimeout, c.StallTimeout, c.NoQuorumAfter = 30*time.Second, time.Minute, time.Minute, -1
}

func configOf(opts ...func(*redlock.Config)) (c redlock.Config) {
	quick(&c)
	for _, o := range opts {
		o(&c)
	}
	return c
}

func traced(t redlock.Tracer) func(*redlock.Config) { return func(c *redlock.Config) { c.Tracer = t } }

func open(t testing.TB, s *redistest.Sharded, opts ...func(*redlock.Config)) *redlock.Client {
	t.Helper()
	return openAll(t, []string{urlOf(s)}, opts...)
}

// ending is the context of a call that is to succeed: what cannot, fails, and does not hold up the others.
func ending(t testing.TB) context.Context { return rt.Within(t, 2*time.Minute) }

func openAll(t testing.TB, urls []string, opts ...func(*redlock.Config)) *redlock.Client {
	t.Helper()
	cfg := configOf(opts...)
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	c := rt.Must(redlock.Open(t.Context(), urls, cfg))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestOneClusterUnderTwoNamesIsNotTwoMembers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	var urls []string
	for _, addr := range s.Addrs()[:3] {
		urls = append(urls, "redis-cluster://"+addr+"?failover_lag=0s")
	}
	require.ErrorIs(t, rt.Err(redlock.Open(t.Context(), urls, configOf())), redlock.ErrDuplicateMember)
}

// A lock in each of many slots, of all masters.
func TestEverySlotIsCoveredByLocks(t *testing.T) {
	t.Parallel()
	everySlot(t, shared(t), 97)
}

func TestLongEverySlotIsCoveredByLocks(t *testing.T) {
	long(t)
	s := start(t, redistest.ShardedConfig{})
	everySlot(t, s, 1)
	require.Less(t, calls(t, s, "evalsha"), slot.Count, "each lock is two calls, which travel together")
}

func everySlot(t *testing.T, s *redistest.Sharded, step int) {
	c := open(t, s)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for w := range 64 {
		wg.Go(func() {
			for i := w * step; i < slot.Count; i += 64 * step {
				lease, err := c.Mutex("every:{" + slot.TagOf(uint16(i)) + "}").Lock(ending(t))
				if err == nil {
					err = lease.Unlock(t.Context())
				}
				if err != nil {
					failed.Store(&err)
					return
				}
			}
		})
	}
	wg.Wait()
	if err := failed.Load(); err != nil {
		require.NoError(t, *err)
	}
	count := func(pattern string) (n int) {
		for _, r := range s.Servers[:s.Masters] {
			found := asked(t, r, "KEYS", pattern)
			n += len(found.([]any))
		}
		return n
	}
	require.Equal(t, slot.Count, count("redquorum:tokens:*"), "one key of counters for each slot")
	require.Equal(t, s.Masters, count("redquorum:boot:*"), "one marker for each master")
	require.Zero(t, count("every:*"), "nothing is left of a lock")
}

func TestNamesOfEveryShapeAreLocksInACluster(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, b := open(t, s), open(t, s)
	for _, name := range []string{
		"plain", "{tag}", "a{tag}b", "{}", "{}x", "a{b", "a}b{c", "{{a}}", "a{b}{c}", "}{", "{", "}", " ", "\x00\xff\r\n$", "{\r\n}", "$16\r\nredquorum:tokens\r\n$14\r\nredquorum:boot\r\n",
		strings.Repeat("n", 1024), "{" + slot.TagOf(0) + "}", "ключ", "{0x}:{y}",
	} {
		lease := lock(t, a, name)
		require.ErrorIs(t, rt.Err(b.Mutex(name).TryLock(t.Context())), redlock.ErrHeld)
		got := waiting(t, a, b, name)
		require.NoError(t, lease.Extend(t.Context(), 20*time.Second))
		require.NoError(t, lease.Unlock(t.Context()), "%q", name)
		next := got.Get(t)
		require.NotNil(t, next, "%q", name)
		require.Greater(t, next.Token(), lease.Token(), "%q", name)
		require.True(t, rt.Must(a.ForceUnlock(t.Context(), name))(t))
		_ = next.Unlock(t.Context())
	}
	require.ErrorIs(t, rt.Err(a.Mutex("").Lock(ending(t))), redlock.ErrInput)
}

func asked(t testing.TB, r *redistest.Real, args ...string) any {
	t.Helper()
	got, err := r.Do(t.Context(), args...)
	require.NoError(t, err, args)
	return got
}

func lock(t testing.TB, c *redlock.Client, name string, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	l, err := c.Mutex(name, opts...).Lock(ending(t))
	require.NoError(t, err, "%q", name)
	return l
}

// waiting has b wait for a lock that a holds, and returns when b stands in line.
func waiting(t *testing.T, a, b *redlock.Client, name string) *rt.Later[*redlock.Lease] {
	t.Helper()
	got := rt.Begin(func() (*redlock.Lease, error) { return b.Mutex(name).Lock(ending(t)) })
	inLine(t, a, name)
	return got
}

func inLine(t *testing.T, a *redlock.Client, name string) {
	t.Helper()
	becomes(t, "one waits in line", func() bool {
		seen, err := a.Inspect(t.Context(), name)
		return err == nil && len(seen.Members[0].Queue) == 1
	})
}
