package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Several names, all or none: docs/protocol.md, "Several names".

func gather(ctx context.Context, m *redlock.Multi) *rt.Later[*redlock.Leases] {
	return rt.Begin(func() (*redlock.Leases, error) { return m.Lock(ctx) })
}

func allOf(t testing.TB, p anyClient, names ...string) *redlock.Leases {
	t.Helper()
	return rt.Must(p.Multi(names).Lock(t.Context()))(t)
}

func votesFor(t testing.TB, s redistest.Server, names ...string) (out []string) {
	t.Helper()
	for _, name := range names {
		if redlock.Admin(t, s, "EXISTS", name) == int64(1) {
			out = append(out, name)
		}
	}
	return out
}

func TestMultiIsOneCommandPerMember(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Slow(2*time.Millisecond, 2*time.Millisecond, 2*time.Millisecond)
		batches, acquires, releases := p.Count(script.Batch), p.Count(script.Acquire), p.Count(script.Release)
		names := []string{"d", "a", "c", "b"}
		began := time.Now()
		leases := allOf(t, p, names...)
		require.Equal(t, 2*time.Millisecond, time.Since(began), "one round trip")
		require.NoError(t, leases.Err())
		var got []string
		for _, l := range leases.All() {
			got = append(got, l.Key())
			require.Positive(t, leases.Token(l.Key()))
			require.Same(t, l, leases.Of(l.Key()))
		}
		require.Equal(t, []string{"a", "b", "c", "d"}, got)
		require.Zero(t, leases.Token("e"))
		require.Nil(t, leases.Of("e"))
		synctest.Wait()
		for _, s := range cluster.Servers {
			require.Equal(t, got, votesFor(t, s, got...))
		}
		require.NoError(t, leases.Unlock(t.Context()))
		require.ErrorIs(t, leases.Unlock(t.Context()), redlock.ErrNotHeld)
		require.ErrorIs(t, leases.Err(), redlock.ErrReleased)
		require.Equal(t, []int{2, 2, 2}, redlock.Hits(batches))
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(acquires))
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(releases))
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet)
}

// Each name has its own majority: the counters disagree, so that each takes a second round, and these are at the same
// time.
func TestMultiRaisesAllTokensAtOnce(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		for _, name := range []string{"a", "b", "c"} {
			redlock.Skew(t, cluster, name, 30, 20, 10)
		}
		p.Slow(2*time.Millisecond, 2*time.Millisecond, 10*time.Millisecond)
		began := time.Now()
		leases := allOf(t, p, "a", "b", "c")
		require.Equal(t, 4*time.Millisecond, time.Since(began))
		for _, name := range []string{"a", "b", "c"} {
			require.Equal(t, uint64(31), leases.Token(name))
		}
		require.NoError(t, leases.Unlock(t.Context()))
	}, redlock.Quiet)
}

// Callers that write the names in opposite orders take them in one. Without that each would have what the other one
// waits for.
func TestMultiOppositeOrdersDoNotDeadlock(t *testing.T) {
	withMany(t, 3, 4, func(t *testing.T, d *redlocktest.Deployment, peers []*caller) {
		for _, p := range peers {
			p.Slow(time.Millisecond, 2*time.Millisecond, 3*time.Millisecond)
		}
		peers[1].Slow(3*time.Millisecond, 2*time.Millisecond, time.Millisecond)
		sets := [][]string{{"a", "b", "c"}, {"c", "b", "a"}, {"b", "c"}, {"c", "a"}}
		ctx := rt.Within(t, 5*time.Minute)
		in := map[string]*atomic.Int32{"a": {}, "b": {}, "c": {}}
		var turns [4]int
		done := make(chan error)
		for i, p := range peers {
			go func() {
				for range 25 {
					leases, err := p.Multi(sets[i]).Lock(ctx)
					if err != nil {
						done <- err
						return
					}
					for _, name := range sets[i] {
						if in[name].Add(1) > 1 {
							done <- errors.New("two holders of " + name)
							return
						}
					}
					turns[i]++
					time.Sleep(time.Millisecond)
					for _, name := range sets[i] {
						in[name].Add(-1)
					}
					if err := leases.Unlock(ctx); err != nil {
						done <- err
						return
					}
				}
				done <- nil
			}()
		}
		for range peers {
			require.NoError(t, <-done)
		}
		require.Equal(t, [4]int{25, 25, 25, 25}, turns)
		noKeysAtRest(t, d)
	}, redlock.Quiet)
}

