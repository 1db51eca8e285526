package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// contest has contenders take one lock in turn, and watches from outside that there is one holder at a
// time and that tokens rise.
type contest struct {
	holder  atomic.Int64
	grants  atomic.Int64
	overlap atomic.Int64
	longest atomic.Int64 // wait for a grant by anybody, ns

	mu    sync.Mutex
	token uint64
	last  time.Time
	fell  int
	errs  []error
}

func (c *contest) run(ctx context.Context, client *redlock.Client, name string, who int64) {
	for ctx.Err() == nil {
		lease, err := client.Mutex(name).Lock(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.note(fmt.Errorf("lock: %w", err))
			}
			continue
		}
		if !c.holder.CompareAndSwap(0, who) {
			c.overlap.Add(1)
		}
		c.grants.Add(1)
		c.mu.Lock()
		if lease.Token() <= c.token {
			c.fell++
		}
		c.token = lease.Token()
		now := time.Now()
		if gap := now.Sub(c.last); !c.last.IsZero() && int64(gap) > c.longest.Load() {
			c.longest.Store(int64(gap))
		}
		c.last = now
		c.mu.Unlock()
		time.Sleep(200 * time.Microsecond)
		if lease.Err() == nil {
			c.holder.CompareAndSwap(who, 0)
		}
		if err := lease.Unlock(context.WithoutCancel(ctx)); err != nil && !errors.Is(err, redlock.ErrLost) {
			c.note(fmt.Errorf("unlock: %w", err))
		}
	}
}

func (c *contest) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

func reshard(t *testing.T, length time.Duration) {
	s := start(t, redistest.ShardedConfig{Replicas: 1})
	const name = "resharded"
	n := int(slot.Of(name))
	var clients []*redlock.Client
	for range 4 {
		clients = append(clients, open(t, s))
	}
	from := s.Index(s.Owner(t.Context(), n))
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var c contest
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() { c.run(ctx, clients[i%4], name, int64(i+1)) })
	}
	moves := 0
	for ctx.Err() == nil {
		to := (from + 1) % s.Masters
		if err := s.Move(context.WithoutCancel(ctx), n, from, to); err != nil {
			require.NoError(t, err)
		}
		from = to
		moves++
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	wg.Wait()
	t.Logf("%d moves, %d grants, longest pause %v", moves, c.grants.Load(), time.Duration(c.longest.Load()))
	require.Empty(t, c.errs)
	require.Zero(t, c.overlap.Load(), "two holders")
	require.Zero(t, c.fell, "tokens that do not rise")
	require.Greater(t, moves, 2)
	require.Greater(t, c.grants.Load(), int64(20))
	require.Less(t, time.Duration(c.longest.Load()), 3*time.Second, "a heartbeat is one second, on a machine that has time for it")
}

func TestSlotIsMovedBackAndForthUnderItsContenders(t *testing.T) {
	t.Parallel()
	reshard(t, 5*time.Second)
}

func TestLongSlotIsMovedBackAndForthUnderItsContenders(t *testing.T) { reshard(t, 30*time.Second) }
