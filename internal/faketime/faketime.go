// Package faketime runs tests in fake time.
package faketime

import (
	"runtime"
	"testing"
	"testing/synctest"
)

// Test is synctest.Test, on one processor where the race detector is on. All timers of a bubble share one race context, so
// that two of them that run at the same moment on two processors crash the detector (golang.org/issue/78156, Go 1.26).
func Test(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if Race {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, test)
}
