package wait

import "time"

// EndPause ends the pause before a split is followed, and reports whether there was one.
func (p Probe) EndPause(now time.Time) bool {
	if p.permits == nil || p.split.IsZero() {
		return false
	}
	p.split = now
	return true
}

// Pauses reports whether a split is to be followed after a pause.
func (p Probe) Pauses() bool { return p.permits != nil && p.phase == waiting && !p.split.IsZero() }

// Evenly makes all pauses equally long: how often a split was followed is forgotten.
func (p Probe) Evenly() {
	if p.permits != nil {
		p.permits.rounds = 0
	}
}
