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
	lost    atomic.Int64 // leases that were over when they were given back
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
		if err := lease.Unlock(context.WithoutCancel(ctx)); errors.Is(err, redlock.ErrLost) {
			c.lost.Add(1)
		} else if err != nil {
			c.note(fmt.Errorf("unlock: %w", err))
		}
	}
}

// few grants show nothing.
const few = 20

// check says what callers must never see; waited is what busy has measured, or as much.
func (c *contest) check(t *testing.T, waited time.Duration) {
	t.Helper()
	pause := time.Duration(c.longest.Load())
	t.Logf("%d grants, longest pause %v, longest wait for a PING %v", c.grants.Load(), pause, waited)
	for _, err := range c.errs { // an answer that comes after MemberTimeout: here it is the machine that is late, if a PING takes a quarter as long
		require.True(t, errors.Is(err, redlock.ErrInDoubt) && waited >= memberTimeout/4, "%v", err)
		t.Log("excused:", err)
	}
	require.Zero(t, c.lost.Load(), "leases that ended under their holders")
	require.Zero(t, c.overlap.Load(), "two holders")
	require.Zero(t, c.fell, "tokens that do not rise")
	require.Greater(t, c.grants.Load(), int64(few))
	require.Less(t, pause, heartbeat+2*waited)
}

func (c *contest) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.errs = append(c.errs, err)
}

// heartbeat is how long a lost push can go unnoticed: a third of Config.Entry.
const heartbeat = time.Second

// memberTimeout is the default of Config.MemberTimeout.
const memberTimeout = 200 * time.Millisecond

// asShipped are the defaults, but for the time that opening may take: a test of what callers get must not
// be more patient than they are.
func asShipped(c *redlock.Config) {
	*c = redlock.Config{FreshMembers: true, Logger: c.Logger, DialTimeout: 10 * time.Second, MemberTimeout: memberTimeout, Entry: 3 * heartbeat}
}

// busy measures how long this machine lets somebody wait who only asks a server for an answer. What a test
// takes longer than it may, it is excused for up to twice that.
func busy(ctx context.Context, r *redistest.Real) (longest func() time.Duration) {
	var worst time.Duration
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			began := time.Now()
			time.Sleep(time.Millisecond)
			_, err := r.Do(context.WithoutCancel(ctx), "PING")
			if took := time.Since(began); err == nil && took > worst {
				worst = took
			}
		}
	}()
	return func() time.Duration { <-done; return worst }
}

// reshard moves the slot of one lock from master to master under 64 callers of four clients.
func reshard(t *testing.T, server redistest.RealConfig, length time.Duration) {
	s := start(t, redistest.ShardedConfig{Replicas: 1, Server: server})
	const name = "resharded"
	n := int(slot.Of(name))
	var clients []*redlock.Client
	for range 4 {
		clients = append(clients, open(t, s, asShipped))
	}
	from := s.Index(s.Owner(t.Context(), n))
	replica := s.Servers[s.Masters]
	ctx, cancel := context.WithTimeout(t.Context(), length+time.Minute)
	defer cancel()
	excuse := busy(ctx, replica)
	var c contest
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() { c.run(ctx, clients[i%4], name, int64(i+1)) })
	}
	moves, slowest := 0, time.Duration(0)
	for start := time.Now(); ctx.Err() == nil; {
		if time.Since(start) >= length && moves > 2 && c.grants.Load() > few { // a busy machine takes longer
			cancel()
			break
		}
		to := (from + 1) % s.Masters
		began := time.Now()
		require.NoError(t, s.Move(context.WithoutCancel(ctx), n, from, to))
		slowest = max(slowest, time.Since(began))
		from = to
		moves++
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	wg.Wait()
	t.Logf("%d moves, the slowest took %v", moves, slowest)
	require.Greater(t, moves, 2)
	// While the slot is between its masters nobody serves it: a machine that is slow to move it is busy, too.
	c.check(t, max(excuse(), slowest/2))
}

// Three seconds, by servers with sharded channels and without.
func TestSlotIsMovedBackAndForthUnderItsContenders(t *testing.T) {
	t.Parallel()
	reshardBoth(t, 3*time.Second)
}

func TestLongSlotIsMovedBackAndForthUnderItsContenders(t *testing.T) { reshardBoth(t, 30*time.Second) }

func reshardBoth(t *testing.T, length time.Duration) {
	t.Run("sharded", func(t *testing.T) { reshard(t, redistest.RealConfig{}, length) })
	t.Run("not sharded", func(t *testing.T) { reshard(t, unsharded, length) })
}
