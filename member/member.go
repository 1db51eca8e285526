package member

import (
	"context"
	"time"
)

// State says what a member is good for at this moment.
type State struct {
	Brief
	Up    bool // the member has a connection
	Inbox bool // the subscription of the inbox is confirmed
	// Acks means that replicas of the member must acknowledge a vote before it counts. They
	// acknowledge answers and not pushes, so a push never dates a vote there.
	Acks  bool
	RunID string // identity of the server process; "" if it is not told
	Err   error  // why the member is not Up
	Deaf  error  // why an Up member has no Inbox; nil if it has one, or if unknown

	// Quarantine is its end, while the member is Up and may not vote because it may have forgotten; else zero. Counters may remain
	// to be restored after that moment.
	Quarantine time.Time
}

// Brief is the part of a State by which an answer is judged.
type Brief struct {
	// Gen is the generation: votes, anchors and pushes of an earlier one count for nothing.
	Gen uint64
	// Epoch counts command connections: server times of another epoch are no anchors.
	Epoch uint64
	// Ear changes when a subscription of the inbox begins, at any server of the member. 0 means
	// unknown. Pushes from before that moment may be missed.
	Ear   uint64
	Votes bool // the member may vote: it is Up and trusted to remember
}

// Member is one voter: a Redis master, or something that behaves like one.
//
// A member executes all calls of one client in the order of their submission, or not at all. By itself it sends a release again
// that is owed (Delivery.OweUntil), and a call that the server did not execute to its end: NOSCRIPT, a redirect, or
// Result.Interrupted.
type Member interface {
	// Name identifies the member in errors and logs. It holds no secret.
	Name() string
	// Submit queues c and returns. It does not wait for the network.
	Submit(c *Call)
	// State costs one atomic load.
	State() State
	// Listen subscribes channel, now and after every reconnect, and reports to l what arrives there, and every change of State. The
	// owner calls it once, before the first Submit.
	Listen(channel string, l Listener)
	// Close ends the member's goroutines. Every call in flight is answered or becomes Unknown.
	// Releases that are owed are sent until ctx ends.
	Close(ctx context.Context) error
}

// Listener hears a member's inbox and its changes of state. Both methods run on goroutines of the
// member and must not block.
type Listener interface {
	// Push delivers one message. msg is valid only during the call.
	Push(msg []byte, st State, at time.Time)
	// Changed is called after State has changed.
	Changed(st State)
}
