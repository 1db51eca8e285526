package redlock_test

import (
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

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
				yes := make([]*redlock.Yes, n)
				members := make([]member.Member, n)
				for i := range yes {
					yes[i] = &redlock.Yes{}
					members[i] = yes[i]
				}
				c, err := redlock.New(members)
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = c.Close() })
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
