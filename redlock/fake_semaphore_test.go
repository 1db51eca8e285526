package redlock_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

func permit(t testing.TB, p anyClient, name string, limit int, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	l := rt.Must(p.Semaphore(name, limit, opts...).Acquire(t.Context()))(t)
	synctest.Wait()
	return l
}

func TestSemaphoreHasAsManyHoldersAsSlots(t *testing.T) {
	withThree(t, func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller) {
		x, y := permit(t, a, "k", 2), permit(t, b, "k", 2)
		require.ElementsMatch(t, []int{0, 1}, []int{x.Slot(), y.Slot()})
		for _, p := range []*caller{a, b, c} {
			require.ErrorIs(t, rt.Err(p.Semaphore("k", 2).TryAcquire(t.Context())), redlock.ErrHeld)
		}
		require.Equal(t, []redlock.Slot{{Number: x.Slot(), Token: x.Token()}}, x.Slots())
		require.Equal(t, 3, x.Votes())
		lock := c.Lock(t, "k") // a mutex of the name is another lock
		require.Empty(t, lock.Slots())
		require.Equal(t, -1, lock.Slot(), "0 is the number of a slot")
		unlock(t, lock)
		w := later(t.Context(), c.Semaphore("k", 2).Acquire)
		time.Sleep(10 * time.Second)
		require.True(t, w.Pending())
		unlock(t, y)
		time.Sleep(10 * time.Millisecond)
		z := w.Get(t)
		require.Equal(t, y.Slot(), z.Slot())
		require.Greater(t, z.Token(), y.Token(), "tokens of a slot rise")
		unlock(t, x, z)
		noKeys(t, d)
	})
}

// Permits for which many wait are handed on as if each were a lock of its own, although members serve
// their releases in different orders: four permits come to almost four times one, with two calls for
// each member and permit. Cost: 3 s, of thirty clients.
func TestBusyPermitsAreHandedOnAsIfEachWereALock(t *testing.T) {
	const perPermit = 6
	busy := func(limit int) (rate, calls float64) {
		redlock.Among(t, 3, perPermit*limit, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
			var rules []*redistest.Rule
			for i, p := range all {
				p.Jitter(uint64(i), time.Millisecond, time.Millisecond, time.Millisecond)
				for _, s := range script.Own() {
					rules = append(rules, p.Count(s)...)
				}
			}
			const took = 200 * time.Millisecond
			judge, start, inTime := newLedger(scene{names: []string{"k"}, slots: limit}), time.Now(), 0
			var wg sync.WaitGroup
			for _, p := range all {
				wg.Go(func() {
					for time.Since(start) < took {
						l, err := p.Semaphore("k", limit).Acquire(t.Context())
						if err != nil {
							t.Error(err)
							return
						}
						judge.permitted(0, l, make([]floor, limit))
						time.Sleep(time.Millisecond)
						judge.mu.Lock()
						if time.Since(start) < took {
							inTime++
						}
						judge.mu.Unlock()
						assert.NoError(t, l.Unlock(t.Context()))
						time.Sleep(2 * time.Millisecond)
					}
				})
			}
			wg.Wait()
			require.Empty(t, judge.verdict())
			for _, n := range redlock.Hits(rules) {
				calls += float64(n)
			}
			rate, calls = float64(inTime)/took.Seconds(), calls/float64(judge.grants)
		}, redlock.Quiet)
		return rate, calls
	}
	one, _ := busy(1)
	four, calls := busy(4)
	t.Logf("%.0f permits a second of one, %.0f of four, with %.1f calls for each", one, four, calls)
	require.Greater(t, four, .9*4*one)
	require.Less(t, calls, 7.5)
}

