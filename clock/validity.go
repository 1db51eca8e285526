package clock

import (
	"math"
	"time"
)

const (
	// DefaultDrift is the share of a TTL that is given up, for a client and a server whose clocks each run up to half of it, 0.5 %,
	// fast or slow. Quartz clocks stay within 0.01 %, and ntpd slews by at most 0.05 %. chronyd may slew by 8.3 % unless its
	// maxslewrate is lowered to 5000 (parts per million) or less.
	DefaultDrift = 0.01

	// delta is given up besides. One millisecond is for Redis, which expires keys by a clock cut off to whole milliseconds. The
	// other is the least drift, for short TTLs, as in github.com/antirez/redlock-rb.
	delta = 2 * time.Millisecond
)

// Validity returns how long a lease of length ttl may be trusted: ttl - ttl*factor - delta, rounded down. The time counts
// from the moment before its request was sent.
// If drift leaves nothing, the result is zero or negative, and such a lease must not be used, not even for an instant.
func Validity(ttl time.Duration, factor float64) time.Duration {
	return max(ttl, 0) - share(ttl, factor) - delta
}

// Drift is what a lease of length ttl gives up to drift: ttl*factor, rounded up, and delta.
func Drift(ttl time.Duration, factor float64) time.Duration { return share(ttl, factor) + delta }

// share returns ttl*factor, rounded up, in 0..ttl: nothing for a factor of zero or less, and all for one of 1 or more, or NaN. It
// is computed in float64, whose error is below a nanosecond for TTLs under 100 days, and below 2^-52 of the TTL for all.
func share(ttl time.Duration, factor float64) time.Duration {
	switch {
	case ttl <= 0 || factor <= 0:
		return 0
	case factor < 1:
		return min(ttl, time.Duration(math.Ceil(float64(ttl)*factor)))
	}
	return ttl
}
