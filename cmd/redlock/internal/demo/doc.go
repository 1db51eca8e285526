// Package demo runs the demonstration of the redlock command. Workers contend for one lock, while a
// member dies and comes back, and a worker stalls past the end of its lease. Beside that, all of them
// read a page that one of them rewrites, under a lock with readers.
//
// It judges each lock from the outside. A ledger (ledger.go, pure) hears when each worker was
// granted a lease, what the worker believes of it, and when it gave it up. The store (store.go)
// refuses a write whose fencing token is older than one that it has seen. Neither asks the lock
// library.
//
// demo.go has the course of events, worker.go what a worker does, scene.go its reading, and members.go
// the members. board.go has the state that is shown, and view.go draws it (pure).
package demo
