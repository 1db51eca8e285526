package line

// InFlight counts the calls and bytes in line.
func (l *Line) InFlight() (calls int, size int64) {
	return int(l.queued - l.answered.Load()), l.queuedBytes - l.answeredBytes.Load()
}

// Queued counts the calls that have ever entered the line.
func (l *Line) Queued() uint64 { return l.queued }

// Answered counts the calls that have left the line. It needs no mutex.
func (l *Line) Answered() uint64 { return l.answered.Load() }

// Unsent counts the calls that Take has not returned yet, and bytes of them.
func (l *Line) Unsent() (calls uint64, encoded int) { return l.queued - l.sent, len(l.buf) }
