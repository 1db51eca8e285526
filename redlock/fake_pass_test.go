package redlock_test

import (
	"context"
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

// Callers of one client pass a lock on among themselves: who has it when, what the members hear of it, and what
// ends it.

// lines is a client whose callers have met at a name a moment ago: what the next one gets is passed on.
type lines struct {
	*redlock.Peer
	t      *testing.T
	waits  []*redlock.Locking
	leases []*redlock.Lease // of which the last is held
	counts map[string][]*redistest.Rule
}

// meet has the first of so many callers of a client have a lock that it is to pass on. The others stand in line.
func meet(t *testing.T, p *redlock.Peer, n int, opts ...redlock.LockOption) *lines {
	t.Helper()
	p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
	first := p.Hold(t, "k", opts...)
	q := &lines{Peer: p, t: t}
	for range n {
		q.stand(opts...)
	}
	time.Sleep(10 * time.Millisecond) // the counters are behind the clock then
	unlock(t, first)
	q.takes()
	time.Sleep(10 * time.Millisecond)
	q.counts = map[string][]*redistest.Rule{}
	for name, s := range map[string]script.Script{"acquire": script.Acquire, "wait": script.Wait, "release": script.Release, "reserve": script.Reserve} {
		q.counts[name] = p.Count(s)
	}
	return q
}

// stand has one more caller come.
func (q *lines) stand(opts ...redlock.LockOption) {
	q.waits = append(q.waits, q.LockLater(q.t.Context(), "k", opts...))
	synctest.Wait()
}

// takes has the first that waits have the lock, with a token above those before.
func (q *lines) takes() *redlock.Lease {
	q.t.Helper()
	l := q.waits[0].Get(q.t)
	if n := len(q.leases); n > 0 {
		require.Greater(q.t, l.Token(), q.leases[n-1].Token())
		require.Error(q.t, q.leases[n-1].Err())
	}
	q.waits, q.leases = q.waits[1:], append(q.leases, l)
	return l
}

// held is the lease that is held.
func (q *lines) held() *redlock.Lease { return q.leases[len(q.leases)-1] }

// passes has the holder unlock, and the next caller have the lock in that instant.
func (q *lines) passes() *redlock.Lease {
	q.t.Helper()
	was, at, until, next := q.held(), time.Now(), q.held().ValidUntil(), q.waits[0]
	unlock(q.t, was)
	l := q.takes()
	require.Equal(q.t, at, next.At, "nobody was asked")
	require.Equal(q.t, was.Owner(), l.Owner())
	require.Equal(q.t, until, l.ValidUntil(), "that of the hold")
	return l
}

// asked is how often each member was asked since the holder had the lock.
func (q *lines) asked(name string) int {
	hits := redlock.Hits(q.counts[name])
	require.Equal(q.t, slices.Max(hits), slices.Min(hits), name)
	return hits[0]
}

// reserved is how many reservations the first member has got.
func (q *lines) reserved() int { return redlock.Hits(q.counts["reserve"])[0] }

func TestCallersOfAClientPassALockOn(t *testing.T) {
	tr := &tracer{}
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		q := meet(t, p, 20)
		for range 10 {
			q.passes()
		}
		for range 9 { // those that come later are behind those that stand there
			q.stand()
			time.Sleep(2 * time.Millisecond)
			q.passes()
		}
		for len(q.waits) > 0 {
			q.passes()
		}
		q.stand() // alone
		q.passes()
		require.Equal(t, 0, q.asked("acquire")+q.asked("wait")+q.asked("release"))
		require.LessOrEqual(t, q.asked("reserve"), 1, "for 256 leases")
		require.Equal(t, 1, p.Stats()[redlock.KindMutex].Held)
		unlock(t, q.held())
		require.Equal(t, 1, q.asked("release"))
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet, redlock.WithTracer(tr))
}

