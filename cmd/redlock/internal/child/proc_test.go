package child

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Without job control there is no run: it says so before it takes the lock, and says what else there is.
func TestSystemsWithoutJobControlRunNothing(t *testing.T) {
	for _, system := range []string{"windows", "plan9"} {
		err := supports(system)
		assert.ErrorIs(t, err, ErrNotRunnable)
		assert.ErrorContains(t, err, "on "+system)
		assert.ErrorContains(t, err, "redlock hold")
	}
	for _, system := range []string{"linux", "darwin", "freebsd", runtime.GOOS} {
		assert.NoError(t, supports(system), system)
	}
}
