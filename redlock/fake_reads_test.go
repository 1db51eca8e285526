package redlock_test

import (
	"context"
	"sync"
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

// One read hold for all readers of a client: who shares it, for how long it takes more, and who
// ends with it.

// deafToPushes loses every push to a client.
func deafToPushes(p *redlock.Peer) { p.EveryLink(func(l *redistest.Link) { l.LosePushRate(1) }) }

// deaf is deafToPushes for a caller: all is heard by asking.
func (p *caller) deaf() { p.d.Network(p.Client, redlocktest.Network{LosePushes: true}) }

// ends waits for the end of a context that is expected to end.
func ends(t testing.TB, ctx context.Context) {
	t.Helper()
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Hour):
		t.Fatal("it has not ended")
	}
}

func TestUsersOfOneHold(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		first := reads(t, a, "k")
		asked, left := a.Count(script.RWRead), a.Count(script.RWRelease)
		all := []*redlock.Lease{first}
		for range 99 {
			all = append(all, reads(t, a, "k"))
		}
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(asked), "the members do not hear of them")
		require.Equal(t, 100, a.Stats()[redlock.KindRead].Held)
		for _, l := range all {
			require.Equal(t, first.Token(), l.Token())
			require.Equal(t, first.ValidUntil(), l.ValidUntil())
			require.Equal(t, 3, l.Votes())
			require.True(t, l.Shared())
		}
		w := later(t.Context(), b.RWMutex("k").Lock)
		time.Sleep(20 * time.Second)
		for i, l := range all {
			require.Equal(t, []int{0, 0, 0}, redlock.Hits(left))
			require.NoError(t, l.Err(), "renewed")
			require.True(t, w.Pending())
			ctx := l.Context()
			unlock(t, l)
			require.ErrorIs(t, l.Err(), redlock.ErrReleased)
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
			require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrNotHeld, "twice")
			require.Equal(t, 99-i, a.Stats()[redlock.KindRead].Held)
		}
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(left), "the last one frees the lock")
		unlock(t, w.Get(t))
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// Leases that are not renewed, or with another TTL, are apart.
func TestHoldIsSharedByLeasesOfOneTTLThatRenew(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, a *caller) {
		x, y := reads(t, a, "k"), reads(t, a, "k", redlock.AutoRenew(10*time.Second))
		z, u := reads(t, a, "k", redlock.TTL(30*time.Second)), reads(t, a, "k", redlock.TTL(30*time.Second))
		owners := map[string]bool{}
		for _, l := range []*redlock.Lease{x, y, z, u} {
			owners[l.Owner()] = true
		}
		require.Len(t, owners, 4)
		require.Equal(t, 4, a.Stats()[redlock.KindRead].Held)
		unlock(t, x, y, z, u)
		noKeys(t, d)
	}, redlock.Quiet)
}

// A writer waits behind a process whose readers come and go without a pause. Each row leaves one
// sign of it.
func TestSharedReadsDoNotStarveAWriter(t *testing.T) {
	for name, row := range map[string]struct {
		renew   time.Duration
		prepare func(a *caller)
		within  time.Duration // from the writer's registration to the last reader that comes in
	}{
		"a push says so":                      {30 * time.Second, func(*caller) {}, 5 * time.Millisecond},
		"no push arrives":                     {30 * time.Second, (*caller).deaf, entry / 3},
		"a renewal comes before":              {time.Second, (*caller).deaf, entry / 9},
		"a minority of the members is silent": {30 * time.Second, func(a *caller) { a.deaf(); a.Away(1) }, entry / 3},
	} {
		t.Run(name, inTwo(3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
			row.prepare(a)
			synctest.Wait()
			rw := a.RWMutex("k", redlock.AutoRenew(row.renew))
			var wg sync.WaitGroup
			defer wg.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			first := rt.Must(rw.RLock(t.Context()))(t)
			shared := first.Owner()
			var mu sync.Mutex
			var last time.Time // that a reader came into the first hold
			for i := range 8 {
				wg.Go(func() {
					for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
						l, err := rw.RLock(ctx)
						if err != nil {
							return
						}
						if mu.Lock(); l.Owner() == shared {
							last = time.Now()
						}
						mu.Unlock()
						time.Sleep(time.Duration(3+i) * time.Millisecond)
						_ = l.Unlock(context.Background())
					}
				})
			}
			time.Sleep(1400 * time.Millisecond)
			require.NoError(t, first.Unlock(t.Context()))
			start := time.Now()
			w := later(t.Context(), b.RWMutex("k").Lock)
			l := w.Get(t)
			require.LessOrEqual(t, w.At.Sub(start), row.within+30*time.Millisecond, "it waits for those that are in")
			mu.Lock()
			require.LessOrEqual(t, last.Sub(start), row.within)
			mu.Unlock()
			require.Greater(t, l.Token(), first.Token())
			require.NoError(t, l.Unlock(t.Context()))
		}, redlock.Quiet))
	}
}

