package redquorum_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Spin visits every schedule of docs/spec/mutex.pml, and finds a counter-example for each of its mutants. Three minutes.
func TestLongSpecHoldsAndItsMutantsAreFound(t *testing.T) {
	if os.Getenv("REDQUORUM_LONG") == "" {
		t.Skip("takes minutes: make spec, or make test-long PKG=.")
	}
	for _, program := range []string{"spin", "gcc", "bash"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("no %s (Debian: apt-get install spin gcc)", program)
		}
	}
	out, err := exec.CommandContext(t.Context(), "bash", filepath.Join("docs", "spec", "check")).CombinedOutput()
	t.Logf("%s", out)
	require.NoError(t, err)
}
