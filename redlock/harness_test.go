package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
)

// peer is one client of a cluster, as a process of its own would be: with its own network paths.
type peer struct {
	*Client
	links []*redistest.Link // to each member, with faults of their own
}

// join makes a client with paths of its own to every member, and waits until it can vote and be woken
// everywhere.
func join(t testing.TB, cluster *redistest.Cluster, opts ...Option) *peer {
	t.Helper()
	p := connect(t, cluster, opts...)
	p.settle(t, cluster.Len())
	return p
}

// connect is join without the wait.
func connect(t testing.TB, cluster *redistest.Cluster, opts ...Option) *peer {
	t.Helper()
	p := &peer{}
	var cfg Config
	for _, o := range opts {
		o(&cfg)
	}
	members := make([]quorum.Member, cluster.Len())
	for i, s := range cluster.Servers {
		link := s.Path()
		p.links = append(p.links, link)
		nc := cfg.withDefaults().node(node.Config{Network: "tcp", Addr: s.Addr(), Dialer: link})
		n, err := node.New(nc)
		require.NoError(t, err)
		members[i] = n
	}
	c, err := New(members, opts...)
	require.NoError(t, err)
	p.Client = c
	t.Cleanup(func() { _ = c.Close() })
	return p
}

// settle waits until n members are up with a confirmed inbox.
func (p *peer) settle(t testing.TB, n int) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		changed := p.changed()
		ready := 0
		for _, st := range p.states() {
			if st.Up && st.Inbox {
				ready++
			}
		}
		if ready >= n {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("only %d of %d members are ready", ready, n)
		}
	}
}

// bubble runs a test in fake time on n embedded members, and closes everything inside the bubble.
func bubble(t *testing.T, n int, test func(t *testing.T, cluster *redistest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		test(t, rt.Embedded(t, n))
	})
}

// leftovers fails the test if anything but the token counters is left on a member.
func leftovers(t testing.TB, cluster *redistest.Cluster) {
	t.Helper()
	left, err := cluster.Leftovers(context.Background(), "redquorum:tokens")
	require.NoError(t, err)
	require.Empty(t, left, "keys left behind")
}

func TestFirstComeFirstServedInFakeTime(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		a, b := join(t, cluster), join(t, cluster)
		held, err := a.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		got := make(chan *Lease)
		go func() {
			l, err := b.Mutex("k").Lock(t.Context())
			require.NoError(t, err)
			got <- l
		}()
		time.Sleep(100 * time.Second) // renewed all the while
		require.NoError(t, held.Err())
		before := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		next := <-got
		require.Greater(t, next.Token(), held.Token())
		require.Less(t, time.Since(before), time.Millisecond, "hand-over takes no poll")
		require.NoError(t, next.Unlock(t.Context()))
		synctest.Wait()
		leftovers(t, cluster)
	})
}
