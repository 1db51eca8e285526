package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
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

// Strict order (redlock.Fair) in fake time: docs/protocol.md, "Strict order".

type turns struct {
	t testing.TB

	mu  sync.Mutex
	who []string
	wg  sync.WaitGroup
}

// call has a peer ask for the lock, and unlock it a moment after it was granted.
func (q *turns) call(p anyClient, who string, opts ...redlock.LockOption) {
	q.wg.Go(func() {
		l, err := p.Mutex("k", opts...).Lock(q.t.Context())
		if err != nil {
			q.t.Error(err)
			return
		}
		rt.Locked(&q.mu, func() { q.who = append(q.who, who) })
		time.Sleep(time.Millisecond)
		if err := l.Unlock(context.Background()); err != nil {
			q.t.Error(err)
		}
	})
}

func (q *turns) order() string {
	q.wg.Wait()
	return strings.Join(q.who, " ")
}

// Each caller registers itself: a client with many callers has their turns where they came, and no others.
func TestFairOrderOverClients(t *testing.T) {
	for _, members := range []int{1, 3, 5} {
		deployed(t, members, func(t *testing.T, d *redlocktest.Deployment) {
			all := moreOf(t, d, 3, redlock.Quiet)
			for i, p := range all {
				p.Slow(slices.Repeat([]time.Duration{time.Duration(i+1) * time.Millisecond}, members)...)
			}
			held := all[0].Hold(t, "k", redlock.Fair())
			q := &turns{t: t}
			var want []string
			for n, client := range []int{1, 1, 1, 2, 0, 0, 2, 1, 0, 2, 2, 1} {
				who := fmt.Sprint(client, ":", n)
				q.call(all[client], who, redlock.Fair())
				time.Sleep(20 * time.Millisecond)
				want = append(want, who)
			}
			require.Equal(t, len(want), all[0].Stats()[redlock.KindFair].Waiting+all[1].Stats()[redlock.KindFair].Waiting+all[2].Stats()[redlock.KindFair].Waiting)
			time.Sleep(10 * time.Second) // heartbeats, for three entries
			require.NoError(t, held.Unlock(t.Context()))
			require.Equal(t, strings.Join(want, " "), q.order())
			synctest.Wait()
			noKeys(t, d)
		})
	}
}

// Three callers reach each of three members in another order. Whoever calls when all of them have their tickets is last, and
// no split holds up anybody.
func TestFairOrderHoldsWhereArrivalsCross(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := redlock.Peers(t, cluster, 5, redlock.Quiet)
		near, mid, far := 10*time.Millisecond, 20*time.Millisecond, 30*time.Millisecond
		all[0].Slow(near, far, mid)
		all[1].Slow(mid, near, far)
		all[2].Slow(far, mid, near)
		for round := range 5 {
			held := all[4].Hold(t, "k", redlock.Fair())
			q := &turns{t: t}
			for i := range 3 {
				q.call(all[i], fmt.Sprint(i), redlock.Fair())
			}
			time.Sleep(200 * time.Millisecond)
			lines := queues(t, cluster, "k")
			require.Equal(t, lines[0], lines[1])
			require.Equal(t, lines[0], lines[2])
			q.call(all[3], "last", redlock.Fair())
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			require.NoError(t, held.Unlock(t.Context()))
			order := q.order()
			require.True(t, strings.HasSuffix(order, "last"), "round %d: %s", round, order)
			require.Less(t, time.Since(start), 500*time.Millisecond, "a split that nobody resolves lasts until the next heartbeat")
			time.Sleep(time.Second)
		}
		redlock.Leftovers(t, cluster)
	})
}

// queues are the places in a lock's queue at the given members, at all if none are given.
func queues(t testing.TB, cluster *redistest.Cluster, name string, members ...int) (out []string) {
	t.Helper()
	for i, s := range cluster.Servers {
		if len(members) > 0 && !slices.Contains(members, i) {
			continue
		}
		out = append(out, fmt.Sprint(redlock.Admin(t, s, "ZRANGE", redlock.QueueOf(name), "0", "-1", "WITHSCORES")))
	}
	return out
}

