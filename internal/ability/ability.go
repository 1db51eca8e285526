// Package ability names what some members can do beside member.Member. Whoever has a member asks by a type assertion.
package ability

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// Slotted is a Member that spreads its keys over several servers. All slots share the Gen of the
// member. The rest of a slot's State is that of the server that owns the slot.
type Slotted interface {
	member.Member
	// StateOf says what the member is good for in a slot.
	StateOf(slot uint16) member.State
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
	member.Member
	// SubmitGroup queues calls, in their order, and returns. If all of them have an Item, they
	// travel as one command, and the acquires behind the first are Chained. Otherwise, and if the
	// server takes no such command, each travels as with Submit, and none is chained. So an owner
	// must not rely on the chain, but only gain by it.
	SubmitGroup(calls []*member.Call)
}

// Briefed is a Member that tells the Brief of its State, for less than the State costs.
type Briefed interface {
	Brief() member.Brief
}

// Paced is a Member that answers calls one after the other, and tells how it gets on.
type Paced interface {
	// Waiting is since when the first call in line has been first: the last answer came then, or the
	// call was submitted. The line is that of calls for a slot. If it is empty, ok is false.
	Waiting(slot uint16) (since time.Time, ok bool)
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

// Clocked is a Member that knows how far its wall clock is ahead of ours, and how wrong that figure
// may be. The figure is for people. This library relies on how fast wall clocks run, and never on
// what they say.
type Clocked interface {
	ClockOffset() (ahead, within time.Duration, ok bool)
}

// Silence is the part of a member that does not vote. A member that is one server votes for all
// locks or for none, as its State says. A member that spreads its keys over several servers may
// vote for some locks and not for others.
type Silence struct {
	Masters int // masters that do not vote, without those that serve no slot
	Slots   int // slots for whose locks nobody votes, also if no master is known to serve them
	// Until is when the last quarantine among these masters ends. If it has passed, counters are
	// still to be restored. It is zero if none of them is in quarantine, and ignores masters that
	// are down.
	Until time.Time
	// Err is the cause: that of a master in quarantine rather than of one that is down. It matches
	// member.ErrQuarantined or member.ErrDown, and is nil if everything votes.
	Err error
}

// Parted is a Member that may be silent in part, while its State says that it votes.
type Parted interface {
	Silence() Silence
}
