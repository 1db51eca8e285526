// Package clock holds the arithmetic of time that leases rest on: how much time has passed, how much
// is left, how long the validity of a grant is, and when a grant began that another machine decided.
//
//	end of validity = moment the request left + TTL - (TTL * factor + 2 ms)
//
// Everything is a pure function of time.Time and time.Duration values. Nothing here reads a clock or
// starts a timer: callers pass the times, so that tests can make them up.
//
// # Two clocks in one value
//
// A time.Time from time.Now carries two readings. The wall clock goes on while the machine is
// suspended, but can be set to any value by anyone. The monotonic clock is never set, but on Linux it
// stands still in suspend (Go reads CLOCK_MONOTONIC, golang.org/issue/24595), and time.Time.Sub uses
// it alone. A lease that is judged by Sub therefore looks fresh to a laptop that has slept an hour.
// Elapsed and Until take whichever reading says that more time has passed: a suspend ends leases, and
// so does a wall clock that is set forward; a wall clock that is set back changes nothing. Only a
// suspend during which the wall clock is also set back goes unnoticed.
//
// Times keep their monotonic reading through Add, and lose it through Round(0), UTC, In, Truncate and
// any encoding. Without it only the wall clock is left, and setting it back does lengthen a lease.
//
// Start at Validity in validity.go; elapsed.go has the two readings, anchor.go the grants that a
// server timed.
package clock
