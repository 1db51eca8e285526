package member

import (
	"context"
	"time"
)

// State says what a member is good for at this moment.
type State struct {
	// Gen is the generation: votes, anchors and pushes of an earlier one count for nothing.
	Gen uint64
	// Epoch counts command connections: server times of another epoch are no anchors.
	Epoch uint64
	Up    bool // the member has a connection
	Votes bool // the member may vote: it is Up and trusted to remember
	Inbox bool // the subscription of the inbox is confirmed
	// Acks means that replicas of the member must acknowledge a vote before it counts. They
	// acknowledge answers and not pushes, so a push never dates a vote there.
	Acks bool
	// Ear changes when a subscription of the inbox begins, at any server of the member. 0 means
	// unknown. Pushes from before that moment may be missed.
	Ear   uint64
	RunID string // identity of the server process; "" if it is not told
	Err   error  // why the member is not Up
	Deaf  error  // why an Up member has no Inbox; nil if it has one, or if unknown

	// Quarantine is the end of the quarantine, while the member is Up and may not vote because it
	// may have forgotten. Otherwise it is zero. Counters may remain to be restored after that
	// moment.
	Quarantine time.Time
}

// Brief is the part of a State by which an answer is judged.
type Brief struct {
	Gen, Epoch, Ear uint64
	Votes           bool
}

// Brief returns that part of the state.
func (st *State) Brief() Brief { return Brief{st.Gen, st.Epoch, st.Ear, st.Votes} }

// Member is one voter: a Redis master, or something that behaves like one.
//
// A member executes all calls of one client in the order of their submission, or not at all. It
// sends a call again by itself in two cases. One is a release that is owed (Delivery.OweUntil). The
// other is a call that the server did not execute to its end: NOSCRIPT, a redirect, or
// Result.Interrupted.
type Member interface {
	// Name identifies the member in errors and logs. It holds no secret.
	Name() string
	// Submit queues c and returns. It does not wait for the network.
	Submit(c *Call)
	// State costs one atomic load.
	State() State
	// Listen subscribes channel, now and after every reconnect. It
	// reports to l what arrives there, and every change of State. The owner calls it once, before
	// the first Submit.
	Listen(channel string, l Listener)
	// Close ends the member's goroutines. Every call in flight is answered or becomes Unknown.
	// Releases that are owed are sent until ctx ends.
	Close(ctx context.Context) error
}

// Slotted is a Member that spreads its keys over several servers. All slots share the Gen of the
// member. The rest of a slot's State is that of the server that owns the slot.
type Slotted interface {
	Member
	// StateOf says what the member is good for in a slot.
	StateOf(slot uint16) State
}

// Spread is a Member that has a server process behind each of several connections, as a Slotted one has.
type Spread interface {
	// Processes are those that the member has been connected to, for every Epoch that StateOf can tell.
	// It waits for nothing, and takes no mutex that is held around a call of a Listener.
	Processes() []Process
}

// Process is the server process behind a connection.
type Process struct {
	Epoch uint64 // of the connection; no two of a member have the same
	RunID string // identity of the process; "" if it is not told
}

// Grouped is a Member that takes several calls at once, so that no other call comes between them.
type Grouped interface {
	Member
	// SubmitGroup queues calls, in their order, and returns. If all of them have an Item, they
	// travel as one command, and the acquires behind the first are Chained. Otherwise, and if the
	// server takes no such command, each travels as with Submit, and none is chained. So an owner
	// must not rely on the chain, but only gain by it.
	SubmitGroup(calls []*Call)
}

// Briefed is a Member that tells the Brief of its State, for less than the State costs.
type Briefed interface {
	Brief() Brief
}

// Paced is a Member that answers calls one after the other, and tells how it gets on.
type Paced interface {
	// Waiting is since when the first call in line has been first: the last answer came then, or the
	// call was submitted. The line is that of calls for a slot. If it is empty, ok is false.
	Waiting(slot uint16) (since time.Time, ok bool)
}

// Guarded is a Member that may have been made without a restart guard.
type Guarded interface {
	// Guarded reports whether the member keeps from voting while it may have forgotten.
	Guarded() bool
}

// Listener hears a member's inbox and its changes of state. Both methods run on goroutines of the
// member and must not block.
type Listener interface {
	// Push delivers one message. msg is valid only during the call.
	Push(msg []byte, st State, at time.Time)
	// Changed is called after State has changed.
	Changed(st State)
}

// Subscriber is a Member that can listen to more channels than the inbox.
type Subscriber interface {
	// Subscribe adds channels to those of the inbox, now and after every reconnect, in one
	// command per call. A channel stays until Unsubscribe was called as often as Subscribe. Neither
	// method waits.
	Subscribe(channels ...string)
	Unsubscribe(channels ...string)
}

// ChannelListener is a Listener that also hears the channels of a Subscriber, on the goroutine of
// Push and in order with it.
type ChannelListener interface {
	// Channel delivers a message of a channel that Subscribe added. A nil msg says that the
	// subscription is confirmed, so earlier messages are lost.
	Channel(channel string, msg []byte, at time.Time)
}
