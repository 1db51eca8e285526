// Package duration bounds what users and members give as durations.
package duration

import (
	"fmt"
	"time"
)

// Bounds of every duration that a user gives, where zero and less have meanings of their own. Less is nearly always a number
// without its unit. More would overflow where it is added to an instant, or counted in µs.
const (
	shortest = time.Millisecond
	longest  = 100 * 365 * 24 * time.Hour
)

// Check explains why a duration of a configuration cannot be meant.
func Check(d time.Duration) error {
	switch {
	case d > 0 && d < shortest:
		return fmt.Errorf("is %v, must be at least %v: a number without a unit counts nanoseconds, write %d*time.Second or the like", d, shortest, d)
	case d > longest:
		return fmt.Errorf("is %v, must be at most %v (100 years)", d, longest)
	}
	return nil
}

// FromMillis is what a member's milliseconds are: at least 0, and at most longest. A key may be given a TTL that is
// no time.Duration.
func FromMillis(ms int64) time.Duration {
	return time.Duration(min(max(0, ms), int64(longest/time.Millisecond))) * time.Millisecond
}