// Where the slot of a lock has come to another master, nobody joins the read phase that came along. Readers that take
// turns in the hold of one client would keep it for ever.
func TestReadPhaseThatNobodyJoinsEndsForReadersOfOthers(t *testing.T) {
	redlock.Pair(t, 1, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		first := reads(t, a, "k")
		s := cluster.Servers[0]
		redlock.Admin(t, s, "HSET", "k", "r", redlock.Admin(t, s, "HGET", "k", "r").(string)+"of another master")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if l, err := a.RWMutex("k").RLock(ctx); err == nil {
						time.Sleep(300 * time.Millisecond)
						_ = l.Unlock(context.Background())
					}
				}
			})
			time.Sleep(150 * time.Millisecond)
		}
		unlock(t, first)
		patient, enough := context.WithTimeout(t.Context(), entry+time.Second)
		defer enough()
		l, err := b.RWMutex("k").RLock(patient)
		cancel()
		require.NoError(t, err)
		unlock(t, l)
		wg.Wait()
	}, redlock.Quiet)
}

// The grant itself names a writer that waits: those that waited for it come in, and nobody after
// them. Without pushes, the answers to heartbeats name it.
func TestHoldThatIsGrantedBeforeAWriterTakesNobodyElse(t *testing.T) {
	for name, deaf := range map[string]bool{"by pushes": false, "by answers": true} {
		t.Run(name, func(t *testing.T) {
			three(t, func(t *testing.T, cluster *redistest.Cluster, a, b, c *redlock.Peer) {
				if deaf {
					deafToPushes(a)
				}
				a.Away(2) // nothing is heard but what makes the majority
				w := writes(t, b, "k")
				next := later(t.Context(), c.RWMutex("k").Lock)
				synctest.Wait()
				var waiting []*redlock.Locking
				for range 5 {
					waiting = append(waiting, later(t.Context(), a.RWMutex("k").RLock))
				}
				time.Sleep(100 * time.Millisecond)
				unlock(t, w)
				renewed := a.Count(script.RWExtend)
				if deaf {
					time.Sleep(redlock.DefaultConfig().Entry / 3)
				}
				synctest.Wait()
				for _, r := range waiting {
					require.False(t, r.Pending())
					require.Equal(t, redlock.OwnerOf(waiting[0].Get(t)), redlock.OwnerOf(r.Get(t)), "one request for all of them")
				}
				require.ErrorIs(t, rt.Err(a.RWMutex("k").TryRLock(t.Context())), redlock.ErrHeld)
				require.Equal(t, []int{0, 0, 0}, redlock.Hits(renewed), "nobody has to ask")
				for _, r := range waiting {
					require.True(t, next.Pending())
					unlock(t, r.Get(t))
				}
				unlock(t, next.Get(t))
				redlock.Leftovers(t, cluster)
			})
		})
	}
}

