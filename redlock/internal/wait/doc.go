// Package wait decides what an attempt to get a lock does next: when it asks, yields, stands back and names a successor. So
// it keeps the lock live. That nobody gets what another holds is kept by package core, whose verbs it calls: it can take a
// vote, give one up or count them in no other way.
//
// The package does nothing itself: it has no I/O, no clock and no mutex. Each method takes the instant at which it is called,
// and the members' states if they matter. So a test can play every interleaving. The rules are those of docs/protocol.md,
// "Client steps".
//
// A caller makes a Ballot, asks it for the next Step, and carries that out. It tells the ballot
// what it hears: answers, pushes, announcements. After each of them, and at Step.Wake, it asks
// again.
//
//	       AskFirst, TryOnce                                   a majority in step
//	fresh ───────────────────> asking ──────────────────────────────────────────────> Win
//	  │                        │ ^  │ a majority out of step                           ^
//	  │      full lines, a pause │  └────────────────> raising ─── confirmed ──────────┤
//	  │ WaitFirst              v │                      ^   │                          │
//	  │                        full         out of step │   │ not confirmed            │
//	  │        refused (asking)                         │   v                          │
//	  └──────────────────────────> waiting ─────────────┘  Again, Lose                 │
//	                                 └──────────────── a majority in step ─────────────┘
//
// An attempt of a semaphore that asks once goes from asking to aligning, if members gave different
// slots, and wins or loses there.
//
// Again ends an attempt that another one may follow, and Ballot.Past is what it leaves. Lose ends
// the last attempt.
//
// Start at Ballot.Next (next.go). wait.go has what a waiting attempt does, past.go says when another
// attempt follows, and waiters.go has what is heard of other waiters. answer.go takes answers
// and pushes. Package core says what a vote is worth, and which votes count together: the ballot calls
// its verbs. rules.go says what a kind of lock decides in its own way. exclusive.go has
// the rules of the exclusive lock, readwrite.go those of readers and of writers beside them, and
// permits.go those of a semaphore. shared.go has what a lock shared with Redisson adds.
//
// # States of a member
//
// A voter has two states: what we have of the member (core.Has), and how far the giving up of its vote has
// come. These go together:
//
//	|       | none given | yielding | yielded back | yield lost |
//	| none  | yes     | yes     | yes  | yes    |
//	| held  | yes     | yes     | yes  | no     |
//	| expired | yes     | yes     | no   | no     |
//	| lost  | yes     | yes     | yes  | no     |
//
// A held vote has a token, and a vote that is none or gone has none. A tardy vote keeps its token
// until it is dropped. A member has a held vote beside an offer if it granted anew before the
// answer to the yield arrived.
package wait
