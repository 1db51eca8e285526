// Package faketime runs tests in fake time.
package faketime

import (
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test, on one processor where the race detector is on. All timers of a bubble share one race context, so
// that two of them that run at the same moment on two processors crash the detector (golang.org/issue/78156, Go 1.26).
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if Race {
		alone(+1)
		defer alone(-1)
	}
	synctest.Test(t, test)
}

// In is Test for t.Run.
func In(test func(t *testing.T)) func(t *testing.T) { return func(t *testing.T) { Test(t, test) } }

var (
	mu     sync.Mutex
	inside int // tests in fake time now: several may be parallel
	before int // processors, when there was none
)

func alone(more int) {
	mu.Lock()
	defer mu.Unlock()
	if inside == 0 {
		before = runtime.GOMAXPROCS(1)
	}
	if inside += more; inside == 0 {
		runtime.GOMAXPROCS(before)
	}
}
