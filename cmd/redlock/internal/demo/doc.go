// Package demo runs the demonstration of the redlock command: workers contend for one lock while a
// member dies and comes back and a worker stalls past the end of its lease.
//
// It judges the lock from the outside. The ledger (ledger.go, pure) hears when each worker was granted
// a lease, what it believes of it, and when it gave it up; the store (store.go) refuses writes whose
// fencing token is older than one that it has seen. Neither asks the lock library whether all is well.
//
// The course of events is in demo.go, what a worker does in worker.go, which members there are in
// members.go, and what is shown in board.go (state) and view.go (drawing, pure).
package demo
