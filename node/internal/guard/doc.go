// Package guard is the restart guard: it decides what a member's memory is worth after a restart, a
// flush or a failover, and when the member may vote again.
//
// A member that may have forgotten its locks must not vote before every lease that counted its old
// votes has ended. The guard keeps a marker at each member. The marker names the server process
// that wrote it and the greatest MaxTTL (q) in use:
//
//	look -> decide -> accept the marker, or mark the member as new, or as one that forgot
//	     -> quarantine (counted by the member and by our monotonic clock)
//	     -> restore its counters -> it votes
//
// The rules are pure functions in rules.go, and docs/protocol.md gives the reason of each under
// "Restart guard". Guard holds what the members of one client know of one another. Seat is the
// place of one member in it. look.go has the looks, on which a vote rests; watch.go decides when more is due while a session is
// up. copy.go copies counters, which fencing tokens need, and exclusion does not. shard.go and shardscript.go have what the
// masters of a cluster do besides: they keep by slots what one server keeps once.
//
// The package opens no connection. A Host publishes what a Seat has found, and a Session carries
// commands to the member. Package node fulfils both over sockets; the tests fulfil them in memory.
//
// Start at decide in rules.go; Seat.Admit in admit.go carries it out.
package guard
