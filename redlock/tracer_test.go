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
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// listener is a tracer that hears of requests and of what wakes waiters, and where each belongs.
type listener struct {
	mu       sync.Mutex
	requests []redlock.Request
	in       []string // what the context says of each
	wakes    []string
	wakesIn  []string
}

type whereKey struct{}

func at(ctx context.Context, where string) context.Context {
	return context.WithValue(ctx, whereKey{}, where)
}

func (li *listener) CallStart(ctx context.Context, _ redlock.CallStart) context.Context {
	return at(ctx, fmt.Sprint(ctx.Value(whereKey{}), "/acquire"))
}
func (li *listener) Request(ctx context.Context, e redlock.Request) {
	li.mu.Lock()
	defer li.mu.Unlock()
	li.requests = append(li.requests, e)
	li.in = append(li.in, fmt.Sprint(ctx.Value(whereKey{})))
}

func (li *listener) Woken(ctx context.Context, lock redlock.LockName, by redlock.WakeReason) {
	li.mu.Lock()
	defer li.mu.Unlock()
	li.wakes = append(li.wakes, fmt.Sprint(lock.Key, " ", by))
	li.wakesIn = append(li.wakesIn, fmt.Sprint(ctx.Value(whereKey{})))
}

// take forgets what was heard, and returns the requests as "op member latency where", in order.
func (li *listener) take(p *redlock.Peer) (all []string) {
	li.mu.Lock()
	defer li.mu.Unlock()
	for i, e := range li.requests {
		member := slices.IndexFunc(p.Members(), func(m redlock.MemberInfo) bool { return m.Name == e.Member })
		all = append(all, fmt.Sprint(e.Op, " ", e.Key, " ", member, " ", e.Took, " ", li.in[i]))
	}
	li.requests, li.in = nil, nil
	slices.Sort(all)
	return all
}

func (li *listener) woken() map[string]int {
	li.mu.Lock()
	defer li.mu.Unlock()
	n := make(map[string]int)
	for i, e := range li.wakes {
		n[e+" "+li.wakesIn[i]]++
	}
	li.wakes, li.wakesIn = nil, nil
	return n
}

func TestEveryRequestIsToldWithItsLatency(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		li := &listener{}
		p, other := redlock.JoinAll(t, cluster, redlock.WithTracer(li), redlock.Quiet), redlock.JoinAll(t, cluster, redlock.Quiet)
		const ms = time.Millisecond
		redlock.Skew(t, cluster, "k", 7, 7, 7) // no second round
		p.Slow(10*ms, 20*ms, 30*ms)
		ctx := at(t.Context(), "job")
		lease := rt.Must(p.Mutex("k").Lock(ctx))(t)
		require.Equal(t, "job", lease.Context().Value(whereKey{}), "the values of the caller's context, not the tracer's")
		time.Sleep(time.Second)
		require.Equal(t, []string{
			"acquire k 0 10ms job/acquire", "acquire k 1 20ms job/acquire", "acquire k 2 30ms job/acquire", // the last one is late
		}, li.take(p))

		require.NoError(t, lease.Extend(at(t.Context(), "more"), 30*time.Second))
		time.Sleep(time.Second)
		require.Equal(t, []string{"extend k 0 10ms more", "extend k 1 20ms more", "extend k 2 30ms more"}, li.take(p))
		time.Sleep(10 * time.Second) // the keeper's own
		require.Equal(t, []string{"extend k 0 10ms <nil>", "extend k 1 20ms <nil>", "extend k 2 30ms <nil>"}, li.take(p))

		require.NoError(t, lease.Unlock(at(t.Context(), "end")))
		time.Sleep(time.Second)
		require.Equal(t, []string{"release k 0 10ms end", "release k 1 20ms end", "release k 2 30ms end"}, li.take(p))

		// A refusal is an answer; an error is told, and so is that nothing is known. What was not sent is not told.
		held := other.Hold(t, "k")
		p.Links[1].Fail(redistest.Named("EVALSHA"), 1, "OOM command not allowed")
		rule := p.Links[2].CutAfter(redistest.Named("EVALSHA"), 1)
		p.Away(0)
		synctest.Wait()
		require.Error(t, rt.Err(p.Mutex("k").TryLock(ctx)))
		<-rule.Fired()
		time.Sleep(time.Second)
		li.mu.Lock()
		var reply *member.ReplyError
		causes := map[string]error{}
		for _, e := range li.requests {
			if e.Op == "acquire" {
				causes[e.Member] = e.Err
			}
		}
		li.mu.Unlock()
		require.Len(t, causes, 2)
		require.ErrorAs(t, causes[p.Members()[1].Name], &reply)
		require.Equal(t, member.KindOverloaded, reply.Kind)
		require.ErrorIs(t, causes[p.Members()[2].Name], member.ErrBroken)
		require.NoError(t, held.Unlock(t.Context()))
	})
}