// Each row is a sign that somebody else waits. The lock is not passed on then: the first in line registers, and has it
// after the one that was there before it.
func TestLockThatAnotherClientWaitsForIsNotPassedOn(t *testing.T) {
	for name, wait := range map[string]func(t *testing.T, b *redlock.Peer) *redlock.Locking{
		"a mutex":  func(t *testing.T, b *redlock.Peer) *redlock.Locking { return b.LockLater(t.Context(), "k") },
		"a reader": func(t *testing.T, b *redlock.Peer) *redlock.Locking { return later(t.Context(), b.RWMutex("k").RLock) },
		"a writer": func(t *testing.T, b *redlock.Peer) *redlock.Locking { return later(t.Context(), b.RWMutex("k").Lock) },
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
				q := meet(t, a, 4)
				q.passes()
				w := wait(t, b)
				time.Sleep(5 * time.Millisecond)
				require.Equal(t, 1, q.asked("wait"), "the first in line registers")
				was := q.held()
				unlock(t, was)
				l := w.Get(t)
				require.Greater(t, l.Token(), was.Token())
				require.True(t, q.waits[0].Pending())
				unlock(t, l)
				next := q.takes()
				require.Greater(t, next.Token(), l.Token())
				time.Sleep(2 * time.Millisecond)
				q.passes() // nobody else waits any more
				unlock(t, q.held())
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

// All pushes are lost. No lease begins later than a third of Entry after somebody has registered.
func TestCallersOfAClientDoNotStarveAnother(t *testing.T) {
	const third = 3 * time.Second / 3
	deaf := func(a *redlock.Peer) {
		a.EveryLink(func(l *redistest.Link) { l.Answer(redistest.WithArg(script.Reserve.SHA), -1, ":3\r\n") })
	}
	for name, row := range map[string]struct {
		trip   time.Duration
		after  time.Duration // that a reservation was sent somebody registers
		then   func(a *redlock.Peer)
		within time.Duration
	}{
		"a reservation says so": {time.Millisecond, 200 * time.Millisecond, func(*redlock.Peer) {}, third / 3},
		"no answer says so":     {time.Millisecond, 200 * time.Millisecond, deaf, third - 200*time.Millisecond},
		"the answer is late":    {150 * time.Millisecond, 80 * time.Millisecond, deaf, third - 80*time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
				q := meet(t, a, 2)
				deafToPushes(a)
				a.Slow(row.trip, row.trip, row.trip)
				time.Sleep(600 * time.Millisecond)
				before := q.reserved()
				q.stand()
				time.Sleep(row.after)
				require.Equal(t, before+1, q.reserved())
				row.then(a)
				w, registered := b.LockLater(t.Context(), "k"), time.Now()
				synctest.Wait()
				owner, last := q.held().Owner(), registered
				for q.held().Owner() == owner {
					last = time.Now()
					time.Sleep(5 * time.Millisecond)
					q.stand()
					unlock(t, q.held())
					for w.Pending() && q.waits[0].Pending() { // perhaps until answers are there
						time.Sleep(time.Millisecond)
					}
					if !w.Pending() {
						break
					}
					q.takes()
				}
				require.False(t, w.Pending())
				require.LessOrEqual(t, last.Sub(registered), row.within)
				unlock(t, w.Get(t))
				for len(q.waits) > 0 {
					unlock(t, q.takes())
				}
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

// A holder unlocks before the members have said that it may pass the lock on. The next caller waits for their answers,
// and a moment longer than that for the lock itself if they do not come.
func TestHoldRestsUntilAReservationIsAnswered(t *testing.T) {
	for name, row := range map[string]struct {
		answer string
		within time.Duration
		passed bool
	}{
		"for as long as that takes":   {"", time.Millisecond, true},
		"but not where it is in vain": {":3\r\n", 8 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				q := meet(t, p, 3)
				time.Sleep(1100 * time.Millisecond) // nobody knows whether somebody waits
				if row.answer != "" {
					p.EveryLink(func(l *redistest.Link) { l.Answer(redistest.WithArg(script.Reserve.SHA), -1, row.answer) })
				}
				q.stand()
				was, next, at := q.held(), q.waits[0], time.Now()
				unlock(t, was)
				require.Equal(t, at, time.Now(), "nobody is waited for")
				l := q.takes()
				require.LessOrEqual(t, next.At.Sub(at), row.within)
				require.Equal(t, row.passed, l.Owner() == was.Owner())
				for unlock(t, l); len(q.waits) > 0; unlock(t, l) {
					l = q.takes()
				}
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

func TestCallerThatGivesUpIsPassedOver(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		q := meet(t, p, 1)
		ctx, cancel := context.WithCancel(t.Context())
		gone := p.LockLater(ctx, "k")
		synctest.Wait()
		q.stand()
		time.Sleep(2 * time.Millisecond)
		cancel()
		require.ErrorIs(t, gone.End(), redlock.ErrHeld)
		q.passes()
		q.stand()
		q.passes()
		unlock(t, q.held())
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// MaxHold is that of a lease. What it ends is not passed on.
func TestMaxHoldIsThatOfEachCaller(t *testing.T) {
	tr := &tracer{}
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		q := meet(t, p, 2)
		q.stand(redlock.MaxHold(50 * time.Second))
		q.stand()
		time.Sleep(20 * time.Second)
		q.stand()
		time.Sleep(2 * time.Millisecond)
		q.passes()
		at := time.Now()
		until := q.held().ValidUntil()
		unlock(t, q.held())
		limited := q.takes()
		require.Equal(t, until, limited.ValidUntil(), "it is not over before")
		ends(t, limited.Context())
		require.Equal(t, 50*time.Second, time.Since(at))
		require.Equal(t, redlock.LostMaxHold, redlock.LostFor(limited))
		require.Equal(t, limited.Token(), heardLost(tr)[0].Token)
		require.Len(t, heardLost(tr), 1)
		next := q.takes()
		require.NotEqual(t, limited.Owner(), next.Owner())
		unlock(t, next)
		unlock(t, q.takes())
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet, redlock.WithTracer(tr))
}

// What was lost has the token of the lease that had it. The line competes.
func TestHoldThatIsLostIsNotPassedOn(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, q *lines, b *redlock.Peer){
		"by a renewal": func(*testing.T, *lines, *redlock.Peer) { time.Sleep(11 * time.Second) },
		"by a reservation": func(_ *testing.T, q *lines, _ *redlock.Peer) {
			time.Sleep(600 * time.Millisecond)
			q.stand()
			time.Sleep(2 * time.Millisecond)
		},
	} {
		t.Run(name, func(t *testing.T) {
			tr := &tracer{}
			redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
				q := meet(t, a, 3)
				q.passes()
				ctx := q.held().Context()
				require.NoError(t, rt.Err(b.ForceUnlock(t.Context(), "k")))
				lose(t, q, b)
				require.ErrorIs(t, context.Cause(ctx), redlock.ErrLost)
				require.Equal(t, redlock.LostRefused, redlock.LostFor(q.held()))
				var lost *redlock.LostError
				require.ErrorAs(t, q.held().Unlock(t.Context()), &lost)
				require.Equal(t, q.held().Token(), lost.Token)
				require.Len(t, heardLost(tr), 1)
				require.Equal(t, lost.Token, heardLost(tr)[0].Token)
				owner := q.held().Owner()
				require.NotEqual(t, owner, q.takes().Owner())
				for unlock(t, q.held()); len(q.waits) > 0; unlock(t, q.held()) {
					q.takes()
				}
				time.Sleep(time.Minute) // what says that it was forced ends
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet, redlock.WithTracer(tr))
		})
	}
}

func TestExtendOfAPassedLeaseIsThatOfTheHold(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		q := meet(t, p, 4)
		q.passes()
		time.Sleep(100 * time.Millisecond)
		at := time.Now()
		require.NoError(t, q.held().Extend(t.Context(), 30*time.Second))
		require.Equal(t, at.Add(redlock.Validity(30*time.Second)), q.held().ValidUntil())
		q.passes()
		at = time.Now()
		require.NoError(t, q.held().Extend(t.Context(), time.Second))
		require.Equal(t, at.Add(redlock.Validity(time.Second)), q.held().ValidUntil())
		was := q.held()
		unlock(t, was)
		require.NotEqual(t, was.Owner(), q.takes().Owner(), "too little is left of it")
		unlock(t, q.held())
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestLeaseOfAnOpenHoldIsHandedOffWithIt(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, a, b *redlock.Peer) {
		q := meet(t, a, 3)
		q.passes()
		was := q.held()
		h := rt.Must(was.Handoff())(t)
		require.ErrorIs(t, was.Err(), redlock.ErrHandedOff)
		require.Equal(t, was.Token(), h.Token())
		l := rt.Must(b.Adopt(t.Context(), h))(t)
		require.Equal(t, was.Token(), l.Token())
		time.Sleep(time.Minute)
		require.True(t, q.waits[0].Pending())
		unlock(t, l)
		next := q.takes()
		require.Greater(t, next.Token(), l.Token())
		unlock(t, next)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// A caller that wants the lock in another way has its turn in the line, and gets the lock from the members.
func TestWhoWantsTheLockInAnotherWayIsServedInOrder(t *testing.T) {
	for name, get := range map[string]func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error){
		"As": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.As("me")).Lock
		},
		"TTL": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.TTL(10*time.Second)).Lock
		},
		"AutoRenew": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.AutoRenew(10*time.Second)).Lock
		},
		"Fair": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return p.Mutex("k", redlock.Fair()).Lock
		},
		"writer": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) { return p.RWMutex("k").Lock },
		"reader": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) { return p.RWMutex("k").RLock },
		"set": func(p *redlock.Peer) func(context.Context) (*redlock.Lease, error) {
			return func(ctx context.Context) (*redlock.Lease, error) {
				s, err := p.Multi([]string{"k"}).Lock(ctx)
				return s.Of("k"), err
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				q := meet(t, p, 2)
				other := later(t.Context(), get(p))
				time.Sleep(2 * time.Millisecond) // a set asks first
				q.stand()
				time.Sleep(2 * time.Millisecond)
				q.passes()
				was := q.held()
				time.Sleep(5 * time.Millisecond)
				waiting := 0
				for _, s := range p.Stats() {
					waiting += s.Waiting
				}
				require.Equal(t, 1, waiting, "its turn has begun")
				unlock(t, was)
				time.Sleep(5 * time.Millisecond)
				require.False(t, other.Pending())
				require.True(t, q.waits[0].Pending())
				require.NotEqual(t, was.Owner(), other.Get(t).Owner())
				unlock(t, other.Value)
				unlock(t, q.takes())
				time.Sleep(time.Minute) // a ticket ends
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

func TestCloseEndsWhatIsPassedOn(t *testing.T) {
	for name, before := range map[string]func(t *testing.T, q *lines){
		"held": func(*testing.T, *lines) {},
		"resting": func(t *testing.T, q *lines) {
			time.Sleep(1100 * time.Millisecond)
			q.EveryLink(func(l *redistest.Link) { l.Answer(redistest.WithArg(script.Reserve.SHA), -1, ":3\r\n") })
			q.stand()
			unlock(t, q.held())
		},
	} {
		t.Run(name, func(t *testing.T) {
			redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
				q := meet(t, p, 3)
				q.passes()
				before(t, q)
				require.NoError(t, p.Client.Close())
				require.Error(t, q.held().Err())
				for _, w := range q.waits {
					require.ErrorIs(t, w.End(), redlock.ErrClosed)
				}
				redlock.Leftovers(t, cluster)
			}, redlock.Quiet)
		})
	}
}

