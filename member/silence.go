package member

import "time"

// Silence is the part of a member that does not vote. Of one server it is everything or nothing, which its
// State says; a member that spreads its keys over several servers votes for some locks and not for others.
type Silence struct {
	Masters int // that do not vote; those without slots do not count
	Slots   int // for whose locks nobody votes: theirs, and those that nobody is known to serve
	// Until is when the last quarantine among these masters ends, or ended if counters are still to be restored;
	// zero if none of them is in quarantine. It does not speak for those that are down.
	Until time.Time
	// Err is why: of a master in quarantine, before one that is down. It matches ErrQuarantined or ErrDown; nil
	// if everything votes.
	Err error
}

// Parted is a Member of which a part may be silent while its State says that it votes.
type Parted interface {
	Silence() Silence
}