func TestMemberThatTakesALeaseBackIsToldWithItsOwnLatency(t *testing.T) {
	li := &listener{}
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Slow(10*time.Millisecond, 10*time.Millisecond, 10*time.Millisecond)
		p.Hold(t, "k", redlock.AutoRenew(3*time.Second))
		time.Sleep(100 * time.Millisecond)
		li.take(p)
		redlock.Admin(t, cluster.Servers[1], "DEL", "k")
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, []string{"extend k 0 10ms <nil>", "extend k 1 10ms <nil>", "extend k 2 10ms <nil>", "rejoin k 1 10ms <nil>"}, li.take(p))
	}, redlock.WithTracer(li), redlock.Quiet)
}

// rounds is a listener that hears of renewals, too.
type rounds struct {
	listener
	began, ended []string
}

func (r *rounds) RenewalStart(_ context.Context, e redlock.RenewalStart) context.Context {
	r.mu.Lock()
	defer r.mu.Unlock()
	var names []string
	for name, acquired := range e.Each {
		names = append(names, fmt.Sprint(name.Key, " ", acquired.Value(whereKey{})))
	}
	slices.Sort(names)
	r.began = append(r.began, fmt.Sprint(e.Leases, names))
	return at(context.Background(), "renew")
}

func (r *rounds) RenewalEnd(ctx context.Context, e redlock.RenewalEnd) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, fmt.Sprintf("%v: %d: %d renewed %d refused %d undecided, %d of %d members, %v, %v", ctx.Value(whereKey{}),
		e.Leases, e.Renewed, e.Refused, e.Undecided, e.Members, e.Need, e.Elapsed, e.Validity.Round(time.Second)))
}

func (r *rounds) told() (began, ended []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began, ended = r.began, r.ended
	r.began, r.ended = nil, nil
	return began, ended
}

func TestRoundOfRenewalsIsToldOnce(t *testing.T) {
	r := &rounds{}
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.Slow(10*time.Millisecond, 20*time.Millisecond, 30*time.Millisecond)
		held := []*redlock.Lease{}
		for _, name := range []string{"a", "b"} {
			l := rt.Must(p.Mutex(name, redlock.AutoRenew(30*time.Second)).Lock(at(t.Context(), name)))(t)
			held = append(held, l)
		}
		time.Sleep(5 * time.Second)
		r.take(p)
		for _, l := range held {
			require.NoError(t, l.Extend(t.Context(), 30*time.Second))
		}
		time.Sleep(time.Second)
		began, ended := r.told()
		require.Equal(t, []string{"1 [a a/acquire]", "1 [b b/acquire]"}, began)
		require.Len(t, ended, 2, "an Extend is a renewal of one lease")
		r.take(p)
		time.Sleep(10 * time.Second)
		began, ended = r.told()
		require.Equal(t, []string{"2 [a a/acquire b b/acquire]"}, began)
		require.Equal(t, []string{"renew: 2: 2 renewed 0 refused 0 undecided, 2 of 2 members, 20ms, 30s"}, ended)
		require.Equal(t, []string{"extend  0 10ms renew", "extend  1 20ms renew", "extend  2 30ms renew"}, r.take(p))

		// The vote that decides may be that of a member which took the lease back.
		require.NoError(t, held[1].Unlock(t.Context()))
		p.Away(2)
		time.Sleep(time.Second)
		redlock.Admin(t, cluster.Servers[1], "DEL", "a")
		time.Sleep(10 * time.Second)
		_, ended = r.told()
		require.Equal(t, []string{"renew: 1: 1 renewed 0 refused 0 undecided, 2 of 2 members, 40ms, 30s"}, ended)

		// Nobody answers.
		p.Away(0, 1)
		time.Sleep(10 * time.Second)
		began, ended = r.told()
		require.NotEmpty(t, ended)
		require.Len(t, ended, len(began), "each that began has ended")
		for _, e := range ended {
			require.Contains(t, e, "renew: 1: 0 renewed 0 refused 1 undecided, 0 of 2 members")
		}

		// A majority says that it is another's.
		p.EveryLink(func(l *redistest.Link) { l.Refuse(false); l.Heal() }, 0, 1)
		time.Sleep(2 * time.Second)
		r.told()
		redlock.Admin(t, cluster.Servers[0], "DEL", "a")
		redlock.Admin(t, cluster.Servers[1], "DEL", "a")
		time.Sleep(10 * time.Second)
		_, ended = r.told()
		require.Contains(t, ended[0], "renew: 1: 0 renewed 1 refused 0 undecided, 2 of 2 members")
		require.ErrorIs(t, held[0].Err(), redlock.ErrLost)
	}, redlock.WithTracer(r), redlock.Quiet)
}

