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
// nothing.
//
// # Claim, enter, write
//
// A holder uses a storage in three steps:
//
//   - Claim: the holder shows its token before the first read that a write depends on. From then on
//     the storage refuses smaller tokens, and it still does after a crash. The claim waits for
//     writes that have entered under a smaller token, or makes them fail. Guard.Check is the claim.
//   - Enter: the transaction that writes begins with the question whether the token is still the
//     greatest. No greater token is accepted until that transaction has ended.
//   - Write: in the same transaction.
//
// A guard is no lock: until B has claimed, the storage accepts A's writes. Each weaker form loses an
// update that the storage has acknowledged. A has token 33, B has 34, and each adds 1 to a total of
// 7:
//
//	no claim        B reads 7; A writes 8 (nobody has shown 34); B writes 8
//	claim after     B reads 7; A writes 8; B claims, and writes 8
//	claim lost      B claims and reads 7; the storage crashes and forgets 34; A writes 8; B writes 8
//	no entry        A asks, and 33 is the greatest; B claims and reads 7; A writes 8; B writes 8
//	claim passes A  A has entered; B claims at once and reads 7; A commits 8; B enters and writes 8
//	read, enter     B's transaction reads 7; A commits 8; B's transaction enters and writes 8
//
// So nothing that was read before the claim may decide a write. If a transaction has a snapshot, the
// snapshot must be younger than the claim. After a failover of the storage, the claim must be where
// the data is.
//
// Every row, file or object that a lock protects belongs to one resource: the name of the lock.
// Tokens of two names have no common order. Never delete the token of a resource, and give it no
// TTL: a storage that has forgotten a token accepts overtaken holders again. A token is no secret.
// Whoever may claim can claim the greatest token there is, and lock out everybody else. So the
// storage must know who calls.
//
// Sources: M. Kleppmann, "How to do distributed locking" (2016), section "Making the lock safe with
// fencing", https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html; M. Burrows,
// "The Chubby lock service for loosely-coupled distributed systems" (OSDI 2006), section 2.4, where
// the token is part of a sequencer.
//
// # For authors of a storage
//
// The check and the write must be one step. So let Memory.Do run the write, or keep the greatest
// token beside the data and call Admit in the transaction that writes. The token must be durable no
// later than the data. Package fencetest tests all this on any Guard.
//
// The interface Guard is in guard.go, and Claim in claim.go. memory.go has the guard for storages in
// memory.
package fence
