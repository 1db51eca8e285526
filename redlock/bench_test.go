package redlock_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// go test -run '^$' -bench LockUnlock -benchmem -count 10 ./redlock | tee new.txt && benchstat old.txt new.txt
func BenchmarkLockUnlock(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("members=%d/callers=%d", n, callers), func(b *testing.B) {
				c := redlock.OpenAll(b, rt.Real(b, n))
				names := make([]string, 1000)
				for i := range names {
					names[i] = fmt.Sprintf("warm:%d", i)
				}
				var next atomic.Int64
				cycle := func() {
					l, err := c.Mutex(names[next.Add(1)%int64(len(names))]).Lock(b.Context())
					if err == nil {
						err = l.Unlock(b.Context())
					}
					if err != nil {
						b.Error(err)
					}
				}
				for range 2 * len(names) {
					cycle()
				}
				b.ReportAllocs()
				b.ResetTimer()
				if callers == 1 {
					for b.Loop() {
						cycle()
					}
					return
				}
				b.SetParallelism(callers / 2)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						cycle()
					}
				})
			})
		}
	}
}