// Who waits for a name has the names before it, and nothing behind it, not even a minority of its votes.
func TestMultiWaitingHoldsNothingBehind(t *testing.T) {
	for _, line := range []string{"nobody in line", "a caller of this process in line"} {
		t.Run(line, inPair(3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
			b := other.Hold(t, "b")
			var before *redlock.Locking
			if line != "nobody in line" {
				before = p.LockLater(t.Context(), "b")
				time.Sleep(time.Second)
			}
			w := gather(t.Context(), p.Multi([]string{"a", "b", "c", "d"}))
			time.Sleep(10 * time.Second) // beyond the TTL of what a waiter is granted, and of a renewal
			for _, s := range cluster.Servers {
				require.Equal(t, []string{"a", "b"}, votesFor(t, s, "a", "b", "c", "d"))
			}
			require.ErrorIs(t, other.Try(t, "a"), redlock.ErrHeld, "it keeps what is before")
			c := other.Hold(t, "c")
			require.NoError(t, b.Unlock(t.Context()))
			if before != nil {
				require.NoError(t, before.Get(t).Unlock(t.Context()))
			}
			time.Sleep(10 * time.Second) // it has b, and waits for c
			for _, s := range cluster.Servers {
				require.Equal(t, []string{"a", "b", "c"}, votesFor(t, s, "a", "b", "c", "d"))
			}
			require.NoError(t, c.Unlock(t.Context()))
			leases := w.Get(t)
			require.NoError(t, leases.Err())
			require.NoError(t, leases.Unlock(t.Context()))
			redlock.NothingLeft(t, cluster)
		}, redlock.Quiet))
	}
}

// A minority of votes behind the name that is waited for is given back, too: at one member the name before it is free.
func TestMultiWaitingHoldsNoMinorityBehind(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		b := other.Hold(t, "b")
		redlock.Admin(t, cluster.Servers[0], "DEL", "b") // as if it had not been reached
		w := gather(t.Context(), p.Multi([]string{"a", "b", "c"}))
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, []string{"a", "b"}, votesFor(t, cluster.Servers[0], "a", "b", "c"))
		require.NoError(t, b.Unlock(t.Context()))
		require.NoError(t, w.Get(t).Unlock(t.Context()))
	}, redlock.Quiet)
}

// A vote of the name that is waited for goes to whoever has the turn in the client's line: in line nobody yields.
func TestMultiInLineHoldsNoVoteOfWhatItWaitsFor(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		b := other.Hold(t, "b")
		first := p.LockLater(t.Context(), "b")
		time.Sleep(100 * time.Millisecond)
		waiters := redlock.Admin(t, cluster.Servers[0], "ZRANGE", redlock.QueueOf("b"), "0", "-1")
		require.Len(t, waiters, 1)
		redlock.Admin(t, cluster.Servers[0], "DEL", "b") // free there, and the first who asks has it
		w := gather(t.Context(), p.Multi([]string{"a", "b"}))
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, waiters, redlock.Admin(t, cluster.Servers[0], "HKEYS", "b"))
		require.NoError(t, b.Unlock(t.Context()))
		require.NoError(t, first.Get(t).Unlock(t.Context()))
		require.NoError(t, w.Get(t).Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet)
}

// With the first lease that ends, the set ends. The others stay where they are until their validity is over, but are not
// renewed: the holder has time to stop while it excludes others.
func TestMultiEndsWithTheFirstOfItsLeases(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		leases := rt.Must(p.Multi([]string{"a", "b", "c"}, redlock.AutoRenew(9*time.Second)).Lock(t.Context()))(t)
		ctx := leases.Context()
		derived, cancel := context.WithCancel(ctx)
		defer cancel()
		time.Sleep(20 * time.Second) // renewed
		require.NoError(t, ctx.Err())
		for _, s := range cluster.Servers[:2] {
			redlock.Admin(t, s, "DEL", "b")
			redlock.Admin(t, s, "SET", "b", "no lock", "PX", "600000") // so that it is not given back
		}
		<-ctx.Done()
		lost := time.Now()
		<-derived.Done()
		require.ErrorIs(t, leases.Err(), redlock.ErrLost)
		require.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
		require.ErrorIs(t, context.Cause(derived), redlock.ErrLost)
		require.Equal(t, "b", rt.As[*redlock.LostError](t, leases.Err()).Key)
		require.False(t, leases.ValidUntil().After(lost))
		until := leases.Of("a").ValidUntil()
		require.Greater(t, time.Until(until), 5*time.Second)
		require.NoError(t, leases.Of("a").Err(), "it excludes others still")
		require.ErrorIs(t, other.Try(t, "a"), redlock.ErrHeld)
		require.ErrorIs(t, leases.Extend(t.Context(), time.Second), redlock.ErrLost)
		time.Sleep(time.Until(until) + time.Millisecond)
		require.ErrorIs(t, leases.Of("a").Err(), redlock.ErrLost, "nobody renews it")
		require.NoError(t, rt.Must(other.Mutex("a").Lock(t.Context()))(t).Unlock(t.Context()))
		require.ErrorIs(t, leases.Unlock(t.Context()), redlock.ErrLost)
		require.ErrorIs(t, leases.Unlock(t.Context()), redlock.ErrNotHeld)
	}, redlock.Quiet)
}

