package clock

import "time"

// Elapsed returns the time from since to now: the larger of what the monotonic and what the wall clock
// say, so that neither a suspend nor a wall clock set back hides time that has passed. If either value
// has no monotonic reading, the wall clock decides alone. The result is negative if now is before
// since on both clocks, and stops at the ends of the range of time.Duration. It does not allocate.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), between(since, now))
}

// Until returns the time that is left from now to deadline: the smaller of what the monotonic and what
// the wall clock say. It is zero or negative once either has reached the deadline. The deadline must
// have been computed by Add from a time of the same process, which moves both readings; one without a
// monotonic reading is judged by the wall clock alone. It does not allocate.
func Until(deadline, now time.Time) time.Duration {
	return min(deadline.Sub(now), between(now, deadline))
}

// between is the time from a to b on the wall clock.
func between(a, b time.Time) time.Duration {
	const most = 1 << 33 // seconds, which are 8.6e18 ns
	if s := b.Unix() - a.Unix(); -most < s && s < most {
		return time.Duration(s)*time.Second + time.Duration(b.Nanosecond()-a.Nanosecond())
	}
	return b.Round(0).Sub(a.Round(0)) // stops at the ends of the range
}
