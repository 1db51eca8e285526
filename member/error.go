package member

import (
	"errors"
	"strings"
	"time"
)

// Kind classifies an error reply of a member. The source is the table of replies in the
// documentation of Redis 6 and 7. node/classify.go matches every text.
type Kind uint8

const (
	KindOther   Kind = iota // any other error
	KindForeign             // the key has another type or no TTL, so it is not a lock
	// the member lost its memory since this session began (restart guard)
	KindForgot
	KindNoScript   // the script cache was emptied; the member repairs that itself, once
	KindReadOnly   // READONLY, MISCONF, NOREPLICAS, MASTERDOWN: cannot write now
	KindLoading    // LOADING: restarting
	KindBusy       // BUSY: a script has been running for too long
	KindOverloaded // OOM, too many clients
	// NOAUTH, WRONGPASS, NOPERM, also inside scripts: never retried blindly
	KindAuth
	// MOVED, ASK, TRYAGAIN, CLUSTERDOWN, CROSSSLOT, a slot given away under a script
	KindCluster
	KindExhausted // no token is left in the lock's bucket; matches ErrTokensExhausted
)

// ReplyError is an error reply of a member. Text is the reply without script positions. It never
// holds the name of an owner, because no script of ours puts one into an error.
type ReplyError struct {
	Kind Kind
	Text string
}

func (e *ReplyError) Error() string {
	if e.Kind == KindForgot {
		return "member has restarted or was emptied, and does not vote yet (" + e.Text + ")"
	}
	return e.Text
}

// Is reports whether target is what the member said: ErrTokensExhausted, or ErrQuarantined where it has just been found
// to have forgotten.
func (e *ReplyError) Is(target error) bool {
	return target == ErrTokensExhausted && e.Kind == KindExhausted || target == ErrQuarantined && e.Kind == KindForgot
}

// These are the errors of a call without an answer. They appear wrapped, with the member's own
// cause.
var (
	ErrDown = errors.New("member is down") // NotSent: no connection
	// why a member is not Up until its first dial has ended
	ErrConnecting = errors.New("not connected yet")
	// NotSent: too many calls or bytes in flight
	ErrOverflow = errors.New("member's queue is full")
	ErrClosed   = errors.New("member is closed") // NotSent
	// Unknown: the connection died after the call was sent
	ErrBroken = errors.New("connection broke")
	// Unknown: the stall watchdog ended the connection
	ErrStalled = errors.New("member stopped answering")
)

// ErrTokensExhausted: a member's counter of tokens has reached 2^53, beyond which numbers in
// scripts are not exact. Counters begin at the server's time in µs. They get there only by a clock
// beyond the year 2255, or if somebody sets them by hand.
var ErrTokensExhausted = errors.New("no token is left: a clock beyond the year 2255, or a hand, has set the lock's counter;" +
	" correct the clock, and while no lock of the bucket is held, delete its field of redquorum:tokens at all members")

// ErrQuarantined: the member may have forgotten its votes, and does not vote yet. The error in the
// chain is a *QuarantineError.
var ErrQuarantined = errors.New("member is in quarantine")

// QuarantineError says until when a member does not vote. It matches ErrQuarantined.
type QuarantineError struct {
	Until     time.Time // the end of the quarantine; it may have passed while Restoring; zero: there is none, or it is not known
	Restoring bool      // the member's token counters must be restored as well
}

func (e *QuarantineError) Error() string {
	var until []string
	if !e.Until.IsZero() {
		until = append(until, " until "+e.Until.Format(time.TimeOnly))
	}
	if e.Restoring {
		until = append(until, " until its counters are restored")
	}
	return ErrQuarantined.Error() + strings.Join(until, " and")
}

// Is reports whether target is ErrQuarantined.
func (e *QuarantineError) Is(target error) bool { return target == ErrQuarantined }

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
