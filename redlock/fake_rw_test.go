package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

func later(ctx context.Context, get func(context.Context) (*redlock.Lease, error)) *redlock.Locking {
	return rt.Begin(func() (*redlock.Lease, error) { return get(ctx) })
}

func three(t *testing.T, test func(t *testing.T, cluster *redistest.Cluster, a, b, c *redlock.Peer)) {
	t.Helper()
	redlock.Among(t, 3, 3, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		test(t, cluster, all[0], all[1], all[2])
	}, redlock.Quiet)
}

func reads(t testing.TB, p anyClient, name string, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	l := rt.Must(p.RWMutex(name, opts...).RLock(t.Context()))(t)
	synctest.Wait()
	return l
}

func writes(t testing.TB, p anyClient, name string, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	l := rt.Must(p.RWMutex(name, opts...).Lock(t.Context()))(t)
	synctest.Wait()
	return l
}

func unlock(t testing.TB, leases ...*redlock.Lease) {
	t.Helper()
	for _, l := range leases {
		require.NoError(t, l.Unlock(context.Background()))
	}
	synctest.Wait()
}

func TestWriterWaitsForEveryReaderAndStopsNewOnes(t *testing.T) {
	withMany(t, 3, 4, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		x, y := reads(t, all[0], "k"), reads(t, all[1], "k")
		w := later(t.Context(), all[2].RWMutex("k").Lock)
		synctest.Wait()
		require.ErrorIs(t, rt.Err(all[3].RWMutex("k").TryRLock(t.Context())), redlock.ErrHeld)
		r := later(t.Context(), all[3].RWMutex("k").RLock)
		time.Sleep(100 * time.Second) // renewed all the while
		require.NoError(t, errors.Join(x.Err(), y.Err()))
		unlock(t, x)
		require.True(t, w.Pending() && r.Pending())
		unlock(t, y)
		require.False(t, w.Pending(), "the last reader's release serves the writer")
		require.True(t, r.Pending())
		unlock(t, w.Get(t))
		require.False(t, r.Pending(), "and the writer's release lets the reader in")
		require.Greater(t, w.Value.Token(), max(x.Token(), y.Token()))
		require.Greater(t, r.Get(t).Token(), w.Value.Token())
		unlock(t, r.Value)
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestReadersComeInTogether(t *testing.T) {
	deployed(t, 5, func(t *testing.T, d *redlocktest.Deployment) {
		holder, next := another(t, d, redlock.Quiet), another(t, d, redlock.Quiet)
		w := writes(t, holder, "k")
		second := later(t.Context(), next.RWMutex("k").Lock)
		synctest.Wait()
		var readers []*redlock.Locking
		for range 4 {
			p := another(t, d, redlock.Quiet)
			for range 3 {
				readers = append(readers, later(t.Context(), p.RWMutex("k").RLock))
			}
		}
		time.Sleep(10 * time.Second)
		require.NoError(t, w.Unlock(t.Context()))
		synctest.Wait()
		require.True(t, second.Pending(), "a writer's release serves readers first")
		for _, r := range readers {
			require.False(t, r.Pending(), "all of them, in that step")
			require.Equal(t, readers[0].Get(t).Token(), r.Get(t).Token())
		}
		for _, r := range readers {
			require.True(t, second.Pending())
			unlock(t, r.Value)
		}
		unlock(t, second.Get(t))
		noKeys(t, d)
	})
}

// A writer that gives up lets in the readers that stood behind it alone.
// Readers that wait behind an owner of another kind come in together at its release, and before
// those that wait for the same. They do not wait for their heartbeat.
func TestReadersComeInAtTheReleaseOfAnotherKind(t *testing.T) {
	for what, hold := range map[string]func(t *testing.T, p *caller) (unlock func(context.Context) error){
		"mutex": func(t *testing.T, p *caller) func(context.Context) error { return p.Hold(t, "k").Unlock },
		"fair": func(t *testing.T, p *caller) func(context.Context) error {
			return p.Hold(t, "k", redlock.Fair()).Unlock
		},
		"set": func(t *testing.T, p *caller) func(context.Context) error { return allOf(t, p, "j", "k").Unlock },
	} {
		for _, crowd := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, writers wait: %v", what, crowd), func(t *testing.T) {
				withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
					for _, p := range []*caller{a, b, c} {
						p.Slow(2*time.Millisecond, 2*time.Millisecond, 2*time.Millisecond)
					}
					release := hold(t, a)
					var writer *redlock.Locking
					if crowd {
						writer = c.LockLater(t.Context(), "k")
						time.Sleep(10 * time.Millisecond)
					}
					first := later(t.Context(), b.RWMutex("k").RLock)
					second := later(t.Context(), c.RWMutex("k").RLock)
					time.Sleep(10 * time.Millisecond) // much less than to a heartbeat
					require.NoError(t, release(t.Context()))
					began := time.Now()
					in := []*redlock.Lease{first.Get(t), second.Get(t)}
					require.LessOrEqual(t, time.Since(began), 2*time.Millisecond)
					if crowd {
						require.True(t, writer.Pending())
					}
					unlock(t, in...)
					if crowd {
						unlock(t, writer.Get(t))
					}
					noKeysAtRest(t, d)
				})
			})
		}
	}
}

