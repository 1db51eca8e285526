// Package node makes one Redis server a voter: a member.Member with one ordered command connection,
// scripts, health and an inbox.
//
// What it decides: when the server is up, how calls are batched into writes, which outcome a call
// has when its connection breaks, what must happen before a new connection may carry commands, and
// which releases are owed to the server afterwards. What it leaves to others: majorities, time-outs
// of a caller (a call has none: the round above stops waiting), and what scripts mean.
//
// The life of a call:
//
//	Submit -> queue and write buffer, one critical section (session.go)
//	       -> written by its caller, by a neighbour or by the flusher
//	       -> answered in order by the reader (session.go, parse.go, classify.go) -> Sink.Done
//
// and of a connection:
//
//	dial -> AUTH, SELECT (radix) -> CLIENT ID, INFO, PING, SCRIPT LOAD -> CLIENT KILL of the predecessor
//	     -> owed releases -> Up -> broken or stalled -> every call answered or Unknown -> backoff
//
// radix dials, authenticates and closes. Its request path is not used, because its contexts are not
// honoured behind another request: the session's reader is one Unmarshaler that never returns.
//
// Goroutines of a Node: the supervisor (node.go), and, while there is a connection, radix's reader
// and writer, one goroutine inside EncodeDecode and the flusher; with Listen, one more for the inbox
// and the same three of radix. All have ended when Close returns.
//
// Start at Node.Submit in node.go; the order of a reconnect is in handshake.go and nowhere else.
package node
