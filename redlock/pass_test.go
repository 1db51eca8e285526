package redlock

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// inTurns has another caller of a client want a lock again and again, which tells what it gets. test runs meanwhile, when there are
// tokens for all.
func inTurns(t *testing.T, told func(l *Lease), test func(t *testing.T, p *Peer, m *Mutex)) {
	Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *Peer) {
		m := p.Mutex("k")
		require.NoError(t, rt.Must(m.Lock(t.Context()))(t).Unlock(t.Context()))
		time.Sleep(time.Second)
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			for ctx.Err() == nil {
				l, err := m.Lock(t.Context())
				if !assert.NoError(t, err) {
					return
				}
				told(l)
				assert.NoError(t, l.Unlock(t.Context()))
			}
		})
		test(t, p, m)
		cancel()
		wg.Wait()
	}, Quiet)
}

// What depends on the context of a lease has been told of its end before another caller has the lock.
func TestContextsEndBeforeALockIsPassedOn(t *testing.T) {
	var depends atomic.Pointer[context.Context]
	var late atomic.Int64
	told := func(*Lease) {
		if ctx := depends.Load(); ctx != nil && (*ctx).Err() == nil {
			late.Add(1)
		}
	}
	inTurns(t, told, func(t *testing.T, p *Peer, m *Mutex) {
		asked := p.Count(script.Acquire)
		for range 10_000 {
			l := rt.Must(m.Lock(t.Context()))(t)
			ctx, cancel := context.WithCancel(l.Context())
			depends.Store(&ctx)
			require.NoError(t, l.Unlock(t.Context()))
			cancel()
		}
		require.Less(t, Hits(asked)[0], 5_000, "it is passed on")
	})
	require.Zero(t, late.Load())
}

func TestPassCostsAShareAndAPlace(t *testing.T) {
	var others atomic.Int64 // which are more than our own where the machine is busy
	inTurns(t, func(*Lease) { others.Add(1) }, func(t *testing.T, p *Peer, m *Mutex) {
		each := func() {
			l, err := m.Lock(t.Context())
			if assert.NoError(t, err) {
				assert.NoError(t, l.Unlock(t.Context()))
			}
		}
		for range 100 {
			each()
		}
		before := others.Load()
		allocs := testing.AllocsPerRun(10_000, each) * 10_000
		require.Less(t, allocs/float64(10_000+others.Load()-before), 4.5, "for a lease, of both callers; a reservation now and then has its own")
	})
}

// A waiter that is heard of while a tenure is formed has been heard of by the hold, or by the tenure.
func TestWaiterThatIsHeardOfWhileATenureIsFormedRecallsIt(t *testing.T) {
	for _, early := range []bool{true, false} {
		c := Agreed(t, &Yes{})
		w := want{op: opLock, name: "k", terms: &c.Mutex("k").terms, turn: hasTurn}
		_, _, err := sitesOf.of(c).enter(t.Context(), "k", 1, nil, w.terms)
		require.NoError(t, err)
		sitesOf.of(c).contended("k", time.Now(), true, false)
		a := c.newAttempt(exclusive.of("k", &c.cfg, w.terms), w.terms, wait.Past{}, nil)
		tenure := c.won(&w, &a.hold)
		require.NotNil(t, tenure)
		hears := func() {
			a.hear(0, script.Push{Owner: a.owner, Other: "other:1"}, member.State{Brief: member.Brief{Gen: 1, Votes: true}}, time.Now())
		}
		if early {
			hears()
		}
		l := leaseOf(a, time.Second, false)
		l.bond = tenure
		require.True(t, c.keeper.add(l))
		s := tenure.begun(t.Context(), w.terms, l, result{}, time.Now())
		require.Equal(t, early, tenure.site == nil)
		hears()
		require.Nil(t, tenure.site)
		require.NoError(t, s.own.Err(), "who has it keeps it")
		require.NoError(t, s.own.Unlock(t.Context()))
	}
}

// What nobody else of the client wants has one lease, and costs what it does. A caller that was heard to wait makes it open.
func TestLockThatNobodyElseOfTheClientWantsIsFormedAlone(t *testing.T) {
	Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *Peer) {
		l := p.Hold(t, "k")
		require.Equal(t, bond(alone{}), l.bond)
		next := p.LockLater(t.Context(), "k")
		synctest.Wait()
		require.NoError(t, l.Unlock(t.Context()))
		require.IsType(t, &share{}, next.Get(t).bond)
		require.NoError(t, next.Value.Unlock(t.Context()))
		time.Sleep(contendedFor)
		l = p.Hold(t, "k")
		require.Equal(t, bond(alone{}), l.bond)
		require.NoError(t, l.Unlock(t.Context()))
	}, Quiet)
}

// What was another's a moment ago is not to be kept, and costs what it does.
func TestLockThatWandersIsFormedAlone(t *testing.T) {
	Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *Peer) {
		p.contended("k", time.Now(), false, false)
		for _, bond := range []bond{alone{}, &share{}} {
			l := p.Hold(t, "k", Keep(time.Second))
			require.IsType(t, bond, l.bond)
			require.NoError(t, l.Unlock(t.Context()))
			time.Sleep(contendedFor)
		}
	}, Quiet)
}

// unlocked is a context that is asked under no mutex of a shard. That of a lease may end the lease, which takes one.
type unlocked struct {
	context.Context
	sh *siteShard
}

func (c unlocked) Err() error {
	if !c.sh.mu.TryLock() {
		panic("asked under the mutex")
	}
	defer c.sh.mu.Unlock()
	return c.Context.Err()
}

