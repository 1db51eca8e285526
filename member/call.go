package member

import (
	"bytes"
	"errors"
	"sync/atomic"
	"time"
)

// Call is one command to one member, and then its result. The owner fills in Command, Delivery, Sink and Index, and
// must leave the whole record alone until Sink.Done has been called, which happens exactly once.
type Call struct {
	Command
	Delivery
	Sink  Sink
	Index int // the owner's: position of the member in its list

	// Hop is the member's. The owner sets it to nil, and it is nil again when the call is done.
	Hop Hop

	Result
}

// Command is what a member is asked.
type Command struct {
	// Cmd is the RESP command. Several calls may share it; nobody changes it before all are done.
	Cmd []byte
	// Tagged: the member appends one more bulk string, its marker id (empty where it keeps none), as
	// the last argument. The array header in Cmd counts it already. This is how one encoding serves
	// all members and still carries what each of them must check.
	Tagged bool
	// Slot is the hash slot of the keys. Only a member that spreads its keys over several servers looks at it.
	Slot uint16
	// Marks are where the parts of Cmd begin if it is a script call; else zero.
	Marks Marks
	// Item lets a member execute the call together with others that wait in its line; nil: the call travels alone.
	Item *Item
}

// Marks note where the parts of a script call begin in its Cmd. A member writes the call in another form with their
// help, and need not read the command:
//
//	*11 EVALSHA SHA-1   5        lock   counters marker   queue waiters   bucket owner …
//	                    Count    Own    Shared            More            Args
//
// The parts from Own to Args are the keys. Those between Shared and More are the keys that all locks of a member
// share. A member that has one such key per slot writes the name of that key in place of each of them, so that one
// encoding serves all members.
type Marks struct {
	Count, Own         uint8
	Sharing            uint8 // how many keys are shared
	Shared, More, Args int32
}

// Item is how a Tagged script call travels in one command with others: as one item of another script, in the order of
// submission, with an answer of its own. All calls of one script have the same Item, and nobody changes it.
type Item struct {
	Batch  string // SHA-1 in hex of the script that carries such calls, one of the member's
	Letter byte   // tells that script what the call is
	Keys   uint8  // keys that are not shared
	Args   uint8  // arguments without the tag
}

// Keys that all locks of a member share.
const (
	// TokensKey is a hash: the number of a slot -> the last token that a lock of the slot was given.
	TokensKey = "redquorum:tokens"
	// MarkerKey is a hash: what the restart guard knows of the member.
	MarkerKey = "redquorum:boot"
)

// Delivery is how a call reaches the member, and what the member does if it does not. The zero value suits a call from
// a goroutine of its own to a member that may vote.
type Delivery struct {
	// Late: submitted from a Sink or a Listener, that is, from the reader of a connection. Such a call
	// is queued and written by another goroutine, because a reader that writes can deadlock.
	Late bool
	// Always: a Tagged call that also goes to a member that may not vote: a release, which only ever
	// gives up.
	Always bool
	// OweUntil: not zero for a release. If it is Undelivered the member keeps a copy and sends it again,
	// until it is answered or this moment has passed: after a pause where it was refused, else as soon as
	// there is a connection with room for it.
	OweUntil time.Time
	// Ended, if set, is true once the attempt that this call belongs to has begun its release. A call
	// is then no longer repeated after NOSCRIPT: it would execute behind the release.
	Ended *atomic.Bool
}

// Over reports whether the attempt that the call belongs to has begun its release.
func (d *Delivery) Over() bool { return d.Ended != nil && d.Ended.Load() }

// Result is what became of a call. The member fills it in.
type Result struct {
	Outcome Outcome
	Reply   Reply     // if Answered
	Err     error     // with any other outcome
	State   State     // of the member when the call was submitted: Gen, Epoch
	At      time.Time // when the answer arrived
	// Interrupted: a server stopped the script in the middle, and the member sent the call again. What is
	// answered is the word of the last time alone.
	Interrupted bool
}

// Outcome says what is known of a Call. The difference between Unknown and NotSent is the
// difference between "clean up there" and "nothing to clean up".
type Outcome uint8

const (
	// Unanswered: queued or on the wire.
	Unanswered Outcome = iota
	// Answered: Reply holds the member's answer.
	Answered
	// Refused: the member answered with an error; Err is a *ReplyError.
	Refused
	// Unknown: sent, perhaps in part, and no answer came. It may or may not have been executed,
	// and may still be until the connection it travelled on is known to be dead.
	Unknown
	// NotSent: not a byte left this process.
	NotSent
)

func (o Outcome) String() string {
	switch o {
	case Unanswered:
		return "unanswered"
	case Answered:
		return "answered"
	case Refused:
		return "refused"
	case Unknown:
		return "unknown"
	case NotSent:
		return "not sent"
	}
	return "invalid outcome"
}

// Reply is one parsed RESP reply. Str and Elems belong to the Call and are overwritten when the
// Call is used again.
type Reply struct {
	Kind  byte    // ':' integer, '$' string (bulk or simple), '_' null, '*' array, '-' error inside an array
	Int   int64   // integers
	Str   []byte  // strings, and the text of an error inside an array
	Elems []Reply // arrays
}

// Undelivered reports whether a call that is done may not have been executed and may still be if it is sent again:
// nobody answered it, or what answered refused it for a reason that passes.
func (r *Result) Undelivered() bool {
	switch r.Outcome {
	case NotSent, Unknown:
		return true
	case Refused:
		var reply *ReplyError
		return errors.As(r.Err, &reply) && reply.Kind.Passes()
	}
	return false
}

// Hop is what a member that passes a call on to one of several servers notes of it. Nobody else looks into it.
type Hop interface {
	// Done is told of the result in place of the owner's Sink, and tells that in the end.
	Sink
	// Asking: the server that the call goes to is told first that another one sent it there (ASKING).
	Asking() bool
}

// Asking reports whether the server that the call goes to is told first that another one sent it there.
func (c *Call) Asking() bool { return c.Hop != nil && c.Hop.Asking() }

// Finish tells the result: the Hop if there is one, else the Sink. It is for members.
func (c *Call) Finish() {
	if c.Hop != nil {
		c.Hop.Done(c)
		return
	}
	c.Sink.Done(c)
}

// Again returns a copy of a release that is owed, which stays its owner's. The copy travels by itself, and tells sink.
func (c *Call) Again(sink Sink) Call {
	again := Call{Command: c.Command, Delivery: Delivery{Always: c.Always, Late: true}, Sink: sink}
	again.Cmd, again.Item = bytes.Clone(c.Cmd), nil
	return again
}

// Sink learns the result of a call. Done runs on the reader of the member's connection, or inside
// Submit: it must not block, and must not hold a mutex that its caller holds around Submit.
type Sink interface{ Done(c *Call) }