// All pushes are lost, so nobody recalls the lock.
func TestWhoWaitsAtTheMembersIsNotOvertakenByItsClient(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		q := meet(t, p, 2)
		deafToPushes(p)
		other := later(t.Context(), p.Mutex("k", redlock.TTL(10*time.Second)).Lock)
		synctest.Wait()
		q.passes()
		time.Sleep(2 * time.Millisecond)
		q.stand()
		unlock(t, q.held())
		time.Sleep(2 * time.Second)
		require.False(t, other.Pending())
		require.True(t, q.waits[0].Pending())
		unlock(t, other.Value)
		unlock(t, q.takes())
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestReservationThatBringsNothingIsNotRepeated(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		q := meet(t, p, 1)
		p.EveryLink(func(l *redistest.Link) { l.Answer(redistest.WithArg(script.Reserve.SHA), -1, ":3\r\n") })
		asked := p.Count(script.Reserve)
		time.Sleep(600 * time.Millisecond)
		for range 5 {
			q.stand()
			time.Sleep(5 * time.Millisecond)
		}
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(asked))
		for unlock(t, q.held()); len(q.waits) > 0; unlock(t, q.held()) {
			q.takes()
		}
	}, redlock.Quiet)
}

// The members have no further tokens. What is not reserved is given to nobody.
func TestHoldWithoutTokensIsNotPassedOn(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		q := meet(t, p, 2)
		time.Sleep(time.Second)
		q.stand()
		time.Sleep(2 * time.Millisecond)
		p.EveryLink(func(l *redistest.Link) { l.Answer(redistest.WithArg(script.Reserve.SHA), -1, ":3\r\n") })
		owner, n := q.held().Owner(), 0
		for ; q.held().Owner() == owner; n++ {
			q.stand()
			unlock(t, q.held())
			q.takes()
		}
		require.Equal(t, 512+1, n, "as many as were reserved, and one of the next hold")
		unlock(t, q.held())
		for len(q.waits) > 0 {
			unlock(t, q.takes())
		}
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}
