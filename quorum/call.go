package quorum

import (
	"context"
	"errors"
	"sync/atomic"
	"time"
)

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

// Kind classifies an error reply of a member (source: the table of replies in docs of Redis 6 and 7;
// every text is matched in node/classify.go).
type Kind uint8

const (
	KindOther      Kind = iota // any other error
	KindForeign                // the key has another type, or no TTL: not a lock of ours
	KindForgot                 // the member lost its memory since this session began (restart guard)
	KindNoScript               // script cache was emptied; repaired by the member itself, once
	KindReadOnly               // READONLY, MISCONF, NOREPLICAS, MASTERDOWN: cannot write now
	KindLoading                // LOADING: restarting
	KindBusy                   // BUSY: a script runs for too long
	KindOverloaded             // OOM, max number of clients
	KindAuth                   // NOAUTH, WRONGPASS, NOPERM, and their forms inside scripts: never retried blindly
	KindCluster                // MOVED, ASK, TRYAGAIN, CLUSTERDOWN, CROSSSLOT, a slot given away under a script
	KindExhausted              // no token is left in the lock's bucket; the error matches ErrTokensExhausted
)

// Passes reports whether the same call may well be executed a little later: it was refused for a state of the
// server, or for where a slot was at that moment. What a server forbids or does not know does not pass.
func (k Kind) Passes() bool {
	switch k {
	case KindNoScript, KindReadOnly, KindLoading, KindBusy, KindOverloaded, KindCluster:
		return true
	}
	return false
}

// ReplyError is an error reply of a member. Text is the reply without script positions; it never
// holds an owner token, because no script of ours puts one into an error.
type ReplyError struct {
	Kind Kind
	Text string
}

func (e *ReplyError) Error() string { return e.Text }

// Is matches ErrTokensExhausted where that is what the member said.
func (e *ReplyError) Is(target error) bool {
	return target == ErrTokensExhausted && e.Kind == KindExhausted
}

// Errors of a call that got no answer. They appear wrapped, with the member's own cause.
var (
	ErrDown       = errors.New("member is down")           // NotSent: no connection
	ErrConnecting = errors.New("not connected yet")        // why a member is not Up before its first dial has ended
	ErrOverflow   = errors.New("member's queue is full")   // NotSent: too many calls or bytes in flight
	ErrClosed     = errors.New("member is closed")         // NotSent
	ErrBroken     = errors.New("connection broke")         // Unknown: sent, then the connection died
	ErrStalled    = errors.New("member stopped answering") // Unknown: the stall watchdog ended the connection
	// ErrUnacknowledged: Unknown. The master did it, and too few replicas have said that they have it.
	ErrUnacknowledged = errors.New("not acknowledged by enough replicas")

	ErrEnded = errors.New("attempt has ended") // NotSent again: not repeated after NOSCRIPT
)

// ErrTokensExhausted: a member's counter of tokens has reached 2^53, where numbers in scripts are not exact any more.
// Counters begin at the server's time in µs, and get there only by a clock beyond the year 2255, or by hand.
var ErrTokensExhausted = errors.New("no token is left: set right the member's clock, and while no lock of the bucket is held" +
	" delete its field of redquorum:tokens at all members (a clock beyond the year 2255 or a hand has set it)")

// ErrQuarantined: the member may have forgotten what it granted, and does not vote yet. The error in
// the chain is a *QuarantineError.
var ErrQuarantined = errors.New("member is in quarantine")

// QuarantineError says until when a member does not vote. It matches ErrQuarantined.
type QuarantineError struct {
	Until     time.Time // the end of the quarantine; may have passed while Restoring
	Restoring bool      // its token counters must be restored as well
}

func (e *QuarantineError) Error() string {
	text := ErrQuarantined.Error() + " until " + e.Until.Format(time.TimeOnly)
	if e.Restoring {
		text += " and until its counters are restored"
	}
	return text
}

// Is matches ErrQuarantined.
func (e *QuarantineError) Is(target error) bool { return target == ErrQuarantined }

