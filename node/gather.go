package node

import "time"

const (
	// inlineBytes: a caller writes by itself only while fewer bytes than this are unanswered. The
	// socket buffer then has room whatever the peer does, so that the caller cannot be blocked by a
	// peer that has stopped reading; everything beyond is left to the flusher.
	inlineBytes = 64 << 10
	// enough calls are written without waiting for more.
	enough = 16
	// deep is how many writes to a near server are unanswered at most, while calls gather for the next one. Behind one of
	// enough calls, the next is no smaller until that is answered.
	deep = 3
	// faraway is when an answer comes from a server that is not near.
	faraway = 5 * time.Millisecond
)

// backlog is what decides whether a write waits for more calls.
type backlog struct {
	trip    time.Duration // how long a write took to be answered, 0 if that is not known
	waiting uint64        // calls to be written
	bytes   int           // of those that are encoded

	oldest, before, last uint64 // the ends of the last three writes, as counts of calls
}

// until says what must be answered before the next write to a near server: so many calls of the connection, or 0. The
// server has enough to do meanwhile, and a command for many calls costs it less.
func (l *backlog) until() uint64 {
	switch large := l.last - l.before; {
	case l.trip == 0 || l.trip >= faraway || l.bytes >= inlineBytes:
		return 0
	case large >= enough && l.waiting < large:
		// A large write keeps the server as busy as several, and the calls that its answers bring about come soon.
		return l.last
	}
	return l.oldest
}
