package member

import (
	"context"
	"time"
)

// State is what a member is good for at this moment.
type State struct {
	Gen   uint64 // votes, anchors and pushes of an earlier generation count for nothing
	Epoch uint64 // one per command connection; server times of another epoch are no anchors
	Up    bool   // has a connection
	Votes bool   // may vote: Up, and not suspected of having forgotten
	Inbox bool   // the subscription of the inbox is confirmed
	// Acks: replicas of the member must acknowledge a vote before it counts. They acknowledge answers and not pushes, so
	// a push never dates a vote there.
	Acks bool
	// Ear changes when a subscription of the inbox begins, at any server of the member; 0: not told. What was
	// pushed before may be missed.
	Ear   uint64
	RunID string // identity of the server process, "" where it will not tell
	Err   error  // why it is not Up
	Deaf  error  // why it has no Inbox while it is Up; nil: it has, or that is not known

	// Quarantine is not zero while the member is Up and may not vote because it may have forgotten:
	// when the quarantine ends. Counters may remain to be restored after that.
	Quarantine time.Time
}

// Member is one voter: a Redis master, or something that behaves like one.
//
// All calls of one client to one member are executed in the order of their submission, or not at
// all; nothing is sent twice by itself, except a release that is owed (Delivery.OweUntil) and a call
// answered NOSCRIPT, which has not been executed.
type Member interface {
	// Name identifies the member in errors and logs. It holds no secret.
	Name() string
	// Submit queues c and returns. It does not wait for the network.
	Submit(c *Call)
	// State costs one atomic load.
	State() State
	// Listen subscribes channel on a connection of its own, now and after every reconnect, and
	// reports what arrives there and every change of State. Called once, before the first Submit.
	Listen(channel string, l Listener)
	// Close ends the member's goroutines. Calls in flight are answered or Unknown; owed releases get
	// their chance until ctx ends.
	Close(ctx context.Context) error
}

// Slotted is a Member that spreads its keys over several servers. The Gen of all slots is that of the
// member; the rest of a State is that of the server that owns the slot.
type Slotted interface {
	Member
	// StateOf is what the member is good for in a slot.
	StateOf(slot uint16) State
}

// Listener hears a member's inbox and its changes of state. Both methods run on goroutines of the
// member and must not block.
type Listener interface {
	// Push delivers one message. msg is valid during the call only.
	Push(msg []byte, st State, at time.Time)
	// Changed is called after State has changed.
	Changed(st State)
}

// Subscriber is a Member that can listen to more channels than the inbox.
type Subscriber interface {
	// Subscribe adds channels to the inbox's connection, now and after every reconnect, those of one
	// call in one command. It counts: a channel stays until Unsubscribe was called as often. Neither
	// waits.
	Subscribe(channels ...string)
	Unsubscribe(channels ...string)
}

// ChannelListener is a Listener that hears them, on the goroutine and in the order of Push.
type ChannelListener interface {
	// Channel delivers a message of a channel that was added by Subscribe. A nil msg says that the
	// subscription is confirmed: what was published before is lost.
	Channel(channel string, msg []byte, at time.Time)
}