// Call is one command to one member, and then its result. The owner fills in the first group and
// must leave the whole record alone until Sink.Done has been called, which happens exactly once.
type Call struct {
	// Cmd is the RESP command. Several calls may share it; nobody changes it before all are done.
	Cmd []byte
	// Tagged: the member appends one more bulk string, its marker id (empty where it keeps none), as
	// the last argument. The array header in Cmd counts it already. This is how one encoding serves
	// all members and still carries what each of them must check.
	Tagged bool
	// Late: submitted from a Sink or a Listener, that is, from the reader of a connection. Such a call
	// is queued and written by another goroutine, because a reader that writes can deadlock.
	Late bool
	// OweUntil: not zero for a release. If it is Undelivered the member keeps a copy and sends it again,
	// until it is answered or this moment has passed: after a pause where it was refused, else as soon as
	// there is a connection with room for it.
	OweUntil time.Time
	// Always: a Tagged call that also goes to a member that may not vote: a release, which only ever
	// gives up.
	Always bool
	// Ended, if set, is true once the attempt that this call belongs to has begun its release. A call
	// is then no longer repeated after NOSCRIPT: it would execute behind the release.
	Ended *atomic.Bool
	// Slot is the hash slot of the keys. Only a member that spreads its keys over several servers looks at it.
	Slot uint16
	// Shared is where the names of the keys begin in Cmd that all locks of a member share, 0 if there are
	// none. A member that keeps one such key per slot writes its own names in their place, so that one
	// encoding serves all members.
	Shared int32
	// Item lets a member execute the call together with others that wait in its line.
	Item  Item
	Sink  Sink
	Index int // the owner's: position of the member in the round

	// Joined is the member's: how many calls of its line, from this one on, are answered together.
	Joined int32

	// Via is the member's: what it sets here is told of the result instead of Sink, and tells Sink.
	Via Sink
	// Route is for the use of Via.
	Route Route

	Outcome Outcome
	Reply   Reply     // Outcome == Answered
	Err     error     // any other outcome
	State   State     // of the member when the call was submitted: Gen, Epoch
	At      time.Time // when the answer arrived
}

// Undelivered reports whether a call that is done may not have been executed and may still be if it is sent again:
// nobody answered it, or what answered refused it for a reason that passes.
func (c *Call) Undelivered() bool {
	switch c.Outcome {
	case NotSent, Unknown:
		return true
	case Refused:
		var reply *ReplyError
		return errors.As(c.Err, &reply) && reply.Kind.Passes()
	}
	return false
}

// Item is how a Tagged call whose Cmd is EVALSHA, with a key of its own and then the names of Shared, travels in
// one script call with others: as one of its items, in their order, with an answer of its own.
type Item struct {
	Batch  string // SHA-1 in hex of the script that carries such calls, one of the member's; "": it travels alone
	Letter byte   // says what it is
	Keys   uint8  // its own
	Args   uint8  // without the tag
}

// Route is what a member that passes calls on to several servers remembers of one of them.
type Route struct {
	Asking bool  // the server is told that another one sent us (ASKING)
	Hops   uint8 // servers that sent it elsewhere
	// Interrupted: the script was stopped in the middle, at a key that was given away, and repeated.
	Interrupted bool
	Gen         uint64    // of the member when the call came in
	Since       time.Time // when it was first not executed where it was sent
}

// Finish tells whoever is to learn the result. For members.
func (c *Call) Finish() {
	if c.Via != nil {
		c.Via.Done(c)
		return
	}
	c.Sink.Done(c)
}

// Sink learns the result of a call. Done runs on the reader of the member's connection, or inside
// Submit: it must not block, and must not hold a mutex that its caller holds around Submit.
type Sink interface{ Done(c *Call) }

// State is what a member is good for at this moment.
type State struct {
	Gen   uint64 // votes, anchors and pushes of an earlier generation count for nothing
	Epoch uint64 // one per command connection; server times of another epoch are no anchors
	Up    bool   // has a connection
	Votes bool   // may vote: Up, and not suspected of having forgotten
	Inbox bool   // the subscription of the inbox is confirmed
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
// all; nothing is sent twice by itself, except a release that is owed (Call.OweUntil) and a call
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
