package faults

import (
	"testing"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// Without a fault the workload must come out clean, and quick enough to mean something.
func TestNothingBroken(t *testing.T) {
	w := start(t, rt.Real(t, 5), terms{})
	w.progress(t, 300)
	r := w.end()
	r.safe(t, 300)
}
