package faults

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// faulty skips a test unless faults are to be played: they take real time, in which a busy machine can be late. whole says
// whether the random application is to be played for long.
func faulty(t testing.TB) (whole bool) {
	t.Helper()
	faults := os.Getenv("REDQUORUM_FAULTS")
	if faults == "" {
		t.Skip("FAULTS: make test-faults sets REDQUORUM_FAULTS and plays it")
	}
	return faults == "all"
}

// seeded is a source of random faults. The seed is told, and REDQUORUM_SEED replays it.
func seeded(t testing.TB) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("REDQUORUM_SEED"); text != "" {
		seed = rt.Must(strconv.ParseUint(text, 10, 64))(t)
	}
	t.Logf("REDQUORUM_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 4))
}

func open(t testing.TB, cluster *redistest.Cluster, configure func(*redlock.Config)) *redlock.Client {
	t.Helper()
	var config redlock.Config
	configure(&config)
	c := rt.Must(redlock.Open(t.Context(), cluster.URLs(), config))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func voting(t testing.TB, c *redlock.Client, n int, patience time.Duration) {
	t.Helper()
	require.Eventually(t, func() bool {
		there := 0
		for _, m := range c.Members() {
			if m.State == redlock.MemberVoting {
				there++
			}
		}
		return there >= n
	}, patience, 2*time.Millisecond, "members: %v", later{c})
}

// later prints the members as they are when it is printed.
type later struct{ c *redlock.Client }

func (l later) String() string { return fmt.Sprint(l.c.Members()) }

var lasting = []string{"redquorum:tokens", "redquorum:boot", "redquorum:quarantine"}

// admin executes a command at a member, beside all paths.
func admin(t testing.TB, s redistest.Server, args ...string) any {
	t.Helper()
	v, err := s.Do(context.Background(), args...)
	require.NoError(t, err, "%v", args)
	return v
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

func footprint() (goroutines int, heap uint64) {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return runtime.NumGoroutine(), m.HeapAlloc
}
