package redlock_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

func TestTheirReleaseWakesAWaiterOfOursAtOnce(t *testing.T) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprint(n, " members"), inAlone(n, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			var java []*redlock.Reference
			for _, s := range cluster.Servers {
				java = append(java, redlock.JavaOf(t, s, "k", 1))
				java[len(java)-1].Take(time.Minute)
			}
			free := func(w *redlock.Locking) {
				time.Sleep(500 * time.Millisecond) // between two heartbeats
				require.True(t, w.Pending())
				began := time.Now()
				for _, j := range java {
					require.EqualValues(t, 1, j.Release())
				}
				l := w.Get(t)
				require.Less(t, w.At.Sub(began), 20*time.Millisecond, "not by its heartbeat")
				require.NoError(t, l.Unlock(t.Context()))
				synctest.Wait()
			}
			free(p.LockLater(t.Context(), "k"))
			for _, s := range cluster.Servers {
				require.Equal(t, []any{}, redlock.Admin(t, s, "PUBSUB", "CHANNELS", "redisson*"), "unsubscribed")
				require.Equal(t, []any{}, redlock.Admin(t, s, "PUBSUB", "CHANNELS", "redquorum:ours*"), "unsubscribed")
			}

			// And once more, on connections that broke meanwhile.
			for _, j := range java {
				j.Take(time.Minute)
			}
			w := p.LockLater(t.Context(), "k")
			time.Sleep(100 * time.Millisecond)
			p.EveryLink(func(l *redistest.Link) { l.Cut() })
			time.Sleep(100 * time.Millisecond)
			p.Settle(t, n)
			time.Sleep(1100 * time.Millisecond)
			free(w)
			require.ElementsMatch(t, []any{"redquorum:tokens", "redisson_lock_token:{k}"}, redlock.Admin(t, cluster.Servers[0], "KEYS", "*"))
		}, redlock.WithInterop(), redlock.Quiet))
	}
}

// A release between the refusal and the subscription is not lost: the attempt asks again once it hears.
func TestAReleaseBeforeTheSubscriptionIsNotMissed(t *testing.T) {
	redlock.Alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		java := redlock.JavaOf(t, cluster.Servers[0], "k", 1)
		java.Take(time.Minute)
		freed := false
		p.EveryLink(func(l *redistest.Link) {
			l.Call(redistest.Named("SUBSCRIBE"), -1, func([]string) { // before the server does it
				if !freed {
					freed = true
					java.Release()
				}
			})
		})
		began := time.Now()
		l := p.Lock(t, "k")
		require.True(t, freed)
		require.Less(t, time.Since(began), 100*time.Millisecond)
		require.NoError(t, l.Unlock(t.Context()))
	}, redlock.WithInterop(), redlock.Quiet)
}

// "a" and "{a}" share counter and channel, and are two locks.
func TestTwoNamesWithOneChannel(t *testing.T) {
	redlock.Bubble(t, 1, func(t *testing.T, cluster *redistest.Cluster) {
		p, s := redlock.JoinAll(t, cluster, redlock.WithInterop(), redlock.Quiet), cluster.Servers[0]
		plain, braced := redlock.JavaOf(t, s, "a", 1), redlock.JavaOf(t, s, "{a}", 2)
		plain.Take(time.Minute)
		braced.Take(time.Minute)
		one, two := p.LockLater(t.Context(), "a"), p.LockLater(t.Context(), "{a}")
		time.Sleep(100 * time.Millisecond)
		require.EqualValues(t, 1, redlock.Numsub(t, s, plain.Channel()))
		plain.Release()
		first := one.Get(t)
		rt.Waits(t, two)
		require.EqualValues(t, 1, redlock.Numsub(t, s, plain.Channel()), "still wanted for the other")
		braced.Release()
		second := two.Get(t)
		require.Greater(t, second.Token(), first.Token())
		synctest.Wait()
		require.EqualValues(t, 0, redlock.Numsub(t, s, plain.Channel()))
	})
}

func TestOurReleaseWakesTheirs(t *testing.T) {
	for how, free := range map[string]func(t *testing.T, p *redlock.Peer, l *redlock.Lease) error{
		"unlock": func(t *testing.T, _ *redlock.Peer, l *redlock.Lease) error { return l.Unlock(t.Context()) },
		"force": func(t *testing.T, p *redlock.Peer, _ *redlock.Lease) error {
			_, err := p.ForceUnlock(t.Context(), "k")
			return err
		},
	} {
		t.Run(how, inAlone(1, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			l := p.Hold(t, "k", redlock.TTL(20*time.Second))
			java := redlock.JavaOf(t, cluster.Servers[0], "k", 1)
			sub := java.Listen()
			defer func() { _ = sub.Close() }()
			time.Sleep(time.Second)
			began := time.Now()
			require.NoError(t, free(t, p, l))
			require.NoError(t, rt.Err(sub.ReceiveFor(time.Minute)))
			java.Take(time.Minute)
			require.WithinDuration(t, began, time.Now(), 10*time.Millisecond)
		}, redlock.WithInterop(), redlock.Quiet))
	}
}

// A TryLock that comes between our release and their turn must not take it from them, and has it again
// where nobody came.
func TestTryLockIsRefusedWhileTheLockIsLeftToThem(t *testing.T) {
	redlock.Alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := p.Hold(t, "k")
		c := redlock.JavaOf(t, cluster.Servers[0], "k", 1).Listen()
		defer func() { _ = c.Close() }()
		require.NoError(t, l.Unlock(t.Context()))
		require.ErrorIs(t, p.Try(t, "k"), redlock.ErrHeld)
		began := time.Now()
		l = p.Hold(t, "k") // waits it out
		require.InDelta(t, 50, time.Since(began).Milliseconds(), 10)
		require.NoError(t, l.Unlock(t.Context()))
	}, redlock.WithInterop(), redlock.Quiet)
}