func TestCallerWhoseContextHasEndedIsPassedOver(t *testing.T) {
	Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *Peer) {
		first := p.Hold(t, "k")
		open := p.LockLater(t.Context(), "k")
		synctest.Wait()
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		sh := sitesOf.of(p.Client).shard("k")
		sh.mu.Lock() // one that has not come to leave the line
		s := sh.m["k"]
		s.places = append(s.places, &place{turn: make(chan struct{}), width: 1, ctx: gone, done: gone.Done(), terms: &p.Mutex("k").terms})
		sh.mu.Unlock()
		time.Sleep(time.Millisecond)
		require.NoError(t, first.Unlock(t.Context()))
		held := open.Get(t)
		next := p.LockLater(unlocked{t.Context(), sh}, "k")
		time.Sleep(time.Millisecond)
		require.NoError(t, held.Unlock(t.Context()))
		require.Equal(t, OwnerOf(held), OwnerOf(next.Get(t)))
		sitesOf.of(p.Client).leave("k", s.places[0])
		require.NoError(t, next.Value.Unlock(t.Context()))
	}, Quiet)
}

// An attempt that comes while something that was kept is being given back does not ask before the release is submitted. A caller that
// comes while a reservation is about to be submitted waits for its answers, and what was kept stays.
func TestAttemptWaitsForTheReleaseOfWhatWasKept(t *testing.T) {
	Alone(t, 3, func(t *testing.T, _ *redistest.Cluster, p *Peer) {
		m := p.Mutex("k", Keep(5*time.Second))
		require.NoError(t, rt.Must(m.Lock(t.Context()))(t).Unlock(t.Context()))
		sh := sitesOf.of(p.Client).shard("k")
		kept := rt.Under(&sh.mu, func() *tenure { return sh.m["k"].open[0] })
		time.Sleep(contendedFor)
		require.True(t, rt.Under(&sh.mu, func() bool { return kept.asksLocked(time.Now()) }))
		waits := rt.Begin(func() (*Lease, error) { return m.Lock(t.Context()) })
		synctest.Wait()
		kept.reserve(false)
		require.Equal(t, kept.lease.hold, waits.Get(t).hold)
		require.NoError(t, waits.Value.Unlock(t.Context()))
		rt.Locked(&sh.mu, kept.overLocked)
		synctest.Wait() // what was asked before has arrived
		asked := p.Count(script.Acquire)
		next := rt.Begin(func() (*Lease, error) { return p.Mutex("k").TryLock(t.Context()) })
		synctest.Wait()
		require.Equal(t, []int{0, 0, 0}, Hits(asked))
		kept.giveBack(false)
		require.NoError(t, next.Get(t).Unlock(t.Context()))
		require.Zero(t, sitesOf.of(p.Client).kept.Load())
	}, Quiet)
}

// A client that pushes may not reach keeps nothing: nobody could have it given up.
func TestNothingIsKeptWherePushesAreNotHeard(t *testing.T) {
	for deaf, kept := range map[int]int{1: 1, 2: 0} {
		members := []*Yes{{}, {}, {}}
		for i := range deaf {
			members[i].deaf = true
		}
		c := rt.Must(New([]member.Member{members[0], members[1], members[2]}))(t)
		t.Cleanup(func() { _ = c.Close() })
		require.NoError(t, rt.Must(c.Mutex("k", Keep(time.Second)).TryLock(t.Context()))(t).Unlock(t.Context()))
		require.Equal(t, kept, c.Stats()[KindMutex].Kept)
		if kept == 0 {
			name := strings.Repeat("k", 100)
			require.Zero(t, testing.AllocsPerRun(100, func() { c.giveWay(name, kindOf(KindSemaphore)) }), "who keeps nothing pays nothing")
		}
	}
}

func TestNameForgetsWhatAnotherHadNoTokensFor(t *testing.T) {
	var sh siteShard
	s := sh.site("k")
	s.shut = time.Now()
	sh.forget("k", s)
	require.Zero(t, sh.site("other").shut)
}

// Several members push, and what is in use is not called back.
func TestRecallOfAKeptLockIsCountedOnce(t *testing.T) {
	c := Agreed(t, &Yes{})
	for _, kept := range []int{0, 1} {
		l := rt.Must(c.Mutex("k", Keep(time.Second)).Lock(t.Context()))(t)
		of := l.bond.(*share).of
		if kept > 0 {
			require.NoError(t, l.Unlock(t.Context()))
		}
		of.shard.mu.Lock()
		of.recallLocked(l.hold)
		of.recallLocked(l.hold)
		of.shard.mu.Unlock()
		require.Equal(t, kept, c.Stats()[KindMutex].Recalled)
		if of.settle(); kept == 0 {
			require.NoError(t, l.Unlock(t.Context()))
		}
	}
}

// It is asked again whether pushes are heard, once in the time for which a lock is kept.
func TestLockThatIsKeptBeyondPushesIsGivenUpThoughItIsUsed(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		members := []*Yes{{}, {}, {}}
		c := rt.Must(New([]member.Member{members[0], members[1], members[2]}))(t)
		defer func() { _ = c.Close() }()
		uses := func() {
			for range 4 {
				time.Sleep(600 * time.Millisecond)
				require.NoError(t, rt.Must(c.Mutex("k", Keep(time.Second)).Lock(t.Context()))(t).Unlock(t.Context()))
			}
		}
		uses()
		require.Equal(t, 1, members[0].Called(script.Acquire))
		synctest.Wait()
		members[0].deaf, members[1].deaf = true, true
		uses()
		require.Equal(t, 0, c.Stats()[KindMutex].Kept)
	})
}
