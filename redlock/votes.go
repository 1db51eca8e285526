package redlock

import (
	"time"
)

// Votes returns the number of members that have the lease, by their own last word. It still counts
// a member that has died or forgotten since, until what that member granted last would have ended: up to a
// TTL. Client.Inspect shows it at once.
func (l *Lease) Votes() int {
	if l.none() {
		return 0
	}
	now := time.Now()
	l.hold.mu.Lock()
	defer l.hold.mu.Unlock()
	return l.hold.b.Votes(now)
}
