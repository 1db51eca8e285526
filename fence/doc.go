// Package fence is the storage's half of a lock: a guard that refuses writes of a holder that has been
// overtaken.
//
// A lock with a lease cannot stop its holder. A process that is paused, by its garbage collector, a
// hypervisor or a debugger, may wake up after its lease has ended and write as if nothing had happened,
// and a packet may arrive long after it was sent. Fencing makes such a write harmless. Every acquisition
// has a token, a number greater than those of all acquisitions of the lock before it. The holder sends it
// with each write, and the storage keeps the greatest token that it has accepted and refuses smaller ones:
//
//	lock      holder A gets token 33, pauses, its lease ends; holder B gets token 34
//	storage   write with 34 accepted; late write with 33 refused
//
// Fencing needs no clock. It does need the storage: a token that no storage checks protects nothing. A
// guard is no lock: until B has shown its token, the storage accepts A's writes. So B shows its token
// before the first read that a write of B depends on. Otherwise A can write between that read and the
// write, and B overwrites an update of A that the storage has acknowledged.
//
// Sources: M. Kleppmann, "How to do distributed locking" (2016), section "Making the lock safe with
// fencing", https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html; M. Burrows, "The
// Chubby lock service for loosely-coupled distributed systems" (OSDI 2006), section 2.4, where the token
// is part of a sequencer.
//
// # For authors of a storage
//
// The check and the write must be one step. Between a check that accepts 33 and the write it was made
// for, 34 may be accepted and write, and then 33 overwrites it. So either let Memory.Do run the write, or
// keep the greatest token beside the data and call Admit in the transaction that writes. The token must
// be durable no later than the data: a storage that restarts with a smaller token than it has accepted
// lets the overtaken holder in again. Package fencetest tests all this on any Guard.
//
// Guard is in guard.go, the guard for storages in memory in memory.go.
package fence
