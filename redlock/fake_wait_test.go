package redlock_test

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
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

// Waiting as standing requests, in fake time on embedded members: bursts, order, lost and late pushes,
// deaths, cancelled waiters, and clocks at the ends of what is allowed.

func TestClientsAreServedInOrderOfArrival(t *testing.T) {
	redlock.Among(t, 5, 9, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		for i, p := range all {
			p.Jitter(uint64(i+1), time.Millisecond, time.Millisecond, time.Millisecond)
		}
		held := all[0].Hold(t, "k")
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i, p := range all[1:] {
			wg.Go(func() {
				l := p.Lock(t, "k")
				rt.Locked(&mu, func() { order = append(order, i) })
				time.Sleep(3 * time.Millisecond)
				_ = l.Unlock(t.Context())
			})
			time.Sleep(5 * time.Millisecond)
		}
		start := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		wg.Wait()
		require.Equal(t, []int{0, 1, 2, 3, 4, 5, 6, 7}, order)
		require.Less(t, time.Since(start), 8*6*time.Millisecond, "without a pause between them")
	}, redlock.Quiet)
}

func TestProcessesAlternateHoweverManyCallersEachHas(t *testing.T) {
	withMany(t, 3, 2, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i, callers := range []int{12, 3} {
			all[i].Slow(time.Millisecond, time.Millisecond, time.Millisecond)
			for range callers {
				wg.Go(func() {
					l := all[i].Lock(t, "k")
					rt.Locked(&mu, func() { order = append(order, i) })
					time.Sleep(3 * time.Millisecond)
					_ = l.Unlock(t.Context())
				})
			}
		}
		wg.Wait()
		last := -1
		for n, i := range order {
			if i == 1 {
				last = n
			}
		}
		require.Len(t, order, 15)
		require.LessOrEqual(t, last, 7, "the three are served between the twelve: %v", order)
	}, redlock.Quiet)
}

// The queues differ: each of three waiters came first at some members, none at a majority. The holder
// has heard of them by their announcements alone. Its hint makes all members give to the same one.
func TestReleaseNamesOneSuccessorWhereTheQueuesDiffer(t *testing.T) {
	redlock.Among(t, 5, 4, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		held := all[0].Hold(t, "k")
		near, far := time.Millisecond, 10*time.Millisecond
		all[1].Slow(near, near, far, far, far)
		all[2].Slow(far, far, near, near, far)
		all[3].Slow(far, far, far, far, near)
		var waiting []*redlock.Locking
		var yields []*redistest.Rule
		for _, p := range all[1:] {
			waiting = append(waiting, p.LockLater(t.Context(), "k"))
		}
		time.Sleep(100 * time.Millisecond)
		for _, p := range all[1:] {
			p.Slow(slices.Repeat([]time.Duration{near}, 5)...)
			yields = append(yields, p.Count(script.Yield)...)
		}
		for range waiting {
			start := time.Now()
			require.NoError(t, held.Unlock(t.Context()))
			time.Sleep(time.Millisecond)
			i := slices.IndexFunc(waiting, func(w *redlock.Locking) bool { return !w.Pending() })
			require.GreaterOrEqual(t, i, 0, "somebody has it")
			require.LessOrEqual(t, waiting[i].At.Sub(start), time.Millisecond)
			held = waiting[i].Get(t)
			require.Equal(t, 5, held.Votes(), "from all members")
			waiting = slices.Delete(waiting, i, i+1)
		}
		require.NoError(t, held.Unlock(t.Context()))
		require.Equal(t, slices.Repeat([]int{0}, 15), redlock.Hits(yields))
	}, redlock.Quiet)
}

// split starts three clients at once, each of which is first at one of the members 0, 1 and 2.
func split(t testing.TB, all []*caller, name string) []*redlock.Locking {
	t.Helper()
	var waiting []*redlock.Locking
	for i, p := range all {
		rtt := slices.Repeat([]time.Duration{10 * time.Millisecond}, len(p.Members()))
		rtt[i] = 2 * time.Millisecond
		p.Slow(rtt...)
		waiting = append(waiting, p.LockLater(t.Context(), name))
	}
	return waiting
}