// A reader comes while the release of a mutex is on its way. Its owner hears of the reader too late, and hands over to the
// next mutex. That one's release lets the reader in, and not the mutex behind it.
func TestReaderThatComesDuringAReleaseIsServedByTheNext(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		a, b, c, r := another(t, d, redlock.Quiet), another(t, d, redlock.Quiet), another(t, d, redlock.Quiet), another(t, d, redlock.Quiet)
		held := a.Hold(t, "k")
		next := b.LockLater(t.Context(), "k")
		time.Sleep(time.Millisecond) // so that this one is the first in line
		behind := c.LockLater(t.Context(), "k")
		synctest.Wait()
		a.Slow(40*time.Millisecond, 40*time.Millisecond, 40*time.Millisecond) // there, and back
		released := rt.Go(func() error { return held.Unlock(t.Context()) })
		synctest.Wait()
		reader := later(t.Context(), r.RWMutex("k").RLock)
		synctest.Wait()
		require.True(t, next.Pending(), "the release is on its way")
		time.Sleep(30 * time.Millisecond)
		require.False(t, next.Pending(), "the release handed over to a mutex")
		require.True(t, reader.Pending() && behind.Pending())
		unlock(t, next.Get(t))
		require.False(t, reader.Pending())
		require.True(t, behind.Pending())
		require.NoError(t, <-released)
		unlock(t, reader.Get(t))
		unlock(t, behind.Get(t))
		noKeysAtRest(t, d)
	})
}

func TestReadersBehindAWriterThatGivesUp(t *testing.T) {
	withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
		x := reads(t, a, "k")
		ctx, cancel := context.WithCancel(t.Context())
		w := later(ctx, b.RWMutex("k").Lock)
		synctest.Wait()
		r := later(t.Context(), c.RWMutex("k").RLock)
		time.Sleep(100 * time.Millisecond)
		require.True(t, r.Pending())
		cancel()
		synctest.Wait()
		require.ErrorIs(t, w.Err, context.Canceled)
		require.False(t, r.Pending())
		unlock(t, x, r.Get(t))
		noKeys(t, d)
	})
}

func TestRenewedReaderOutlivesItsFirstTTL(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		x := reads(t, a, "k", redlock.AutoRenew(3*time.Second))
		w := later(t.Context(), b.RWMutex("k").Lock)
		for range 60 {
			time.Sleep(time.Second)
			require.NoError(t, x.Err())
			require.True(t, w.Pending(), "the reader holds the lock")
			require.Equal(t, 3, votesSeen(t, b, x))
		}
		unlock(t, x)
		unlock(t, w.Get(t))
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestDeadReaderEndsAtItsOwnTime(t *testing.T) {
	withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
		x := reads(t, a, "k", redlock.AutoRenew(30*time.Second))
		y := reads(t, b, "k", redlock.AutoRenew(5*time.Second))
		b.Die()
		time.Sleep(20 * time.Second)
		require.NoError(t, x.Err())
		require.Error(t, y.Err())
		w := later(t.Context(), c.RWMutex("k").Lock)
		synctest.Wait()
		unlock(t, x)
		require.False(t, w.Pending(), "nobody waits for the dead")
		unlock(t, w.Get(t))

		asked := time.Now()
		reads(t, c, "k", redlock.TTL(2*time.Second))
		c.Die()
		start := time.Now()
		w = later(t.Context(), a.RWMutex("k").Lock)
		unlock(t, w.Get(t))
		require.LessOrEqual(t, w.At.Sub(start), 2*time.Second+10*time.Millisecond)
		require.GreaterOrEqual(t, w.At.Sub(asked), 2*time.Second-20*time.Millisecond)
	})
}

