package redlock_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Sets of names that nobody else wants, beside as many locks one after the other.
//
// go test -run '^$' -bench Sets -count 10 ./redlock | tee new.txt && benchstat new.txt
func BenchmarkSets(b *testing.B) {
	c := redlock.OpenAll(b, rt.Real(b, 3))
	ctx := b.Context()
	for _, size := range []int{1, 2, 4, 8, 16} {
		names := make([]string, size)
		for i := range names {
			names[i] = fmt.Sprintf("set:%d", i)
		}
		for how, cycle := range map[string]func() error{
			"together": func() error {
				leases, err := c.Multi(names).Lock(ctx)
				if err != nil {
					return err
				}
				return leases.Unlock(ctx)
			},
			"one by one": func() error {
				var all []*redlock.Lease
				for _, name := range names {
					l, err := c.Mutex(name).Lock(ctx)
					if err != nil {
						return err
					}
					all = append(all, l)
				}
				for _, l := range all {
					if err := l.Unlock(ctx); err != nil {
						return err
					}
				}
				return nil
			},
		} {
			b.Run(fmt.Sprintf("names=%d/%s", size, how), func(b *testing.B) {
				for b.Loop() {
					if err := cycle(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

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