func TestWhatMovesAWaiterIsTold(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		li := &listener{}
		holder, p := redlock.JoinAll(t, cluster, redlock.Quiet), redlock.JoinAll(t, cluster, redlock.WithTracer(li), redlock.Quiet)
		held := holder.Hold(t, "k")
		waiting := p.LockLater(at(t.Context(), "job"), "k")
		time.Sleep(4*time.Second + 500*time.Millisecond)
		require.Equal(t, map[string]int{"k poll job/acquire": 4}, li.woken(), "a heartbeat a second, the registration not counted")
		owner := redlock.Admin(t, cluster.Servers[0], "ZRANGE", redlock.QueueOf("k"), "0", "-1").([]any)[0].(string)
		redlock.Admin(t, cluster.Servers[0], "PUBLISH", script.Inbox(redlock.UUID(p.Client)), "g "+owner+" 5 1 - 3000") // a push that proves nothing is no grant: it makes it ask
		synctest.Wait()
		require.Equal(t, map[string]int{"k expiry job/acquire": 1}, li.woken())
		require.NoError(t, held.Unlock(t.Context()))
		lease := waiting.Get(t)
		synctest.Wait()
		require.Equal(t, map[string]int{"k notify job/acquire": 3}, li.woken(), "a grant of each member")
		require.NoError(t, lease.Unlock(t.Context()))

		// A holder that dies is found out by the end of its key.
		holder.Hold(t, "k", redlock.TTL(1500*time.Millisecond))
		waiting = p.LockLater(at(t.Context(), "job"), "k")
		time.Sleep(100 * time.Millisecond)
		holder.Die()
		lease = waiting.Get(t)
		woken := li.woken()
		require.Equal(t, 1, woken["k expiry job/acquire"], woken)
		require.Zero(t, woken["k notify job/acquire"], woken)
		require.NoError(t, lease.Unlock(t.Context()))
	})
}

func TestMemberThatComesBackMovesAWaiter(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		li := &listener{}
		holder, p := another(t, d, redlock.Quiet), another(t, d, redlock.WithTracer(li), redlock.Quiet, func(c *redlock.Config) { c.Entry = time.Hour })
		holder.Hold(t, "k")
		ctx, cancel := context.WithCancel(t.Context())
		waiting := p.LockLater(ctx, "k")
		time.Sleep(time.Second)
		p.Away(0)
		p.Back(0)
		time.Sleep(5 * time.Second)
		require.Equal(t, 1, li.woken()["k member <nil>/acquire"])
		cancel()
		<-waiting.Done
		require.True(t, errors.Is(waiting.Err, context.Canceled))
	})
}

