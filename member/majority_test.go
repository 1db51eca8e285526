package member

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMajoritiesShareAVoter(t *testing.T) {
	for n := 1; n <= 100; n++ {
		require.Greater(t, 2*Majority(n), n, "two majorities of %d must meet", n)
		require.LessOrEqual(t, Majority(n), n)
		require.LessOrEqual(t, 2*(Majority(n)-1), n, "%d: no more than needed", n)
	}
}
