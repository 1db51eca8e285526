// Package clock holds the arithmetic of time that leases rest on. It computes how much time has
// passed, how much is left, how long a grant is valid, and when another machine made a grant.
//
// Package clock is a part of how package redlock works. The compatibility promise does not cover it:
// any release may change it.
//
//	end of validity = moment the request left + TTL - (TTL * factor + 2 ms)
//
// Every function is a pure function of time.Time and time.Duration values. None reads a clock or
// starts a timer. Callers pass the times, so tests can choose them.
//
// # Two clocks in one value
//
// A time.Time from time.Now carries two readings. The wall clock goes on while the machine is
// suspended, but anybody can set it to any value. The monotonic clock cannot be set, but on Linux
// it stands still in suspend (Go reads CLOCK_MONOTONIC, golang.org/issue/24595). time.Time.Sub uses
// the monotonic clock alone. So a lease that is judged by Sub looks fresh to a laptop that has
// slept an hour.
//
// Elapsed and Until use the reading that says that more time has passed. So a suspend ends leases,
// and a wall clock that is set forward ends them too. A wall clock that is set back changes
// nothing. Only a suspend during which the wall clock is also set back goes unnoticed.
//
// Times keep their monotonic reading through Add. They lose it through Round(0), UTC, In, Truncate
// and any encoding. Without it only the wall clock is left, and setting that back does lengthen a
// lease.
//
// Start at Validity in validity.go. elapsed.go has the two readings, and anchor.go the grants that
// a server timed.
package clock