// A lease that ends before its set is made ends the set. Nobody looks at the set here.
func TestMultiOfALeaseThatHasEndedIsNotRenewed(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, a *redlock.Peer) {
		x, y := a.Hold(t, "x"), a.Hold(t, "y")
		unlock(t, x)
		s := redlock.SetOf(x, y)
		time.Sleep(time.Hour)
		require.Equal(t, redlock.LostExpired, redlock.LostFor(y))
		require.ErrorIs(t, s.Err(), redlock.ErrReleased)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestMultiUnlockAfterALossReleasesTheRest(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		leases := allOf(t, p, "a", "b", "c")
		require.NoError(t, rt.Err(other.ForceUnlock(t.Context(), "b")))
		<-leases.Done()
		err := leases.Unlock(t.Context())
		require.ErrorIs(t, err, redlock.ErrLost)
		require.Equal(t, 1, strings.Count(err.Error(), "lost"), "%v", err)
		for _, name := range []string{"a", "c"} {
			require.NoError(t, rt.Must(other.Mutex(name).TryLock(t.Context()))(t).Unlock(t.Context()))
		}
	}, redlock.Quiet)
}

// A lease in hand that is lost during a wait: the call begins again, and at the third loss says so.
func TestMultiLosesWhileWaiting(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		m := p.Multi([]string{"a", "b"})
		force := func() {
			time.Sleep(time.Second)
			require.True(t, rt.Must(other.ForceUnlock(t.Context(), "a"))(t))
		}
		b := other.Hold(t, "b")
		w := gather(t.Context(), m)
		force()
		time.Sleep(40 * time.Second) // until the renewal has told
		require.NoError(t, b.Unlock(t.Context()))
		leases := w.Get(t)
		require.NoError(t, leases.Err())
		require.NoError(t, leases.Unlock(t.Context()))

		b = other.Hold(t, "b")
		w = gather(t.Context(), m)
		for range redlock.Gatherings {
			force()
			time.Sleep(40 * time.Second)
		}
		<-w.Done
		require.Equal(t, "a", rt.As[*redlock.LostError](t, w.Err).Key)
		require.NoError(t, b.Unlock(t.Context()))
		synctest.Wait()
	}, redlock.Quiet)
}

// A lease in hand that is lost while the last names are asked for: a set is only given out if all of it is held at one
// instant.
func TestMultiLosesBetweenTheNames(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		p.Slow(60*time.Millisecond, 60*time.Millisecond, 60*time.Millisecond) // a renewal is answered before its next try
		b := other.Hold(t, "b")
		w := gather(t.Context(), p.Multi([]string{"a", "b", "c"}, redlock.AutoRenew(800*time.Millisecond)))
		time.Sleep(2 * time.Second)
		extends := p.Count(script.Extend)
		for extends[0].Hits() == 0 {
			time.Sleep(time.Millisecond)
		}
		// The next renewal is executed after this, and answered while c is asked for.
		time.Sleep(240 * time.Millisecond)
		old := redlock.Counter(t, cluster.Servers[0], "a")
		for _, s := range cluster.Servers {
			redlock.Admin(t, s, "DEL", "a")
		}
		require.NoError(t, b.Unlock(t.Context()))
		leases := w.Get(t)
		require.NoError(t, leases.Err())
		require.Greater(t, leases.Token("a"), uint64(old))
		require.NoError(t, leases.Unlock(t.Context()))
	}, redlock.Quiet)
}