// A writer that comes between the grant and the next reader is not overtaken, though its push and
// the name in the grant are missing.
func TestGrantAfterAWaitDoesNotSayThatNobodyWaits(t *testing.T) {
	withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
		w := writes(t, b, "k")
		r := later(t.Context(), a.RWMutex("k").RLock)
		time.Sleep(10 * time.Millisecond)
		unlock(t, w)
		first := r.Get(t)
		a.deaf()
		next := later(t.Context(), c.RWMutex("k").Lock)
		synctest.Wait()
		require.ErrorIs(t, rt.Err(a.RWMutex("k").TryRLock(t.Context())), redlock.ErrHeld)
		unlock(t, first)
		unlock(t, next.Get(t))
		noKeys(t, d)
	})
}

func TestOldHoldIsAskedForOnce(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, a *redlock.Peer) {
		taught(t, cluster)
		first := reads(t, a, "k")
		a.Slow(20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
		renewed, asked := a.Count(script.RWExtend), a.Count(script.RWRead)
		time.Sleep(redlock.DefaultConfig().Entry / 3)
		start := time.Now()
		var all []*redlock.Locking
		for range 10 {
			all = append(all, later(t.Context(), a.RWMutex("k").RLock))
		}
		for _, r := range all {
			require.Equal(t, redlock.OwnerOf(first), redlock.OwnerOf(r.Get(t)))
			require.Equal(t, 20*time.Millisecond, r.At.Sub(start))
		}
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(renewed))
		start = time.Now()
		last := rt.Must(a.RWMutex("k").TryRLock(t.Context()))(t)
		require.Equal(t, start, time.Now())
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(asked))
		for _, r := range all {
			require.NoError(t, r.Value.Unlock(t.Context()))
		}
		unlock(t, first, last)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// One of three members says that nobody waits, and the others nothing: the hold takes no more, and
// the next reader asks for itself.
func TestMinorityDoesNotSayThatNobodyWaits(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		first := reads(t, a, "k")
		b.Away(0)
		a.deaf()
		w := later(t.Context(), b.RWMutex("k").Lock)
		time.Sleep(entry / 3)
		for _, i := range []int{1, 2} {
			d.Network(a.Client, redlocktest.Network{LosePushes: true, LoseReplies: true}, i)
		}
		require.ErrorIs(t, rt.Err(a.RWMutex("k").RLock(rt.Within(t, 20*time.Second))), redlock.ErrNoQuorum)
		require.NoError(t, first.Err())
		for _, i := range []int{1, 2} {
			d.Network(a.Client, redlocktest.Network{LosePushes: true}, i)
		}
		time.Sleep(time.Second)
		require.True(t, w.Pending())
		unlock(t, first)
		require.NoError(t, w.Get(t).Unlock(t.Context()))
	}, redlock.Quiet)
}

func TestFirstReaderGivesUpAndTheNextGoesOn(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		w := writes(t, b, "k")
		var cancels []context.CancelFunc
		var all []*redlock.Locking
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			cancels = append(cancels, cancel)
			all = append(all, later(ctx, a.RWMutex("k").RLock))
			synctest.Wait()
		}
		require.ErrorIs(t, rt.Err(a.RWMutex("k").TryRLock(t.Context())), redlock.ErrHeld, "it does not wait for the first one")
		for _, i := range []int{0, 3, 1} {
			cancels[i]()
			synctest.Wait()
			require.False(t, all[i].Pending())
			require.ErrorIs(t, all[i].Err, context.Canceled)
			require.ErrorIs(t, all[i].Err, redlock.ErrHeld)
		}
		cancels[2]()
		synctest.Wait()
		require.True(t, all[4].Pending())
		unlock(t, w)
		require.False(t, all[4].Pending())
		unlock(t, all[4].Get(t))
		noKeys(t, d)
	}, redlock.Quiet)
}

