package member

import "time"

// Clocked is a Member that knows how far its wall clock is ahead of ours, and how wrong that figure
// may be. The figure is for people. This library relies on how fast wall clocks run, and never on
// what they say.
type Clocked interface {
	ClockOffset() (ahead, within time.Duration, ok bool)
}