// Three members, one down. A reader has one of the others, a second reader the other one, and a
// writer waits at both.
func TestStuckReadersLetTheWriterIn(t *testing.T) {
	withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
		d.Cut(2)
		synctest.Wait()
		near, far := 2*time.Millisecond, 20*time.Millisecond
		a.Slow(near, far)
		b.Slow(far, near)
		c.Slow(far/2, far/2)
		for round := range 20 {
			name := fmt.Sprint("k", round)
			start := time.Now()
			x, y := later(t.Context(), a.RWMutex(name).RLock), later(t.Context(), b.RWMutex(name).RLock)
			w := later(t.Context(), c.RWMutex(name).Lock)
			for _, l := range []*redlock.Locking{x, y, w} {
				go func() {
					<-l.Done
					if l.Err == nil {
						time.Sleep(time.Millisecond)
						_ = l.Value.Unlock(context.Background())
					}
				}()
			}
			for _, l := range []*redlock.Locking{x, y, w} {
				l.Get(t)
			}
			require.Less(t, time.Since(start), 400*time.Millisecond, "nobody waits for a heartbeat")
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func TestReadLeaseOfADowngradeOutlivesItsDo(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, _ *redlocktest.Deployment, a, b *caller) {
		var down *redlock.Lease
		require.NoError(t, a.RWMutex("k").Do(t.Context(), func(ctx context.Context, l *redlock.Lease) (err error) {
			down, err = l.Downgrade(ctx)
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrDowngraded)
			return err
		}))
		time.Sleep(time.Minute)
		require.NoError(t, down.Err(), "the client renews it")
		require.ErrorIs(t, rt.Err(b.RWMutex("k").TryLock(t.Context())), redlock.ErrHeld)
		require.NoError(t, down.Unlock(t.Context()))
	})
}

func TestDowngradeHasNoGap(t *testing.T) {
	withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
		a.Slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		w := writes(t, a, "k", redlock.AutoRenew(3*time.Second))
		ended := make(chan time.Time, 1)
		context.AfterFunc(w.Context(), func() { ended <- time.Now() })
		r := later(t.Context(), b.RWMutex("k").RLock)
		time.Sleep(10 * time.Millisecond) // it stands in front
		next := later(t.Context(), c.RWMutex("k").Lock)
		time.Sleep(40 * time.Millisecond)
		until := w.ValidUntil()
		before := time.Now()
		down := rt.Must(w.Downgrade(t.Context()))(t)
		require.ErrorIs(t, w.Err(), redlock.ErrDowngraded)
		require.ErrorIs(t, context.Cause(w.Context()), redlock.ErrDowngraded)
		require.Equal(t, before, <-ended, "before the first byte leaves")
		require.Equal(t, w.Token(), down.Token())
		require.False(t, down.ValidUntil().Before(until))
		require.True(t, down.Shared())
		require.ErrorIs(t, w.Unlock(t.Context()), redlock.ErrNotHeld)
		synctest.Wait()
		require.False(t, r.Pending(), "readers come in at once")
		require.True(t, next.Pending(), "and writers do not")
		for range 30 {
			time.Sleep(time.Second)
			require.NoError(t, down.Err(), "renewed as a reader")
			require.Equal(t, 3, votesSeen(t, c, down))
			require.True(t, next.Pending())
		}
		unlock(t, r.Get(t), down)
		unlock(t, next.Get(t))
		require.Greater(t, next.Value.Token(), r.Value.Token())
		require.Greater(t, r.Value.Token(), w.Token())
		noKeys(t, d)

		require.ErrorIs(t, rt.Err(down.Downgrade(t.Context())), redlock.ErrInput)
		m := a.Hold(t, "k")
		require.ErrorIs(t, rt.Err(m.Downgrade(t.Context())), redlock.ErrInput)
		unlock(t, m)
		require.ErrorIs(t, rt.Err(w.Downgrade(t.Context())), redlock.ErrNotHeld)
	})
}