// A try becomes the hold of all where there is none, and its own where another is being formed.
func TestTryBecomesTheHoldOfAll(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		x := rt.Must(a.RWMutex("k").TryRLock(t.Context()))(t)
		synctest.Wait()
		y := reads(t, a, "k")
		require.Equal(t, x.Owner(), y.Owner())
		unlock(t, x, y)
		noKeys(t, d)

		a.Slow(20*time.Millisecond, 20*time.Millisecond, 20*time.Millisecond)
		r := later(t.Context(), a.RWMutex("k").RLock)
		time.Sleep(10 * time.Millisecond)
		x = rt.Must(a.RWMutex("k").TryRLock(t.Context()))(t)
		require.NotEqual(t, x.Owner(), r.Get(t).Owner())
		y = reads(t, a, "k")
		require.Equal(t, r.Value.Owner(), y.Owner())
		unlock(t, x, y, r.Value)
		noKeys(t, d)
	}, redlock.Quiet)
}

// heardLost are the lost leases that a tracer has heard of.
func heardLost(tr *tracer) []*redlock.LostError {
	synctest.Wait()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.lost
}

func TestHoldThatIsLostEndsAllItsUsers(t *testing.T) {
	for name, row := range map[string]struct {
		reason redlock.LostReason
		end    func(t *testing.T, d *redlocktest.Deployment, a *caller)
	}{
		"refused": {redlock.LostRefused, func(_ *testing.T, d *redlocktest.Deployment, _ *caller) { d.Take("k") }},
		"expired": {redlock.LostExpired, func(_ *testing.T, _ *redlocktest.Deployment, a *caller) { a.Die() }},
		"closed":  {redlock.LostClosed, func(t *testing.T, _ *redlocktest.Deployment, a *caller) { require.NoError(t, a.Client.Close()) }},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tracer{}
			withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, a *caller) {
				var all []*redlock.Lease
				for i := range 5 {
					opts := []redlock.LockOption{redlock.AutoRenew(5 * time.Second)}
					if i == 3 {
						opts = append(opts, redlock.MaxHold(time.Hour))
					}
					all = append(all, reads(t, a, "k", opts...))
				}
				unlock(t, all[4])
				contexts := []context.Context{all[0].Context(), all[1].Context(), all[2].Context(), all[3].Context()}
				until := all[0].ValidUntil()
				row.end(t, d, a)
				for i, ctx := range contexts {
					ends(t, ctx)
					require.Equal(t, row.reason, redlock.LostFor(all[i]))
					require.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
					require.False(t, time.Now().After(until))
					require.ErrorIs(t, all[i].Unlock(t.Context()), redlock.ErrLost)
				}
				require.Len(t, heardLost(tr), 4, "one for each that was held")
				require.Zero(t, a.Stats()[redlock.KindRead].Held)
			}, redlock.Quiet, redlock.WithTracer(tr))
		})
	}
}

// Whoever looks at a lease that is over finds that out before the keeper does, for all users.
func TestUserThatFindsTheHoldOverEndsItForAll(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		tr := &tracer{}
		a := another(t, d, redlock.Quiet, redlock.WithTracer(tr))
		x, y := reads(t, a, "k", redlock.AutoRenew(5*time.Second)), reads(t, a, "k", redlock.AutoRenew(5*time.Second))
		a.Die()
		time.Sleep(time.Until(x.ValidUntil()))
		require.Equal(t, redlock.LostExpired, redlock.LostFor(x))
		require.Equal(t, redlock.LostExpired, redlock.LostFor(y))
		require.Len(t, heardLost(tr), 2)
	})
}

