package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

// rotation is members whose password changes under callers that go on.
type rotation struct {
	*testing.T
	*vault
	cluster *redistest.Cluster
	admins  []*redistest.Client // connections that stay when the password changes
	client  *redlock.Client
	callers sync.WaitGroup
	stop    chan struct{}
}

func (r *rotation) do(i int, args ...string) any {
	r.Helper()
	return rt.Must(r.admins[i].Do(r.Context(), args...))(r)
}

func (r *rotation) connections(i int) (n int) {
	r.Helper()
	_, rest, _ := strings.Cut(r.do(i, "INFO", "stats").(string), "total_connections_received:")
	require.NoError(r, rt.Err(fmt.Sscan(rest, &n)))
	return n
}

func (r *rotation) gives(i int, password string) {
	rt.Locked(&r.mu, func() { r.passwords[r.cluster.Servers[i].Addr()] = password })
}

// askedAgain waits until the provider was asked so often after a change, and until all members vote.
func (r *rotation) askedAgain(i, times int, change func()) {
	r.Helper()
	name := r.cluster.Servers[i].Addr()
	before := r.count(name)
	change()
	rests := func(m redlock.MemberInfo) bool { return m.State != redlock.MemberVoting }
	require.Eventually(r, func() bool {
		return r.count(name) >= before+times && !slices.ContainsFunc(r.client.Members(), rests)
	}, time.Minute, time.Millisecond, "%v", r.client.Members())
}

// A member's password changes and its connections are ended, one member after the other: no lease is lost. Then the
// password of all changes again and again, and no connection is replaced for that: each is authenticated anew.
func TestPasswordsThatChangeCostNoLease(t *testing.T) {
	t.Parallel()
	r := &rotation{T: t, cluster: rt.Real(t, 3), stop: make(chan struct{})}
	r.vault = &vault{passwords: map[string]string{}, asked: map[string]int{}}
	var urls []string
	for i, s := range r.cluster.Servers {
		admin := rt.Must(redistest.DialClient(t.Context(), s.Dialer(), s.Addr()))(t)
		t.Cleanup(func() { admin.Close() })
		urls, r.admins = append(urls, "redis://:not-this-one@"+s.Addr()), append(r.admins, admin)
		r.do(i, "ACL", "SETUSER", "default", "resetpass", ">first")
		r.gives(i, "first")
	}
	r.client = opened(t, urls, patient, func(c *redlock.Config) {
		c.Credentials, c.CredentialsEvery, c.NoQuorumAfter, c.StallTimeout = r.give, 100*time.Millisecond, -1, 30*time.Second
	})
	settle(t, 3, r.client)
	held := locked(t, r.client, "held")
	for n := range 8 {
		r.callers.Go(func() {
			for {
				select {
				case <-r.stop:
					return
				default:
				}
				l, err := r.client.Mutex(fmt.Sprint("k", n)).Lock(t.Context())
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
	for i := range r.admins {
		was, ended := r.connections(i), 0
		r.askedAgain(i, 1, func() {
			r.gives(i, "second")
			r.do(i, "ACL", "SETUSER", "default", "resetpass", ">second")
			for _, kind := range []string{"normal", "pubsub"} {
				ended += int(r.do(i, "CLIENT", "KILL", "TYPE", kind).(int64))
			}
		})
		require.Eventually(t, func() bool { return r.connections(i) >= was+ended }, time.Minute, time.Millisecond, "each is dialled again")
	}

	connections := func() (n int) {
		for i := range r.admins {
			n += r.connections(i)
		}
		return n
	}
	before, old := connections(), "second"
	for _, password := range []string{"third", "fourth", "fifth"} {
		for i := range r.admins { // both are good until nobody asks for the old one any more, as it is done in production
			r.do(i, "ACL", "SETUSER", "default", ">"+password)
			r.gives(i, password)
		}
		for i := range r.admins { // twice: one question may have been answered before the change
			r.askedAgain(i, 2, func() {})
		}
		for i := range r.admins {
			r.do(i, "ACL", "SETUSER", "default", "<"+old)
		}
		old = password
	}
	close(r.stop)
	r.callers.Wait()
	require.Equal(t, before, connections(), "no connection was replaced")
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))
}

// A client at rest looks at its members seldom. An AUTH that one of them does not answer is noticed all the same.
func TestMemberThatDoesNotAnswerToAuthIsNoticedAtRest(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var password atomic.Value
		password.Store("pw")
		urls, ways := meshed(cluster)
		for i := range cluster.Len() {
			cluster.Embedded(i).Require("pw")
		}
		c, err := redlock.OpenWith(t.Context(), urls, ways, redlock.WithFreshMembers(), func(c *redlock.Config) {
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
