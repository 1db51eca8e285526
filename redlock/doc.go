// Package redlock takes a lock by asking a majority of independent Redis masters, its members:
//
//	client, err := redlock.Open(ctx, []string{"redis://10.0.0.1", "redis://10.0.0.2", "redis://10.0.0.3"})
//	...
//	err = client.Mutex("invoice:42").Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
//		return pay(ctx, lease.Token()) // until ctx ends
//	})
//
// Config has what can be set, and LAN and WAN are presets of it. The holder of the lock may rely on it
// until the end of its validity:
//
//	end of validity = moment before the first request left + TTL − drift,   drift = TTL·f + 2 ms
//
// It promises, in this order:
//
//  1. Fencing. The tokens of any two acquisitions of a key differ, and the later one has the greater
//     token. This rests on a majority of members that remember their counters, and on no clock.
//  2. Exclusion. While clocks drift within f and members keep their memory, at most one holder
//     believes in its lease at any instant. The context of a lease is cancelled before another client
//     can get the lock.
//  3. Progress. A minority of dead, hung or slow members adds no latency. A lock that is freed wakes
//     a waiter at once.
//
// A lock is a lease and ends by itself. A process that is paused past that moment can still write
// when it wakes up. So give Lease.Token to the storage, and let package fence refuse late writes.
//
// Start at Mutex.Lock in mutex.go, and at Multi.Lock in multi.go for several names. Package
// internal/wait decides what an attempt does next, and internal/core what its votes are worth: both
// are pure. Package internal/script has the scripts that the members run. Package clock computes
// every deadline. docs/protocol.md in the repository describes the keys, the scripts, the steps of a
// client, and why they are safe.
package redlock