// Members that forgot: the counters of names come back with what a snapshot had, or not at all, and are
// not believed. Where nobody knows, order goes on from the clock.
func TestTokensRiseOverMembersThatForgotWithInterop(t *testing.T) {
	for how, forget := range map[string]func(s redistest.Server) error{
		"empty":    func(s redistest.Server) error { return s.Restart(false) },
		"snapshot": redistest.Server.Rollback,
	} {
		t.Run(how+", one member", inBubble(1, func(t *testing.T, cluster *redistest.Cluster) {
			s := cluster.Servers[0]
			p := voting(t, cluster, 1, short, redlock.WithFreshMembers(), redlock.WithInterop())
			java := redlock.JavaOf(t, s, "k", 1)
			cycle(t, p, "k")
			require.NoError(t, s.Snapshot())
			last := cycle(t, p, "k")
			for range 5 {
				last = uint64(java.Take(time.Minute))
				java.Release()
			}
			require.NoError(t, forget(s))
			p.Until(t, 0, redlock.MemberQuarantined)
			// What they do meanwhile nobody can help: their tokens begin anew.
			theirs := uint64(java.Take(time.Minute))
			java.Release()
			require.LessOrEqual(t, theirs, last)
			p.Voting(t, 1)
			token := cycle(t, p, "k")
			require.Greater(t, token, last)
			require.Greater(t, uint64(java.Take(time.Minute)), token, "from here on they are in order again")
		}))
		t.Run(how+", three members", inVoters(3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			cycle(t, p, "k")
			synctest.Wait()
			require.NoError(t, cluster.Servers[0].Snapshot())
			p.Away(2) // misses what comes
			p.Until(t, 2, redlock.MemberDown)
			var last uint64
			for range 10 {
				last = cycle(t, p, "k")
			}
			synctest.Wait()
			require.NoError(t, forget(cluster.Servers[0]))
			p.Links[2].Heal()
			p.Voting(t, 3)
			p.Away(1) // the one that knows
			p.Until(t, 1, redlock.MemberDown)
			require.Greater(t, cycle(t, p, "k"), last)
		}, redlock.WithInterop()))
	}
}

// A client without the option still excludes, and is excluded; tokens of ours rise over both.
func TestClientsWithAndWithoutInterop(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		with, without := redlock.JoinAll(t, cluster, redlock.WithInterop()), redlock.JoinAll(t, cluster)
		var last uint64
		for range 5 {
			for _, p := range []*redlock.Peer{with, without} {
				l := p.Hold(t, "k")
				require.Greater(t, l.Token(), last)
				last = l.Token()
				require.ErrorIs(t, with.Try(t, "k"), redlock.ErrHeld)
				require.ErrorIs(t, without.Try(t, "k"), redlock.ErrHeld)
				require.NoError(t, l.Unlock(t.Context()))
				synctest.Wait()
			}
		}
	})
}

func TestHandoffAndRejoinWithInterop(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		l := a.Hold(t, "k")
		taken := handOver(t, l, b)
		redlock.Admin(t, cluster.Servers[2], "DEL", "k", "redisson_lock_token:{k}")
		time.Sleep(11 * time.Second) // a renewal
		synctest.Wait()
		require.Equal(t, 3, votesAt(cluster, taken), "given back")
		require.Equal(t, fmt.Sprint(taken.Token()), redlock.Admin(t, cluster.Servers[2], "GET", "redisson_lock_token:{k}"))
		require.NoError(t, taken.Unlock(t.Context()))
	}, redlock.WithInterop())
}

// interopPermissions is what docs/servers.md lists beside permittedCommands.
var interopPermissions = []string{"+incr", "+get", "+pubsub|numsub", "+unsubscribe", "~redisson_lock_token:*", "&redisson_lock__channel:*", "&redquorum:ours:*"}

func TestUserWithTheListedPermissionsCanShareLocks(t *testing.T) {
	cluster := rt.Real(t, 3)
	list := restricted(t, cluster, "locker", slices.Concat(permittedCommands, interopPermissions)...)
	var log transcript
	c := opened(t, list, patient, redlock.WithLogger(log.logger()), redlock.WithInterop())
	p := &redlock.Peer{Client: c}
	p.Settle(t, 3)
	var java []*redlock.Reference
	for i, s := range cluster.Servers {
		java = append(java, redlock.JavaOf(t, s, "app:k", i))
		java[i].Take(time.Minute)
	}
	w := p.LockLater(t.Context(), "app:k")
	require.NoError(t, inLine(t.Context(), cluster.Servers, "app:k", 1))
	for _, j := range java {
		j.Release()
	}
	lease := w.Get(t)
	for i, s := range cluster.Servers {
		sub := java[i].Listen()
		t.Cleanup(func() { _ = sub.Close() })
		require.Positive(t, redlock.Numsub(t, s, java[i].Channel()))
	}
	shared := script.ExclusiveWithRedisson("app:k")
	require.NoError(t, rt.Err(doTagged(t.Context(), redlock.MemberAt(c, 0), shared.Raise(nil, redlock.OwnerOf(lease), int64(lease.Token())))))
	require.NoError(t, rt.Err(c.ForceUnlock(t.Context(), "app:k")))
	for i := range java {
		java[i].Take(time.Minute)
	}
	_ = lease.Unlock(t.Context()) // it was taken away
	require.Empty(t, denials(t, cluster))
}
