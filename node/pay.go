package node

import (
	"math"
	"time"
)

// room is the pause before another look when the line is full and releases are owed.
const room = 20 * time.Millisecond

// pay submits the debts that are due, as many as half of the line takes: the other half is for
// calls from outside. all ignores how full the line is: for a new connection, on which debts come
// before anything else. It returns the time until more are due, 0 for none.
func (n *Node) pay(s *session, all bool) time.Duration {
	limit := math.MaxInt
	if !all {
		if n.owed.none() {
			return 0
		}
		if limit = n.places(s); limit <= 0 {
			return room
		}
	}
	debts, more := n.owed.due(time.Now(), limit, all)
	for i, d := range debts {
		if !all && n.places(s) <= 0 {
			n.owed.release(debts[i:])
			return room
		}
		if err := s.submit(own, &d.call); err != nil {
			n.owed.release(debts[i:])
			return more
		}
	}
	if len(debts) == limit {
		return room
	}
	return more
}

// places is how many debts the line takes now.
func (n *Node) places(s *session) int {
	calls, size := s.inFlight()
	if 2*size > int64(n.cfg.MaxBytes) {
		return 0
	}
	return n.cfg.maxCalls/2 - calls + 1
}
