package redlock_test

import (
	"context"
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

// What a client keeps after the last Unlock: who gets it, for how long it stays, and what ends it.

const keep = 5 * time.Second

// asked counts the scripts that the first member gets.
type asked map[string][]*redistest.Rule

func asks(p *redlock.Peer) asked {
	return asked{
		"acquire": p.Count(script.Acquire), "wait": p.Count(script.Wait), "release": p.Count(script.Release), "reserve": p.Count(script.Reserve),
		"read": p.Count(script.RWRead), "leave": p.Count(script.RWRelease), "renew": p.Count(script.RWExtend),
	}
}

func (a asked) of(names ...string) (n int) {
	for _, name := range names {
		n += redlock.Hits(a[name])[0]
	}
	return n
}

// keptBy has a client keep a lock that it has had for a moment, with tokens for the next leases.
func keptBy(t *testing.T, p *redlock.Peer, opts ...redlock.LockOption) (m *redlock.Mutex, last *redlock.Lease, counts asked) {
	t.Helper()
	p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
	m = p.Mutex("k", append(opts, redlock.Keep(keep))...)
	unlock(t, rt.Must(m.Lock(t.Context()))(t))
	time.Sleep(10 * time.Millisecond) // it has asked for tokens meanwhile
	at := time.Now()
	last = rt.Must(m.Lock(t.Context()))(t)
	require.Equal(t, at, time.Now())
	unlock(t, last)
	time.Sleep(10 * time.Millisecond)
	require.Equal(t, 1, p.Stats()[redlock.KindMutex].Kept)
	require.Zero(t, p.Stats()[redlock.KindMutex].Held)
	return m, last, asks(p)
}

func TestKeptLockIsTakenWithoutACommand(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		m, was, counts := keptBy(t, p)
		for i := range 100 {
			at := time.Now()
			get := m.Lock
			if i%2 == 0 {
				get = m.TryLock
			}
			l := rt.Must(get(t.Context()))(t)
			require.Equal(t, at, time.Now(), "nobody was asked")
			require.Equal(t, was.Token()+1, l.Token())
			require.Equal(t, was.Owner(), l.Owner())
			ctx := l.Context()
			require.NoError(t, ctx.Err())
			unlock(t, l)
			require.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
			require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrNotHeld, "though the client has the lock")
			require.ErrorIs(t, l.Extend(t.Context(), time.Second), redlock.ErrNotHeld)
			require.ErrorIs(t, rt.Err(l.Handoff()), redlock.ErrNotHeld)
			was = l
		}
		require.Zero(t, counts.of("acquire", "wait", "release", "reserve"))
		time.Sleep(keep - time.Millisecond)
		require.Zero(t, counts.of("release"))
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, 1, counts.of("release"))
		require.Zero(t, p.Stats()[redlock.KindMutex].Kept)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestKeptReadHoldIsJoinedWithoutACommand(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		first := reads(t, a, "k", redlock.Keep(keep))
		counts := asks(a)
		unlock(t, first)
		require.Equal(t, redlock.Stats{Kept: 1}, a.Stats()[redlock.KindRead])
		for range 100 {
			at := time.Now()
			l := reads(t, a, "k", redlock.Keep(keep))
			require.Equal(t, at, time.Now())
			require.Equal(t, first.Token(), l.Token())
			unlock(t, l)
		}
		time.Sleep(2 * time.Second) // nobody knows whether a writer waits
		unlock(t, reads(t, a, "k", redlock.Keep(keep)))
		require.Zero(t, counts.of("read", "leave"))
		require.Equal(t, 1, counts.of("renew"))
		w := later(t.Context(), b.RWMutex("k").Lock)
		synctest.Wait()
		require.False(t, w.Pending(), "it does not wait for what nobody has")
		unlock(t, w.Get(t))
		unlock(t, reads(t, a, "k", redlock.Keep(keep)))
		require.Equal(t, 2, counts.of("leave"), "the name was another's a moment ago")
		time.Sleep(2 * time.Second)
		unlock(t, reads(t, a, "k", redlock.Keep(keep)))
		time.Sleep(keep - time.Millisecond)
		require.Equal(t, 2, counts.of("leave"))
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, 3, counts.of("leave"))
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// Nobody else wants what a client refuses to itself.
func TestLockIsKeptThoughTheClientWasRefusedIt(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		m, _, counts := keptBy(t, p)
		l := rt.Must(m.Lock(t.Context()))(t)
		require.ErrorIs(t, rt.Err(m.TryLock(t.Context())), redlock.ErrHeld)
		time.Sleep(10 * time.Millisecond)
		unlock(t, l)
		unlock(t, rt.Must(m.TryLock(t.Context()))(t))
		require.Equal(t, 1, counts.of("acquire"))
	}, redlock.Quiet)
}