func TestMultiCancelAtAnyMomentLeavesNothingBehind(t *testing.T) {
	for _, held := range []string{"", "a", "b", "c"} {
		t.Run("held "+held, inPair(3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
			p.Slow(2*time.Millisecond, 4*time.Millisecond, 6*time.Millisecond)
			names := []string{"a", "b", "c"}
			for _, name := range names {
				redlock.Skew(t, cluster, name, 30, 20, 10)
			}
			for after := time.Duration(0); after <= 16*time.Millisecond; after += 500 * time.Microsecond {
				var l *redlock.Lease
				if held != "" {
					l = other.Hold(t, held)
				}
				ctx, cancel := context.WithCancel(t.Context())
				w := gather(ctx, p.Multi(names))
				if held != "" && after > 8*time.Millisecond {
					time.Sleep(8 * time.Millisecond)
					require.NoError(t, l.Unlock(t.Context())) // so that it comes to the names behind
					l = nil
					time.Sleep(after - 8*time.Millisecond)
				} else {
					time.Sleep(after)
				}
				cancel()
				<-w.Done
				if w.Err == nil {
					require.NoError(t, w.Value.Unlock(t.Context()))
				} else {
					require.ErrorIs(t, w.Err, context.Canceled)
				}
				if l != nil {
					require.NoError(t, l.Unlock(t.Context()))
				}
				time.Sleep(50 * time.Millisecond)
				redlock.NothingLeft(t, cluster)
			}
		}, redlock.Quiet))
	}
}

// A fixed TTL counts from the last name. What came early is renewed meanwhile, and extended in the end.
func TestMultiWithAFixedTTLHasAllOfItInTheEnd(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		const ttl = 5 * time.Second
		free := rt.Must(p.Multi([]string{"x", "y"}, redlock.TTL(ttl)).Lock(t.Context()))(t)
		require.InDelta(t, ttl, time.Until(free.ValidUntil()), float64(100*time.Millisecond))
		b := other.Hold(t, "b")
		w := gather(t.Context(), p.Multi([]string{"a", "b", "c"}, redlock.TTL(ttl)))
		time.Sleep(20 * time.Second)
		require.ErrorIs(t, free.Err(), redlock.ErrLost)
		require.NoError(t, b.Unlock(t.Context()))
		leases := w.Get(t)
		for _, l := range leases.All() {
			require.InDelta(t, ttl, time.Until(l.ValidUntil()), float64(100*time.Millisecond), l.Key())
		}
		time.Sleep(4 * time.Second)
		require.NoError(t, leases.Extend(t.Context(), ttl))
		time.Sleep(4 * time.Second)
		require.NoError(t, leases.Err(), "the extension has moved the end")
		time.Sleep(2 * time.Second)
		var lost *redlock.LostError
		require.ErrorAs(t, leases.Err(), &lost, "nobody renews it")
		require.Equal(t, redlock.LostExpired, lost.Reason)
		require.ErrorIs(t, leases.Unlock(t.Context()), redlock.ErrLost)
	}, redlock.Quiet)
}

func TestMultiMaxHoldCountsFromTheLastName(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		b := other.Hold(t, "b")
		w := gather(t.Context(), p.Multi([]string{"a", "b"}, redlock.AutoRenew(5*time.Second), redlock.MaxHold(time.Minute)))
		time.Sleep(5 * time.Minute) // more than a lease in hand may be lost
		require.NoError(t, b.Unlock(t.Context()))
		leases := w.Get(t)
		time.Sleep(50 * time.Second)
		require.NoError(t, leases.Err())
		time.Sleep(11 * time.Second)
		require.Equal(t, redlock.LostMaxHold, rt.As[*redlock.LostError](t, leases.Err()).Reason)
		_ = leases.Unlock(t.Context())
	}, redlock.Quiet)
}

func TestMultiExtendsAllInOneCommand(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		leases := rt.Must(p.Multi([]string{"a", "b", "c"}, redlock.TTL(5*time.Second)).Lock(t.Context()))(t)
		extends := p.Count(script.Extend)
		require.NoError(t, leases.Extend(t.Context(), 20*time.Second))
		synctest.Wait() // a majority has decided
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(extends))
		require.InDelta(t, 20*time.Second, time.Until(leases.ValidUntil()), float64(time.Second))
		require.NoError(t, leases.Extend(t.Context(), time.Second))
		require.InDelta(t, time.Second, time.Until(leases.ValidUntil()), float64(100*time.Millisecond))
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(extends), "a shorter one asks nobody")
		require.ErrorIs(t, leases.Extend(t.Context(), time.Hour), redlock.ErrInput)
		p.Away(0, 1)
		synctest.Wait()
		began := time.Now()
		err := leases.Extend(t.Context(), 20*time.Second)
		require.Less(t, time.Since(began), 100*time.Millisecond, "all have been heard")
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
		for _, name := range []string{"a", "b", "c"} {
			require.ErrorContains(t, err, fmt.Sprintf("extend %q", name))
		}
		require.NoError(t, leases.Err())
	}, redlock.Quiet)
}

