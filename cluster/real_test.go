package cluster_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"runtime/pprof"
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

// urlOf has no failover lag: where a test stops the former master it is known that it grants nothing.
func urlOf(s *redistest.Sharded) string {
	return "redis-cluster://" + strings.Join(s.Addrs(), ",") + "?failover_lag=0s"
}

// quick looks often, and is patient with a machine that has other things to do.
func quick(c *redlock.Config) {
	c.FreshMembers = true
	c.PingInterval = 200 * time.Millisecond
	c.MemberTimeout, c.DialTimeout, c.StallTimeout, c.NoQuorumAfter = 5*time.Second, 10*time.Second, 10*time.Second, -1
}

func open(t testing.TB, s *redistest.Sharded, opts ...redlock.Option) *redlock.Client {
	t.Helper()
	return openAll(t, []string{urlOf(s)}, opts...)
}

// ending is the context of a call that is to succeed: what cannot, fails, and does not hold up the others.
func ending(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func openAll(t testing.TB, urls []string, opts ...redlock.Option) *redlock.Client {
	t.Helper()
	patient := make([]string, len(urls)) // a write, too, takes longer than usual where the machine is busy before it
	for i, u := range urls {
		sep := "?"
		if strings.Contains(u, "?") {
			sep = "&"
		}
		patient[i] = u + sep + "write_timeout=1m"
	}
	opts = append([]redlock.Option{quick, redlock.WithLogger(slog.New(slog.NewTextHandler(&testLog{t}, nil)))}, opts...)
	var c *redlock.Client
	noneLeft(t, func() {
		var err error
		c, err = redlock.Open(t.Context(), patient, opts...)
		require.NoError(t, err)
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// noneLeft runs start, and at the end of the test makes sure that no goroutine is left of those that it
// started, or that those started. They are known by their label, so that other tests may run meanwhile.
func noneLeft(t testing.TB, start func()) {
	t.Helper()
	label := rand.Text()
	t.Cleanup(func() {
		t.Helper()
		var left string
		require.Eventually(t, func() bool {
			var b strings.Builder
			if err := pprof.Lookup("goroutine").WriteTo(&b, 1); err != nil {
				return false
			}
			left = ""
			for part := range strings.SplitSeq(b.String(), "\n\n") {
				if strings.Contains(part, label) {
					left += part + "\n\n"
				}
			}
			return left == ""
		}, 10*time.Second, 5*time.Millisecond, "goroutines are left: %s", leftText{&left})
	})
	pprof.Do(context.Background(), pprof.Labels("started by", label), func(context.Context) { start() })
}

type leftText struct{ s *string }

func (l leftText) String() string { return *l.s }

// testLog writes into the test's log.
type testLog struct{ t testing.TB }

func (l *testLog) Write(p []byte) (int, error) {
	l.t.Log(time.Now().Format("05.000 ") + strings.TrimSpace(string(p)))
	return len(p), nil
}

func TestLocksAreTakenHeldAndHandedOverInACluster(t *testing.T) {
	t.Parallel()
	s := shared(t)
	a, b := open(t, s), open(t, s)
	for i := range 20 {
		name := fmt.Sprintf("handed%d", i)
		lease, err := a.Mutex(name).Lock(ending(t))
		require.NoError(t, err)
		_, err = b.Mutex(name).TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		got := make(chan *redlock.Lease, 1)
		errs := make(chan error, 1)
		go func() {
			l, err := b.Mutex(name).Lock(ending(t))
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

func TestOneClusterUnderTwoNamesIsNotTwoMembers(t *testing.T) {
	t.Parallel()
	s := shared(t)
	var urls []string
	for _, addr := range s.Addrs()[:3] {
		urls = append(urls, "redis-cluster://"+addr+"?failover_lag=0s&write_timeout=1m")
	}
	_, err := redlock.Open(t.Context(), urls, quick, func(c *redlock.Config) { c.DialTimeout = 30 * time.Second })
	require.ErrorIs(t, err, redlock.ErrDuplicateMember)
}

func TestEverySlotIsCoveredByLocks(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := open(t, s)
	var wg sync.WaitGroup
	var failed atomic.Pointer[error]
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < slot.Count; i += 64 {
				lease, err := c.Mutex("every:{" + slot.TagOf(uint16(i)) + "}").TryLock(t.Context())
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
			found, err := r.Do(t.Context(), "KEYS", pattern)
			require.NoError(t, err)
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
		lease, err := a.Mutex(name).Lock(ending(t))
		require.NoError(t, err, "%q", name)
		got := make(chan *redlock.Lease, 1)
		go func() {
			l, err := b.Mutex(name).Lock(ending(t))
			if err != nil {
				t.Error(err)
			}
			got <- l
		}()
		require.Eventually(t, func() bool {
			seen, err := a.Inspect(t.Context(), name)
			return err == nil && len(seen.Members[0].Queue) == 1
		}, 20*time.Second, time.Millisecond, "%q: it waits in line", name)
		require.NoError(t, lease.Extend(t.Context(), 20*time.Second))
		require.NoError(t, lease.Unlock(t.Context()), "%q", name)
		next := <-got
		require.Greater(t, next.Token(), lease.Token(), "%q", name)
		held, err := a.ForceUnlock(t.Context(), name)
		require.NoError(t, err)
		require.True(t, held)
		_ = next.Unlock(t.Context())
	}
	_, err := a.Mutex("").Lock(ending(t))
	require.ErrorIs(t, err, redlock.ErrInput)
}

func TestManyLeasesOfManySlotsAreRenewed(t *testing.T) {
	t.Parallel()
	s := shared(t)
	c := open(t, s)
	var leases []*redlock.Lease
	for i := range 300 {
		lease, err := c.Mutex(fmt.Sprintf("lease%d", i), redlock.AutoRenew(2*time.Second)).Lock(ending(t))
		require.NoError(t, err)
		leases = append(leases, lease)
	}
	began := time.Now()
	for _, l := range leases {
		require.Eventually(t, func() bool { return l.ValidUntil().After(began.Add(2500 * time.Millisecond)) }, 20*time.Second, time.Millisecond)
		require.NoError(t, l.Err())
	}
	for _, l := range leases {
		require.NoError(t, l.Unlock(t.Context()))
	}
}

// A quorum of five of which one is a cluster. The cluster is down at first, then joins, then is what
// makes a majority.
func TestLongClusterIsOneVoteOfFive(t *testing.T) {
	s := start(t, redistest.ShardedConfig{})
	plain := rt.Real(t, 4)
	urls := []string{urlOf(s)}
	for _, m := range plain.Servers {
		urls = append(urls, "redis://"+m.Addr())
	}
	c := openAll(t, urls, func(c *redlock.Config) { c.MaxTTL = 2 * time.Second })
	voting := func(n int) {
		t.Helper()
		require.Eventually(t, func() bool {
			up := 0
			for _, m := range c.Members() {
				if m.State == redlock.MemberVoting {
					up++
				}
			}
			return up == n
		}, 30*time.Second, time.Millisecond)
	}
	voting(5)
	var last uint64
	locked := func(votes int) {
		t.Helper()
		for i := range 20 {
			var lease *redlock.Lease
			require.Eventually(t, func() bool {
				l, err := c.Mutex(fmt.Sprintf("{five}%d", i)).Lock(ending(t))
				if err != nil {
					return false
				}
				if lease = l; l.Votes() < votes {
					_ = l.Unlock(t.Context())
					return false
				}
				return true
			}, 30*time.Second, 10*time.Millisecond)
			require.Greater(t, lease.Token(), last)
			last = lease.Token()
			released(t, lease)
		}
	}
	locked(3)
	plain.Kill(0, 1)
	locked(3) // with the cluster's vote, or not at all
	// The cluster's counters are good for members that forgot.
	require.NoError(t, plain.Restart(false, 0, 1))
	voting(5)
	locked(3)
	plain.Kill(2, 3)
	locked(3)
}
