package faults

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
)

// Members that stop, and networks that lose, refuse, or connect everybody with somebody else.
func TestNetwork(t *testing.T) {
	cluster := rt.Real(t, 5)
	w := start(t, cluster, rows())
	rng := seeded(t)
	healAll := func() { each(w.paths(), (*redistest.Link).Heal) }
	for _, e := range []episode{
		{name: "SIGSTOP of two for twice the TTL", span: span(2 * w.terms.maxTTL), goes: true, inject: func() func() {
			cluster.Pause(3, 4)
			return func() { cluster.Resume(3, 4) }
		}},
		{name: "black hole around two", span: span(time.Second), goes: true, inject: func() func() {
			each(w.paths(0, 1), (*redistest.Link).BlackHole)
			return healAll
		}},
		{name: "all replies of two lost", span: span(time.Second), goes: true, inject: func() func() {
			each(w.paths(2, 3), (*redistest.Link).DropReplies)
			return healAll
		}},
		{name: "half see {1,2,3}, half {3,4,5}", span: span(time.Second), goes: true, inject: func() func() {
			for i, links := range w.links {
				if i%2 == 0 {
					each(links[3:], (*redistest.Link).BlackHole)
				} else {
					each(links[:2], (*redistest.Link).BlackHole)
				}
			}
			return healAll
		}},
		{name: "ring of majorities", span: span(time.Second), goes: true, inject: func() func() {
			for i, links := range w.links {
				links[(i+3)%5].BlackHole()
				links[(i+4)%5].BlackHole()
			}
			return healAll
		}},
		{name: "swizzle-clog", span: span(1500 * time.Millisecond), inject: func() func() {
			return swizzle(rng, w.paths())
		}},
	} {
		if e.goes { // paths that are clogged for moments take nobody's vote away
			e.felt = w.missed()
		}
		w.play(t, e)
	}
	w.end().safe(t, 100)
	nothingLeft(t, cluster)
}

// missed tells how many votes the clients have missed at most at one time, of all members together.
func (w *workload) missed() func() int {
	most := 0
	return func() int {
		n := 0
		for _, c := range w.clients {
			for _, m := range c.Members() {
				if m.State != redlock.MemberVoting {
					n++
				}
			}
		}
		most = max(most, n)
		return most
	}
}

