package node

import "time"

const (
	// enough calls are written without waiting for more.
	enough = 16
	// deep is how many writes to a near server are unanswered at most, while calls gather for the next one. Behind one of
	// enough calls, the next is no smaller until that is answered.
	deep = 3
	// faraway is when an answer comes from a server that is not near.
	faraway = 5 * time.Millisecond
	// longestPause is how long calls gather for a far server at most, perTrip how many such pauses an answer takes at least.
	longestPause, perTrip = time.Millisecond, 16
	// several is how many calls come in a pause as a rule, or else there is none.
	several = 4
)

// line is what decides whether a write waits for more calls.
type line struct {
	trip     time.Duration // how long a write took to be answered, 0 if that is not known
	waiting  uint64        // calls to be written
	bytes    int           // of those that are encoded
	inFlight uint64        // calls that are written and not answered
	spared   int64         // so many answers, the last ones, came when their attempts had ended without them

	oldest, before, last uint64 // the ends of the last three writes, as counts of calls
}

// until says what must be answered before the next write to a near server: so many calls of the connection, or 0. The
// server has enough to do meanwhile, and a command for many calls costs it less.
func (l *line) until() uint64 {
	switch large := l.last - l.before; {
	case l.trip == 0 || l.trip >= faraway || l.bytes >= inlineBytes:
		return 0
	case large >= enough && l.waiting < large:
		// A large write keeps the server as busy as several, and the calls that its answers bring about come soon.
		return l.last
	}
	return l.oldest
}

// pause says how long the calls of the next write to a far server gather, from the first one on. They do only if nobody
// waits for its answers, because attempts end without them, if several come in that time, and if they are fewer than one
// command carries.
func (l *line) pause() time.Duration {
	pause := min(l.trip/perTrip, longestPause)
	switch {
	case l.trip < faraway || l.bytes >= inlineBytes:
		return 0
	case l.spared < enough || l.waiting >= joinMost:
		return 0
	case time.Duration(l.inFlight)*pause < several*l.trip:
		return 0
	}
	return pause
}
