package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Helpers of tests on real servers.

// ending is the context of a call that is to succeed: one that cannot fails, and holds up no other test.
func ending(t testing.TB) context.Context { return rt.Within(t, time.Minute) }

func locked(t testing.TB, c interface {
	Mutex(name string, opts ...redlock.LockOption) *redlock.Mutex
}, name string, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	return rt.Must(c.Mutex(name, opts...).Lock(ending(t)))(t)
}

// full waits until a lease of a fresh name has the votes of all members.
func full(t testing.TB, c *redlock.Client, name string) {
	t.Helper()
	require.Eventually(t, func() bool {
		lease, err := c.Mutex(name).Lock(ending(t))
		if err != nil {
			return false
		}
		defer func() { _ = lease.Unlock(t.Context()) }()
		for range 100 { // the last votes come after the decision
			if lease.Votes() == len(c.Members()) {
				return true
			}
			time.Sleep(time.Millisecond)
		}
		return false
	}, time.Minute, 10*time.Millisecond)
}

// patient clients wait for an answer longer than a busy machine takes, for tests in which every member
// is well. Their servers were made for the test.
func patient(c *redlock.Config) {
	c.MemberTimeout, c.StallTimeout, c.DialTimeout, c.FreshMembers = 10*time.Second, 20*time.Second, 20*time.Second, true
}

func settle(t testing.TB, n int, clients ...*redlock.Client) {
	t.Helper()
	for _, c := range clients {
		(&redlock.Peer{Client: c}).Settle(t, n)
	}
}

// opened is redlock.Open for servers that are there.
func opened(t testing.TB, urls []string, opts ...redlock.Option) *redlock.Client {
	t.Helper()
	c := rt.Must(redlock.OpenWith(t.Context(), urls, opts...))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func urls(cluster *redistest.Cluster) []string { return cluster.URLs() }

// together runs n goroutines, waits for them, and fails the test with their errors.
func together(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	require.NoError(t, joined(n, f))
}

func joined(n int, f func(i int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if err := f(i); err != nil {
				errs[i] = fmt.Errorf("%d: %w", i, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// clean waits until nothing but the token counters is left: a release that nobody waited for may still
// be on its way.
func clean(t testing.TB, cluster *redistest.Cluster) {
	t.Helper()
	var left []string
	require.Eventually(t, func() bool {
		var err error
		left, err = cluster.Leftovers(context.Background(), redlock.Lasting...)
		return err == nil && len(left) == 0
	}, time.Minute, 20*time.Millisecond, "left behind: %v", &left)
}

// inLine waits until n waiters of a name are registered at a majority, the members at which somebody
// else holds it. At others one of them may have a vote itself.
func inLine(ctx context.Context, servers []redistest.Server, name string, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		there := 0
		for _, s := range servers {
			v, err := s.Do(ctx, "ZCARD", redlock.QueueOf(name))
			if err != nil {
				return err
			}
			if v == n {
				there++
			}
		}
		if there > len(servers)/2 {
			return nil
		}
		<-again.C
	}
}
