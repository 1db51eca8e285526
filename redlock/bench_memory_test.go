//go:build !race

package redlock_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// What the library itself costs, without servers and without sockets, for counting instructions:
// see bench/README.md.
//
//   - alone: one caller, names that nobody else wants
//   - one: 64 callers, one name
func BenchmarkInMemory(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		for _, how := range []struct {
			name           string
			callers, names int
		}{{"alone", 1, 50}, {"one", 64, 1}} {
			b.Run(fmt.Sprintf("members=%d/%s", n, how.name), func(b *testing.B) {
				c, yes := agreed(b, n)
				run := func(ops int) {
					var next atomic.Int64
					var all sync.WaitGroup
					for range how.callers {
						all.Go(func() {
							for k := int(next.Add(1)); k <= ops; k = int(next.Add(1)) {
								l, err := c.Mutex("warm:" + strconv.Itoa(k%how.names)).Lock(b.Context())
								if err == nil {
									err = l.Unlock(b.Context())
								}
								if err != nil {
									b.Error(err)
								}
							}
						})
					}
					all.Wait()
				}
				run(200)
				before := yes[0].Called(script.Acquire)
				b.ReportAllocs()
				b.ResetTimer()
				run(b.N)
				b.StopTimer()
				b.ReportMetric(float64(yes[0].Called(script.Acquire)-before)/float64(b.N), "acquire/op")
			})
		}
	}
}

// agreed is a client of n members that agree to everything.
func agreed(tb testing.TB, n int) (*redlock.Client, []*redlock.Yes) {
	yes, members := make([]*redlock.Yes, n), make([]member.Member, n)
	for i := range yes {
		yes[i] = &redlock.Yes{}
		members[i] = yes[i]
	}
	c, err := redlock.New(members)
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c, yes
}

// They are the Mutex, the attempt, the lease and its owner. Each of the members here takes four itself.
func TestLockAndUnlockTakeFourAllocations(t *testing.T) {
	for _, n := range []int{1, 5} {
		c, _ := agreed(t, n)
		took := testing.AllocsPerRun(1000, func() {
			l, err := c.Mutex("k", redlock.TTL(9*time.Second)).Lock(t.Context())
			require.NoError(t, err)
			require.NoError(t, l.Unlock(t.Context()))
		})
		require.LessOrEqual(t, took, 4+4*float64(n))
	}
}
