package faults

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
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

// whileHeld calls f at a moment when a client of the slow workload has just got its lock.
func (d *deployment) whileHeld(t testing.TB, f func()) {
	t.Helper()
	for {
		var lease *redlock.Lease
		select {
		case lease = <-d.granted:
		case <-time.After(30 * time.Second):
			t.Fatal("nobody gets the slow lock")
		}
		if left := time.Until(lease.ValidUntil()); lease.Err() == nil && left > maxTTL/2 {
			f()
			return
		}
	}
}
