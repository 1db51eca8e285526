package redlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Locks of several kinds beside each other. TestSeedsOfKinds has all of them at random.

// What can be taken can be waited for: a call that waits has the name more often than one that tries.
func TestWhateverNameCanBeTakenCanBeWaitedFor(t *testing.T) {
	name := strings.Repeat("x", 1<<17)
	for kind, get := range map[string]func(p *caller) func(context.Context) (*redlock.Lease, error){
		"mutex": func(p *caller) func(context.Context) (*redlock.Lease, error) { return p.Mutex(name).Lock },
		"fair": func(p *caller) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex(name, redlock.Fair()).Lock
		},
		"writer":    func(p *caller) func(context.Context) (*redlock.Lease, error) { return p.RWMutex(name).Lock },
		"semaphore": func(p *caller) func(context.Context) (*redlock.Lease, error) { return p.Semaphore(name, 1).Acquire },
	} {
		t.Run(kind, inMany(3, 2, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
			held := rt.Must(get(all[0])(t.Context()))(t)
			next := later(t.Context(), get(all[1]))
			time.Sleep(time.Second)
			require.True(t, next.Pending())
			unlock(t, held)
			unlock(t, next.Get(t))
		}))
	}
}

func TestReadersHaveNoStrictOrder(t *testing.T) {
	withOne(t, 1, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		rw := p.RWMutex("k", redlock.Fair())
		for _, get := range []func(context.Context) (*redlock.Lease, error){rw.Lock, rw.TryLock, rw.RLock, rw.TryRLock} {
			rt.Says(t, rt.Err(get(t.Context())), redlock.ErrInput, "no option Fair")
		}
		noKeysAtRest(t, d)
	}, redlock.Quiet)
}

// One of several names has readers: the set has none of them, and waits with those before it.
func TestMultiIsRefusedByReaders(t *testing.T) {
	for name, opts := range map[string][]redlock.LockOption{"plain": nil, "fair": {redlock.Fair()}} {
		t.Run(name, inMany(3, 2, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
			p, q := all[0], all[1]
			for _, name := range []string{"a", "b", "c"} {
				r := reads(t, q, name)
				rt.Says(t, rt.Err(p.Multi([]string{"a", "b", "c"}, opts...).TryLock(t.Context())), redlock.ErrHeld, `"`+name+`"`)
				time.Sleep(10 * time.Millisecond)
				for _, other := range []string{"a", "b", "c"} {
					if other != name {
						unlock(t, q.Lock(t, other))
					}
				}
				w := gather(t.Context(), p.Multi([]string{"a", "b", "c"}, opts...))
				time.Sleep(10 * time.Millisecond)
				unlock(t, r)
				time.Sleep(10 * time.Millisecond)
				leases := w.Get(t)
				require.ErrorIs(t, rt.Err(q.RWMutex(name).TryRLock(t.Context())), redlock.ErrHeld)
				require.NoError(t, leases.Unlock(t.Context()))
				time.Sleep(10 * time.Millisecond)
			}
			noKeys(t, d)
		}, redlock.Quiet))
	}
}

func TestFairSetKeepsTheOrder(t *testing.T) {
	withMany(t, 3, 3, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		held := all[0].Hold(t, "b", redlock.Fair())
		before := all[1].LockLater(t.Context(), "b", redlock.Fair())
		time.Sleep(20 * time.Millisecond)
		set := gather(t.Context(), all[2].Multi([]string{"b", "a"}, redlock.Fair()))
		time.Sleep(20 * time.Millisecond)
		behind := all[0].LockLater(t.Context(), "b", redlock.Fair())
		time.Sleep(20 * time.Millisecond)
		require.Equal(t, 1, all[2].Stats()[redlock.KindFair].Held, "the name before is in hand")

		unlock(t, held)
		unlock(t, before.Get(t))
		time.Sleep(20 * time.Millisecond)
		require.True(t, behind.Pending())
		require.NoError(t, set.Get(t).Unlock(t.Context()))
		unlock(t, behind.Get(t))
		time.Sleep(10 * time.Millisecond)
		noKeys(t, d)
	}, redlock.Quiet)
}

// Callers of one owner stand in one line, be they of a set or not: the first has the lock for all.
func TestFairSetStandsInTheLineOfItsOwner(t *testing.T) {
	withMany(t, 3, 2, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		held := all[1].Hold(t, "b", redlock.Fair())
		opts := []redlock.LockOption{redlock.Fair(), redlock.As("job")}
		one := all[0].LockLater(t.Context(), "b", opts...)
		time.Sleep(10 * time.Millisecond)
		set := gather(t.Context(), all[0].Multi([]string{"a", "b"}, opts...))
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, 1, all[0].Stats()[redlock.KindFair].Waiting, "the set stands behind its owner")
		other := all[0].LockLater(t.Context(), "b", redlock.Fair(), redlock.As("other"))
		time.Sleep(10 * time.Millisecond)
		unlock(t, held)
		time.Sleep(20 * time.Millisecond)
		require.True(t, other.Pending())
		leases := set.Get(t)
		require.Equal(t, one.Get(t).Token(), leases.Token("b"))
		unlock(t, one.Value)
		require.True(t, other.Pending())
		require.NoError(t, leases.Unlock(t.Context()))
		unlock(t, other.Get(t))
		time.Sleep(10 * time.Millisecond)
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestFairSetHasNoDialectOfRedisson(t *testing.T) {
	withOne(t, 1, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		for _, m := range []*redlock.Multi{p.Multi([]string{"a", "b"}, redlock.Fair()), redlock.Join(p.Mutex("a"), p.Mutex("b", redlock.Fair()))} {
			for _, get := range []func(context.Context) (*redlock.Leases, error){m.Lock, m.TryLock} {
				_, err := get(t.Context())
				require.True(t, errors.Is(err, redlock.ErrInput), "%v", err)
			}
		}
		synctest.Wait()
		noKeysAtRest(t, d)
	}, redlock.Quiet, redlock.WithInterop())
}

func TestFairOwnersLineIsNobodyElses(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, b *caller) {
		first, second := b.Hold(t, "x"), b.Hold(t, "x\x00o")
		set := gather(t.Context(), redlock.Join(a.Mutex("x", redlock.Fair()), a.Mutex("x\x00o")))
		synctest.Wait()
		owner := later(t.Context(), a.Mutex("x", redlock.Fair(), redlock.As("o")).Lock) // behind the set
		synctest.Wait()
		unlock(t, first)
		time.Sleep(time.Second)
		unlock(t, second)
		time.Sleep(time.Minute)
		select {
		case <-set.Done:
		default:
			t.Fatal("the set stands in the line of an owner who waits for the set")
		}
		require.NoError(t, set.Get(t).Unlock(t.Context()))
		unlock(t, owner.Get(t))
		noKeys(t, d)
	}, redlock.Quiet)
}
