package guard

import (
	"log/slog"
	"time"
)

// Config is what all members of a client share. All clients of one deployment use the same Mode.
type Config struct {
	Members int
	MaxTTL  time.Duration // the longest lease this client asks for: its q
	Mode    Mode
	// Fresh says that nothing was held at these members before, so that a first deployment needs no
	// quarantine. Only a person can know that.
	Fresh  bool
	Logger *slog.Logger
	// Event hears of each step, for tracing. It may be nil.
	Event func(Event)
}

// Mode says what happens to a member that may have forgotten.
type Mode uint8

const (
	// Quarantine keeps the member from voting until every lease that may have counted its old votes
	// has ended. Members that know then restore its token counters. This is the default.
	Quarantine Mode = iota
	// Strict is Quarantine, but if too few members know the counters, the member does not vote.
	// With Quarantine its counters continue from the servers' clocks.
	Strict
	// Off believes that a member which comes back with an old marker remembers everything. It is
	// for members with appendfsync always. A member without a marker has forgotten all the same,
	// unless Config.Fresh is set, too. So has a replica that took over.
	Off
)

// Terms are what a Seat is told of its member.
type Terms struct {
	Ping     time.Duration // how old the last look at the marker may be when a vote counts
	Patience time.Duration // for one answer, and for the first answers of the other members
	Lag      time.Duration // how long a master that was replaced may go on granting
	Logger   *slog.Logger
	Shard    *Shard // not nil for a master of a cluster
	// Replicated says that a replica may take the server's place with a part of its memory.
	Replicated bool
}