// A split goes to any of the contenders, not to the same client every time.
func TestSplitsAreWonByDifferentClients(t *testing.T) {
	withMany(t, 3, 3, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		const rounds = 21
		var wins [3]int
		for round := range rounds {
			waiting := split(t, all, fmt.Sprint("k", round))
			for n := range waiting {
				first := -1
				for first < 0 {
					time.Sleep(time.Millisecond)
					first = slices.IndexFunc(waiting, func(w *redlock.Locking) bool { return w != nil && !w.Pending() })
				}
				if n == 0 {
					wins[first]++
				}
				require.NoError(t, waiting[first].Get(t).Unlock(t.Context()))
				waiting[first] = nil
			}
			time.Sleep(20 * time.Millisecond)
		}
		for _, n := range wins {
			require.LessOrEqual(t, n, 17, "%v: three times in a million by chance", wins)
		}
	}, redlock.Quiet)
}

func TestLostPushIsHealedByTheNextHeartbeat(t *testing.T) {
	for _, lost := range []int{0, 2, 3, 5} {
		t.Run(fmt.Sprint(lost), inAmong(5, 2, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
			held := all[0].Hold(t, "k")
			waiting := all[1].LockLater(t.Context(), "k")
			time.Sleep(1500 * time.Millisecond)
			all[1].Slow(slices.Repeat([]time.Duration{10 * time.Millisecond}, 5)...)
			for i := range lost {
				all[1].Links[i].LosePush(1)
			}
			start := time.Now()
			require.NoError(t, held.Unlock(t.Context()))
			l := waiting.Get(t)
			took := waiting.At.Sub(start)
			if lost <= 2 {
				require.Equal(t, 5*time.Millisecond, took, "a majority of pushes, one way")
			} else {
				require.LessOrEqual(t, took, time.Second+10*time.Millisecond, "a third of the entry, and a round trip")
				require.Greater(t, took, 100*time.Millisecond)
			}
			require.Empty(t, redlock.OverBelief(cluster, l))
			time.Sleep(2 * time.Second)
			require.Equal(t, 5, l.Votes())
		}, redlock.Quiet))
	}
}

func TestHandOverCostsTwoCommandsAtEachMember(t *testing.T) {
	redlock.Among(t, 5, 4, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		var wg sync.WaitGroup
		const rounds = 15
		evals := make([]*redistest.Rule, 0, 20)
		for _, p := range all {
			p.Slow(slices.Repeat([]time.Duration{time.Millisecond}, 5)...)
			p.EveryLink(func(l *redistest.Link) {
				evals = append(evals, l.Call(redistest.Named("EVALSHA"), -1, func([]string) {}))
			})
			wg.Go(func() {
				for range rounds {
					l := p.Lock(t, "k")
					time.Sleep(2 * time.Millisecond)
					_ = l.Unlock(t.Context())
				}
			})
		}
		wg.Wait()
		sum := 0
		for _, n := range redlock.Hits(evals) {
			sum += n
		}
		require.Less(t, sum, 4*rounds*10*13/10, "ten commands per acquisition, and something for the beginning")
	}, redlock.Quiet)
}

func TestHolderThatDiesIsSucceededWhenItsLeaseEnds(t *testing.T) {
	for _, opt := range []redlock.LockOption{redlock.TTL(10 * time.Second), redlock.AutoRenew(10 * time.Second)} {
		withMany(t, 5, 2, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
			held := all[0].Hold(t, "k", opt)
			waiting := all[1].LockLater(t.Context(), "k")
			time.Sleep(4 * time.Second)
			left := inspect(t, all[1], "k").Members[0].Votes[0].TTL
			died := time.Now()
			all[0].Die()
			<-held.Done()
			ended := time.Now()
			waiting.Get(t)
			require.True(t, waiting.At.After(ended), "told before the lock could be anybody else's")
			took := waiting.At.Sub(died)
			require.True(t, left <= took && took <= left+5*time.Millisecond, "%v, the keys ended after %v", took, left)
		})
	}
}