// What is kept costs a share each time.
func TestKeepHitCostsAShare(t *testing.T) {
	yes, p := threeYes(t)
	m := p.Mutex("k", redlock.Keep(keep))
	each := func() {
		l, err := m.Lock(t.Context())
		if err == nil {
			err = l.Unlock(t.Context())
		}
		require.NoError(t, err)
	}
	for range 1000 {
		each()
	}
	asked := yes[0].Called(script.Acquire) + yes[0].Called(script.Release)
	require.LessOrEqual(t, testing.AllocsPerRun(10_000, each), 2.0)
	require.Equal(t, asked, yes[0].Called(script.Acquire)+yes[0].Called(script.Release))
	require.Less(t, yes[0].Called(script.Reserve), 12_000/100)
}

// Each row is a sign that somebody else waits.
func TestKeptLockIsGivenUpByOnePush(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, b *redlock.Peer) *redlock.Locking{
		"a mutex":  func(t *testing.T, b *redlock.Peer) *redlock.Locking { return b.LockLater(t.Context(), "k") },
		"a reader": func(t *testing.T, b *redlock.Peer) *redlock.Locking { return later(t.Context(), b.RWMutex("k").RLock) },
		"a writer": func(t *testing.T, b *redlock.Peer) *redlock.Locking { return later(t.Context(), b.RWMutex("k").Lock) },
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
				m, was, _ := keptBy(t, a)
				for range 10 {
					was = rt.Must(m.Lock(t.Context()))(t)
					unlock(t, was)
				}
				require.ErrorIs(t, b.Try(t, "k"), redlock.ErrHeld, "which tells nobody")
				at, w := time.Now(), wait(t, b)
				l := w.Get(t)
				require.LessOrEqual(t, w.At.Sub(at), 2*time.Millisecond)
				require.Greater(t, l.Token(), was.Token())
				require.Equal(t, 1, a.Stats()[redlock.KindMutex].Recalled)
				require.Zero(t, a.Stats()[redlock.KindMutex].Kept)
				next := later(t.Context(), m.Lock)
				time.Sleep(10 * time.Millisecond)
				unlock(t, l)
				was = next.Get(t)
				require.Greater(t, was.Token(), l.Token())
				unlock(t, was)
				require.Equal(t, redlock.Stats{Recalled: 1}, a.Stats()[redlock.KindMutex], "a lock that wanders is not kept")
				time.Sleep(time.Second)
				was = rt.Must(m.Lock(t.Context()))(t)
				time.Sleep(keep)
				unlock(t, was)
				require.Equal(t, 1, a.Stats()[redlock.KindMutex].Kept)
				time.Sleep(2 * keep)
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

// All pushes are lost. If the lock is used, somebody else has it a third of Entry later, and otherwise when its time is over.
func TestKeptLockDoesNotStarveAnother(t *testing.T) {
	for name, row := range map[string]struct{ every, within time.Duration }{
		"used": {100 * time.Millisecond, entry / 3}, "idle": {time.Hour, keep},
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
				m, _, _ := keptBy(t, a)
				deafToPushes(a)
				at, w := time.Now(), b.LockLater(t.Context(), "k")
				for time.Sleep(min(row.every, keep+10*time.Millisecond)); w.Pending(); time.Sleep(row.every) {
					var l *redlock.Lease
					if get := later(t.Context(), m.Lock); get.Pending() {
						time.Sleep(5 * time.Millisecond)
						if get.Pending() { // behind the other one
							unlock(t, w.Get(t))
						}
						l = get.Get(t)
					} else {
						l = get.Get(t)
					}
					unlock(t, l)
				}
				unlock(t, w.Get(t))
				require.LessOrEqual(t, w.At.Sub(at), row.within+20*time.Millisecond)
				time.Sleep(2 * keep)
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

// Whoever of the client wants the lock in another way does not wait for it.
func TestWhatTheClientWantsInAnotherWayIsGivenUpFirst(t *testing.T) {
	type get = func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error)
	for name, row := range map[string]get{
		"As": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.As("me")).TryLock
		},
		"TTL": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.TTL(10*time.Second)).Lock
		},
		"another": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.AutoRenew(10*time.Second)).TryLock
		},
		"Fair": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.Fair()).Lock
		},
		"writer": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) { return p.RWMutex("k").TryLock },
		"reader": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) { return p.RWMutex("k").RLock },
		"election": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return func(ctx context.Context) (*redlock.Lease, error) { return p.Election("k").Campaign(ctx, nil) }
		},
		"set": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return func(ctx context.Context) (*redlock.Lease, error) {
				s, err := p.Multi([]string{"j", "k"}).TryLock(ctx)
				return s.Of("k"), err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				_, was, counts := keptBy(t, p)
				at := time.Now()
				l := rt.Must(row(p)(t.Context()))(t)
				require.LessOrEqual(t, time.Since(at), 3*time.Millisecond, "as if it was free")
				require.Greater(t, l.Token(), was.Token())
				require.Zero(t, counts.of("wait"))
				require.Equal(t, 1, counts.of("release"))
				require.Zero(t, p.Stats()[redlock.KindMutex].Kept)
				unlock(t, l)
			}, redlock.Quiet)
		})
	}
}