func TestMaxHoldOfOneUserEndsThatOneAlone(t *testing.T) {
	tr := &tracer{}
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, a *caller) {
		start := time.Now()
		x := reads(t, a, "k", redlock.MaxHold(5*time.Second)) // before the first renewal
		y := reads(t, a, "k")
		z := reads(t, a, "k", redlock.MaxHold(40*time.Second))
		later := reads(t, a, "k", redlock.MaxHold(time.Hour))
		require.Equal(t, 4, a.Stats()[redlock.KindRead].Held)
		require.False(t, x.ValidUntil().After(start.Add(5*time.Second)))
		require.True(t, y.ValidUntil().After(x.ValidUntil()))
		require.NoError(t, x.Extend(t.Context(), 20*time.Second))
		require.False(t, x.ValidUntil().After(start.Add(5*time.Second)), "not beyond it")
		ends(t, x.Context())
		require.Equal(t, 5*time.Second, time.Since(start))
		require.Equal(t, redlock.LostMaxHold, redlock.LostFor(x))
		require.Len(t, heardLost(tr), 1)
		require.NoError(t, y.Err())
		require.Equal(t, 3, a.Stats()[redlock.KindRead].Held)
		require.Equal(t, 3, votesSeen(t, a, y))
		unlock(t, y)
		require.Equal(t, 3, votesSeen(t, a, z))
		ends(t, z.Context())
		require.Equal(t, 40*time.Second, time.Since(start))
		require.Equal(t, redlock.LostMaxHold, redlock.LostFor(z))
		ends(t, later.Context())
		require.Equal(t, time.Hour, time.Since(start))
		synctest.Wait()
		noKeys(t, d)
	}, redlock.Quiet, redlock.WithTracer(tr))
}

func TestExtendOfOneUserNeverShortensTheOthers(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, a *caller) {
		x, y := reads(t, a, "k"), reads(t, a, "k")
		until := y.ValidUntil()
		require.NoError(t, x.Extend(t.Context(), time.Second))
		require.Equal(t, until, y.ValidUntil())
		time.Sleep(time.Second)
		start := time.Now()
		require.NoError(t, x.Extend(t.Context(), 50*time.Second))
		require.Equal(t, start.Add(redlock.Validity(50*time.Second)), y.ValidUntil())
		a.Away(0, 1)
		require.ErrorIs(t, x.Extend(t.Context(), 60*time.Second), redlock.ErrNoQuorum)
		require.NoError(t, y.Err())
		unlock(t, x)
		require.ErrorIs(t, x.Extend(t.Context(), time.Second), redlock.ErrNotHeld)
		_ = y.Unlock(t.Context())
	}, redlock.Quiet, func(c *redlock.Config) { c.MaxTTL = time.Minute })
}

func TestOwnerEntersItsShareAgain(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, a *caller) {
		mine := a.RWMutex("k", redlock.As("me"))
		one, two := later(t.Context(), mine.RLock), later(t.Context(), mine.RLock)
		x := one.Get(t)
		require.Same(t, x, two.Get(t))
		y := reads(t, a, "k")
		require.Equal(t, x.Owner(), y.Owner())
		require.NotSame(t, x, y)
		require.Same(t, x, reads(t, a, "k", redlock.As("me")))
		unlock(t, y, x, x)
		require.NoError(t, x.Err())
		require.Equal(t, 1, a.Stats()[redlock.KindRead].Held)
		unlock(t, x)
		require.ErrorIs(t, x.Err(), redlock.ErrReleased)
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestCloseWhileReadersFormAHold(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		w := writes(t, b, "k")
		var all []*redlock.Locking
		for range 4 {
			all = append(all, later(t.Context(), a.RWMutex("k").RLock))
		}
		synctest.Wait()
		require.NoError(t, a.Client.Close())
		for _, r := range all {
			require.ErrorIs(t, r.End(), redlock.ErrClosed)
		}
		unlock(t, w)
		noKeys(t, d)
	}, redlock.Quiet)
}

// Tokens rise in the order in which leases begin as far as exclusion holds. A client that has not heard that its hold is lost goes on
// sharing it, with tokens that a storage refuses. Whoever asks the members has a greater one.
func TestShareOfAHoldThatWasOvertakenHasTheSmallerToken(t *testing.T) {
	withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
		first := reads(t, a, "k")
		rt.Must(b.ForceUnlock(t.Context(), "k"))(t)
		w := writes(t, b, "k")
		unlock(t, w)
		second := reads(t, a, "k")
		require.NoError(t, second.Err())
		require.Equal(t, first.Token(), second.Token())
		require.Less(t, second.Token(), w.Token())
		require.Greater(t, reads(t, c, "k").Token(), w.Token())
	})
}
