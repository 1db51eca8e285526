// Package redistest provides Redis servers to break. Embedded ones live in this process, also
// inside a testing/synctest bubble. Real ones are redis-server processes. In front of each stands a
// Link, the network path to it, whose faults can be changed at any moment.
//
//	client ── net.Conn ── Link (delay, hold, lose, cut, answer instead of …) ── Embedded or Real
//
// Both kinds satisfy Server and pass the same suite, rt.Conformance. So a test on real servers can
// repeat what was shown in fake time on embedded ones.
//
// Start at Server in server.go. The faults are the methods of Link in link.go and rule.go. The
// package does not import testing, because the redlock command runs these servers too. Sub package
// rt has the helpers that want a testing.TB.
package redistest
