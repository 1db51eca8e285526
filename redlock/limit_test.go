package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock/internal/script"
)

func TestVersionOfALimitIsAboveThoseBeforeAndNotBehindTheClocks(t *testing.T) {
	const second, hour, tick = int64(1e6), int64(3600e6), int64(1e4)
	now := time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	at, us := now.Unix()*100, now.UnixMicro()
	heard := func(version int64) int64 { return script.StoredLimit(version, 7) }
	for _, c := range []struct {
		name   string
		heard  int64
		clocks []int64
		want   int64
	}{
		{"the first, at members that tell no time", 0, []int64{0, 0, 0}, 1},
		{"the first", 0, []int64{us, us, us}, at},
		{"members that did not answer", 0, []int64{0, us, 0}, at},
		{"the greatest clock", 0, []int64{us - 5*second, us + 3*second, us}, at + 300},
		{"a part of a hundredth", 0, []int64{us + tick - 1}, at},
		{"after one of another moment", heard(at - 9), []int64{us, us}, at},
		{"after one of this moment", heard(at), []int64{us, us}, at + 1},
		{"after many of this moment", heard(at + 99), []int64{us, us}, at + 100},
		{"after the end of a limit", script.StoredLimit(at, script.NoLimit), []int64{us, us}, at + 1},
		{"clocks that went back", heard(at), []int64{us - hour, us - hour}, at + 1},
		{"one from before versions had a time", heard(5), []int64{us}, at},
		{"the bound of a clock", 0, []int64{us, us + hour}, at + 360000},
		{"a clock beyond it is wrong, and the others count", 0, []int64{us + second, us + hour + 1, us}, at + 100},
		{"no clock within it", heard(5), []int64{us + 2*hour, us + 3*hour}, 6},
		{"a clock that would be beyond what members count exactly", heard(5), []int64{int64(1) << 40 * tick}, 6},
	} {
		got := laterLimit(c.heard, c.clocks, now)
		require.Equal(t, c.want, got, c.name)
		require.Greater(t, script.StoredLimit(got, 0), c.heard, c.name)
		require.Less(t, script.StoredLimit(got, script.NoLimit), int64(1)<<53, c.name)
	}
}

// Members and clients write a stored limit as a number, in scripts that have doubles for it.
func TestVersionsOfLimitsAreExactUntilTheYear2318(t *testing.T) {
	last := time.Date(2318, 1, 1, 0, 0, 0, 0, time.UTC)
	stored := script.StoredLimit(laterLimit(0, []int64{last.UnixMicro()}, last), script.NoLimit)
	require.Less(t, stored, int64(1)<<53)
	require.Equal(t, stored, int64(float64(stored)))
	beyond := time.Date(2319, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Greater(t, script.StoredLimit(laterLimit(0, []int64{beyond.UnixMicro()}, beyond), 0), int64(1)<<53)
}
