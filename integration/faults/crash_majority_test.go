package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Three of five are killed: who asks is told so, who holds loses the lease in time, nothing stays behind,
// and the same clients go on when the members are back.
func TestThreeMembersDieAndComeBack(t *testing.T) {
	t.Parallel() // as all here: much of the time is waited for quarantines
	ways, _ := someWays(t, appended, empty)
	for _, back := range ways {
		t.Run(back.String(), func(t *testing.T) {
			t.Parallel()
			const patience = 500 * time.Millisecond
			cluster := rt.Real(t, 5)
			configure := func(c *redlock.Config) { c.NoQuorumAfter = patience }
			w := start(t, cluster, terms{hold: 5 * time.Millisecond, direct: true, config: configure})
			w.progress(t, 50)
			client := w.clients[0]
			held := map[string]*redlock.Lease{}
			for name, opts := range map[string][]redlock.LockOption{
				"renewed": nil, "fixed": {redlock.TTL(maxTTL)}, "given back": {redlock.TTL(maxTTL)},
			} {
				lease, err := client.Mutex("held:"+name, opts...).Lock(t.Context())
				require.NoError(t, err)
				held[name] = lease
			}
			dead, living := []int{0, 2, 3}, []int{1, 4}
			killed := time.Now()
			cluster.Kill(dead...)

			noQuorum := func(what string, err error, took time.Duration) {
				t.Helper()
				require.ErrorIs(t, err, redlock.ErrNoQuorum)
				require.NotErrorIs(t, err, redlock.ErrHeld)
				var q *redlock.QuorumError
				require.ErrorAs(t, err, &q)
				for i, v := range q.Votes {
					require.Equal(t, slices.Contains(dead, i), v.Err != nil, "%v", err)
					if v.Err != nil {
						require.ErrorContains(t, err, cluster.Servers[i].Addr()+": ")
					}
				}
				require.Less(t, took, 10*time.Second)
				t.Logf("%s after %v: %v", what, took.Round(time.Millisecond), err)
			}
			asked := time.Now()
			_, err := client.Mutex("free").TryLock(t.Context())
			noQuorum("TryLock", err, time.Since(asked))
			err = held["given back"].Unlock(t.Context())
			require.True(t, errors.Is(err, redlock.ErrInDoubt) || errors.Is(err, redlock.ErrLost), "%v", err)
			if held["given back"].ValidUntil().After(time.Now()) {
				require.ErrorIs(t, err, redlock.ErrInDoubt)
			}
			asked = time.Now()
			_, err = client.Mutex("free").Lock(t.Context())
			noQuorum("Lock", err, time.Since(asked))
			require.GreaterOrEqual(t, time.Since(killed), patience, "all calls of a client count from when it lost the majority")

			for _, name := range []string{"renewed", "fixed"} {
				lease := held[name]
				<-lease.Done()
				late := time.Since(lease.ValidUntil())
				require.ErrorIs(t, lease.Err(), redlock.ErrLost)
				require.Less(t, time.Since(killed), 2*maxTTL+5*time.Second)
				require.Less(t, late, 5*time.Second)
				t.Logf("the %s lease ended %v after the kill, %v after its validity", name, time.Since(killed).Round(time.Millisecond), late.Round(time.Microsecond))
			}
			for _, i := range living {
				require.Eventually(t, func() bool {
					left, _ := admin(t, cluster.Servers[i], "KEYS", "*held:*").([]any)
					free, _ := admin(t, cluster.Servers[i], "KEYS", "*free*").([]any)
					return len(left)+len(free) == 0
				}, 10*time.Second, 10*time.Millisecond)
			}
			t.Logf("nothing left at the living %v after the kill", time.Since(killed).Round(time.Millisecond))

			healed := time.Now()
			require.NoError(t, cluster.Restart(back == appended, dead...))
			started := time.Since(healed)
			var first time.Duration // the first grant after healed
			require.Eventually(t, func() bool {
				for _, x := range w.Holds() {
					if at := time.Duration(x.From - judge.At(healed)); at > 0 && (first == 0 || at < first) {
						first = at
					}
				}
				return first > 0
			}, 30*time.Second, 5*time.Millisecond)
			t.Logf("first grant %v after the members were started, which took %v", first.Round(time.Millisecond), started.Round(time.Millisecond))
			require.GreaterOrEqual(t, first, maxTTL-time.Millisecond, "three that may have forgotten do not make a majority")
			w.progress(t, 50)
			for _, c := range w.clients {
				voting(t, c, 5)
			}
			for _, i := range dead {
				rested(t, w.clients, i, healed)
			}
			lease, err := client.Mutex("held:renewed").Lock(t.Context())
			require.NoError(t, err)
			require.Greater(t, lease.Token(), held["renewed"].Token())
			require.NoError(t, lease.Unlock(t.Context()))
			r := w.end()
			r.safe(t, 100)
			require.NotEmpty(t, r.errs, "nobody noticed")
		})
	}
}