func TestArgumentsOfASemaphoreThatCannotWorkAreNamed(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		for want, sem := range map[string]*redlock.Semaphore{
			"the limit is 0":                 p.Semaphore("k", 0),
			"the limit is -1":                p.Semaphore("k", -1),
			"the limit is 4097":              p.Semaphore("k", 4097),
			"Permits is 0":                   p.Semaphore("k", 4, redlock.Permits(0)),
			"Permits is 65":                  p.Semaphore("k", 100, redlock.Permits(65)),
			"Permits is 3, more than":        p.Semaphore("k", 2, redlock.Permits(3)),
			"no option As":                   p.Semaphore("k", 2, redlock.As("me")),
			"no option Fair":                 p.Semaphore("k", 2, redlock.Fair()),
			"must not be empty":              p.Semaphore("", 2),
			"0s is not positive":             p.Semaphore("k", 2, redlock.TTL(0)),
			"names that begin with":          p.Semaphore("redquorum:s1:k", 2),
			"1h0m0s is more than MaxTTL (30": p.Semaphore("k", 2, redlock.TTL(time.Hour)),
		} {
			for _, get := range []func(context.Context) (*redlock.Lease, error){sem.Acquire, sem.TryAcquire} {
				_, err := get(t.Context())
				require.ErrorIs(t, err, redlock.ErrInput, want)
				require.ErrorContains(t, err, want)
				require.ErrorContains(t, err, "acquire permit")
			}
			require.ErrorIs(t, sem.Do(t.Context(), func(context.Context, *redlock.Lease) error { return nil }), redlock.ErrInput)
		}
		require.ErrorIs(t, p.Semaphore("k", 2).Do(t.Context(), nil), redlock.ErrInput)
		for _, opt := range []func() error{
			func() error { return p.Try(t, "k", redlock.Permits(1)) },
			func() error { _, err := p.RWMutex("k", redlock.Permits(1)).TryRLock(t.Context()); return err },
		} {
			rt.Says(t, opt(), redlock.ErrInput, "no option Permits")
		}
		require.ErrorIs(t, rt.Err(p.Multi([]string{"a"}, redlock.Permits(1)).TryLock(t.Context())), redlock.ErrInput)
		_, err := another(t, d, redlock.WithInterop()).Semaphore("k", 2).Acquire(t.Context())
		rt.Says(t, err, redlock.ErrInput, "Config.Interop")
		noKeysAtRest(t, d)
	}, redlock.Quiet)
}

func TestPermitsThatRenewThemselvesLastAndThoseWithATTLEnd(t *testing.T) {
	var told tracer
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		renewed := permit(t, p, "k", 2, redlock.AutoRenew(time.Second))
		fixed := permit(t, p, "k", 2, redlock.TTL(2*time.Second))
		waits := later(t.Context(), q.Semaphore("k", 2).Acquire)
		time.Sleep(1900 * time.Millisecond)
		require.True(t, waits.Pending())
		time.Sleep(200 * time.Millisecond)
		require.ErrorIs(t, fixed.Err(), redlock.ErrLost)
		require.Equal(t, redlock.LostExpired, redlock.LostFor(fixed))
		require.Empty(t, heardLost(&told), "it ended as it was asked to")
		next := waits.Get(t)
		require.Equal(t, fixed.Slot(), next.Slot(), "a slot is free when its lease has ended")
		require.Greater(t, next.Token(), fixed.Token())
		require.ErrorIs(t, fixed.Unlock(t.Context()), redlock.ErrLost, "release of what has run out")
		require.NoError(t, next.Err())
		time.Sleep(20 * time.Second)
		require.NoError(t, renewed.Err())
		require.Equal(t, 3, renewed.Votes())
		require.NoError(t, next.Extend(t.Context(), 20*time.Second))
		unlock(t, renewed, next)
		require.ErrorIs(t, next.Unlock(t.Context()), redlock.ErrNotHeld)
		time.Sleep(time.Second)
		noKeys(t, d)
	}, redlock.Quiet, redlock.WithTracer(&told))
}

