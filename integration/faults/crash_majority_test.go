package faults

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// way is what a killed member comes back with.
type way uint8

const (
	empty  way = iota // nothing
	saved             // an RDB snapshot some seconds old
	marked            // nothing but the marker of the former process: empty, but GuardOff believes it
)

func (w way) String() string {
	return [...]string{"empty", "with an old RDB", "with a marker alone"}[w]
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
func TestFaultsAllMembersForgetALivingHolder(t *testing.T) {
	faulty(t)
	for _, x := range []forgetting{
		{way: empty}, {way: saved, rolling: true}, {flush: true},
		{way: empty, rolling: true}, {way: marked}, {way: marked, rolling: true}, {way: saved},
	} {
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
	cluster := rt.RealWith(t, 5, redistest.RealConfig{Persist: redistest.SavedOnly})
	configure := func(c *redlock.Config) {
		c.TTL, c.MaxTTL, c.FreshMembers, c.RestartGuard = ttl, ttl, true, guard
		c.DialTimeout = 5 * time.Second
	}
	holder := open(t, cluster, configure)
	rival := open(t, cluster, configure)
	for try := 1; ; try++ {
		require.LessOrEqual(t, try, tries, "restarts take longer than leases")
		voting(t, holder, 5, 30*time.Second)
		voting(t, rival, 5, 30*time.Second)
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
		lease := rt.Must(holder.Mutex(key, redlock.TTL(ttl)).Lock(t.Context()))(t)
		// The snapshot must be old in tokens: the next holder may ask in vain while members start, and each time they
		// count on. (Nor are counters alike: they begin with their server's clocks.)
		for remembered > 0 && lease.Token() <= remembered+100 {
			require.NoError(t, lease.Unlock(t.Context()))
			lease = rt.Must(holder.Mutex(key, redlock.TTL(ttl)).Lock(t.Context()))(t)
		}
		first := tenure(1, lease)
		require.NoError(t, x.happen(cluster))
		left := time.Until(lease.ValidUntil())
		if left < ttl/4 {
			continue
		}
		next := rt.Must(rival.Mutex(key, redlock.TTL(ttl)).Lock(t.Context()))(t)
		second := tenure(2, next)
		t.Logf("all had forgotten %v before the end of the lease; the next holder came %v after it",
			left.Round(time.Millisecond), time.Duration(second.From-first.To).Round(time.Millisecond))
		require.Less(t, second.From, second.To)
		require.NoError(t, next.Unlock(t.Context()))
		v := judge.Check([]judge.Hold{first, second})
		if !v.Clean() && guard != redlock.GuardOff {
			t.Log(judge.Leave(judge.Timeline(t.Name(), []judge.Hold{first, second}, v)))
		}
		return v
	}
}

// allVotes waits until a lease of a name of its own has the votes of n members.
func allVotes(t testing.TB, c *redlock.Client, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		lease, err := c.Mutex("probe").Lock(t.Context())
		if err != nil {
			return false
		}
		defer func() { _ = lease.Unlock(context.WithoutCancel(t.Context())) }()
		for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); time.Sleep(time.Millisecond) {
			if lease.Votes() == n { // the last votes come after the decision
				return true
			}
		}
		return false
	}, 20*time.Second, 5*time.Millisecond)
}

// highestCounter is the highest of all token counters of all members.
func highestCounter(t testing.TB, cluster *redistest.Cluster) (highest uint64) {
	t.Helper()
	for _, s := range cluster.Servers {
		counters, _ := admin(t, s, "HVALS", "redquorum:tokens").([]any)
		for _, c := range counters {
			n := rt.Must(strconv.ParseUint(fmt.Sprint(c), 10, 64))(t)
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

// A member restarts while very many leases are held: none is lost, and the member has all of them again when its
// quarantine is over. Nor does the client grow.
func TestFaultsTenThousandLeasesLiveThroughARestart(t *testing.T) {
	faulty(t)
	const n, ttl = 10_000, 30 * time.Second
	cluster := rt.Real(t, 5)
	var clients []*redlock.Client
	for range 4 {
		c := open(t, cluster, func(c *redlock.Config) {
			c.TTL, c.MaxTTL, c.FreshMembers = ttl, ttl, true
			// It is about how many there are, not how fast that goes on a busy machine.
			c.MemberTimeout, c.StallTimeout, c.DialTimeout = 2*time.Second, 5*time.Second, 5*time.Second
		})
		clients = append(clients, c)
	}
	for _, c := range clients {
		voting(t, c, 5, 30*time.Second)
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
	for _, keep := range []bool{true, false} { // with its memory or without
		began = time.Now()
		require.NoError(t, cluster.Restart(keep, 1))
		t.Logf("restarted after %v", time.Since(began).Round(time.Millisecond))
		// What it comes back with must be older than what is asked for below.
		for _, c := range clients {
			require.Eventually(t, func() bool { return c.Members()[1].State != redlock.MemberVoting }, 20*time.Second, time.Millisecond)
		}
		for _, c := range clients {
			voting(t, c, 5, ttl+30*time.Second)
		}
		require.GreaterOrEqual(t, time.Since(began), ttl)
		rested := time.Since(began)
		require.Eventually(t, whole, 4*ttl, 20*time.Millisecond, "not all leases have all votes again")
		for i, l := range leases {
			require.NoError(t, l.Err(), "lease %d", i)
		}
		t.Logf("memory kept %v: the member votes after %v, and has all leases after %v",
			keep, rested.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
		goroutinesNow, heapNow := footprint()
		t.Logf("%d goroutines, %d before; heap %d KiB, %d before", goroutinesNow, goroutines, heapNow>>10, heap>>10)
		require.LessOrEqual(t, goroutinesNow, goroutines+20)
		require.LessOrEqual(t, heapNow, heap+heap/4+(8<<20))
	}
	parallel(t, leases, func(_ int, l **redlock.Lease) error {
		err := (*l).Unlock(context.Background())
		if errors.Is(err, redlock.ErrInDoubt) { // a busy machine did not answer in time, but will have executed it
			return nil
		}
		return err
	})
	var left []string
	require.Eventually(t, func() bool {
		var err error
		left, err = cluster.Leftovers(context.Background(), lasting...)
		return err == nil && len(left) == 0
	}, 10*time.Second, 20*time.Millisecond, "left behind: %v", &left)
}

// parallel calls f for each element, 32 at a time, and fails the test with the first error.
func parallel[T any](t testing.TB, all []T, f func(i int, x *T) error) {
	t.Helper()
	errs := make([]error, len(all))
	var next atomic.Int64
	var done sync.WaitGroup
	for range 32 {
		done.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(all); i = int(next.Add(1)) - 1 {
				errs[i] = f(i, &all[i])
			}
		})
	}
	done.Wait()
	for i, err := range errs {
		require.NoError(t, err, "%d", i)
	}
}

// footprint counts goroutines and the bytes that are in use.
func footprint() (goroutines int, heap uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}
