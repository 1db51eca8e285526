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
