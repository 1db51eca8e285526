// Package redistest provides Redis servers to break: embedded ones, which live in this process and
// also inside a testing/synctest bubble, and real redis-server processes. In front of each stands a
// Link, the network path to it, whose faults can be changed at any moment.
//
//	client ── net.Conn ── Link (delay, hold, lose, cut, answer instead of …) ── Embedded or Real
//
// Both kinds satisfy Server and pass the same suite, rt.Conformance, so that what was shown in fake
// time on embedded servers can be shown again on real ones.
//
// Start at Server in server.go; the faults are the methods of Link in link.go and rule.go. The
// package does not import testing: the redlock command runs these servers too. Sub package rt has
// the helpers that want a testing.TB.
package redistest