// Two waiters share the votes, and the yields of both are lost on the way.
func TestSplitEndsAlthoughItsYieldsAreLost(t *testing.T) {
	redlock.Among(t, 4, 2, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		const near, far = time.Millisecond, 5 * time.Millisecond
		all[0].Slow(near, near, far, far)
		all[1].Slow(far, far, near, near)
		var lost []*redistest.Rule
		for _, p := range all {
			for _, l := range p.Links {
				lost = append(lost, l.CutBefore(redistest.WithArg(script.Yield.SHA), 1))
			}
		}
		start := time.Now()
		waiting := []*redlock.Locking{all[0].LockLater(t.Context(), "k"), all[1].LockLater(t.Context(), "k")}
		first := 0
		select {
		case <-waiting[0].Done:
		case <-waiting[1].Done:
			first = 1
		}
		require.NoError(t, waiting[first].Get(t).Unlock(t.Context()))
		require.NoError(t, waiting[1-first].Get(t).Unlock(t.Context()))
		require.Less(t, time.Since(start), 10*time.Second)
		n := 0
		for _, rule := range lost {
			select {
			case <-rule.Fired():
				n++
			default:
			}
		}
		require.GreaterOrEqual(t, n, 2, "yields were lost")
		time.Sleep(time.Second)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// A client that has known for long enough that it cannot ask a majority asks nobody: votes of the others would be of no use,
// and thousands of such clients keep a member that comes back from answering those who can use them.
func TestLockAsksNobodyWhereNoQuorumCouldBeAskedForLong(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		asked := p.Count(script.Acquire)
		waited := p.Count(script.Wait)
		p.Away(0, 1)
		fails := func() {
			_, err := p.Mutex("k").Lock(t.Context())
			var votes *redlock.QuorumError
			require.ErrorIs(t, err, redlock.ErrNoQuorum)
			require.ErrorAs(t, err, &votes)
			require.Len(t, votes.Votes, 3)
		}
		fails()
		synctest.Wait()
		before := asked[2].Hits() + waited[2].Hits()
		require.Positive(t, before)
		for range 10 {
			fails()
		}
		synctest.Wait()
		require.Equal(t, before, asked[2].Hits()+waited[2].Hits())
		require.ErrorIs(t, rt.Err(p.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
		synctest.Wait()
		require.Equal(t, before+1, asked[2].Hits()+waited[2].Hits(), "who tries asks")
		p.EveryLink(func(l *redistest.Link) { l.Heal() }, 0)
		start := time.Now()
		time.Sleep(time.Second)
		require.NoError(t, p.Lock(t, "k").Unlock(t.Context()))
		require.Less(t, time.Since(start), 2*time.Second)
		p.EveryLink(func(l *redistest.Link) { l.Heal() }, 1)
		time.Sleep(5 * time.Second)
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet)
}

// A loop of calls that wait, with all members down, is as slow as members that are silent. A call whose majority comes back
// meanwhile has the lock.
func TestCallsInALoopDoNotFailAtOnceForAsLongAsMembersAreDown(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		d.Cut(0, 1, 2)
		require.ErrorIs(t, rt.Err(p.Client.Mutex("k").Lock(t.Context())), redlock.ErrNoQuorum)
		for kind, call := range map[string]func(ctx context.Context) error{
			"Mutex": func(ctx context.Context) error {
				return p.Client.Mutex("k").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
			},
			"RLock":     func(ctx context.Context) error { _, err := p.RWMutex("k").RLock(ctx); return err },
			"Semaphore": func(ctx context.Context) error { _, err := p.Semaphore("k", 2).Acquire(ctx); return err },
			"Campaign":  func(ctx context.Context) error { _, err := p.Election("k").Campaign(ctx, nil); return err },
			"Multi":     func(ctx context.Context) error { _, err := p.Multi([]string{"j", "k"}).Lock(ctx); return err },
		} {
			began, calls := time.Now(), 0
			for time.Since(began) < 10*time.Second {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				require.ErrorIs(t, call(ctx), redlock.ErrNoQuorum, kind)
				cancel()
				calls++
			}
			require.LessOrEqual(t, calls, 10, "%s: one in a MemberTimeout", kind)
			began = time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := call(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, kind)
			require.Equal(t, 20*time.Millisecond, time.Since(began), kind)
			require.ErrorIs(t, rt.Err(p.Client.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
		}
		served := p.LockLater(t.Context(), "k")
		time.Sleep(100 * time.Millisecond)
		require.True(t, served.Pending())
		d.Heal()
		l := served.Get(t)
		require.Less(t, time.Since(served.At), 2*time.Second)
		unlock(t, l)
	}, redlock.Quiet, func(c *redlock.Config) { c.MemberTimeout = time.Second }) // a member that is there is dialled within half of that
}

func TestLockWaitsForAQuorumWhereItIsTold(t *testing.T) {
	redlock.Alone(t, 5, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		cluster.Kill(0, 1, 2)
		waiting := p.LockLater(t.Context(), "k")
		time.Sleep(time.Minute)
		require.True(t, waiting.Pending())
		require.NoError(t, cluster.Restart(true, 0))
		waiting.Get(t)
		require.Less(t, time.Since(waiting.At), 10*time.Second)
		time.Sleep(time.Minute)
		require.NoError(t, waiting.Value.Unlock(t.Context()))
		require.NoError(t, cluster.Restart(true, 1, 2))
		redlock.NothingLeft(t, cluster)
	}, func(c *redlock.Config) { c.NoQuorumAfter = -1 })
}

// Waiters that died are handed votes, by an unlock here and a cancelled waiter there, at moments far apart. All of that
// ends with their entries, an entry's lifetime after their last heartbeat, and whoever waits then has the lock. Any number of
// waiters die, give up or live on, each may be the first at any member, and a member dies, at any time.
// Cost: 2 s with the race detector, of twelve seeds.
func TestNextHolderComesWithinOneEntryInAnyOrder(t *testing.T) {
	for seed := range redlock.Seeds(48) {
		deployed(t, 3, func(t *testing.T, d *redlocktest.Deployment) {
			rng := rand.New(rand.NewPCG(seed, 9))
			within := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d))) }
			h := another(t, d, redlock.Quiet)
			held := h.Hold(t, "k", redlock.TTL(30*time.Second))
			var gone []*redlock.Locking
			var dead []*caller
			cancels := map[time.Duration]context.CancelFunc{}
			n := 3 + rng.IntN(4)
			all := moreOf(t, d, n+2, redlock.Quiet)
			for i, p := range all {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				p.Slow(within(20*time.Millisecond), within(20*time.Millisecond), within(20*time.Millisecond))
				w := p.LockLater(ctx, "k")
				switch {
				case i >= n:
				case rng.IntN(2) == 0:
					dead = append(dead, p)
				default:
					cancels[within(3*time.Second)] = cancel
				}
				gone = append(gone, w)
				time.Sleep(within(30 * time.Millisecond))
			}
			time.Sleep(3*time.Second + within(time.Second))
			for _, p := range dead {
				p.Die()
			}
			if rng.IntN(2) == 0 {
				d.Cut(2)
			}
			last := time.Now()
			for at, cancel := range cancels {
				time.AfterFunc(at, cancel)
			}
			time.Sleep(within(100 * time.Millisecond))
			require.NoError(t, held.Unlock(t.Context()))
			least := time.Duration(-1)
			for least < 0 {
				time.Sleep(time.Millisecond)
				for i, w := range gone {
					if !w.Pending() && w.Err == nil && !slices.Contains(dead, all[i]) {
						least = w.At.Sub(last)
					}
				}
				require.Less(t, time.Since(last), 20*time.Second, "seed %d", seed)
			}
			if least > 3*time.Second+300*time.Millisecond {
				t.Errorf("seed %d: the next holder came %v after the last death", seed, least)
			}
		})
	}
}

