package faults

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

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