// All five are killed at once while leases are held, and come back. No lease of before overlaps one of
// after, whatever the members remember; tokens rise, by the servers' clocks where nobody remembers.
func TestAllMembersCrashUnderHolders(t *testing.T) {
	t.Parallel()
	ways, rounds := someWays(t, empty, saved, appended)
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, nil)
			for range rounds {
				d.goOn(t, "healthy")
				killed := time.Now()
				d.crashAll(t, w)
				d.goOn(t, "after")
				d.settled(t)
				for i := range d.cluster.Len() {
					d.rested(t, i, killed)
				}
				d.check(t)
				d.takeSnapshots(t)
			}
			d.end(t, 3*16*rounds)
			t.Log(d)
		})
	}
}

// someWays are the given ways and five rounds of each, or in make test a drawn one and one round.
func someWays(t testing.TB, ways ...way) (some []way, rounds int) {
	t.Helper()
	if long() {
		return ways, 5
	}
	k := seeded(t).IntN(len(ways))
	return ways[k : k+1], 1
}

// crashAll kills all members while a lease of the slow workload is held, and starts them at once.
func (d *deployment) crashAll(t testing.TB, w way) {
	t.Helper()
	if w == saved {
		d.ageSnapshots(t)
	}
	d.whileHeld(t, func() {
		d.cluster.Kill()
		var done sync.WaitGroup
		errs := make([]error, d.cluster.Len())
		for i := range errs {
			done.Go(func() { errs[i] = d.comeBack(i, w) })
		}
		done.Wait()
		require.NoError(t, errors.Join(errs...))
	})
}

// Restarts one after the other, quicker than quarantines end: sooner or later no majority is left that
// votes, so callers wait, but two never hold.
func TestRollingRestartFasterThanQuarantines(t *testing.T) {
	t.Parallel()
	ways, rounds := someWays(t, empty, saved, appended)
	for _, w := range ways {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, nil)
			for range rounds {
				d.goOn(t, "healthy")
				killed := time.Now()
				d.roll(t, w)
				began := time.Now()
				d.goOn(t, "after")
				t.Logf("everybody had a lock %v after the last restart", time.Since(began).Round(time.Millisecond))
				d.settled(t)
				for i := range d.cluster.Len() {
					d.rested(t, i, killed)
				}
				d.check(t)
				d.takeSnapshots(t)
			}
			d.end(t, 2*16*rounds)
		})
	}
}

// roll restarts all members one after the other without a pause, the first while a lease is held.
func (d *deployment) roll(t testing.TB, w way) {
	t.Helper()
	if w == saved {
		d.ageSnapshots(t)
	}
	d.whileHeld(t, func() {
		for i := range d.cluster.Len() {
			d.cluster.Kill(i)
			require.NoError(t, d.comeBack(i, w))
		}
	})
}