// While somebody holds and somebody waits nothing is handed over, and the keys of the queue never end by themselves.
func TestEntriesOfDeadWaitersAreRemovedWhileTheLockIsHeld(t *testing.T) {
	redlock.Pair(t, 1, func(t *testing.T, cluster *redistest.Cluster, h, live *redlock.Peer) {
		l := h.Hold(t, "k")
		live.LockLater(t.Context(), "k")
		var dead []*redlock.Peer
		for range 40 {
			p := redlock.JoinAll(t, cluster, redlock.Quiet)
			p.LockLater(t.Context(), "k")
			synctest.Wait()
			p.Die()
			dead = append(dead, p)
		}
		require.EqualValues(t, 41, redlock.Admin(t, cluster.Servers[0], "HLEN", redlock.WaitersOf("k")))
		for _, p := range dead { // nobody hears of that
			go func() { _ = p.Close() }()
		}
		time.Sleep(5 * time.Minute) // of heartbeats of one waiter
		require.LessOrEqual(t, redlock.Admin(t, cluster.Servers[0], "HLEN", redlock.WaitersOf("k")), int64(8))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// throng puts n waiters into the line of a name at every member, in front of all that come later, and returns what takes
// them out. Their entries live for as long as is said.
func throng(t *testing.T, cluster *redistest.Cluster, name string, n int, lives time.Duration) (disperse func()) {
	t.Helper()
	queue, waiters := redlock.QueueOf(name), strings.Replace(redlock.QueueOf(name), ":q:", ":w:", 1)
	entry := fmt.Sprintf("%d 3000", time.Now().Add(lives).UnixMilli())
	add, set := []string{"ZADD", queue}, []string{"HSET", waiters}
	rem, del := []string{"ZREM", queue}, []string{"HDEL", waiters}
	for i := range n {
		who := fmt.Sprintf("crowd:%d", i)
		add, set, rem, del = append(add, strconv.Itoa(i), who), append(set, who, entry), append(rem, who), append(del, who)
	}
	for _, s := range cluster.Servers {
		redlock.Admin(t, s, add...)
		redlock.Admin(t, s, set...)
	}
	return func() {
		for _, s := range cluster.Servers {
			redlock.Admin(t, s, rem...)
			redlock.Admin(t, s, del...)
		}
	}
}

// In a line of a thousand a waiter sends a heartbeat every 3 s, and is never less than Entry from losing its place. When the
// line is short again, it sends one a second.
func TestWaiterOfALongLineSendsFewHeartbeatsAndKeepsItsPlace(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		li := &listener{}
		holder, p := redlock.JoinAll(t, cluster, redlock.Quiet), redlock.JoinAll(t, cluster, redlock.WithTracer(li), redlock.Quiet)
		held := holder.Hold(t, "k")
		disperse := throng(t, cluster, "k", 1000, time.Hour)
		waiting := p.LockLater(at(t.Context(), "job"), "k")
		time.Sleep(50 * time.Millisecond)
		owner := redlock.Admin(t, cluster.Servers[0], "ZRANGE", redlock.QueueOf("k"), "-1", "-1").([]any)[0].(string)
		for range 290 {
			for _, s := range cluster.Servers {
				entry := fmt.Sprint(redlock.Admin(t, s, "HGET", strings.Replace(redlock.QueueOf("k"), ":q:", ":w:", 1), owner))
				deadline, ttl, _ := strings.Cut(entry, " ")
				ms, err := strconv.ParseInt(deadline, 10, 64)
				require.NoError(t, err, entry)
				require.GreaterOrEqual(t, time.Until(time.UnixMilli(ms)), 2990*time.Millisecond)
				require.Equal(t, "3000", ttl)
			}
			time.Sleep(100 * time.Millisecond)
		}
		require.Equal(t, map[string]int{"k poll job/acquire": 9}, li.woken(), "each 3.003 s")
		disperse()
		time.Sleep(4 * time.Second)
		li.woken()
		time.Sleep(5 * time.Second)
		require.Equal(t, map[string]int{"k poll job/acquire": 5}, li.woken())
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, waiting.Get(t).Unlock(t.Context()))
	})
}

