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
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// tenure is that of a lock as its holder believed in it: from the return of Lock to the call of
// Unlock, or to the end of validity where that came first. From and To are ns on one clock.
type tenure struct {
	Who   int    `json:"who"`
	Key   string `json:"key"`
	Token uint64 `json:"token"`
	From  int64  `json:"from"`
	To    int64  `json:"to"`
}

// history gathers the tenures of clients that contend.
type history struct {
	clock func(time.Time) int64

	mu    sync.Mutex
	holds []tenure
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
	h.add(tenure{who, key, lease.Token(), h.clock(from), h.clock(to)})
	return lease.Unlock(context.WithoutCancel(ctx))
}

func (h *history) add(all ...tenure) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.holds = append(h.holds, all...)
}

func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.holds)
}

// broken lists what must never be: two tenures of a key at once, one token given out twice, a later
// tenure with a smaller token.
func (h *history) broken() (all []string) {
	h.mu.Lock()
	holds := slices.Clone(h.holds)
	h.mu.Unlock()
	slices.SortStableFunc(holds, func(x, y tenure) int {
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.From, y.From))
	})
	type grant struct {
		key   string
		token uint64
	}
	seen := map[grant]bool{}
	var last tenure // of the key, with the latest end
	for _, x := range holds {
		if g := (grant{x.Key, x.Token}); seen[g] {
			all = append(all, fmt.Sprintf("token given out twice: %+v", x))
		} else {
			seen[g] = true
		}
		if x.To <= x.From {
			continue // its validity had ended before its holder looked: nobody believed in it
		}
		if x.Key == last.Key {
			if x.From < last.To {
				all = append(all, fmt.Sprintf("two at once: %+v and %+v", last, x))
			}
			if x.Token <= last.Token {
				all = append(all, fmt.Sprintf("later, with no greater token: %+v and then %+v", last, x))
			}
		}
		if x.Key != last.Key || x.To > last.To {
			last = x
		}
	}
	return all
}

// verify fails the test if exclusion or the order of tokens was broken.
func (h *history) verify(t testing.TB) {
	t.Helper()
	bad := h.broken()
	require.Empty(t, bad[:min(len(bad), 10)], "%d violations in %d tenures", len(bad), h.len())
}

// counts returns the number of tenures of each of n holders.
func (h *history) counts(n int) []int {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make([]int, n)
	for _, x := range h.holds {
		out[x.Who]++
	}
	return out
}

// handOvers returns the gaps between one holder's tenure and the next one's, in ascending order.
func (h *history) handOvers() (gaps []time.Duration) {
	h.mu.Lock()
	holds := slices.Clone(h.holds)
	h.mu.Unlock()
	slices.SortFunc(holds, func(x, y tenure) int { return cmp.Compare(x.From, y.From) })
	for i := 1; i < len(holds); i++ {
		if x, y := holds[i-1], holds[i]; x.Who != y.Who && x.Key == y.Key {
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

func TestHistoryFindsWhatMustNeverBe(t *testing.T) {
	good := []tenure{{0, "k", 1, 0, 10}, {1, "k", 2, 10, 20}, {0, "other", 2, 5, 15}, {2, "k", 4, 21, 30}, {3, "k", 3, 25, 25}}
	for _, c := range []struct {
		name string
		add  []tenure
		want string
	}{
		{"nothing wrong", nil, ""},
		{"overlap", []tenure{{0, "k", 5, 29, 40}}, "two at once"},
		{"overlap with a long one", []tenure{{0, "k", 5, 31, 90}, {1, "k", 6, 90, 95}, {1, "k", 7, 89, 91}}, "two at once"},
		{"falling token", []tenure{{0, "k", 3, 40, 50}}, "no greater token"},
		{"same token", []tenure{{0, "k", 4, 40, 50}}, "given out twice"},
		{"same token, never believed in", []tenure{{0, "k", 4, 40, 40}}, "given out twice"},
	} {
		h := newHistory()
		h.add(good...)
		h.add(c.add...)
		if c.want == "" {
			require.Empty(t, h.broken(), c.name)
			continue
		}
		require.Contains(t, fmt.Sprint(h.broken()), c.want, c.name)
	}
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
