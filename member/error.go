package member

import (
	"errors"
	"time"
)

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
