package member

import "time"

// Silence is the part of a member that does not vote. A member that is one server votes for all
// locks or for none, as its State says. A member that spreads its keys over several servers may
// vote for some locks and not for others.
type Silence struct {
	Masters int // masters that do not vote, without those that serve no slot
	Slots   int // slots for whose locks nobody votes, also if no master is known to serve them
	// Until is when the last quarantine among these masters ends. If it has passed, counters are
	// still to be restored. It is zero if none of them is in quarantine, and ignores masters that
	// are down.
	Until time.Time
	// Err is the cause: that of a master in quarantine rather than of one that is down. It matches
	// ErrQuarantined or ErrDown, and is nil if everything votes.
	Err error
}

// Parted is a Member that may be silent in part, while its State says that it votes.
type Parted interface {
	Silence() Silence
}
