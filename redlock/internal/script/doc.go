// Package script is the wire: everything that clients and members say to each other about locks. It
// does no I/O and decides nothing.
//
//	lua/          the scripts, as they are sent with their includes
//	catalog.go    how a script is put together, and those of the exclusive lock; kinds.go has the others
//	lock.go       Lock: the names of one lock at a member, and its calls: Acquire, Wait, Release …
//	readwrite.go  the same lock with readers
//	election.go   what stands beside the vote of a leader, and who observes it
//	redisson.go   the exclusive lock in the dialect that Redisson shares
//	words.go      what the calls of other kinds say besides
//	frame.go      how a call is encoded, with marks where its parts begin (member.Marks)
//	reply.go      what the scripts reply
//	push.go       what the scripts publish in a client's inbox
//
// Each kind of lock has a table, dialect in lock.go. For each call it names the script, the keys
// and the arguments, and Lock.say encodes what it names. Two tables of one kind are two dialects, and
// a Lock gets one of them when it is made. A further kind has a table of its own.
//
// Start at Exclusive in lock.go. docs/protocol.md says what each script is for.
package script