// Readers with another TTL are held beside those that are kept, and a writer is not.
func TestKeptReadHoldGivesWayToAWriter(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
		unlock(t, reads(t, p, "k", redlock.Keep(keep)))
		counts := asks(p)
		other := reads(t, p, "k", redlock.AutoRenew(10*time.Second))
		require.Zero(t, counts.of("leave"))
		unlock(t, other)
		at := time.Now()
		unlock(t, rt.Must(p.RWMutex("k").TryLock(t.Context()))(t))
		require.LessOrEqual(t, time.Since(at), 2*time.Millisecond)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestCloseReleasesWhatIsKept(t *testing.T) {
	tr := &tracer{}
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		m, _, _ := keptBy(t, p)
		unlock(t, reads(t, p, "r", redlock.Keep(keep)))
		at := time.Now()
		require.NoError(t, p.Client.Close())
		require.Less(t, time.Since(at), 100*time.Millisecond)
		require.ErrorIs(t, rt.Err(m.Lock(t.Context())), redlock.ErrClosed)
		require.Empty(t, heardLost(tr), "nobody had it")
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet, redlock.WithTracer(tr))
}

// Whether the client dies that keeps a lock or members forget it, the next one gets a greater token, and nothing is left in the end.
func TestNothingIsLeftOfAKeptLockThatNobodyGivesBack(t *testing.T) {
	for name, end := range map[string]func(d *redlocktest.Deployment, a *caller){
		"its client dies":    func(_ *redlocktest.Deployment, a *caller) { a.Die() },
		"one member forgets": func(d *redlocktest.Deployment, _ *caller) { d.Forget(0) },
		"all members forget": func(d *redlocktest.Deployment, _ *caller) { d.Forget() },
		"all are emptied":    func(d *redlocktest.Deployment, _ *caller) { d.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
				was, read := a.Lock(t, "k", redlock.Keep(keep)), reads(t, a, "r", redlock.Keep(keep))
				unlock(t, was, read)
				require.Equal(t, 2, a.Stats()[redlock.KindMutex].Kept+a.Stats()[redlock.KindRead].Kept)
				end(d, a)
				l := rt.Must(b.Mutex("k").Lock(t.Context()))(t)
				require.Greater(t, l.Token(), was.Token())
				unlock(t, l)
				time.Sleep(time.Minute)
				noKeysAtRest(t, d)
				l = b.Lock(t, "r")
				require.Greater(t, l.Token(), read.Token())
				unlock(t, l)
			}, redlock.Quiet)
		})
	}
}