// swizzle clogs a random part of the paths one by one, and then unclogs them one by one in another order,
// over and over until it is healed. After FoundationDB's simulation.
func swizzle(rng *rand.Rand, paths []*redistest.Link) (heal func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	pause := func() bool {
		timer := time.NewTimer(time.Duration(rng.IntN(20)) * time.Millisecond)
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			part := rng.Perm(len(paths))[:1+rng.IntN(len(paths))]
			for _, i := range part {
				paths[i].Pause()
				if !pause() {
					return
				}
			}
			for _, i := range rng.Perm(len(part)) {
				paths[part[i]].Resume()
				if !pause() {
					return
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
		each(paths, (*redistest.Link).Resume)
	}
}

// resolver dials as long as names can be resolved. Broken, it fails as a resolver does; slow, it answers
// when nobody waits any more.
type resolver struct {
	net.Dialer
	broken, slow atomic.Bool
	failures     atomic.Int64
}

func (r *resolver) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	fail := func(err *net.DNSError) (net.Conn, error) {
		r.failures.Add(1)
		err.Name = host
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	switch {
	case r.broken.Load():
		return fail(&net.DNSError{Err: "no such host", IsNotFound: true})
	case r.slow.Load():
		<-ctx.Done()
		return fail(&net.DNSError{Err: "i/o timeout", IsTimeout: true, IsTemporary: true})
	}
	return r.Dialer.DialContext(ctx, network, addr)
}

// Names that cannot be resolved and ports that nobody listens on cost their members' votes and nothing
// else, from the start or later, and come back by themselves.
func TestNameAndPortGone(t *testing.T) {
	cluster := rt.Real(t, 5)
	var (
		resolve resolver
		members []member.Member
		fronts  []*redistest.Front
		urls    []string
		config  redlock.Config
	)
	quick(&config)
	config.TTL, config.MaxTTL, config.FreshMembers = time.Second, time.Second, true
	guard := node.NewGuard(node.GuardConfig{Members: 5, MaxTTL: config.MaxTTL, Fresh: true})
	for _, s := range cluster.Servers {
		front, err := s.Path().Listen("127.0.0.1:0")
		require.NoError(t, err)
		fronts = append(fronts, front)
		_, port, err := net.SplitHostPort(front.Addr())
		require.NoError(t, err)
		urls = append(urls, "redis://localhost:"+port)
		n, err := node.New(node.Config{
			Addr: "localhost:" + port, Dialer: &resolve, Scripts: redlock.Scripts(), Guard: guard,
			DialTimeout: config.DialTimeout, StallTimeout: config.StallTimeout, PingInterval: config.PingInterval,
		})
		require.NoError(t, err)
		members = append(members, n)
	}
	t.Cleanup(func() {
		for _, f := range fronts {
			_ = f.Close()
		}
	})
	c, err := redlock.New(members, redlock.WithConfig(config))
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	voting(t, c, 5)
	held, err := c.Mutex("held").Lock(t.Context()) // renewed all the while
	require.NoError(t, err)
	cycle := func() {
		t.Helper()
		lease, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	down := func(cause any, which ...int) {
		t.Helper()
		require.Eventually(t, func() bool {
			for _, i := range which {
				if m := c.Members()[i]; m.State != redlock.MemberDown || !errors.As(m.Err, cause) {
					return false
				}
			}
			return true
		}, 20*time.Second, time.Millisecond, "%v", c.Members())
	}

	// Two ports are closed: connections break, and new ones are refused.
	for _, i := range []int{1, 2} {
		require.NoError(t, fronts[i].Close())
	}
	var refused *net.OpError
	down(&refused, 1, 2)
	cycle()
	for _, i := range []int{1, 2} {
		fronts[i], err = cluster.Servers[i].Path().Listen(fronts[i].Addr())
		require.NoError(t, err)
	}
	voting(t, c, 5)
	cycle()

	// The resolver fails, and then hangs: what is connected stays so, what has to connect anew cannot.
	for _, broken := range []*atomic.Bool{&resolve.broken, &resolve.slow} {
		broken.Store(true)
		before := resolve.failures.Load()
		for _, i := range []int{3, 4} {
			addr := fronts[i].Addr()
			require.NoError(t, fronts[i].Close())
			fronts[i], err = cluster.Servers[i].Path().Listen(addr)
			require.NoError(t, err)
		}
		var unknown *net.DNSError
		down(&unknown, 3, 4)
		cycle()
		require.Greater(t, resolve.failures.Load(), before)
		broken.Store(false)
		voting(t, c, 5)
		cycle()
	}
	require.NoError(t, held.Err())
	require.NoError(t, held.Unlock(t.Context()))

	// A client that starts with two names that are nowhere (RFC 2606) works with the other three, and one
	// with three says whom it could not find.
	for n := 2; n <= 3; n++ {
		list := slices.Clone(urls)
		for i := range n {
			list[i] = "redis://member-" + strconv.Itoa(i) + ".invalid:6379"
		}
		c, err := redlock.Open(t.Context(), list, redlock.WithConfig(config))
		if n == 3 {
			var unknown *net.DNSError
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorAs(t, err, &unknown)
			require.ErrorContains(t, err, ".invalid")
			continue
		}
		require.NoError(t, err)
		lease, err := c.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.Equal(t, 3, lease.Votes())
		require.NoError(t, lease.Unlock(t.Context()))
		require.NoError(t, c.Close())
	}
	nothingLeft(t, cluster)
}
