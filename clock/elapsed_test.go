package clock_test

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
)

// split returns base moved by mono on the monotonic and by wall on the wall clock: what time.Now would
// return after a suspend, or after somebody set the clock. No function of package time makes such a
// value, so the monotonic reading, the second word of time.Time, is changed in place; the assertions
// notice if that layout ever changes.
func split(t testing.TB, base time.Time, mono, wall time.Duration) time.Time {
	t.Helper()
	moved := base.Add(wall)
	*(*int64)(unsafe.Add(unsafe.Pointer(&moved), 8)) += int64(mono - wall)
	require.Equal(t, mono, moved.Sub(base), "monotonic reading")
	require.Equal(t, wall, moved.Round(0).Sub(base.Round(0)), "wall clock")
	return moved
}

func TestElapsedIsWhatTheFasterClockSays(t *testing.T) {
	base := time.Now()
	bare := base.Round(0)
	for _, tc := range []struct {
		name       string
		since, now time.Time
		want       time.Duration
	}{
		{"both agree", base, base.Add(time.Second), time.Second},
		{"nothing passed", base, base, 0},
		{"suspended for an hour", base, split(t, base, time.Second, time.Hour), time.Hour},
		{"wall clock set back an hour", base, split(t, base, time.Second, -time.Hour), time.Second},
		{"wall clock set forward an hour", base, split(t, base, time.Second, time.Hour), time.Hour},
		{"now before since", base.Add(time.Second), base, -time.Second},
		{"since has no monotonic reading", bare, split(t, base, time.Second, time.Minute), time.Minute},
		{"now has no monotonic reading", base, bare.Add(time.Minute), time.Minute},
		{"neither has one, clock set back", bare, bare.Add(-time.Minute), -time.Minute},
		{"zero times", time.Time{}, time.Time{}, 0},
		{"longer than a duration", time.Time{}, base, math.MaxInt64},
		{"as long as a duration", bare, bare.Add(math.MaxInt64), math.MaxInt64},
		{"272 years and a nanosecond", bare, bare.Add(1<<33*time.Second + 1), 1<<33*time.Second + 1},
		{"272 years less a nanosecond", bare, bare.Add(1<<33*time.Second - 1), 1<<33*time.Second - 1},
	} {
		assert.Equal(t, tc.want, clock.Elapsed(tc.since, tc.now), tc.name)
	}
}

func TestUntilIsWhatTheFasterClockLeaves(t *testing.T) {
	base := time.Now()
	deadline := base.Add(10 * time.Second)
	for _, tc := range []struct {
		name          string
		deadline, now time.Time
		want          time.Duration
	}{
		{"both agree", deadline, base.Add(time.Second), 9 * time.Second},
		{"reached", deadline, deadline, 0},
		{"over", deadline, base.Add(11 * time.Second), -time.Second},
		{"suspended for an hour", deadline, split(t, base, time.Second, time.Hour), 10*time.Second - time.Hour},
		{"wall clock set back an hour", deadline, split(t, base, time.Second, -time.Hour), 9 * time.Second},
		{"deadline has no monotonic reading", deadline.Round(0), split(t, base, time.Second, 2*time.Second), 8 * time.Second},
		{"now has no monotonic reading", deadline, base.Round(0).Add(3 * time.Second), 7 * time.Second},
		{"zero deadline", time.Time{}, base, math.MinInt64},
	} {
		assert.Equal(t, tc.want, clock.Until(tc.deadline, tc.now), tc.name)
	}
}

func TestElapsedAndUntilAddUp(t *testing.T) {
	base := time.Now()
	for _, mono := range []time.Duration{0, time.Millisecond, time.Minute} {
		for _, wall := range []time.Duration{-time.Hour, 0, time.Millisecond, time.Minute, time.Hour} {
			now := split(t, base, mono, wall)
			assert.Equal(t, time.Hour, clock.Elapsed(base, now)+clock.Until(base.Add(time.Hour), now), "mono %v wall %v", mono, wall)
		}
	}
}

func TestReadingTheClocksDoesNotAllocate(t *testing.T) {
	since := time.Now()
	now := since.Add(time.Second)
	anchor := clock.Anchor{Sent: since}
	var sum time.Duration
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		sum += clock.Elapsed(since, now) + clock.Until(now, since) + clock.Validity(time.Second, clock.DefaultDrift)
		start, _ := anchor.Start(500_000, now, clock.DefaultDrift)
		sum += now.Sub(start)
	}))
	_ = sum
}
