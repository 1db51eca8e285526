package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// chronicle is what leaders of one name have believed, and what observers were told.
type chronicle struct {
	mu     sync.Mutex
	leads  *redlock.Lease    // who believes to lead, or has
	said   map[string]uint64 // values that were proclaimed, or may have been, with their tokens
	terms  int
	told   int
	wrong  []string
	latest uint64 // token that a leader has had
}

func (c *chronicle) complain(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf(format, args...))
}

// begins is called by a leader, with what it has proclaimed.
func (c *chronicle) begins(l *redlock.Lease, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// In this order: l began before, so that both held at the moment of the first look if it still
	// holds at the second.
	if c.leads != nil && c.leads.Err() == nil && l.Err() == nil {
		c.complain("two leaders: %d and %d", c.leads.Token(), l.Token())
	}
	if l.Token() <= c.latest {
		c.complain("token %d after %d", l.Token(), c.latest)
	}
	c.leads, c.latest, c.said[value] = l, l.Token(), l.Token()
	c.terms++
}

// has reports whether there were more terms than that, and observers were told more often.
func (c *chronicle) has(terms, told int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.terms > terms && c.told > told
}

// observe judges what one observer is told.
func (c *chronicle) observe(ctx context.Context, e *redlock.Election) {
	var last redlock.Leader
	first := true
	for l := range e.Observe(ctx) {
		c.mu.Lock()
		c.told++
		token, said := c.said[string(l.Value)]
		switch {
		case l.None && last.None && !first:
			c.complain("None twice")
		case l.None:
			l.Token = last.Token // None has none
		case said && token != l.Token:
			c.complain("%q is the value of %d, and not of %d", l.Value, token, l.Token)
		case l.Token < last.Token:
			c.complain("%d was observed after %d", l.Token, last.Token)
		}
		c.mu.Unlock()
		last, first = l, false
	}
}

// Candidates and observers on real servers, of which one after the other is killed and comes back
// empty: no two leaders, no observer that sees time go back, and nothing left in the end.
func TestElectionsWhileMembersAreKilled(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := &chronicle{said: map[string]uint64{}}
	clients := several(t, cluster, 4, func(c *redlock.Config) {
		c.MaxTTL, c.Entry, c.FreshMembers, c.StallTimeout = time.Second, time.Second, true, 5*time.Second
	})
	var wg sync.WaitGroup
	for i, client := range clients {
		e := client.Election("boss")
		wg.Go(func() { c.observe(ctx, e) })
		rng := rand.New(rand.NewPCG(uint64(i), 1))
		wg.Go(func() {
			first := fmt.Sprint("candidate ", i)
			_ = e.Run(ctx, []byte(first), func(ctx context.Context, l *redlock.Lease) error {
				value := fmt.Sprint("term ", l.Token())
				c.begins(l, value)
				patience, cancel := context.WithTimeout(ctx, time.Second)
				defer cancel()
				_ = e.Proclaim(patience, l, []byte(value))
				select {
				case <-time.After(time.Duration(rng.IntN(100)) * time.Millisecond):
				case <-ctx.Done():
				}
				return nil
			})
		})
	}
	for began, i := time.Now(), 0; ctx.Err() == nil; i = (i + 1) % 3 {
		if time.Since(began) > 4*time.Second && c.has(10, 10) {
			cancel()
			break
		}
		select {
		case <-time.After(500 * time.Millisecond):
		case <-ctx.Done():
			continue
		}
		cluster.Kill(i)
		select {
		case <-time.After(200 * time.Millisecond):
		case <-ctx.Done():
		}
		require.NoError(t, cluster.Restart(false, i))
		for _, c := range clients { // the member votes again: the next one may be killed
			for start := time.Now(); ctx.Err() == nil && time.Since(start) < 8*time.Second && !redlock.MemberAt(c, i).State().Votes; {
				time.Sleep(10 * time.Millisecond)
			}
		}
	}
	wg.Wait()
	require.Empty(t, c.wrong)
	t.Logf("%d terms, and observers were told %d times", c.terms, c.told)
	require.Greater(t, c.terms, 10)
	require.Greater(t, c.told, 10)
	for _, client := range clients {
		require.NoError(t, client.Close())
	}
	require.Eventually(t, func() bool {
		left, err := cluster.Leftovers(context.Background(), lasting...)
		return err == nil && len(left) == 0
	}, 10*time.Second, 50*time.Millisecond, "keys left behind")
}
