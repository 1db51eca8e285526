package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Members that die, stop, forget their scripts or throw their clients out, each by itself.

// Three of five die. Who asks is told so, and by which members; a release is in doubt, and is done when they are back. The
// same client goes on by itself.
func TestThreeOfFiveDeadIsNoQuorumWithThreeCausesAndHealsByItself(t *testing.T) {
	dead := []int{1, 2, 4}
	redlock.Bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		p := voting(t, cluster, 5, short, redlock.WithFreshMembers(), func(c *redlock.Config) {
			c.NoQuorumAfter, c.MaxTTL = 300*time.Millisecond, 10*time.Second
		})
		held := p.Hold(t, "held", redlock.TTL(10*time.Second))
		cluster.Kill(dead...)
		died := time.Now()
		_, try := p.Mutex("k").TryLock(t.Context())
		_, lock := p.Mutex("k").Lock(t.Context())
		require.GreaterOrEqual(t, time.Since(died), 300*time.Millisecond)
		require.Less(t, time.Since(died), 2*time.Second)
		for _, err := range []error{try, lock} {
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.NotErrorIs(t, err, redlock.ErrHeld)
			var q *redlock.QuorumError
			require.ErrorAs(t, err, &q)
			for i, v := range q.Votes {
				require.Equal(t, slices.Contains(dead, i), v.Err != nil, "member %d: %v", i, err)
				if v.Err != nil {
					require.ErrorContains(t, err, cluster.Servers[i].Addr()+": ")
				}
			}
		}
		require.ErrorIs(t, held.Unlock(t.Context()), redlock.ErrInDoubt)
		require.NoError(t, cluster.Restart(true, dead...)) // with its key at three
		require.EqualValues(t, 1, redlock.Admin(t, cluster.Servers[1], "EXISTS", "held"))
		p.Voting(t, 5)
		next := p.Hold(t, "held")
		require.Greater(t, next.Token(), held.Token())
		require.Equal(t, 5, next.Votes())
		require.NoError(t, next.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	})
}

// Two of five stop, and then two others. The lease is at the others all the while, and comes back to those that go on.
func TestLeaseIsRenewedWhileMinoritiesAreStopped(t *testing.T) {
	const ttl = 1500 * time.Millisecond
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Hold(t, "k", redlock.AutoRenew(ttl))
		for _, stopped := range [][]int{{0, 1}, {2, 3}} {
			cluster.Pause(stopped...)
			for end := time.Now().Add(3 * ttl); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
				for i, s := range cluster.Servers {
					if !slices.Contains(stopped, i) {
						require.Positive(t, redlock.Admin(t, s, "PTTL", "k"), "member %d lost the lock", i)
					}
				}
				require.NoError(t, l.Err())
			}
			cluster.Resume(stopped...)
			p.Settle(t, 5)
			time.Sleep(2 * ttl)
			require.Equal(t, 5, l.Votes())
			require.Equal(t, 5, votesAt(cluster, l))
		}
		require.NoError(t, l.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	})
}

// keepsContending has each client take a lock of all and one of its own, over and over, until the context ends. It returns what
// went wrong, once all are back.
func keepsContending(ctx context.Context, ref *referee, all []*redlock.Peer) (wait func() []error) {
	var mu sync.Mutex
	var errs []error
	var wg sync.WaitGroup
	for i, p := range all {
		for _, name := range []string{"all", fmt.Sprint("own", i)} {
			wg.Go(func() {
				for ctx.Err() == nil {
					l, err := p.Mutex(name).Lock(ctx)
					if err == nil {
						ref.granted(l)
						time.Sleep(time.Millisecond)
						err = l.Unlock(context.WithoutCancel(ctx))
					}
					if err != nil && ctx.Err() == nil {
						mu.Lock()
						errs = append(errs, err)
						mu.Unlock()
						time.Sleep(10 * time.Millisecond)
					}
				}
			})
		}
	}
	return func() []error { wg.Wait(); return errs }
}

