package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
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

// administered are the URLs of members, which begin with scheme, and a connection to each that stays when its password
// changes.
func administered(t *testing.T, cluster *redistest.Cluster, scheme string) (urls []string, admins []*redistest.Client) {
	t.Helper()
	for _, s := range cluster.Servers {
		admin, err := redistest.DialClient(t.Context(), s.Dialer(), s.Addr())
		require.NoError(t, err)
		t.Cleanup(func() { admin.Close() })
		urls, admins = append(urls, scheme+s.Addr()), append(admins, admin)
	}
	return urls, admins
}

// A member's password changes and its connections are ended, one member after the other, under callers that go on.
func TestPasswordThatChangesCostsNoLease(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	v := &vault{passwords: map[string]string{}, asked: map[string]int{}}
	urls, admins := administered(t, cluster, "redis://:not-this-one@")
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

// A client at rest looks at its members seldom. An AUTH that one of them does not answer is noticed all the same.
func TestMemberThatDoesNotAnswerToAuthIsNoticedAtRest(t *testing.T) {
	bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var password atomic.Value
		password.Store("pw")
		urls, ways := meshed(cluster)
		for i := range cluster.Len() {
			cluster.Embedded(i).Require("pw")
		}
		c, err := redlock.Open(t.Context(), urls, ways, redlock.WithFreshMembers(), func(c *redlock.Config) {
			c.PingInterval, c.StallTimeout, c.CredentialsEvery = time.Minute, 2*time.Second, 4*time.Minute
			c.Credentials = func(context.Context, string) (string, string, error) { return "", password.Load().(string), nil }
		})
		require.NoError(t, err)
		defer c.Close()
		time.Sleep(3 * time.Minute)
		password.Store("not that of these members, which refuse it")
		cluster.Pause(1)
		time.Sleep(time.Minute + 3*time.Second)
		require.Equal(t, redlock.MemberDown, c.Members()[1].State)
		require.Equal(t, redlock.MemberVoting, c.Members()[0].State)
		cluster.Resume(1)
	})
}

// The passwords of all members change again and again under callers that go on, and no connection is replaced for that: each
// is authenticated anew.
func TestConnectionsAreAuthenticatedAnewUnderCallers(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	v := &vault{passwords: map[string]string{}, asked: map[string]int{}}
	urls, admins := administered(t, cluster, "redis://")
	// Both passwords are good until nobody asks for the old one any more, as it is done in production.
	rotate := func(password string) {
		for i, s := range cluster.Servers {
			_, err := admins[i].Do(t.Context(), "ACL", "SETUSER", "default", ">"+password)
			require.NoError(t, err)
			v.mu.Lock()
			v.passwords[s.Addr()] = password
			v.mu.Unlock()
		}
	}
	forget := func(password string) {
		for i := range admins {
			_, err := admins[i].Do(t.Context(), "ACL", "SETUSER", "default", "<"+password)
			require.NoError(t, err)
		}
	}
	connections := func() (n int) {
		for i := range admins {
			info, err := admins[i].Do(t.Context(), "INFO", "stats")
			require.NoError(t, err)
			var so int
			_, rest, _ := strings.Cut(info.(string), "total_connections_received:")
			_, err = fmt.Sscan(rest, &so)
			require.NoError(t, err)
			n += so
		}
		return n
	}
	old := "first"
	rotate(old)
	for i := range admins {
		_, err := admins[i].Do(t.Context(), "ACL", "SETUSER", "default", "resetpass", ">"+old) // and no longer without one
		require.NoError(t, err)
	}
	c, err := redlock.Open(t.Context(), urls, patient, redlock.WithFreshMembers(), func(c *redlock.Config) {
		c.Credentials, c.CredentialsEvery = v.give, 100*time.Millisecond
		c.NoQuorumAfter, c.DialTimeout, c.StallTimeout = -1, 30*time.Second, 30*time.Second
	})
	require.NoError(t, err)
	defer c.Close()
	held := locked(t, c, "held")
	require.Eventually(t, func() bool {
		for _, m := range c.Members() {
			if m.State != redlock.MemberVoting {
				return false
			}
		}
		return true
	}, 30*time.Second, time.Millisecond)
	before := connections()
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
				if !assert.NoError(t, err) || !assert.NoError(t, l.Unlock(t.Context())) {
					return
				}
			}
		})
	}
	for change := range 5 {
		rotate(fmt.Sprint("password-", change))
		asked := map[string]int{}
		for _, s := range cluster.Servers {
			asked[s.Addr()] = v.count(s.Addr())
		}
		for _, s := range cluster.Servers { // twice: one question may have been answered before the change
			require.Eventually(t, func() bool { return v.count(s.Addr()) > asked[s.Addr()]+1 }, time.Minute, time.Millisecond)
		}
		forget(old)
		old = fmt.Sprint("password-", change)
	}
	close(stop)
	callers.Wait()
	require.Equal(t, before, connections(), "no connection was replaced")
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}