func TestDowngradeThatIsLostIsRepeated(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		w := writes(t, a, "k", redlock.AutoRenew(3*time.Second))
		lost := a.Links[0].Call(redistest.WithArg(script.RWDowngrade.SHA), 1, func([]string) { a.Links[0].Cut() })
		down := rt.Must(w.Downgrade(t.Context()))(t)
		synctest.Wait() // the others are a majority: the answer that is lost may be under way
		require.Equal(t, 1, lost.Hits())
		time.Sleep(5 * time.Second)
		require.NoError(t, down.Err())
		require.Equal(t, 3, votesAt(cluster, down))
		for i, s := range cluster.Servers {
			require.NotNil(t, redlock.Admin(t, s, "HGET", "k", "r"), "member %d has a phase", i)
		}
		x := reads(t, b, "k")
		unlock(t, x, down)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// A member that was not reached is given a writer's lease back, and the writer becomes a reader in
// that moment: the reader does not know of that call before it is answered.
func TestReaderReleasesWhatItWasGivenAsAWriter(t *testing.T) {
	for _, ended := range []bool{false, true} {
		t.Run(fmt.Sprintf("the reader has ended: %v", ended), inAlone(3, func(t *testing.T, cluster *redistest.Cluster, a *redlock.Peer) {
			a.Links[2].Refuse(true)
			a.Links[2].Cut()
			synctest.Wait() // nothing is sent there
			w := writes(t, a, "k", redlock.TTL(20*time.Second))
			down := rt.Must(w.Downgrade(t.Context()))(t)
			require.Equal(t, 2, votesAt(cluster, down))
			a.Links[2].Refuse(false)
			time.Sleep(5 * time.Second)
			if ended {
				unlock(t, down)
			}
			redlock.Admin(t, cluster.Servers[2], "HSET", "k", redlock.OwnerOf(w), "7")
			redlock.Admin(t, cluster.Servers[2], "PEXPIRE", "k", "20000")
			redlock.LateVote(w, 2)
			if !ended {
				require.Equal(t, 3, votesAt(cluster, down))
				unlock(t, down)
			}
			synctest.Wait()
			redlock.Leftovers(t, cluster)
		}, redlock.Quiet))
	}
}

func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, a *caller) {
		rw := a.RWMutex("k", redlock.As("me"))
		x := rt.Must(rw.RLock(t.Context()))(t)
		for _, get := range []func(context.Context) (*redlock.Lease, error){rw.Lock, rw.TryLock, a.Mutex("k", redlock.As("me")).Lock} {
			require.ErrorIs(t, rt.Err(get(t.Context())), redlock.ErrUpgrade)
		}
		require.ErrorIs(t, rt.Err(a.RWMutex("k").Lock(x.Context())), redlock.ErrUpgrade, "the context of a read lease")
		require.Same(t, x, rt.Must(rw.RLock(t.Context()))(t))
		unlock(t, x, x)
		require.ErrorIs(t, x.Err(), redlock.ErrReleased)
		w, err := a.RWMutex("k").Lock(context.WithoutCancel(x.Context()))
		require.NoError(t, err, "that lease is over")
		unlock(t, w)
		noKeys(t, d)

		w = rt.Must(rw.Lock(t.Context()))(t)
		inner := rt.Must(rw.RLock(t.Context()))(t)
		require.Same(t, w, inner, "a writer reads in its own lease")
		_, err = w.Downgrade(t.Context())
		require.ErrorIs(t, err, redlock.ErrInput, "others rely on it")
		require.NotContains(t, err.Error(), `"me"`, "no error tells an owner")
		unlock(t, w)
		down := rt.Must(w.Downgrade(t.Context()))(t)
		inner = rt.Must(rw.RLock(t.Context()))(t)
		require.Same(t, down, inner)
		unlock(t, down, down)
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestReadersWithRedissonAreBadInput(t *testing.T) {
	deployed(t, 1, func(t *testing.T, d *redlocktest.Deployment) {
		p, plain := another(t, d, redlock.Quiet, redlock.WithInterop()), another(t, d, redlock.Quiet)
		rw := p.RWMutex("k")
		for _, get := range []func(context.Context) (*redlock.Lease, error){rw.Lock, rw.TryLock, rw.RLock, rw.TryRLock} {
			require.ErrorIs(t, rt.Err(get(t.Context())), redlock.ErrInput)
		}
		h := rt.Must(reads(t, plain, "k", redlock.TTL(30*time.Second)).Handoff())(t)
		require.ErrorIs(t, rt.Err(p.Adopt(t.Context(), h)), redlock.ErrInput)
	})
}

func TestReadLeaseIsHandedOff(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		x, y := reads(t, a, "k", redlock.TTL(30*time.Second)), reads(t, a, "k")
		require.ErrorIs(t, rt.Err(y.Handoff()), redlock.ErrInput, "others share what it holds")
		require.NoError(t, y.Err())
		h := rt.Must(x.Handoff())(t)
		require.Equal(t, redlock.KindRead, h.Kind())
		h = rt.Must(redlock.ParseHandoff(h.Secret()))(t)
		z := rt.Must(b.Adopt(t.Context(), h))(t)
		require.True(t, z.Shared())
		unlock(t, y)
		time.Sleep(20 * time.Second)
		require.NoError(t, z.Err())
		require.ErrorIs(t, rt.Err(a.RWMutex("k").TryLock(t.Context())), redlock.ErrHeld)
		unlock(t, z)
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestReadersAreSeenAndForced(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		x, y := reads(t, a, "k"), reads(t, b, "k")
		w := later(t.Context(), b.RWMutex("k").Lock)
		synctest.Wait()
		r := later(t.Context(), a.RWMutex("k").RLock)
		synctest.Wait()
		seen := rt.Must(a.Inspect(t.Context(), "k"))(t)
		require.Equal(t, redlock.KindRead, seen.Kind)
		require.Len(t, seen.Holders, 2)
		for _, h := range seen.Holders {
			require.Contains(t, []string{x.Owner(), y.Owner()}, h.Owner)
			require.Equal(t, 3, h.Votes)
		}
		for _, m := range seen.Members {
			require.Len(t, m.Queue, 2)
			require.True(t, !m.Queue[0].Reads && m.Queue[1].Reads)
			for _, v := range m.Votes {
				require.True(t, v.Reads && v.Drawn > 0 && v.Drawn <= v.Token, "%+v", v)
			}
		}
		freed := rt.Must(a.ForceUnlockSeen(t.Context(), seen))(t)
		require.Equal(t, 3, freed, "members, whatever number of readers each of them had")
		synctest.Wait()
		require.False(t, r.Pending(), "readers first")
		require.True(t, w.Pending())
		time.Sleep(20 * time.Second)
		require.Equal(t, redlock.LostRefused, redlock.LostFor(x))
		require.Equal(t, redlock.LostRefused, redlock.LostFor(y))
		unlock(t, r.Get(t))
		unlock(t, w.Get(t))
	}, redlock.Quiet)
}

func TestReaderWhoseTimeIsOverIsNotShown(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		reads(t, a, "k", redlock.TTL(time.Second))
		y := reads(t, b, "k", redlock.TTL(9*time.Second))
		a.Die() // or it would give its vote back
		time.Sleep(2 * time.Second)
		seen := rt.Must(b.Inspect(t.Context(), "k"))(t)
		require.Len(t, seen.Holders, 1)
		require.Equal(t, y.Owner(), seen.Holders[0].Owner)
		for _, m := range seen.Members {
			require.Len(t, m.Votes, 1)
		}
		require.Equal(t, 3, rt.Must(b.ForceUnlockSeen(t.Context(), seen))(t))
		seen = rt.Must(b.Inspect(t.Context(), "k"))(t)
		require.Empty(t, seen.Holders)
	}, redlock.Quiet)
}