// What befalls connections and scripts costs nobody a lock: exclusion and the order of tokens stay, and nothing is left.
func TestServersForgetScriptsAndThrowClientsOut(t *testing.T) {
	for what, befalls := range map[string]func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer, round int){
		"scripts": func(t *testing.T, cluster *redistest.Cluster, _ []*redlock.Peer, _ int) {
			for _, s := range cluster.Servers {
				redlock.Admin(t, s, "SCRIPT", "FLUSH")
			}
		},
		"connections": func(_ *testing.T, _ *redistest.Cluster, all []*redlock.Peer, round int) {
			members := []int{round % 3}
			if round%3 == 0 {
				members = nil // all of them
			}
			for _, p := range all {
				p.EveryLink(func(l *redistest.Link) { l.Cut() }, members...)
			}
		},
	} {
		t.Run(what, inAmong(3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
			for i, p := range all {
				p.Jitter(uint64(i), time.Millisecond, time.Millisecond, time.Millisecond)
			}
			var ref referee
			ctx, stop := context.WithCancel(t.Context())
			wait := keepsContending(ctx, &ref, all)
			for round := range 8 {
				time.Sleep(23 * time.Millisecond)
				befalls(t, cluster, all, round)
			}
			time.Sleep(100 * time.Millisecond) // some reconnect after a pause
			before := ref.grants()
			time.Sleep(100 * time.Millisecond)
			require.Greater(t, ref.grants(), before+10)
			stop()
			for _, err := range wait() { // who asked when all were thrown out had nobody to ask
				nobody := errors.Is(err, redlock.ErrNoQuorum) || errors.Is(err, redlock.ErrInDoubt) || errors.Is(err, redlock.ErrLost)
				require.True(t, what == "connections" && nobody, "%v", err)
			}
			ref.verdict(t)
			time.Sleep(10 * time.Second)
			redlock.Leftovers(t, cluster)
		}))
	}
}

// Connections end while all members are well: the process was frozen, or a proxy has a bound for idle connections. The next
// call that does not wait for the lock is made on the connections that come then, and nothing of the first one stays.
func TestCallThatDoesNotWaitOutlivesConnectionsThatHaveEnded(t *testing.T) {
	got := func(l *redlock.Lease, err error) error {
		if err != nil {
			return err
		}
		return l.Unlock(context.Background())
	}
	for fault, end := range map[string]func(p *redlock.Peer){
		"before the call":            func(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.Cut() }) },
		"before the call, and known": func(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.Cut() }); synctest.Wait() },
		"under the call": func(p *redlock.Peer) {
			p.EveryLink(func(l *redistest.Link) { l.CutBefore(redistest.Named("EVALSHA"), 1) })
		},
		"under the answer": func(p *redlock.Peer) {
			p.EveryLink(func(l *redistest.Link) { l.CutAfter(redistest.Named("EVALSHA"), 1) })
		},
		"at two members": func(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.Cut() }, 0, 2) },
	} {
		for kind, call := range map[string]func(t testing.TB, p *redlock.Peer, l *redlock.Lease) error{
			"TryLock": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.Mutex("k").TryLock(t.Context()))
			},
			"fair": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.Mutex("k", redlock.Fair()).TryLock(t.Context()))
			},
			"TryRLock": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.RWMutex("k").TryRLock(t.Context()))
			},
			"TryAcquire": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				return got(p.Semaphore("k", 2).TryAcquire(t.Context()))
			},
			"Multi": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				l, err := p.Multi([]string{"j", "k"}).TryLock(t.Context())
				if err != nil {
					return err
				}
				return l.Unlock(context.Background())
			},
			"Limit": func(t testing.TB, p *redlock.Peer, _ *redlock.Lease) error {
				_, err := p.Semaphore("s", 2).Limit(t.Context())
				return err
			},
			"Extend": func(t testing.TB, _ *redlock.Peer, l *redlock.Lease) error {
				return l.Extend(t.Context(), 30*time.Second)
			},
		} {
			t.Run(fault+"/"+kind, inAlone(3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				l := p.Lock(t, "held")
				time.Sleep(2 * time.Second)
				end(p)
				began := time.Now()
				require.NoError(t, call(t, p, l))
				require.LessOrEqual(t, time.Since(began), 200*time.Millisecond, "MemberTimeout")
				time.Sleep(time.Second)
				require.NoError(t, l.Unlock(t.Context()))
				synctest.Wait()
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet))
		}
	}
}

func TestTryDoesNotWaitForAMemberThatCannotBeReached(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		d.Cut(0, 1)
		time.Sleep(time.Second)
		began := time.Now()
		_, err := p.Client.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		require.LessOrEqual(t, time.Since(began), 2*time.Millisecond)
		d.Heal(0)
		p.Settle(t, 2)
		require.NoError(t, p.Try(t, "k"))
	}, redlock.Quiet)
}
