package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// permit takes a permit, and waits for the members that did not decide.
func permit(t testing.TB, p *peer, name string, limit int, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	l, err := p.Semaphore(name, limit, opts...).Acquire(t.Context())
	require.NoError(t, err)
	synctest.Wait()
	return l
}

// census judges the permits of one semaphore: who believes in which slot.
type permitJudge struct {
	mu     sync.Mutex
	limit  int // that of the greatest caller
	holds  map[int]*redlock.Lease
	tokens map[int]uint64
	wrong  []string
	got    int
}

func newPermitJudge(limit int) *permitJudge {
	return &permitJudge{limit: limit, holds: map[int]*redlock.Lease{}, tokens: map[int]uint64{}}
}

// got notes a lease at the moment at which its caller has it.
func (j *permitJudge) granted(l *redlock.Lease) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.got++
	for _, s := range l.Slots() {
		if other := j.holds[s.Number]; other != nil && other.Err() == nil {
			j.wrong = append(j.wrong, fmt.Sprintf("slot %d has two holders: tokens %v and %v", s.Number, other.Slots(), l.Slots()))
		}
		if s.Token <= j.tokens[s.Number] {
			j.wrong = append(j.wrong, fmt.Sprintf("slot %d: token %d after %d", s.Number, s.Token, j.tokens[s.Number]))
		}
		if s.Number < 0 || s.Number >= j.limit {
			j.wrong = append(j.wrong, fmt.Sprintf("slot %d of %d", s.Number, j.limit))
		}
		j.tokens[s.Number], j.holds[s.Number] = s.Token, l
	}
}

// crowd is some callers that take permits of one semaphore again and again.
type crowd struct {
	members, clients, callers int // callers of each client
	limit, n                  int
	rounds                    int           // of each caller
	hold, think               time.Duration // at most
	opts                      []redlock.LockOption
}

// play runs a crowd, and returns how long it took and how often each script was called.
func (c crowd) play(t *testing.T, seed uint64, cluster *redistest.Cluster, all []*peer) (j *permitJudge, took time.Duration, calls int) {
	t.Helper()
	j = newPermitJudge(c.limit)
	var wg sync.WaitGroup
	var rules []*redistest.Rule
	for _, p := range all {
		for _, s := range script.Own() {
			rules = append(rules, p.Count(s)...)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	start := time.Now()
	var failed []error
	for i, p := range all {
		for k := range c.callers {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(seed, uint64(i*1000+k)))
				sem := p.Semaphore("k", c.limit, append(slices.Clone(c.opts), redlock.Permits(max(c.n, 1)))...)
				for range c.rounds {
					l, err := sem.Acquire(ctx)
					if err != nil {
						j.mu.Lock()
						failed = append(failed, err)
						j.mu.Unlock()
						return
					}
					j.granted(l)
					time.Sleep(time.Duration(r.Int64N(int64(c.hold) + 1)))
					if err := l.Unlock(ctx); err != nil {
						j.mu.Lock()
						failed = append(failed, err)
						j.mu.Unlock()
					}
					time.Sleep(time.Duration(r.Int64N(int64(c.think) + 1)))
				}
			})
		}
	}
	wg.Wait()
	took = time.Since(start)
	for _, n := range hits(rules) {
		calls += n
	}
	require.Empty(t, failed)
	require.Empty(t, j.wrong)
	require.Equal(t, c.clients*c.callers*c.rounds, j.got)
	return j, took, calls
}

func TestSemaphoreHasAsManyHoldersAsSlots(t *testing.T) {
	three(t, func(t *testing.T, cluster *redistest.Cluster, a, b, c *peer) {
		x, y := permit(t, a, "k", 2), permit(t, b, "k", 2)
		require.ElementsMatch(t, []int{0, 1}, []int{x.Slot(), y.Slot()})
		for _, p := range []*peer{a, b, c} {
			_, err := p.Semaphore("k", 2).TryAcquire(t.Context())
			require.ErrorIs(t, err, redlock.ErrHeld)
		}
		require.Equal(t, []redlock.Slot{{Number: x.Slot(), Token: x.Token()}}, x.Slots())
		require.Equal(t, 3, x.Votes())
		lock := c.Lock(t, "k") // a mutex of the name is another lock
		require.Empty(t, lock.Slots())
		require.Zero(t, lock.Slot())
		unlock(t, lock)
		w := later(t.Context(), c.Semaphore("k", 2).Acquire)
		time.Sleep(10 * time.Second)
		require.True(t, w.Pending())
		unlock(t, y)
		time.Sleep(10 * time.Millisecond)
		z := w.Get(t)
		require.Equal(t, y.Slot(), z.Slot())
		require.Greater(t, z.Token(), y.Token(), "tokens of a slot rise")
		unlock(t, x, z)
		leftovers(t, cluster)
	})
}

// Crowds of every size: no slot has two holders, tokens of each rise, everybody gets a permit, and nothing is left.
func TestCrowdsOfASemaphore(t *testing.T) {
	for _, c := range []crowd{
		{members: 3, clients: 8, callers: 1, limit: 2, rounds: 10, hold: 10 * time.Millisecond},
		{members: 3, clients: 16, callers: 1, limit: 16, rounds: 10, hold: 10 * time.Millisecond, think: time.Millisecond},
		{members: 3, clients: 24, callers: 1, limit: 16, rounds: 6, hold: 10 * time.Millisecond},
		{members: 3, clients: 2, callers: 20, limit: 5, rounds: 5, hold: 5 * time.Millisecond},
		{members: 5, clients: 8, callers: 2, limit: 4, rounds: 5, hold: 5 * time.Millisecond},
		{members: 1, clients: 4, callers: 2, limit: 3, rounds: 10, hold: 5 * time.Millisecond},
		{members: 3, clients: 6, callers: 1, limit: 1, rounds: 5, hold: 5 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d members, %d x %d on %d", c.members, c.clients, c.callers, c.limit), func(t *testing.T) {
			among(t, c.members, c.clients, func(t *testing.T, cluster *redistest.Cluster, all []*peer) {
				for i, p := range all {
					p.Jitter(uint64(i), time.Millisecond/4, time.Millisecond/4, time.Millisecond/4)
				}
				_, took, calls := c.play(t, 1, cluster, all)
				t.Logf("%v, %.1f calls for each acquisition", took, float64(calls)/float64(c.clients*c.callers*c.rounds))
				time.Sleep(100 * time.Millisecond)
				leftovers(t, cluster)
			}, quiet)
		})
	}
}
