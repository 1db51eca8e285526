package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// vault has the password of each member, and counts who asks.
type vault struct {
	mu        sync.Mutex
	passwords map[string]string
	asked     map[string]int
}

func (v *vault) give(_ context.Context, member string) (user, password string, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asked[member]++
	return "", v.passwords[member], nil
}

func (v *vault) count(member string) int { v.mu.Lock(); defer v.mu.Unlock(); return v.asked[member] }

// A member's password changes and its connections are ended, one member after the other, under callers that go on.
func TestPasswordThatChangesCostsNoLease(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	v := &vault{passwords: map[string]string{}, asked: map[string]int{}}
	var urls []string
	admins := make([]*redistest.Client, cluster.Len())
	for i, s := range cluster.Servers {
		urls = append(urls, "redis://:not-this-one@"+s.Addr())
		admin, err := redistest.DialClient(t.Context(), s.Dialer(), s.Addr())
		require.NoError(t, err)
		defer admin.Close()
		admins[i] = admin
	}
	do := func(i int, args ...string) {
		t.Helper()
		_, err := admins[i].Do(t.Context(), args...)
		require.NoError(t, err)
	}
	rotate := func(i int, password string) {
		v.mu.Lock()
		v.passwords[cluster.Servers[i].Addr()] = password
		v.mu.Unlock()
		do(i, "CONFIG", "SET", "requirepass", password)
	}
	for i := range cluster.Servers {
		rotate(i, "first")
	}
	c, err := redlock.Open(t.Context(), urls, patient, redlock.WithFreshMembers(), func(c *redlock.Config) {
		c.Credentials, c.NoQuorumAfter, c.DialTimeout = v.give, -1, 10*time.Second
	})
	require.NoError(t, err)
	defer c.Close()
	voting := func() bool {
		for _, m := range c.Members() {
			if m.State != redlock.MemberVoting {
				return false
			}
		}
		return true
	}
	require.Eventually(t, voting, 30*time.Second, time.Millisecond)
	held := locked(t, c, "held")

	var callers sync.WaitGroup
	stop := make(chan struct{})
	for n := range 64 {
		callers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				l, err := c.Mutex(fmt.Sprint("k", n)).Lock(t.Context())
				if !assert.NoError(t, err) {
					return
				}
				// A connection that ends under a release leaves it in doubt, and the client delivers it later.
				if err := l.Unlock(t.Context()); !errors.Is(err, redlock.ErrInDoubt) && !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	for change := range 6 {
		i := change % cluster.Len()
		name := cluster.Servers[i].Addr()
		before := v.count(name)
		rotate(i, fmt.Sprint("password-", change))
		do(i, "CLIENT", "KILL", "TYPE", "normal")
		do(i, "CLIENT", "KILL", "TYPE", "pubsub")
		require.Eventually(t, func() bool { return v.count(name) > before && voting() }, 30*time.Second, time.Millisecond, "%v", c.Members())
	}
	close(stop)
	callers.Wait()
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}
