// Package script is the wire: everything that clients and members say to each other about locks. It
// does no I/O and decides nothing.
//
//	lua/          the scripts, as they are sent with their includes
//	catalog.go    the scripts by name, and what a batch can carry
//	lock.go       Lock: the names of one lock at a member, and its calls: Acquire, Wait, Release …
//	readwrite.go  the same lock with readers
//	election.go   what stands beside the vote of a leader, and who observes it
//	redisson.go   the exclusive lock in the dialect that Redisson shares
//	frame.go      how a call is encoded, with marks where its parts begin (member.Marks)
//	reply.go      what the scripts reply
//	push.go       what the scripts publish in a client's inbox
//
// Each kind of lock has a table, dialect in lock.go. For each call it names the script, the keys
// and the number of arguments. Two tables of one kind are two dialects, and a Lock gets one of them
// when it is made. A further kind has a table of its own.
//
// Start at Exclusive in lock.go. docs/protocol.md says what each script is for.
package script