func TestMultiExtendsEveryLease(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		leases := rt.Must(p.Multi([]string{"a", "b"}, redlock.TTL(5*time.Second)).Lock(t.Context()))(t)
		synctest.Wait()
		redlock.Admin(t, cluster.Servers[0], "DEL", "b")
		redlock.Admin(t, cluster.Servers[0], "SET", "b", "no lock", "PX", "600000") // so that it is not given back
		p.Slow(2*time.Millisecond, 4*time.Millisecond, 20*time.Millisecond)
		began := time.Now()
		require.NoError(t, leases.Extend(t.Context(), 20*time.Second))
		require.Equal(t, 20*time.Millisecond, time.Since(began))
		require.NoError(t, leases.Unlock(t.Context()))
	}, redlock.Quiet)
}

func TestMultiReenters(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		multi := func(names ...string) *redlock.Multi { return p.Multi(names, redlock.As("me")) }
		b := p.Hold(t, "b", redlock.As("me"))
		leases := rt.Must(multi("a", "b", "c").Lock(t.Context()))(t)
		require.Equal(t, b.Token(), leases.Token("b"))
		again := rt.Must(multi("b", "c").TryLock(t.Context()))(t)
		require.NoError(t, again.Unlock(t.Context()))
		require.ErrorIs(t, again.Unlock(t.Context()), redlock.ErrNotHeld)
		require.ErrorIs(t, again.Err(), redlock.ErrReleased)
		require.NoError(t, leases.Err())
		require.NoError(t, leases.Unlock(t.Context()))
		require.NoError(t, b.Err())
		for _, name := range []string{"a", "c"} {
			require.NoError(t, other.Hold(t, name).Unlock(t.Context()))
		}

		// To wait for what comes before what is held may end in a circle.
		a := other.Hold(t, "a")
		began := time.Now()
		for _, names := range [][]string{{"a", "b", "c"}, {"a", "c"}, {"a"}} {
			rt.Says(t, rt.Err(multi(names...).Lock(t.Context())), redlock.ErrOrder, `the owner holds "b"`, "%v", names)
		}
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, b.Err(), "only the new part is given up")
		synctest.Wait()
		for _, s := range cluster.Servers {
			require.Equal(t, []string{"a", "b"}, votesFor(t, s, "a", "b", "c"))
		}
		require.NoError(t, a.Unlock(t.Context()))
		c := other.Hold(t, "c") // behind it can be waited for
		w := gather(t.Context(), multi("b", "c"))
		time.Sleep(time.Second)
		require.NoError(t, c.Unlock(t.Context()))
		require.NoError(t, w.Get(t).Unlock(t.Context()))
		require.NoError(t, b.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet)
}

func TestMultiThatEndsLeavesALeaseToItsOtherUsers(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		b := p.Hold(t, "b", redlock.As("me"), redlock.AutoRenew(9*time.Second))
		leases := rt.Must(p.Multi([]string{"a", "b"}, redlock.As("me"), redlock.AutoRenew(9*time.Second)).Lock(t.Context()))(t)
		require.NoError(t, rt.Err(p.ForceUnlock(t.Context(), "a")))
		<-leases.Done()
		time.Sleep(time.Minute)
		require.NoError(t, b.Err())
		require.ErrorIs(t, leases.Unlock(t.Context()), redlock.ErrLost)
		time.Sleep(time.Minute)
		require.NoError(t, b.Err())
		require.NoError(t, b.Unlock(t.Context()))
	}, redlock.Quiet)
}

func TestMultiThatGivesUpLeavesALeaseToItsOtherUsers(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		b := other.Hold(t, "b")
		ctx, cancel := context.WithCancel(t.Context())
		w := gather(ctx, p.Multi([]string{"a", "b"}, redlock.As("me"), redlock.TTL(5*time.Second)))
		time.Sleep(10 * time.Second)
		a := p.Lock(t, "a", redlock.As("me"))
		cancel()
		require.ErrorIs(t, w.End(), context.Canceled)
		time.Sleep(4 * time.Second)
		require.NoError(t, a.Err())
		time.Sleep(2 * time.Second)
		require.ErrorIs(t, a.Err(), redlock.ErrLost, "its TTL was a fixed one")
		require.NoError(t, b.Unlock(t.Context()))
		noKeysAtRest(t, d)
	}, redlock.Quiet)
}

