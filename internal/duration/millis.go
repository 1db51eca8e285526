package duration

import "time"

// FromMillis is what a member's milliseconds are: at least 0, and at most longest. A key may be given a TTL that is
// no time.Duration.
func FromMillis(ms int64) time.Duration {
	return time.Duration(min(max(0, ms), int64(longest/time.Millisecond))) * time.Millisecond
}