// As an operator should: the next member only when none is in quarantine. Work goes on all the time.
func TestFaultsRollingRestart(t *testing.T) {
	t.Parallel()
	for _, w := range []way{empty, appended, saved} {
		t.Run(w.String(), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, nil)
			for i := range 5 {
				d.survive(t, crash{members: []int{i}, ways: []way{w}})
			}
			d.end(t, 5*3*16)
			t.Log(d)
		})
	}
}

// forgetting is how all members forget their votes.
type forgetting struct {
	way     way
	rolling bool // one restarts after the other, instead of all at once
	flush   bool // FLUSHALL instead
}

func (x forgetting) String() string {
	switch {
	case x.flush:
		return "flushed"
	case x.rolling:
		return "one after the other " + x.way.String()
	}
	return "all at once " + x.way.String()
}

// All five forget a holder who lives on and believes in its lease. With the guard the next holder comes after
// the end of that lease, and with a greater token. Without it, the same crash makes two holders, and with an
// old snapshot tokens fall or are given out twice: it is the guard that prevents them.
func TestAllMembersForgetALivingHolder(t *testing.T) {
	t.Parallel()
	all := []forgetting{
		{way: empty}, {way: saved, rolling: true}, {flush: true},
		{way: empty, rolling: true}, {way: marked}, {way: marked, rolling: true}, {way: saved},
	}
	if !long() {
		all = all[:3]
	}
	for _, x := range all {
		t.Run(x.String(), func(t *testing.T) {
			t.Parallel()
			v := forgetHolder(t, redlock.Quarantine, 3*time.Second, x)
			require.True(t, v.Clean(), "%v", v)
		})
		if x.flush { // GuardOff, too, takes a member without a marker for one that forgot
			continue
		}
		t.Run(x.String()+", guard off", func(t *testing.T) {
			t.Parallel()
			if x.way == empty {
				x.way = marked // the same
			}
			v := forgetHolder(t, redlock.GuardOff, 10*time.Second, x)
			require.NotEmpty(t, v.Overlaps, "the crash did no harm: it proves nothing of the guard")
			require.Equal(t, x.way == saved, len(v.Regressions) > 0, "%v", v)
			t.Log(v)
		})
	}
}

// forgetHolder makes all members forget a holder with a lease of ttl, and returns how its tenure and that of
// the next holder lie. The lease outlives the restarts: where they take longer, all is tried again.
func forgetHolder(t *testing.T, guard redlock.RestartGuard, ttl time.Duration, x forgetting) judge.Verdict {
	t.Helper()
	const tries = 5
	cluster := servers(t, slices.Repeat([]redistest.RealConfig{{Persist: redistest.SavedOnly}}, 5)...)
	configure := func(c *redlock.Config) {
		c.TTL, c.MaxTTL, c.FreshMembers, c.RestartGuard = ttl, ttl, true, guard
		c.DialTimeout = 5 * time.Second
	}
	holder, _ := dialDirect(t, cluster, configure)
	rival, _ := dialDirect(t, cluster, configure)
	for try := 1; ; try++ {
		require.LessOrEqual(t, try, tries, "restarts take longer than leases")
		voting(t, holder, 5)
		voting(t, rival, 5)
		if x.way == saved {
			allVotes(t, holder, 5) // of the same slot: a counter, but no lease
		}
		if x.way == saved || x.way == marked && try == 1 {
			for i := range cluster.Len() {
				require.NoError(t, cluster.Real(i).Snapshot())
			}
		}
		remembered := uint64(0)
		if x.way == saved {
			remembered = highestCounter(t, cluster)
		}
		key := fmt.Sprintf("{probe}:%d", try)
		lease, err := holder.Mutex(key, redlock.TTL(ttl)).Lock(t.Context())
		require.NoError(t, err)
		// The snapshot must be old in tokens: the next holder may ask in vain while members start, and each time they
		// count on. (Nor are counters alike: they begin with their server's clocks.)
		for remembered > 0 && lease.Token() <= remembered+100 {
			require.NoError(t, lease.Unlock(t.Context()))
			lease, err = holder.Mutex(key, redlock.TTL(ttl)).Lock(t.Context())
			require.NoError(t, err)
		}
		first := tenure(1, lease)
		require.NoError(t, x.happen(cluster))
		left := time.Until(lease.ValidUntil())
		if left < ttl/4 {
			continue
		}
		next, err := rival.Mutex(key, redlock.TTL(ttl)).Lock(t.Context())
		require.NoError(t, err)
		second := tenure(2, next)
		t.Logf("all had forgotten %v before the end of the lease; the next holder came %v after it",
			left.Round(time.Millisecond), time.Duration(second.From-first.To).Round(time.Millisecond))
		require.Less(t, second.From, second.To)
		require.NoError(t, next.Unlock(t.Context()))
		return judge.Check([]judge.Hold{first, second})
	}
}

