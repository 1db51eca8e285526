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
	time.Sleep(10 * time.Millisecond) // the counters are behind the clock then
	last = rt.Must(m.Lock(t.Context()))(t)
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
			was = l
		}
		require.Zero(t, counts.of("acquire", "wait", "release", "reserve"))
		time.Sleep(keep - time.Millisecond)
		require.Zero(t, counts.of("release"))
		time.Sleep(2 * time.Millisecond)
		require.Equal(t, 1, counts.of("release"))
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