// A ticket that all members agree on costs no call besides, and one that differs costs one at each member that has another.
func TestFairTicketIsWrittenBackOnlyWhereItDiffers(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		all := redlock.Peers(t, cluster, 3, redlock.Quiet)
		for _, p := range all {
			p.Slow(time.Millisecond, time.Millisecond, 2*time.Millisecond) // the others agree before it
		}
		for _, step := range []struct {
			ahead time.Duration
			want  []int
		}{{0, []int{1, 1, 1}}, {time.Hour, []int{1, 1, 2}}} {
			cluster.Embedded(2).Step(step.ahead)
			held := all[0].Hold(t, "k", redlock.Fair())
			var waits []*redlock.Locking
			for _, p := range all[1:] {
				asked := p.Count(script.FairWait)
				waits = append(waits, p.LockLater(t.Context(), "k", redlock.Fair()))
				time.Sleep(10 * time.Millisecond)
				require.Equal(t, step.want, redlock.Hits(asked), "%v", step.ahead)
			}
			lines := queues(t, cluster, "k")
			require.Equal(t, lines[0], lines[1])
			require.Equal(t, lines[0], lines[2])
			require.NoError(t, held.Unlock(t.Context()))
			for _, w := range waits {
				require.NoError(t, w.Get(t).Unlock(t.Context()))
			}
			time.Sleep(2 * time.Second)
			redlock.Leftovers(t, cluster)
		}
	})
}

func TestFairIsAnOptionOfAMutex(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		heard := &tracer{}
		p := another(t, d, redlock.Quiet, redlock.WithTracer(heard))
		l := p.Hold(t, "k", redlock.Fair(), redlock.Fair(), redlock.TTL(10*time.Second))
		require.Equal(t, redlock.KindFair, heard.starts[0].Kind)
		require.Equal(t, redlock.KindFair, heard.last().Kind)
		require.Equal(t, 1, p.Stats()[redlock.KindFair].Held)
		require.ErrorIs(t, rt.Err(p.Mutex("k").TryLock(t.Context())), redlock.ErrHeld, "it is the same lock")

		h := rt.Must(l.Handoff())(t)
		require.Equal(t, redlock.KindFair, h.Kind())
		h = rt.Must(redlock.ParseHandoff(h.Secret()))(t)
		l = rt.Must(p.Adopt(t.Context(), h))(t)
		next := p.LockLater(t.Context(), "k", redlock.Fair())
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, next.Get(t).Unlock(t.Context()))

		time.Sleep(10 * time.Millisecond)
		noKeys(t, d)
	})
}

func TestFairHasNoDialectOfRedisson(t *testing.T) {
	redlock.Alone(t, 1, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		asked := p.Count(script.FairAcquire)
		for _, get := range []func(context.Context) (*redlock.Lease, error){p.Mutex("k", redlock.Fair()).Lock, p.Mutex("k", redlock.Fair()).TryLock} {
			rt.Says(t, rt.Err(get(t.Context())), redlock.ErrInput, "with Config.Interop there are mutexes only")
		}
		plain := redlock.JoinAll(t, cluster, redlock.Quiet)
		l := plain.Hold(t, "k", redlock.Fair())
		h := rt.Must(l.Handoff())(t)
		require.ErrorIs(t, rt.Err(p.Adopt(t.Context(), h)), redlock.ErrInput)
		require.Equal(t, []int{0}, redlock.Hits(asked))
		l = rt.Must(plain.Adopt(t.Context(), h))(t)
		require.NoError(t, l.Unlock(t.Context()))
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet, redlock.WithInterop())
}

func TestFairOwnerEntersAgain(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		all := moreOf(t, d, 2, redlock.Quiet)
		held := all[1].Hold(t, "k", redlock.Fair())
		var same []*redlock.Locking
		for range 3 {
			same = append(same, all[0].LockLater(t.Context(), "k", redlock.Fair(), redlock.As("job")))
		}
		time.Sleep(10 * time.Millisecond)
		require.Equal(t, 1, all[0].Stats()[redlock.KindFair].Waiting)
		other := all[0].LockLater(t.Context(), "k", redlock.Fair(), redlock.As("other"))
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, held.Unlock(t.Context()))
		for _, w := range same {
			require.Same(t, same[0].Get(t), w.Get(t))
		}
		require.True(t, other.Pending())
		for range same {
			require.NoError(t, same[0].Value.Unlock(t.Context()))
		}
		require.NoError(t, other.Get(t).Unlock(t.Context()))
		time.Sleep(10 * time.Millisecond)
		noKeys(t, d)
	})
}
