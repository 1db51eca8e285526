package clock

import "time"

// Anchor ties the clock of a server to the clock of this process. A request left at Sent, and the server that executed it later
// read Server on its own clock. If the server then grants at its time S and pushes that, the push may have travelled for long.
// But S-Server says how long after the reading the grant happened, and the reading was after Sent.
type Anchor struct {
	Sent   time.Time // before the request was submitted; local clock, with its monotonic reading
	Server int64     // what the server's clock read when it executed the request, in microseconds

	// Epoch is the connection on which the reply came. For pushes of another the anchor is void, which its owner sees to.
	Epoch uint64
}

// Start returns the time from which to count the validity of a grant that arrived as a push at
// arrival. It is a time at or before the moment at which the server's clock read server, in
// microseconds:
//
//	Sent + (server - a.Server) * (1 - factor)
//
// It is never later than arrival, on either reading of the local clock. It is sound if the clocks of client and server each run
// within factor/2 of real time, and nobody sets either clock. It may be late by the microsecond in which the server reads its
// clock, which delta covers.
//
// If the server's clock was evidently set, ok is false and the result means nothing: if server lies before the anchor, or
// so far behind it that the grant would begin more than delta after its own arrival. The caller must then ask the server.
func (a Anchor) Start(server int64, arrival time.Time, factor float64) (start time.Time, ok bool) {
	if server < a.Server {
		return time.Time{}, false
	}
	passed := serverTime(a.Server, server)
	// Counted back from the arrival, and not forward from Sent: after a suspend between the two the
	// readings of Sent.Add would disagree, one of them lying after the arrival.
	before := Elapsed(a.Sent, arrival) - (passed - share(passed, factor))
	if before < -delta {
		return time.Time{}, false
	}
	return arrival.Add(-max(before, 0)), true
}

// Stepped reports whether, from anchor a to a later one of the same connection, somebody evidently set the server's clock,
// or the clock ran outside the allowed drift. That is so if server time minus local time moved by more than factor*elapsed +
// rtt, plus the microsecond in which the server reads its clock. rtt is the longer round trip of the two requests, because
// each reading belongs to some moment between a request and its reply. A step below the bound is not seen, and a grant may then
// be trusted too long by the length of the step.
func Stepped(a, b Anchor, rtt time.Duration, factor float64) bool {
	local := Elapsed(a.Sent, b.Sent)
	return (serverTime(a.Server, b.Server) - local).Abs() > share(local, factor)+rtt+time.Microsecond
}

// serverTime is the time between two readings of a server's clock in microseconds. It stops at the ends of time.Duration.
func serverTime(from, to int64) time.Duration { return time.UnixMicro(to).Sub(time.UnixMicro(from)) }
