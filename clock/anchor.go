package clock

import (
	"math"
	"time"
)

// Anchor ties the clock of a server to the clock of this process. A request left at Sent, and the
// server that executed it later read Server on its own clock.
//
// With an Anchor, a client can date what the server did of its own accord. Suppose that the server
// grants at its time S and pushes the grant. The push alone does not tell the client when that was,
// because it may have travelled for long. But S-Server, on the server's clock, says how long after
// the reading the grant happened, and the reading was after Sent.
type Anchor struct {
	Sent   time.Time // before the request was submitted; local clock, with its monotonic reading
	Server int64     // what the server's clock read when it executed the request, in microseconds

	// Epoch is the connection on which the reply came, and Gen the generation of the server's data.
	// An anchor is void for pushes of any other Epoch or Gen. The owner of the anchor compares
	// them, because the methods here do not.
	Epoch, Gen uint64
}

// Start returns the time from which to count the validity of a grant that arrived as a push at
// arrival. It is a time at or before the moment at which the server's clock read server, in
// microseconds:
//
//	Sent + (server - a.Server) * (1 - factor)
//
// It is never later than arrival, on either reading of the local clock, and keeps the monotonic
// reading of arrival. The bounds of factor are those of Drift.
//
// The result is sound if the clocks of client and server each run within factor/2 of real time, and
// nobody sets either clock. It may be late by the microsecond in which the server reads its clock,
// which delta covers.
//
// If the server's clock was evidently set, ok is false and the result means nothing. That is so if
// server lies before the anchor. It is also so if server lies so far behind the anchor that the
// grant would begin more than delta after its own arrival. The caller must then ask the server
// instead.
func (a Anchor) Start(server int64, arrival time.Time, factor float64) (start time.Time, ok bool) {
	if server < a.Server {
		return time.Time{}, false
	}
	passed := serverTime(a.Server, server)
	after := passed - share(passed, factor)
	// Counted back from the arrival, and not forward from Sent: after a suspend between the two the
	// readings of Sent.Add(after) would disagree, one of them lying after the arrival.
	before := Elapsed(a.Sent, arrival) - after
	if before < -delta {
		return time.Time{}, false
	}
	return arrival.Add(-max(before, 0)), true
}

// Stepped reports whether, between two anchors of one connection, somebody evidently set the
// server's clock, or the clock ran outside the allowed drift. That is so if server time minus local
// time moved by more than factor*elapsed + rtt, plus the microsecond in which the server reads its
// clock. rtt is the longer round trip of the two requests, because each reading belongs to some
// moment between a request and its reply. The order of a and b does not matter.
//
// False does not prove a steady clock. A step below the bound is not seen, and a grant may then be
// trusted too long by the length of the step. A local clock that is set forward also makes it true.
func Stepped(a, b Anchor, rtt time.Duration, factor float64) bool {
	local := Elapsed(a.Sent, b.Sent)
	if local < 0 {
		a, b = b, a
		local = Elapsed(a.Sent, b.Sent)
	}
	var moved time.Duration
	if b.Server >= a.Server {
		moved = (serverTime(a.Server, b.Server) - local).Abs()
	} else {
		moved = saturatingAdd(serverTime(b.Server, a.Server), local)
	}
	return moved > saturatingAdd(share(local, factor), saturatingAdd(max(rtt, 0), time.Microsecond))
}

// serverTime returns the duration between two readings of a server's clock in microseconds, from <= to.
// It stops at the largest time.Duration, 292 years.
func serverTime(from, to int64) time.Duration {
	micros := uint64(to) - uint64(from) // cannot wrap: from <= to
	if micros > math.MaxInt64/uint64(time.Microsecond) {
		return math.MaxInt64
	}
	return time.Duration(micros) * time.Microsecond
}

func saturatingAdd(a, b time.Duration) time.Duration {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
