package clock

import "time"

// Elapsed returns the time from since to now, by the monotonic or the wall clock, whichever says more: see doc.go. It stops at the
// ends of the range of time.Duration.
func Elapsed(since, now time.Time) time.Duration {
	return max(now.Sub(since), between(since, now))
}

// Until returns the time left from now to deadline, by the monotonic or the wall clock, whichever says less. Compute the deadline
// by Add from a time of the same process, because Add moves both readings.
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