// A member that has a stray of the owner for another slot has no vote for the lease: counted as one, a lease would live on
// with one real vote, beside another holder of its slot.
func TestRenewalIsOnlyConfirmedWhereTheSlotIs(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := permit(t, p, "k", 8, redlock.AutoRenew(900*time.Millisecond))
		for _, s := range cluster.Servers[1:] { // as after a loss and a late call: its slot is nobody's, and it has another
			moveSlot(t, s, "k", l.Slot(), (l.Slot()+1)%8)
		}
		p.EveryLink(func(l *redistest.Link) { // one that has it back in time is a vote again
			l.DelayCommand(redistest.WithArg(script.SemRejoin.SHA), -1, 50*time.Millisecond)
		})
		before := l.ValidUntil()
		time.Sleep(310 * time.Millisecond)
		require.ErrorIs(t, l.Err(), redlock.ErrLost, "two of three do not have the slot")
		require.Equal(t, redlock.LostRefused, redlock.LostFor(l))
		require.False(t, l.ValidUntil().After(before))
		time.Sleep(3 * time.Second)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestHandoffOfAPermitThatIsNotWholeIsRefused(t *testing.T) {
	wire := func(text string) string {
		return "redquorum1." + base64.RawURLEncoding.EncodeToString([]byte(text))
	}
	good := `{"c":"semaphore","k":"aw==","o":"x:1","t":17,"l":1000,"v":2,"p":"3:17 5:20","n":8}`
	require.NoError(t, rt.Err(redlock.ParseHandoff(wire(good))))
	for from, to := range map[string]string{
		`"p":"3:17 5:20"`: `"p":""`, `"3:17 5:20"`: `"3:16 5:20"`, `"n":8`: `"n":1`, `:8}`: `:5000}`, `"semaphore"`: `"semaphores"`, `"v":2`: `"v":1`,
	} {
		text := strings.Replace(good, from, to, 1)
		require.NotEqual(t, good, text)
		require.ErrorIs(t, rt.Err(redlock.ParseHandoff(wire(text))), redlock.ErrInput, text)
	}
}

// A client that has the greater limit may have more than the others' limit.
func TestCallersWithDifferentLimitsHaveTheGreatestTogether(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		var held []*redlock.Lease
		for range 4 {
			held = append(held, permit(t, p, "k", 4))
		}
		waits := later(t.Context(), q.Semaphore("k", 2).Acquire)
		for _, l := range held[:2] {
			unlock(t, l)
			time.Sleep(2 * time.Second)
			require.True(t, waits.Pending(), "two and more are taken")
		}
		slots := []int{held[2].Slot(), held[3].Slot()}
		unlock(t, held[2])
		if waits.Pending() { // the slot that is free may be above its limit: it is told at a heartbeat
			time.Sleep(1100 * time.Millisecond)
		}
		l := waits.Get(t)
		require.Less(t, l.Slot(), 2)
		require.NotEqual(t, slots[1], l.Slot())
		unlock(t, l, held[3])
		noKeys(t, d)
	}, redlock.Quiet)
}

// A winner is in no line, and has its slot everywhere: otherwise members give slots that are held elsewhere.
func TestWinnerIsInNoLineAndHasItsSlotEverywhere(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		x := permit(t, p, "k", 2)
		y := permit(t, p, "k", 2)
		q.Links[2].SetDelay(redistest.Delay{Fixed: 20 * time.Millisecond}, redistest.Delay{Fixed: 20 * time.Millisecond})
		waits := later(t.Context(), q.Semaphore("k", 2).Acquire)
		time.Sleep(100 * time.Millisecond)
		q.Links[2].LosePush(1)
		unlock(t, x)
		l := waits.Get(t)
		time.Sleep(200 * time.Millisecond)
		require.Equal(t, 3, l.Votes(), "of the member whose push was lost, too")
		for _, s := range cluster.Servers {
			require.EqualValues(t, 0, redlock.Admin(t, s, "EXISTS", "redquorum:sq:{k}"))
		}
		unlock(t, l, y)
		time.Sleep(100 * time.Millisecond)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// A member at which the owner has another slot has lost nothing of the lease: it had nothing.
func TestReleaseOfAPermitNamesItsSlots(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		l := permit(t, p, "k", 8)
		for _, s := range cluster.Servers[1:] {
			moveSlot(t, s, "k", l.Slot(), (l.Slot()+1)%8)
		}
		require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrLost, "two of three did not have the slot")
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet)
}

// moveSlot gives the owner of a slot another one at a member, as no member does.
func moveSlot(t testing.TB, s redistest.Server, name string, from, to int) {
	t.Helper()
	key := "redquorum:s1:{" + name + "}"
	owner := redlock.Admin(t, s, "HGET", key, fmt.Sprint(from)).(string)
	deadline, _, _ := strings.Cut(redlock.Admin(t, s, "HGET", key, owner).(string), " ")
	redlock.Admin(t, s, "HDEL", key, fmt.Sprint(from))
	redlock.Admin(t, s, "HSET", key, owner, fmt.Sprintf("%s %d:1", deadline, to), fmt.Sprint(to), owner)
}

func TestSemaphoreAndMutexOfANameStandInLinesOfTheirOwn(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		lock := q.Lock(t, "k")
		waits := p.LockLater(t.Context(), "k")
		time.Sleep(10 * time.Millisecond)
		ctx := rt.Within(t, time.Second)
		l := rt.Must(p.Semaphore("k", 1).Acquire(ctx))(t)
		require.True(t, waits.Pending())
		unlock(t, lock)
		time.Sleep(10 * time.Millisecond)
		unlock(t, waits.Get(t), l)
	}, redlock.Quiet)
}

