package node

import (
	"net"
	"syscall"
	"time"
)

const (
	// graces is how often, for one answer that does not come, the end of a connection is put off because the
	// client itself was late.
	graces = 4
	// tardy: a look counts as late if it comes later than StallTimeout/tardy after it was due.
	tardy = 8
)

// verdict decides about a peer that owes an answer since a moment, at a look that was due and came at now. unread
// reports whether bytes of the peer wait to be read, granted is how many graces there were. The peer
// stalled if all of limit passed. But a client that was late itself, or has not read what came, puts that off by a
// quarter of limit, and does so four times at most: a dead peer is found out after twice the limit, beside
// the time by which the looks themselves were late.
//
// wait is how long the next look may take. A late look, or unread bytes, before limit change nothing.
func verdict(limit time.Duration, since, due, now time.Time, unread func() bool, granted int) (stalled, grace bool, wait time.Duration) {
	if left := limit - now.Sub(since); left > 0 {
		return false, false, left
	}
	if granted < graces && (now.Sub(due) > limit/tardy || unread()) {
		return false, true, limit / graces
	}
	return true, false, 0
}

// vigil is a watch over one connection. It belongs to the goroutine that looks.
type vigil struct {
	limit  time.Duration
	unread func() bool

	due     time.Time // of the next look
	since   time.Time // for which there were graces
	granted int
	until   time.Time // of the last grace
}

// plan says that the next look is due in wait.
func (v *vigil) plan(now time.Time, wait time.Duration) { v.due = now.Add(wait) }

// stalled looks at a peer that owes an answer since a moment, and reports whether it stalled. If not,
// the next look must come within wait.
func (v *vigil) stalled(since, now time.Time) (_ bool, wait time.Duration) {
	if !since.Equal(v.since) {
		v.since, v.granted, v.until = since, 0, time.Time{}
	}
	if left := v.until.Sub(now); left > 0 { // something else woke us
		return false, left
	}
	stalled, grace, wait := verdict(v.limit, since, v.due, now, v.unread, v.granted)
	if grace {
		v.granted, v.until = v.granted+1, now.Add(wait)
	}
	return stalled, wait
}

// unread reports whether bytes wait in the socket below c that nobody has read. Where that cannot be known it
// reports false. It does not block, and may be called while others read, write and close.
func unread(c net.Conn) bool {
	has, ok := c.(syscall.Conn)
	if !ok {
		return false
	}
	raw, err := has.SyscallConn()
	if err != nil {
		return false
	}
	waiting := false
	err = raw.Control(func(fd uintptr) { waiting = peek(fd) })
	return err == nil && waiting
}
