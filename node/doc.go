// Package node makes one Redis server a voter: a member.Member with one ordered command connection,
// scripts, health and an inbox.
//
// Package node is a part of how package redlock works. The compatibility promise does not cover it:
// any release may change it.
//
// The package decides when the server is up, how calls are batched into writes, and which outcome a
// call has when its connection breaks. It decides what must happen before a new connection carries
// commands, and which releases the client owes the server afterwards. It leaves to others:
// majorities, what scripts mean, what the server's memory is worth (package guard), and the
// time-outs of a caller. A call has no time-out, because the round above stops waiting.
//
// The life of a call:
//
//	Submit -> line and write buffer, one critical section (submit.go, internal/line)
//	       -> encoded, alone or with its neighbours (join.go, internal/line)
//	       -> written by its caller, by a neighbour or by the flusher (write.go, send.go, link.go)
//	       -> answered in order by the reader (read.go, parse.go; repair.go for an error) -> Sink.Done
//
// and of a connection:
//
//	dial -> AUTH, SELECT (radix)
//	     -> CLIENT ID, INFO, PING, HELLO, SCRIPT EXISTS -> SCRIPT LOAD of what is missing, and
//	     CLIENT KILL of the predecessor -> admission by the restart guard (guard.Seat)
//	     -> owed releases -> Up -> broken or stalled -> every call answered or Unknown -> backoff
//
// radix dials and authenticates. The package does not use radix's request path, because radix ignores
// a context while the request waits behind another one. So it takes the connection from radix, whose
// goroutines end.
//
// A Node has these goroutines: the supervisor (supervise.go), and while there is a connection, its
// reader, and its flusher unless it is idle. A server that speaks RESP3 sends the inbox on that connection (shared.go).
// At any other, Listen adds two goroutines: the owner of the inbox and its reader (inbox.go). All have
// ended when Close returns.
//
// What exclusion rests on is in files of its own, which architecture_test.go lists. internal/line has the order of calls and
// their bytes, and cannot be written to from here: whoever decides when to write cannot break the order.
//
// Start at Node.Submit in submit.go; the order of a reconnect is in handshake.go and nowhere else.
package node
