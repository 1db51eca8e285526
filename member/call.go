package member

import (
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
)

// Call is one command to one member, and then its result. The owner fills in Command, Delivery,
// Sink and Index. It must leave the whole record alone until the member calls Sink.Done, which
// happens exactly once.
type Call struct {
	Command
	Delivery
	Sink  Sink
	Index int // the owner's own: position of the member in its list

	// Hop belongs to a member that passes the call on, and is told in place of Sink. It is nil before and after that.
	Hop Sink

	Result
}

// Command is what the owner asks of a member.
type Command struct {
	// Cmd is the RESP command. Several calls may share it. It must not change before all of them
	// are done.
	Cmd []byte
	// Tagged makes the member append its marker id as the last argument, or an empty string if it keeps none. The array header in
	// Cmd already counts that argument.
	Tagged bool
	// Unlooked says that the answer needs no look at the member's memory before it: it gives no vote, or the script
	// compares the tag with the marker in any case. A look that the member keeps does not go out before such a call.
	Unlooked bool
	Slot     uint16     // of the keys
	Marks    resp.Marks // where the parts of Cmd begin, if it is a script call; else zero
	Item     *resp.Item // the call may be executed together with others that wait in line; nil: it travels alone
}

// All locks of a member share these keys.
const (
	// TokensKey is a hash: the number of a slot -> the last token that a lock of that slot got.
	TokensKey = "redquorum:tokens"
	// MarkerKey is a hash: what the restart guard knows of the member.
	MarkerKey = "redquorum:boot"
)

// Delivery says how a call reaches the member, and what the member does if it does not.
type Delivery struct {
	// Late: a Sink or a Listener submits the call, that is, the reader of a connection. Another goroutine writes it, because a
	// reader that writes can deadlock.
	Late bool
	// Always sends a Tagged call even to a member that may not vote: a release, which only ever gives up.
	Always bool
	// OweUntil is not zero for a release. If it is Undelivered, the member keeps a copy, and sends it again until an answer comes
	// or this moment passes.
	OweUntil time.Time
	// Ended, if set, is true once the attempt of this call has begun its release. The call is not repeated then, because it would
	// execute behind the release.
	Ended *atomic.Bool
}

// Result is what became of a call. The member fills it in.
type Result struct {
	Outcome Outcome
	Reply   Reply     // set if Answered
	Err     error     // set with any other outcome
	State   Brief     // of the member when the call was submitted
	At      time.Time // when the answer arrived
	// Interrupted means that a server stopped the script in the middle, and the member sent the
	// call again. The answer is that of the last execution alone.
	Interrupted bool
}

// Outcome says what is known of a Call.
type Outcome uint8

const (
	// Unanswered: the call is queued or on the wire.
	Unanswered Outcome = iota
	// Answered: Reply holds the member's answer.
	Answered
	// Refused: the member answered with an error, and Err is a *ReplyError.
	Refused
	// Unknown: the call was sent, perhaps in part, and no answer came. The member may have executed
	// it. It may still do so until the connection is known to be dead.
	Unknown
	// NotSent: no byte of the call left this process.
	NotSent
)

// Reply is one parsed RESP reply. Its memory is used again with the Call.
type Reply struct {
	Kind  byte    // ':' integer, '$' string (bulk or simple), '_' null, '*' array, '-' error inside an array
	Int   int64   // of an integer
	Str   []byte  // of a string; of an error inside an array, its text
	Elems []Reply // of an array
}

// Finish delivers the result to the Hop if there is one, otherwise to the Sink. Only members call
// it.
func (c *Call) Finish() {
	if c.Hop != nil {
		c.Hop.Done(c)
		return
	}
	c.Sink.Done(c)
}

// Sink receives the result of a call. Done runs on the reader of the member's connection, or inside
// Submit. It must not block, and must not lock a mutex that its caller holds around Submit.
type Sink interface{ Done(c *Call) }