// highestCounter is the highest of all token counters of all members.
func highestCounter(t testing.TB, cluster *redistest.Cluster) (highest uint64) {
	t.Helper()
	for _, s := range cluster.Servers {
		counters, _ := admin(t, s, "HVALS", "redquorum:tokens").([]any)
		for _, c := range counters {
			n, err := strconv.ParseUint(fmt.Sprint(c), 10, 64)
			require.NoError(t, err)
			highest = max(highest, n)
		}
	}
	require.Positive(t, highest)
	return highest
}

// tenure is that of a lease just got which is believed to its end.
func tenure(client int, l *redlock.Lease) judge.Hold {
	return judge.Hold{
		Client: client, Key: l.Key(), Token: l.Token(),
		From: judge.Now(), To: judge.At(l.ValidUntil()),
	}
}

func (x forgetting) happen(cluster *redistest.Cluster) error {
	if x.flush {
		return cluster.Flush()
	}
	back := func(i int) error {
		if x.way == empty {
			return cluster.Real(i).Restart(false)
		}
		return cluster.Real(i).Rollback()
	}
	errs := make([]error, cluster.Len())
	if x.rolling {
		for i := range errs {
			errs[i] = back(i)
		}
		return errors.Join(errs...)
	}
	cluster.Kill()
	var done sync.WaitGroup
	for i := range errs {
		done.Go(func() { errs[i] = back(i) })
	}
	done.Wait()
	return errors.Join(errs...)
}

