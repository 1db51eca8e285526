package clock

import (
	"math"
	"time"
)

const (
	// DefaultDrift is the share of a TTL that is given up, because clocks disagree on the length of
	// a second. It covers a client and a server whose clocks each run up to half of it, 0.5 %, fast
	// or slow. Quartz clocks stay within 0.01 %, and ntpd slews by at most 0.05 %. chronyd may slew
	// by 8.3 % unless its maxslewrate is lowered to 5000 (parts per million) or less.
	DefaultDrift = 0.01

	// delta is given up in addition, whatever the TTL. One millisecond is for Redis. It expires
	// keys by a clock cut off to whole milliseconds, so a key may end up to 1 ms early. The other
	// is the least drift, for short TTLs. Source: the reference implementation,
	// github.com/antirez/redlock-rb.
	delta = 2 * time.Millisecond
)

// Drift returns what a lease of length ttl gives up to clock drift: ttl*factor, rounded up to a
// whole nanosecond, plus delta.
//
// A factor of zero or less gives up only delta. A factor of 1 or more, or NaN, gives up the whole
// TTL. A ttl of zero or less counts as zero. Drift computes the share in float64. Its error is
// below a nanosecond for TTLs under 100 days, and below 2^-52 of the TTL for all. The result stops
// at the largest time.Duration.
func Drift(ttl time.Duration, factor float64) time.Duration {
	given := share(ttl, factor)
	if given > math.MaxInt64-delta {
		return math.MaxInt64
	}
	return given + delta
}

// Validity returns how long a lease of length ttl may be trusted: ttl - ttl*factor - delta, rounded
// down. The time counts from the moment before its request was sent. The bounds of Drift apply.
//
// If drift leaves nothing, the result is zero or negative. That is so for a TTL of 2 ms or less,
// and for any TTL at a factor of 1. Such a lease must not be used, not even for an instant.
func Validity(ttl time.Duration, factor float64) time.Duration {
	return max(ttl, 0) - share(ttl, factor) - delta
}

// share returns ttl*factor, rounded up, in 0..ttl.
func share(ttl time.Duration, factor float64) time.Duration {
	switch {
	case ttl <= 0 || factor <= 0:
		return 0
	case factor < 1: // false for NaN
		if part := math.Ceil(float64(ttl) * factor); part < float64(ttl) {
			return time.Duration(part)
		}
	}
	return ttl
}