// Processes settle on slots of their own, and do not collide.
func TestClientAsksForTheSlotThatItGaveBackLast(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		var mine []*redlock.Lease
		for range 3 {
			mine = append(mine, permit(t, p, "k", 1000))
		}
		unlock(t, mine...)
		for range 5 {
			unlock(t, permit(t, q, "k", 1000))
		}
		for i := range mine {
			l := permit(t, p, "k", 1000)
			require.Equal(t, mine[2-i].Slot(), l.Slot())
			defer unlock(t, l)
		}
	}, redlock.Quiet)
}

// Members are asked in different orders, so callers meet at slots: as many tries at once as there are free slots all get one. Few
// meet: the callers of a client spread, and nobody who does not wait is in line. Of who is one too many, a majority says so.
func TestAsManyTriesAtOnceAsThereAreFreeSlotsAllGetOne(t *testing.T) {
	const clients, each = 5, 40
	redlock.Among(t, 3, clients, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		taught(t, cluster)
		var rules []*redistest.Rule
		for i, p := range all {
			p.Jitter(uint64(i), time.Millisecond, time.Millisecond, time.Millisecond)
			for _, s := range script.Own() {
				rules = append(rules, p.Count(s)...)
			}
		}
		judge, leases := newLedger(scene{names: []string{"k"}, slots: clients * each}), make(chan *redlock.Lease, clients*each)
		var wg sync.WaitGroup
		for i := range clients * each {
			wg.Go(func() {
				l, err := all[i%clients].Semaphore("k", clients*each).TryAcquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				judge.permitted(0, l, make([]floor, clients*each))
				leases <- l
			})
		}
		wg.Wait()
		close(leases)
		require.Empty(t, judge.verdict())
		calls := 0
		for _, n := range redlock.Hits(rules) {
			calls += n
		}
		t.Logf("%.1f calls for each try", float64(calls)/(clients*each))
		require.ErrorIs(t, rt.Err(all[0].Semaphore("k", clients*each).TryAcquire(t.Context())), redlock.ErrHeld)
		for l := range leases {
			unlock(t, l)
		}
		time.Sleep(time.Second)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// Members that execute one call after the other, and are longer about all of them than MemberTimeout, are not silent: neither a call
// that does not wait nor a release gives them up.
func TestMembersThatAreMerelyBusyAreWaitedFor(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		taught(t, cluster)
		p.EveryLink(func(l *redistest.Link) {
			for _, s := range []script.Script{script.SemAcquire, script.SemRelease} {
				l.Call(redistest.WithArg(s.SHA), -1, func([]string) { time.Sleep(50 * time.Millisecond) })
			}
		})
		const callers = 12 // 600 ms
		var wg sync.WaitGroup
		for i := range callers {
			wg.Go(func() {
				l, err := p.Semaphore(fmt.Sprint("k", i), 1).TryAcquire(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// anotherFree has dead owners take all slots but one of three, at each of three members another: votes never agree.
func anotherFree(t *testing.T, cluster *redistest.Cluster) {
	const far = "99999999999999"
	for i, s := range cluster.Servers {
		args := []string{"HSET", "redquorum:s1:{k}", ".", far, "-", far}
		for slot := range 3 {
			if owner := fmt.Sprintf("dead:%d", slot); slot != i {
				args = append(args, fmt.Sprint(slot), owner, owner, fmt.Sprintf("%s %d:5", far, slot))
			}
		}
		redlock.Admin(t, s, args...)
		redlock.Admin(t, s, "PEXPIRE", "redquorum:s1:{k}", "100000")
	}
}

// Who asks once, and meets others again and again, ends with what the members said: also beside one that hangs, and with a context.
func TestTryAcquireThatMeetsOthersEndsInTime(t *testing.T) {
	for hung, within := range []time.Duration{200 * time.Millisecond, time.Second} {
		redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			taught(t, cluster)
			anotherFree(t, cluster)
			if hung > 0 {
				p.EveryLink(func(l *redistest.Link) { l.PauseReplies() }, 2)
			} else {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				defer cancel()
				err := rt.Err(p.Semaphore("k", 3).TryAcquire(ctx))
				require.ErrorIs(t, err, redlock.ErrHeld)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			began := time.Now()
			require.ErrorIs(t, rt.Err(p.Semaphore("k", 3).TryAcquire(t.Context())), redlock.ErrHeld)
			require.LessOrEqual(t, time.Since(began), within)
		}, redlock.Quiet)
	}
}