func TestMultiEndsEverySetOfALease(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		var sets []*redlock.Leases
		for _, names := range [][]string{{"a", "b"}, {"b", "c"}, {"b"}} {
			sets = append(sets, rt.Must(p.Multi(names, redlock.As("me")).Lock(t.Context()))(t))
		}
		require.NoError(t, rt.Err(p.ForceUnlock(t.Context(), "b")))
		for _, leases := range sets {
			<-leases.Done()
			require.ErrorIs(t, leases.Err(), redlock.ErrLost)
		}
		require.NoError(t, sets[1].Of("c").Err())
		for _, leases := range sets {
			require.ErrorIs(t, leases.Unlock(t.Context()), redlock.ErrLost)
		}
	}, redlock.Quiet)
}

func TestMultiOfSeveralDeployments(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		other := rt.Embedded(t, 3)
		p, q := redlock.JoinAll(t, cluster, redlock.Quiet), redlock.JoinAll(t, other, redlock.Quiet)
		m := redlock.Join(q.Mutex("b"), p.Mutex("a"), p.Mutex("c", redlock.TTL(5*time.Second)), q.Mutex("c"))
		leases := rt.Must(m.Lock(t.Context()))(t)
		require.Len(t, leases.All(), 4)
		require.Less(t, time.Until(leases.ValidUntil()), 5*time.Second)
		synctest.Wait()
		require.Equal(t, []string{"a", "c"}, votesFor(t, cluster.Servers[0], "a", "b", "c"))
		require.Equal(t, []string{"b", "c"}, votesFor(t, other.Servers[0], "a", "b", "c"))
		require.NoError(t, leases.Extend(t.Context(), 10*time.Second))
		require.NoError(t, leases.Unlock(t.Context()))
		l := redlock.JoinAll(t, other, redlock.Quiet).Hold(t, "b")
		require.ErrorIs(t, rt.Err(m.TryLock(t.Context())), redlock.ErrHeld)
		require.NoError(t, l.Unlock(t.Context()))
		redlock.NothingLeft(t, cluster)
		redlock.Leftovers(t, other)
		require.NoError(t, q.Close())
		require.ErrorIs(t, rt.Err(m.Lock(t.Context())), redlock.ErrClosed)
		redlock.NothingLeft(t, cluster)
	})
}

func TestMultiSaysWhatCannotWork(t *testing.T) {
	redlock.Alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		many := make([]string, 64+1)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		for _, c := range []struct {
			m    *redlock.Multi
			text string
		}{
			{p.Multi(nil), "no names"},
			{new(redlock.Multi), "no names"},
			{redlock.Join(), "no names"},
			{redlock.Join(p.Mutex("a"), nil), "nil lock"},
			{p.Multi(many), "65 names, but at most 64 are allowed"},
			{p.Multi([]string{"a", "b", "a"}), `the name "a" is there twice`},
			{redlock.Join(p.Mutex("a"), p.Mutex("a", redlock.TTL(time.Second))), `the name "a" is there twice`},
			{p.Multi([]string{"a", ""}), "must not be empty"},
			{p.Multi([]string{"redquorum:tokens", "a"}), "the library's own keys"},
			{p.Multi([]string{"a", "b"}, redlock.TTL(time.Hour)), "MaxTTL"},
		} {
			for _, get := range []func(context.Context) (*redlock.Leases, error){c.m.Lock, c.m.TryLock} {
				rt.Says(t, rt.Err(get(t.Context())), redlock.ErrInput, c.text)
			}
			require.ErrorIs(t, c.m.Do(t.Context(), func(context.Context, *redlock.Leases) error { return nil }), redlock.ErrInput)
		}
		require.ErrorIs(t, p.Multi([]string{"a"}).Do(t.Context(), nil), redlock.ErrInput)
		require.ErrorIs(t, p.Mutex("a").Do(t.Context(), nil), redlock.ErrInput)
		rt.Says(t, p.RWMutex("a").RDo(t.Context(), nil), redlock.ErrInput, "read lock")
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := p.Multi([]string{"a"}).Lock(over)
		require.ErrorIs(t, err, context.Canceled)
		require.NotErrorIs(t, err, redlock.ErrNoQuorum)
		var none context.Context
		require.ErrorIs(t, rt.Err(p.Multi([]string{"a"}).Lock(none)), redlock.ErrInput)
		leases := rt.Must(p.Multi(many[:64]).Lock(t.Context()))(t)
		require.ErrorIs(t, leases.Unlock(none), redlock.ErrInput)
		require.ErrorIs(t, leases.Extend(none, time.Second), redlock.ErrInput)
		require.NoError(t, leases.Unlock(t.Context()))
		redlock.Admin(t, cluster.Servers[0], "SET", "b", "no lock")
		require.ErrorIs(t, rt.Err(p.Multi([]string{"a", "b", "c"}).Lock(t.Context())), redlock.ErrForeignKey)
		redlock.Admin(t, cluster.Servers[0], "DEL", "b")
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet)
}

