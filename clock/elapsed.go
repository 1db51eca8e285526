package clock

import "time"

// Elapsed returns the time from since to now, by the monotonic or the wall clock, whichever says
// more. So neither a suspend nor a wall clock that is set back hides time that has passed. If
// either value has no monotonic reading, the wall clock decides alone. The result is negative if
// now is before since on both clocks. It stops at the ends of the range of time.Duration. Elapsed
// does not allocate.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), between(since, now))
}

// Until returns the time left from now to deadline, by the monotonic or the wall clock, whichever
// says less. The result is zero or negative once either clock has reached the deadline. Compute the
// deadline by Add from a time of the same process, because Add moves both readings. A deadline
// without a monotonic reading is judged by the wall clock alone. Until does not allocate.
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