func TestMembersTellHowFarTheirClocksAreFromOurs(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		p := voting(t, cluster, 3, redlock.WithFreshMembers())
		for _, m := range p.Members() {
			require.Zero(t, m.ClockWithin, "not asked yet")
		}
		cluster.Embedded(1).Step(5 * time.Second)
		p.Slow(0, 20*time.Millisecond, 2*time.Millisecond)
		time.Sleep(10500 * time.Millisecond)
		members := p.Members()
		for i, want := range []struct{ ahead, within time.Duration }{
			{0, time.Microsecond}, {5 * time.Second, 10 * time.Millisecond}, {0, time.Millisecond},
		} {
			require.Equal(t, want.within, members[i].ClockWithin)
			require.InDelta(t, want.ahead, members[i].ClockAhead, float64(time.Microsecond), i)
		}
	})
}

// The answers are read on a goroutine per member: the one that decides may come to its work after the
// others have ended the round. Extend must not say that the old validity stands.
func TestExtendThatAMajorityRefusesIsALossWhoeverBooksIt(t *testing.T) {
	deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
		lease := another(t, d, redlock.Quiet).Hold(t, "k")
		redlock.SettleRefused(lease)
		require.ErrorIs(t, lease.Err(), redlock.ErrLost)
	})
}

type kindListener struct {
	mu    sync.Mutex
	heard map[string]redlock.Kind
}

func (k *kindListener) hear(event string, kind redlock.Kind) {
	rt.Locked(&k.mu, func() { k.heard[event] = kind })
}

func (k *kindListener) CallStart(ctx context.Context, e redlock.CallStart) context.Context {
	k.hear("CallStart", e.Kind)
	return ctx
}
func (k *kindListener) CallEnd(_ context.Context, e redlock.CallEnd) {
	k.hear("CallEnd", e.Kind)
}
func (k *kindListener) Lost(e *redlock.LostError)   { k.hear("Lost", e.Kind) }
func (k *kindListener) Released(e redlock.Released) { k.hear("Released", e.Kind) }
func (k *kindListener) Renewed(l redlock.LockName, ok bool) {
	k.hear(fmt.Sprint("Renewed ", ok), l.Kind)
}
func (k *kindListener) Woken(_ context.Context, l redlock.LockName, _ redlock.WakeReason) {
	k.hear("Woken", l.Kind)
}
func (k *kindListener) Request(_ context.Context, e redlock.Request) {
	k.hear("Request "+e.Op+" "+e.Key, e.Kind)
}
func (k *kindListener) RenewalStart(ctx context.Context, e redlock.RenewalStart) context.Context {
	for lock := range e.Each {
		k.hear("RenewalStart "+lock.Key, lock.Kind)
	}
	return ctx
}

func TestStatsCountWhatIsHeldAndWhoWaits(t *testing.T) {
	urls, stop := startMembers()
	defer stop()
	client := opened(t, urls, redlock.WithFreshMembers())
	nothing := map[redlock.Kind]redlock.Stats{redlock.KindMutex: {}, redlock.KindFair: {}, redlock.KindWrite: {}, redlock.KindRead: {}, redlock.KindElection: {}, redlock.KindSemaphore: {}}
	require.Equal(t, nothing, client.Stats())
	before := time.Now()
	first := locked(t, client, "a")
	between := time.Now()
	second := locked(t, client, "b")
	ctx, cancel := context.WithCancel(t.Context())
	waiting := (&redlock.Peer{Client: client}).LockLater(ctx, "a")
	require.Eventually(t, func() bool {
		s := client.Stats()[redlock.KindMutex]
		return s.Held == 2 && s.Waiting == 1 && s.Oldest.After(before) && s.Oldest.Before(between)
	}, 20*time.Second, time.Millisecond, "two held, one waits")
	cancel()
	<-waiting.Done
	permit := rt.Must(client.Semaphore("a", 2).Acquire(t.Context()))(t)
	require.Equal(t, 1, client.Stats()[redlock.KindSemaphore].Held)
	for _, l := range []*redlock.Lease{first, second, permit} {
		require.NoError(t, l.Unlock(t.Context()))
	}
	require.Equal(t, nothing, client.Stats(), "after all")
}