func TestMultiDo(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		type key struct{}
		ctx := context.WithValue(t.Context(), key{}, "value")
		failed := errors.New("failed")
		m := p.Multi([]string{"a", "b"})
		require.ErrorIs(t, m.Do(ctx, func(ctx context.Context, leases *redlock.Leases) error {
			require.Equal(t, "value", ctx.Value(key{}))
			require.NoError(t, ctx.Err())
			require.NoError(t, leases.Err())
			return failed
		}), failed)
		require.NoError(t, m.Do(ctx, func(ctx context.Context, leases *redlock.Leases) error {
			p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
			require.NoError(t, leases.Unlock(ctx)) // under the context that ends with it
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
			return nil
		}))
		require.NoError(t, m.Do(ctx, func(_ context.Context, leases *redlock.Leases) error {
			require.NoError(t, leases.Of("a").Unlock(ctx)) // the set ends with it, and the rest is released in the end
			require.ErrorIs(t, leases.Err(), redlock.ErrReleased)
			return nil
		}))
		require.ErrorIs(t, m.Do(ctx, func(ctx context.Context, leases *redlock.Leases) error {
			require.NoError(t, rt.Err(p.ForceUnlock(ctx, "b")))
			<-ctx.Done()
			return context.Cause(ctx)
		}), redlock.ErrLost)
		require.Panics(t, func() { _ = m.Do(ctx, func(context.Context, *redlock.Leases) error { panic("fn") }) })
		require.ErrorIs(t, m.Do(ctx, func(context.Context, *redlock.Leases) error {
			require.NoError(t, p.Close())
			require.True(t, hasEnded(redlock.KeeperDone(p.Client)), "it has waited")
			return nil
		}), redlock.ErrLost)
	}, redlock.Quiet)
}

func TestMultiEndsWithItsClient(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, other *caller) {
		b := other.Hold(t, "b")
		held := allOf(t, p, "x", "y")
		w := gather(t.Context(), p.Multi([]string{"a", "b", "c"}))
		time.Sleep(time.Second)
		require.NoError(t, p.Close())
		require.ErrorIs(t, w.End(), redlock.ErrClosed)
		require.ErrorIs(t, held.Err(), redlock.ErrClosed)
		require.NoError(t, b.Unlock(t.Context()))
		noKeysAtRest(t, d)
	}, redlock.Quiet)
}

// Where a member refuses the names behind one that it has given another, they are asked for once more: a try says of no
// free lock that it is held.
func TestMultiTriesWhatAChainPassedOver(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, other *redlock.Peer) {
		vote := func(i int, name string) {
			l := other.Hold(t, name)
			for k, s := range cluster.Servers {
				if k != i {
					redlock.Admin(t, s, "DEL", l.Key())
				}
			}
		}
		vote(0, "a") // and so b is passed over at 0
		vote(1, "b")
		require.NoError(t, rt.Must(p.Multi([]string{"a", "b"}).TryLock(t.Context()))(t).Unlock(t.Context()))
	}, redlock.Quiet)
}

func TestMultiTellsTheTracerOfEachName(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		rec := &setTracer{}
		p, other := another(t, d, redlock.Quiet, redlock.WithTracer(rec)), another(t, d, redlock.Quiet)
		b := other.Hold(t, "b")
		require.ErrorIs(t, rt.Err(p.Multi([]string{"b", "a"}).TryLock(t.Context())), redlock.ErrHeld)
		require.Equal(t, []string{"start a", "start b", "end a held", "end b held"}, rec.take())
		require.NoError(t, b.Unlock(t.Context()))
		require.NoError(t, allOf(t, p, "a", "b").Unlock(t.Context()))
		require.Equal(t, []string{"start a", "start b", "end a", "end b", "released a", "released b"}, rec.take())
	})
}