// A client in a long line looks at a member's marker when it sends a heartbeat, and hardly besides.
func TestWaiterOfALongLineLooksSeldom(t *testing.T) {
	voters(t, 1, func(t *testing.T, cluster *redistest.Cluster, holder *redlock.Peer) {
		var sent sentCommands
		urls, ways := meshed(cluster)
		p := &redlock.Peer{Client: opened(t, urls, ways, sent.count)}
		p.Voting(t, 1)
		holder.Hold(t, "k")
		throng(t, cluster, "k", 1000, time.Hour)
		p.LockLater(t.Context(), "k")
		time.Sleep(10 * time.Second)
		looks := sent.looks.Load()
		time.Sleep(72 * time.Second) // 24 heartbeats
		require.LessOrEqual(t, sent.looks.Load()-looks, int64(30))
	})
}

// sentCommands counts what a client sends that dials for itself: looks at the marker.
type sentCommands struct{ looks atomic.Int64 }

func (s *sentCommands) count(c *redlock.Config) {
	dial := c.Dialer
	c.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		return &sentOn{conn, s}, err
	}
}

type sentOn struct {
	net.Conn
	all *sentCommands
}

func (c *sentOn) Write(b []byte) (int, error) {
	c.all.looks.Add(int64(bytes.Count(b, []byte("\r\nEVAL\r\n"))))
	return c.Conn.Write(b)
}

