package child

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Action is what is due.
type Action uint8

const (
	Run       Action = iota // nothing is due: look again later
	Terminate               // ask the command to end
	Kill                    // end the command
)

// Plan says when a command must end, measured back from the end of the validity.
type Plan struct {
	KillAfter time.Duration // when to ask the command to end
	Margin    time.Duration // when to kill it: this process may get no processor time for that long
}

// DefaultPlan gives a command a third of its lease to end in, at most 5 s. The lease is renewed
// every third, so two renewals may fail before the command hears of it.
func DefaultPlan(ttl time.Duration) Plan { return PlanFor(min(5*time.Second, ttl/3)) }

// PlanFor keeps half of killAfter, at most 1 s, for the kill itself. On a machine with twenty
// processes ready to run for two processors, this process was seen to run 250 ms late.
func PlanFor(killAfter time.Duration) Plan {
	return Plan{KillAfter: killAfter, Margin: min(time.Second, killAfter/2)}
}

// Stopper applies a Plan to a lease whose end moves. Once it has asked the command to end, a late
// renewal changes nothing. The command is ending, and gets no more time than it was told.
type Stopper struct {
	Plan
	until time.Time // the end that was counted on when the command was asked to end; zero: it was not
}

// Look says what is due at now, and in how much time to look again. The lease is trusted until
// until, and has ended if over is true. If it has ended, Look leaves no time for asking, because
// another owner may have the lock.
func (s *Stopper) Look(now, until time.Time, over bool) (Action, time.Duration) {
	if !s.until.IsZero() && clock.Until(s.until, until) <= 0 {
		until = s.until
	}
	left := clock.Until(until, now)
	switch {
	case over, left <= s.Margin:
		return Kill, 0
	case left <= s.KillAfter:
		s.until = until
		return Terminate, left - s.Margin
	}
	return Run, min(left-s.KillAfter, lookAgain)
}

// lookAgain bounds how late a timer can be that a suspend has delayed.
const lookAgain = time.Second