type setTracer struct{ lines []string }

func (r *setTracer) take() []string {
	out := r.lines
	r.lines = nil
	return out
}

func (r *setTracer) CallStart(ctx context.Context, e redlock.CallStart) context.Context {
	r.lines = append(r.lines, "start "+e.Key)
	return ctx
}

func (r *setTracer) CallEnd(_ context.Context, e redlock.CallEnd) {
	line := "end " + e.Key
	if errors.Is(e.Err, redlock.ErrHeld) {
		line += " held"
	}
	r.lines = append(r.lines, line)
}

func (r *setTracer) Released(e redlock.Released) { r.lines = append(r.lines, "released "+e.Key) }

func TestMultiAsksSilentMembersOnce(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		names := []string{"a", "b", "c", "d"}
		silent := func(call func()) time.Duration {
			p.EveryLink((*redistest.Link).PauseReplies, 1, 2)
			began := time.Now()
			call()
			took := time.Since(began).Truncate(time.Microsecond) // an answer that is late is looked for once more
			p.EveryLink((*redistest.Link).Resume, 1, 2)
			synctest.Wait()
			return took
		}
		timeout := 200 * time.Millisecond
		leases := allOf(t, p, names...)
		require.Equal(t, timeout, silent(func() {
			err := leases.Unlock(t.Context())
			require.ErrorIs(t, err, redlock.ErrInDoubt)
			for _, name := range names {
				require.ErrorContains(t, err, fmt.Sprintf("%q", name))
			}
		}))
		redlock.NothingLeft(t, cluster)
		require.Equal(t, timeout, silent(func() {
			require.ErrorIs(t, rt.Err(p.Multi(names).TryLock(t.Context())), redlock.ErrNoQuorum)
		}))
		redlock.NothingLeft(t, cluster)

		leases = allOf(t, p, names...)
		require.Equal(t, timeout/2, silent(func() {
			ctx := rt.Within(t, timeout/2)
			err := leases.Unlock(ctx)
			require.ErrorIs(t, err, redlock.ErrInDoubt)
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}))
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet, func(c *redlock.Config) { c.MemberTimeout = 200 * time.Millisecond })
}

func TestMultiHearsARefusalBeforeASlowDeployment(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		slow := rt.Embedded(t, 3)
		p, q := redlock.JoinAll(t, cluster, redlock.Quiet), redlock.JoinAll(t, slow, redlock.Quiet)
		p.Slow(2*time.Millisecond, 2*time.Millisecond, 2*time.Millisecond)
		q.Slow(80*time.Millisecond, 80*time.Millisecond, 80*time.Millisecond)
		held := redlock.JoinAll(t, cluster, redlock.Quiet).Hold(t, "a")
		began := time.Now()
		require.ErrorIs(t, rt.Err(redlock.Join(p.Mutex("a"), q.Mutex("b")).TryLock(t.Context())), redlock.ErrHeld)
		require.Equal(t, 2*time.Millisecond, time.Since(began))
		require.NoError(t, held.Unlock(t.Context()))
		time.Sleep(time.Second)
		redlock.Leftovers(t, slow)
	})
}

// perName is a member of which each name has a server of its own: the first is held there, and the
// others answer late.
type perName struct{ *redlock.Yes }

func (m perName) StateOf(uint16) member.State { return m.State() }

func (m perName) Submit(c *member.Call) {
	switch words := strings.Split(string(c.Cmd), "\r\n"); {
	case redlock.ScriptOf(c) != script.Acquire.SHA:
		m.Yes.Submit(c)
	case words[8] == "a":
		st := m.State()
		c.Outcome, c.Reply, c.State, c.At = member.Answered, member.Reply{Kind: ':', Int: -1000}, st.Brief, time.Now()
		c.Sink.Done(c)
	default:
		time.AfterFunc(80*time.Millisecond, func() { m.Yes.Submit(c) })
	}
}

func TestMultiHearsARefusalBeforeASlowMaster(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := redlock.Agreed(t, perName{&redlock.Yes{}})
		began := time.Now()
		require.ErrorIs(t, rt.Err(c.Multi([]string{"a", "b"}).TryLock(t.Context())), redlock.ErrHeld)
		require.Zero(t, time.Since(began))
		time.Sleep(time.Second)
	})
}