// What is lost while nobody has it is nobody's loss. A caller competes.
func TestKeptLockIsLostSilently(t *testing.T) {
	for name, row := range map[string]func(){
		"by a renewal":     func() { time.Sleep(4 * time.Second) },
		"by a reservation": func() { time.Sleep(2 * time.Second) },
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tracer{}
			redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
				m, was, counts := keptBy(t, a, redlock.AutoRenew(9*time.Second))
				require.NoError(t, rt.Err(b.ForceUnlock(t.Context(), "k")))
				row()
				l := rt.Must(m.Lock(t.Context()))(t)
				require.NotEqual(t, was.Owner(), l.Owner())
				require.Greater(t, l.Token(), was.Token())
				require.Equal(t, 1, counts.of("acquire", "wait"))
				require.Empty(t, heardLost(tr))
				unlock(t, l)
				time.Sleep(time.Minute)
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet, redlock.WithTracer(tr))
		})
	}
}

func TestNoMoreIsKeptThanKeepMost(t *testing.T) {
	for most, kept := range map[int]int{2: 2, 0: 3, -1: 3} {
		redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			for range 3 { // those that are used again are counted once
				for _, name := range []string{"a", "b", "c"} {
					unlock(t, p.Lock(t, name, redlock.Keep(keep)))
				}
				require.Equal(t, kept, p.Stats()[redlock.KindMutex].Kept)
			}
			unlock(t, rt.Must(p.Multi([]string{"a", "b"}).Lock(t.Context()))(t).All()...)
			require.Equal(t, max(0, kept-2), p.Stats()[redlock.KindMutex].Kept)
			unlock(t, p.Lock(t, "a", redlock.Keep(keep)))
			require.Equal(t, max(1, kept-1), p.Stats()[redlock.KindMutex].Kept)
			time.Sleep(2 * keep)
			redlock.Leftovers(t, cluster)
		}, redlock.Quiet, func(c *redlock.Config) { c.KeepMost = most })
	}
}

