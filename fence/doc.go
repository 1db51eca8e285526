// Package fence is the storage's half of a lock: a guard that refuses writes of a holder that has
// been overtaken.
//
// A lock with a lease cannot stop its holder. A garbage collector, a hypervisor or a debugger may
// pause a process until its lease has ended. The process then wakes up and writes as if nothing had
// happened. A packet may also arrive long after it was sent. Fencing makes such a write harmless.
// Every acquisition has a token, a number greater than those of all earlier acquisitions of the
// lock. The holder sends it with each write. The storage keeps the greatest token that it has
// accepted, and refuses smaller ones:
//
//	lock      holder A gets token 33, pauses, its lease ends; holder B gets token 34
//	storage   write with 34 accepted; late write with 33 refused
//
// Fencing needs no clock. It does need the storage, because a token that no storage checks protects
// nothing. A guard is no lock: until B has shown its token, the storage accepts A's writes. So B
// shows its token before the first read that a write of B depends on. Otherwise A can write between
// that read and the write. B then overwrites an update of A that the storage has acknowledged.
//
// Sources: M. Kleppmann, "How to do distributed locking" (2016), section "Making the lock safe with
// fencing", https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html; M. Burrows,
// "The Chubby lock service for loosely-coupled distributed systems" (OSDI 2006), section 2.4, where
// the token is part of a sequencer.
//
// # For authors of a storage
//
// The check and the write must be one step. Suppose that a check accepts 33. Before its write
// happens, 34 may be accepted and write, and then 33 overwrites it. So let Memory.Do run the write,
// or keep the greatest token beside the data and call Admit in the transaction that writes. The
// token must be durable no later than the data. A storage that restarts with a smaller token than
// it has accepted lets the overtaken holder in again. Package fencetest tests all this on any
// Guard.
//
// The interface Guard is in guard.go. memory.go has the guard for storages in memory.
package fence
