package redlock_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// tenure is that of a lock as its holder believed in it. Its times are ns on one clock.
type tenure = judge.Hold

// history gathers the tenures of clients that contend.
type history struct {
	judge.Recorder
	clock func(time.Time) int64
}

// newHistory books on this process' clock. Its tenures have nothing to do with another history's.
func newHistory() *history {
	epoch := time.Now()
	return &history{clock: func(t time.Time) int64 { return int64(t.Sub(epoch)) }}
}

// tenure takes the lock, does work, and books what it may have believed in between.
func (h *history) tenure(ctx context.Context, c *redlock.Client, who int, key string, work func(*redlock.Lease), opts ...redlock.LockOption) error {
	patience, cancel := context.WithTimeout(ctx, time.Minute) // longer than any lease lives by itself
	defer cancel()
	lease, err := c.Mutex(key, opts...).Lock(patience)
	if err != nil {
		return err
	}
	from := time.Now()
	work(lease)
	to := time.Now()
	if until := lease.ValidUntil(); clock.Until(until, to) < 0 {
		to = until
	}
	h.add(tenure{Client: who, Key: key, Token: lease.Token(), From: h.clock(from), To: h.clock(to)})
	return lease.Unlock(context.WithoutCancel(ctx))
}

func (h *history) add(all ...tenure)  { h.Add(all...) }
func (h *history) len() int           { return h.Len() }
func (h *history) counts(n int) []int { return h.PerClient(n) }

// verify fails the test if exclusion or the order of tokens was broken.
func (h *history) verify(t testing.TB) {
	t.Helper()
	v := judge.Check(h.Holds())
	require.True(t, v.Clean(), "%v in %d tenures", v, h.len())
}

// handOvers returns the gaps between one holder's tenure and the next one's, in ascending order.
func (h *history) handOvers() (gaps []time.Duration) {
	holds := h.Holds()
	slices.SortFunc(holds, func(x, y tenure) int { return cmp.Compare(x.From, y.From) })
	for i := 1; i < len(holds); i++ {
		if x, y := holds[i-1], holds[i]; x.Client != y.Client && x.Key == y.Key {
			gaps = append(gaps, time.Duration(y.From-x.To))
		}
	}
	slices.Sort(gaps)
	return gaps
}

// jain is Jain's index of fairness: 1 if all have the same, 1/n if one has everything.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, x := range counts {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(counts)) * squares)
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

func TestJainsIndexIsOneIfAllHaveTheSame(t *testing.T) {
	require.InDelta(t, 1, jain([]int{7, 7, 7}), 1e-9)
	require.InDelta(t, 1.0/3, jain([]int{7, 0, 0}), 1e-9)
}

// patient clients wait for an answer longer than a busy machine takes, for tests in which every member
// is well. Their servers were made for the test.
func patient(c *redlock.Config) {
	c.MemberTimeout, c.StallTimeout, c.FreshMembers = 10*time.Second, 20*time.Second, true
}

// dialed is open, and waits until the client can vote and be woken everywhere.
func dialed(t testing.TB, cluster *redistest.Cluster, opts ...redlock.Option) *redlock.Client {
	t.Helper()
	c := open(t, cluster, opts...)
	settle(t, cluster.Len(), c)
	return c
}

// settle waits until clients can vote and be woken at n members.
func settle(t testing.TB, n int, clients ...*redlock.Client) {
	t.Helper()
	for _, c := range clients {
		(&peer{Client: c}).Settle(t, n)
	}
}

// opened is redlock.Open for servers that are there.
func opened(t testing.TB, urls []string, opts ...redlock.Option) *redlock.Client {
	t.Helper()
	c, err := redlock.Open(t.Context(), urls, opts...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// urls lists where real servers listen.
func urls(cluster *redistest.Cluster) (out []string) {
	for _, s := range cluster.Servers {
		out = append(out, "redis://"+s.Addr())
	}
	return out
}

// together runs n goroutines, waits for them, and fails the test with their errors.
func together(t testing.TB, n int, f func(i int) error) {
	t.Helper()
	require.NoError(t, joined(n, f))
}

// joined is together without a test.
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
		left, err = cluster.Leftovers(context.Background(), lasting...)
		return err == nil && len(left) == 0
	}, 20*time.Second, 20*time.Millisecond, "left behind: %v", &left)
}

// long skips a test that takes a minute or more.
func long(t testing.TB) {
	t.Helper()
	if os.Getenv("REDQUORUM_LONG") == "" {
		t.Skip("LONG: takes a minute; `make test-long` sets REDQUORUM_LONG=1 and runs it")
	}
}

// inLine waits until n waiters of a name are registered at a majority, the members at which somebody
// else holds it. At others one of them may have a vote itself.
func inLine(ctx context.Context, servers []redistest.Server, name string, n int64) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	again := time.NewTicker(time.Millisecond)
	defer again.Stop()
	for {
		there := 0
		for _, s := range servers {
			v, err := s.Do(ctx, "ZCARD", queueOf(name))
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