// Everybody in a long line dies, and the holder gives the lock to one after the other. All of that ends with their entries,
// and who comes behind them has the lock at its next heartbeat.
func TestDeadWaitersOfALongLineHoldUpOthersForTheirEntries(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, holder, p *redlock.Peer) {
		held := holder.Hold(t, "k")
		throng(t, cluster, "k", 1000, 6*time.Second)
		waiting := p.LockLater(t.Context(), "k")
		time.Sleep(50 * time.Millisecond)
		start := time.Now()
		require.NoError(t, held.Unlock(t.Context()))
		require.NoError(t, waiting.Get(t).Unlock(t.Context()))
		require.LessOrEqual(t, waiting.At.Sub(start), 9010*time.Millisecond)
		time.Sleep(15 * time.Second) // this one's unlock has given it to the dead, too
		redlock.NothingLeft(t, cluster)
	}, redlock.Quiet)
}

// A vote that is pushed to a waiter of a long line is good for as long as any other, and makes it ask nobody at once.
func TestGrantInALongLineTakesNoFurtherCall(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		li := &listener{}
		holder, p := redlock.JoinAll(t, cluster, redlock.Quiet), redlock.JoinAll(t, cluster, redlock.WithTracer(li), redlock.Quiet)
		held := holder.Hold(t, "k")
		disperse := throng(t, cluster, "k", 1000, time.Hour)
		waiting := p.LockLater(at(t.Context(), "job"), "k")
		time.Sleep(2900 * time.Millisecond)
		disperse()
		p.Slow(0, 100*time.Millisecond) // the votes come one after the other
		require.NoError(t, held.Unlock(t.Context()))
		l := waiting.Get(t)
		require.Zero(t, li.woken()["k poll job/acquire"])
		require.Empty(t, redlock.OverBelief(cluster, l))
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// Who gets a lock out of a long line was refused it long ago. But the grant names the next waiter, so the client that wants the
// lock again gets in line, and does not ask first.
func TestGrantThatNamesAWaiterSparesTheNextCallAQuestion(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, holder, p *redlock.Peer) {
		held := holder.Hold(t, "k")
		disperse := throng(t, cluster, "k", 1000, time.Hour)
		waiting := p.LockLater(t.Context(), "k")
		time.Sleep(10 * time.Millisecond) // it stands in front
		behind := redlock.JoinAll(t, cluster, redlock.Quiet).LockLater(t.Context(), "k")
		time.Sleep(2 * time.Second)
		disperse()
		require.NoError(t, held.Unlock(t.Context()))
		l := waiting.Get(t)
		synctest.Wait()
		asked := p.Links[0].Call(redistest.WithArg(script.Acquire.SHA), -1, func([]string) {})
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, behind.Get(t).Unlock(t.Context()))
		require.NoError(t, p.Lock(t, "k").Unlock(t.Context()))
		require.Zero(t, asked.Hits())
	}, redlock.Quiet)
}

func TestEntriesOfALongLineLiveFourTimesAsLongAtMost(t *testing.T) {
	for waiting, lives := range map[int]time.Duration{332: 3 * time.Second, 333: 3999 * time.Millisecond, 2999: 11997 * time.Millisecond, 4000: 12 * time.Second} {
		t.Run(strconv.Itoa(waiting), inPair(1, func(t *testing.T, cluster *redistest.Cluster, holder, p *redlock.Peer) {
			holder.Hold(t, "k")
			throng(t, cluster, "k", waiting, time.Hour)
			p.LockLater(t.Context(), "k")
			time.Sleep(1050 * time.Millisecond)
			owner := redlock.Admin(t, cluster.Servers[0], "ZRANGE", redlock.QueueOf("k"), "-1", "-1").([]any)[0].(string)
			entry := fmt.Sprint(redlock.Admin(t, cluster.Servers[0], "HGET", strings.Replace(redlock.QueueOf("k"), ":q:", ":w:", 1), owner))
			deadline, _, _ := strings.Cut(entry, " ")
			ms, err := strconv.ParseInt(deadline, 10, 64)
			require.NoError(t, err, entry)
			got := time.Until(time.UnixMilli(ms)) + 1050*time.Millisecond
			if lives < 4*time.Second {
				got -= time.Second // the second heartbeat
			}
			require.InDelta(t, lives, got, float64(10*time.Millisecond))
		}, redlock.Quiet))
	}
}
