package member

import "time"

// Clocked is a Member that knows how far its wall clock is ahead of ours, and how wrong that may be. It is
// for people: nothing in this library rests on what wall clocks say, only on how fast they run.
type Clocked interface {
	ClockOffset() (ahead, within time.Duration, ok bool)
}