// It is long since members have said that nobody waits, so they are asked, for as long as that takes. If they do not say so, the lock
// is given back, and competed for.
func TestMembersAreAskedWhetherAnybodyWaitsForAKeptLock(t *testing.T) {
	for name, row := range map[string]struct {
		try    bool
		answer string
	}{
		"Lock": {false, ""}, "TryLock": {true, ""}, "Lock in vain": {false, ":3\r\n"}, "TryLock in vain": {true, ":3\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				m, was, counts := keptBy(t, p)
				if row.answer != "" {
					p.EveryLink(func(l *redistest.Link) { l.Answer(redistest.WithArg(script.Reserve.SHA), -1, row.answer) })
				}
				time.Sleep(2 * time.Second)
				at, get, passed := time.Now(), m.Lock, row.answer == ""
				if row.try {
					get = m.TryLock
					ctx, cancel := context.WithTimeout(t.Context(), time.Microsecond)
					require.ErrorIs(t, rt.Err(m.TryLock(ctx)), context.DeadlineExceeded)
					cancel()
				}
				waits := later(t.Context(), get)
				synctest.Wait()
				if row.try {
					require.ErrorIs(t, rt.Err(p.Mutex("k", redlock.Keep(keep)).TryLock(t.Context())), redlock.ErrHeld, "a caller was before it")
				}
				l := waits.Get(t)
				require.Equal(t, passed, l.Owner() == was.Owner())
				require.LessOrEqual(t, waits.At.Sub(at), 7*time.Millisecond)
				if passed {
					require.LessOrEqual(t, waits.At.Sub(at), time.Millisecond)
				}
				require.Greater(t, l.Token(), was.Token())
				require.Equal(t, 1, counts.of("reserve"))
				require.Equal(t, passed, counts.of("release") == 0)
				unlock(t, l)
				time.Sleep(2 * keep)
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

// A hold whose end is near is not kept, and what is kept is not given out when its end is near.
func TestKeptLockIsValidForLongEnough(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		m, _, counts := keptBy(t, p)
		l := rt.Must(m.Lock(t.Context()))(t)
		require.NoError(t, l.Extend(t.Context(), time.Second))
		unlock(t, l)
		require.Equal(t, 1, counts.of("release"))
		short, read := p.Mutex("s", redlock.AutoRenew(time.Second), redlock.Keep(time.Second)), p.RWMutex("r", redlock.AutoRenew(time.Second), redlock.Keep(time.Second))
		for range 2 {
			unlock(t, rt.Must(short.Lock(t.Context()))(t), rt.Must(read.RLock(t.Context()))(t))
			time.Sleep(10 * time.Millisecond)
		}
		p.Away()
		time.Sleep(600 * time.Millisecond)
		require.ErrorIs(t, rt.Err(short.TryLock(t.Context())), redlock.ErrNoQuorum)
		require.ErrorIs(t, rt.Err(read.TryRLock(t.Context())), redlock.ErrNoQuorum)
	}, redlock.Quiet)
}

// MaxHold is of a lease. What it has ended is released, and a hand-off takes the hold along.
func TestLeaseOfAKeptLockThatIsNotUnlockedTakesItAlong(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		m, was, counts := keptBy(t, a, redlock.MaxHold(50*time.Second))
		time.Sleep(keep - time.Second)
		l := rt.Must(m.Lock(t.Context()))(t)
		require.Equal(t, was.Owner(), l.Owner())
		at := time.Now()
		ends(t, l.Context())
		require.Equal(t, 50*time.Second, time.Since(at))
		require.Equal(t, redlock.LostMaxHold, redlock.LostFor(l))
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, 1, counts.of("release"))
		for range 2 {
			l = rt.Must(m.Lock(t.Context()))(t)
			if was = l; a.Stats()[redlock.KindMutex].Kept == 0 {
				unlock(t, l)
				time.Sleep(10 * time.Millisecond)
			}
		}
		l = rt.Must(m.Lock(t.Context()))(t)
		h := rt.Must(l.Handoff())(t)
		require.Zero(t, a.Stats()[redlock.KindMutex].Kept)
		adopted := rt.Must(b.Adopt(t.Context(), h))(t)
		require.Equal(t, l.Token(), adopted.Token())
		require.ErrorIs(t, rt.Err(m.TryLock(t.Context())), redlock.ErrHeld)
		unlock(t, adopted)
		time.Sleep(time.Minute)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestKeepIsChecked(t *testing.T) {
	redlock.Alone(t, 1, func(t *testing.T, _ *redistest.Cluster, p *redlock.Peer) {
		for problem, opts := range map[string][]redlock.LockOption{
			"Keep is 0s: it must be positive":                                       {redlock.Keep(0)},
			"Keep is -1s: it must be positive":                                      {redlock.Keep(-time.Second)},
			"Keep is 31s: it must not be longer than the TTL of 30s":                {redlock.Keep(31 * time.Second)},
			"Keep is 1s: it is of leases that renew themselves, not of a fixed TTL": {redlock.Keep(time.Second), redlock.TTL(10 * time.Second)},
			"a lock for an owner (As) is not kept: leave Keep or As away":           {redlock.Keep(time.Second), redlock.As("me")},
			"a lock of kind fair has no option Keep":                                {redlock.Keep(time.Second), redlock.Fair()},
		} {
			rt.Says(t, rt.Err(p.Mutex("k", opts...).Lock(t.Context())), redlock.ErrInput, problem)
			rt.Says(t, rt.Err(p.Multi([]string{"k"}, opts...).Lock(t.Context())), redlock.ErrInput, problem)
		}
		rt.Says(t, rt.Err(p.Semaphore("k", 2, redlock.Keep(time.Second)).Acquire(t.Context())), redlock.ErrInput, "no option Keep")
		rt.Says(t, rt.Err(p.RWMutex("k", redlock.Keep(time.Minute)).RLock(t.Context())), redlock.ErrInput, "longer than the TTL")
		unlock(t, writes(t, p, "k", redlock.Keep(time.Second), redlock.As("me")))
	}, redlock.Quiet)
}

// If members do not say whether a writer waits, a reader competes, and nothing stays of what was kept.
func TestKeptReadHoldOfWhichNobodyKnowsAnythingIsGivenBack(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		was := reads(t, p, "k", redlock.Keep(keep))
		unlock(t, was)
		counts := asks(p)
		time.Sleep(2 * time.Second)
		p.EveryLink(func(l *redistest.Link) { l.Answer(redistest.WithArg(script.RWExtend.SHA), 1, "-ERR no\r\n") })
		l := reads(t, p, "k", redlock.Keep(keep))
		require.NotEqual(t, was.Owner(), l.Owner())
		require.Equal(t, 1, counts.of("leave"))
		unlock(t, l)
		time.Sleep(2 * keep)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}