// FLUSHALL of a minority is noticed, and costs nobody anything. FLUSHALL of all members takes the leases
// from their holders, but gives them to nobody else before they have ended.
func TestFlushAllUnderHolders(t *testing.T) {
	t.Parallel()
	sets, rounds := [][]int{{0, 1, 2, 3, 4}}, 1
	if long() {
		sets, rounds = append(sets, []int{2}, []int{1, 3}), 5
	}
	for _, members := range sets {
		t.Run(fmt.Sprintf("of %d", len(members)), func(t *testing.T) {
			t.Parallel()
			d := deploy(t, nil)
			for range rounds {
				d.goOn(t, "healthy")
				marks := map[int]any{}
				for _, i := range members {
					marks[i] = admin(t, d.cluster.Servers[i], "HGET", "redquorum:boot", "id")
				}
				d.whileHeld(t, func() { require.NoError(t, d.cluster.Flush(members...)) })
				began := time.Now()
				d.goOn(t, "flushed")
				took := time.Since(began)
				for _, i := range members { // noticed, rested, and restored
					require.Eventually(t, func() bool {
						id := admin(t, d.cluster.Servers[i], "HGET", "redquorum:boot", "id")
						state := admin(t, d.cluster.Servers[i], "HGET", "redquorum:boot", "state")
						return id != nil && id != marks[i] && state == "w"
					}, 20*time.Second, 5*time.Millisecond)
				}
				d.settled(t)
				d.check(t)
				t.Logf("everybody had a lock within %v, all members vote again after %v",
					took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
			}
			d.end(t, 2*16*rounds)
		})
	}
}

// A member restarts while very many leases are held: none is lost, and the member has all of them again
// when its quarantine is over.
func TestManyLeasesLiveThroughARestart(t *testing.T) {
	t.Parallel()
	leasesLiveThrough(t, 300, 3*time.Second, false, false)
}

// Nor does the client grow.
func TestFaultsTenThousandLeasesLiveThroughARestart(t *testing.T) {
	leasesLiveThrough(t, 10_000, 30*time.Second, true, true, false)
}

// leasesLiveThrough restarts a member under n leases once for each of keeps, with its memory or without. alone:
// nothing else runs in the process, so that its goroutines and its memory say something.
func leasesLiveThrough(t *testing.T, n int, ttl time.Duration, alone bool, keeps ...bool) {
	cluster := rt.Real(t, 5)
	var clients []*redlock.Client
	for range 4 {
		c, _ := dialDirect(t, cluster, func(c *redlock.Config) {
			c.TTL, c.MaxTTL, c.FreshMembers = ttl, ttl, true
			// It is about how many there are, not how fast that goes on a busy machine.
			c.MemberTimeout, c.StallTimeout, c.DialTimeout = 2*time.Second, 5*time.Second, 5*time.Second
		})
		clients = append(clients, c)
	}
	for _, c := range clients {
		voting(t, c, 5)
	}
	leases := make([]*redlock.Lease, n)
	began := time.Now()
	parallel(t, leases, func(i int, l **redlock.Lease) error {
		var err error
		*l, err = clients[i%len(clients)].Mutex("lease:" + strconv.Itoa(i)).Lock(t.Context())
		return err
	})
	t.Logf("%d leases of %v after %v", n, ttl, time.Since(began).Round(time.Millisecond))
	whole := func() bool {
		for _, l := range leases {
			if l.Votes() < 5 {
				return false
			}
		}
		for _, s := range cluster.Servers {
			if keys, _ := admin(t, s, "DBSIZE").(int64); int(keys) < n {
				return false
			}
		}
		return true
	}
	require.Eventually(t, whole, 4*ttl, 20*time.Millisecond)
	goroutines, heap := footprint()
	for _, keep := range keeps {
		began = time.Now()
		require.NoError(t, cluster.Restart(keep, 1))
		t.Logf("restarted after %v", time.Since(began).Round(time.Millisecond))
		// What it comes back with must be older than what is asked for below.
		for _, c := range clients {
			require.Eventually(t, func() bool { return c.Members()[1].State != redlock.MemberVoting }, 20*time.Second, time.Millisecond)
		}
		for _, c := range clients {
			votingWithin(t, c, 5, ttl+30*time.Second)
		}
		require.GreaterOrEqual(t, time.Since(began), ttl)
		rested := time.Since(began)
		require.Eventually(t, whole, 4*ttl, 20*time.Millisecond, "not all leases have all votes again")
		for i, l := range leases {
			require.NoError(t, l.Err(), "lease %d", i)
		}
		t.Logf("memory kept %v: the member votes after %v, and has all leases after %v",
			keep, rested.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		if alone {
			goroutinesNow, heapNow := footprint()
			t.Logf("%d goroutines, %d before; heap %d KiB, %d before", goroutinesNow, goroutines, heapNow>>10, heap>>10)
			require.LessOrEqual(t, goroutinesNow, goroutines+20)
			require.LessOrEqual(t, heapNow, heap+heap/4+(8<<20))
		}
	}
	parallel(t, leases, func(_ int, l **redlock.Lease) error {
		err := (*l).Unlock(context.Background())
		if errors.Is(err, redlock.ErrInDoubt) { // a busy machine did not answer in time, but will have executed it
			return nil
		}
		return err
	})
	nothingLeft(t, cluster)
}
