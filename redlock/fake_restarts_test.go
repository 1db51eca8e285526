//go:build !race

package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// inTurn are who holds and who waits, while members restart in turn.
var inTurn = []struct {
	name        string
	hold, await func(c *redlock.Client, opt redlock.LockOption) func(context.Context) (*redlock.Lease, error)
	holders     int
}{
	{"mutex", mutexOf, mutexOf, 1},
	{"fair", fairOf, fairOf, 1},
	{"mutex, fair waiters", mutexOf, fairOf, 1},
	{"fair, other waiters", fairOf, mutexOf, 1},
	{"writer, readers wait", writerOf, readerOf, 1},
	{"writer, writers wait", writerOf, writerOf, 1},
	{"readers, writers wait", readerOf, writerOf, 2},
	{"reader, mutexes wait", readerOf, mutexOf, 1},
	{"leader", leaderOf, leaderOf, 1},
	{"semaphore", permitOf, permitOf, 1},
}

type getting = func(context.Context) (*redlock.Lease, error)

func mutexOf(c *redlock.Client, opt redlock.LockOption) getting { return c.Mutex("job", opt).Lock }
func fairOf(c *redlock.Client, opt redlock.LockOption) getting {
	return c.Mutex("job", opt, redlock.Fair()).Lock
}
func writerOf(c *redlock.Client, opt redlock.LockOption) getting { return c.RWMutex("job", opt).Lock }
func readerOf(c *redlock.Client, opt redlock.LockOption) getting { return c.RWMutex("job", opt).RLock }
func permitOf(c *redlock.Client, opt redlock.LockOption) getting {
	return c.Semaphore("job", 1, opt).Acquire
}
func leaderOf(c *redlock.Client, opt redlock.LockOption) getting {
	return func(ctx context.Context) (*redlock.Lease, error) {
		return c.Election("job", opt).Campaign(ctx, []byte("me"))
	}
}

// TestSeedsOfRestartsInTurn restarts members one at a time, each when all vote, while a lease is held and others wait for it. The
// lease is kept, and has the votes of all members again soon after the last of the clients has seen that all vote: long before its
// next renewal. Nobody else gets it.
func TestSeedsOfRestartsInTurn(t *testing.T) {
	first, n := seedRange(t, 2)
	for k, tc := range inTurn {
		for seed := first; seed < first+n; seed++ {
			t.Run(fmt.Sprintf("%s, seed=%d", tc.name, seed), faketime.In(func(t *testing.T) {
				r := rand.New(rand.NewPCG(seed, uint64(k)))
				p := &restarts{t: t, random: r, cluster: rt.Embedded(t, 3+2*r.IntN(2))}
				for i := range tc.holders + 1 + r.IntN(3) {
					c := redlock.Guarded(t, p.cluster, redlock.WithFreshMembers(), func(c *redlock.Config) {
						c.MaxTTL, c.Entry, c.PingInterval = 3*time.Second, time.Duration(300+r.IntN(2700))*time.Millisecond, 500*time.Millisecond
					})
					c.Voting(t, p.cluster.Len())
					c.Jitter(100*seed+uint64(i), 5*time.Millisecond, 5*time.Millisecond, 20*time.Millisecond)
					p.peers = append(p.peers, c)
				}
				p.play(tc.hold, tc.await, tc.holders)
			}))
		}
	}
}

type restarts struct {
	t       *testing.T
	random  *rand.Rand
	cluster *redistest.Cluster
	peers   []*redlock.Peer
}

func (p *restarts) play(hold, await func(*redlock.Client, redlock.LockOption) getting, holders int) {
	renewed, n := redlock.AutoRenew(3*time.Second), p.cluster.Len()
	var leases []*redlock.Lease
	for _, c := range p.peers[:holders] {
		leases = append(leases, rt.Must(hold(c.Client, renewed)(p.t.Context()))(p.t))
	}
	p.whole(leases, 400*time.Millisecond)
	ctx, cancel := context.WithCancel(p.t.Context())
	var waiters sync.WaitGroup
	defer waiters.Wait()
	defer cancel()
	for i, c := range p.peers[holders:] {
		r := rand.New(rand.NewPCG(uint64(i), p.random.Uint64()))
		waiters.Go(func() {
			for ctx.Err() == nil { // one that goes and comes again now and then, or stays
				patience := time.Hour
				if i > 0 {
					patience = 1 + upTo(r, 3*time.Second)
				}
				one, stop := context.WithTimeout(ctx, patience)
				l, err := await(c.Client, renewed)(one)
				stop()
				if err == nil {
					p.t.Errorf("%s has two holders", l.Key())
					return
				}
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
					p.t.Error(err)
				}
				time.Sleep(1 + upTo(r, 100*time.Millisecond))
			}
		})
	}
	for _, i := range p.random.Perm(n) {
		time.Sleep(1 + upTo(p.random, 2*time.Second))
		p.whole(leases, 0)
		server := p.cluster.Servers[i]
		server.Kill()
		time.Sleep(1 + upTo(p.random, time.Second))
		require.NoError(p.t, server.Restart(p.random.IntN(2) == 0))
		for _, c := range p.peers { // until then the member votes, for a client that has not noticed
			c.Until(p.t, i, redlock.MemberQuarantined)
		}
		for _, c := range p.peers {
			c.Voting(p.t, n)
		}
		p.whole(leases, 400*time.Millisecond)
	}
	cancel()
	waiters.Wait()
	for _, l := range leases {
		require.NoError(p.t, l.Unlock(p.t.Context()))
	}
}

func (p *restarts) whole(leases []*redlock.Lease, patience time.Duration) {
	for _, l := range leases {
		for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			require.NoError(p.t, l.Err())
			votes := l.Votes()
			if votes == p.cluster.Len() {
				break
			}
			require.Less(p.t, time.Since(start), patience, "%d votes", votes)
		}
	}
}
