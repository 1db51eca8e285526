package clock_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
)

const delta = 2 * time.Millisecond

func TestValidityIsTheTTLWithoutDrift(t *testing.T) {
	nan := math.NaN()
	for _, tc := range []struct {
		ttl    time.Duration
		factor float64
		want   time.Duration
	}{
		{10 * time.Second, clock.DefaultDrift, 9898 * time.Millisecond},
		{30 * time.Second, clock.DefaultDrift, 29698 * time.Millisecond},
		{10 * time.Second, 0, 9998 * time.Millisecond},
		{10 * time.Second, 0.5, 4998 * time.Millisecond},
		{time.Second + 1, 0.5, 500*time.Millisecond - delta}, // half a nanosecond is given up
		{3 * time.Millisecond, clock.DefaultDrift, 970 * time.Microsecond},

		// Nothing is left.
		{2 * time.Millisecond, 0, 0},
		{2 * time.Millisecond, clock.DefaultDrift, -20 * time.Microsecond},
		{time.Millisecond, clock.DefaultDrift, -1010 * time.Microsecond},
		{0, clock.DefaultDrift, -delta},
		{-time.Hour, clock.DefaultDrift, -delta},
		{math.MinInt64, clock.DefaultDrift, -delta},

		// Factors that make no sense never lengthen a lease beyond its TTL.
		{10 * time.Second, -1, 9998 * time.Millisecond},
		{10 * time.Second, math.Inf(-1), 9998 * time.Millisecond},
		{10 * time.Second, 1, -delta},
		{10 * time.Second, 7, -delta},
		{10 * time.Second, math.Inf(1), -delta},
		{10 * time.Second, nan, -delta},
		{math.MaxInt64, 1, -delta},
		{math.MaxInt64, math.Nextafter(1, 0), 1023 - delta}, // the grain of float64 up there
	} {
		assert.Equal(t, tc.want, clock.Validity(tc.ttl, tc.factor), "ttl %v factor %v", tc.ttl, tc.factor)
	}
}

func TestDriftAndValidityMakeUpTheTTL(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	for range 10_000 {
		ttl := time.Duration(rng.Int64N(int64(48 * time.Hour)))
		factor := rng.Float64()
		require.Equal(t, ttl, clock.Drift(ttl, factor)+clock.Validity(ttl, factor), "ttl %v factor %v", ttl, factor)
	}
	assert.Equal(t, delta, clock.Drift(-time.Second, 0.01))
}

// Rational arithmetic is the second implementation: the share is given up whole, and at most the
// nanosecond of rounding more.
func TestDriftIsRoundedUp(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 2))
	for range 20_000 {
		ttl := time.Duration(rng.Int64N(int64(100 * 24 * time.Hour)))
		factor := rng.Float64()
		exact := new(big.Rat).Mul(new(big.Rat).SetInt64(int64(ttl)), new(big.Rat).SetFloat64(factor))
		given := new(big.Rat).SetInt64(int64(clock.Drift(ttl, factor) - delta))
		over, _ := given.Sub(given, exact).Float64()
		require.Greater(t, over, -1.0, "ttl %v factor %v", ttl, factor)
		require.Less(t, over, 2.0, "ttl %v factor %v", ttl, factor)
	}
}

func FuzzValidityNeverExceedsTheTTL(f *testing.F) {
	f.Add(int64(10*time.Second), 0.01)
	f.Add(int64(math.MaxInt64), math.Nextafter(1, 0))
	f.Add(int64(math.MinInt64), math.NaN())
	f.Fuzz(func(t *testing.T, ttl int64, factor float64) {
		valid := clock.Validity(time.Duration(ttl), factor)
		assert.LessOrEqual(t, valid, max(time.Duration(ttl), 0)-delta)
		assert.GreaterOrEqual(t, valid, -delta)
	})
}
