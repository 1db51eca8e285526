package child

import (
	"time"

	"github.com/redquorum/redquorum/clock"
)

// Action is what is due.
type Action uint8

const (
	Run       Action = iota // nothing: look again later
	Terminate               // ask it to end
	Kill                    // end it
)

// Plan is when a command must end, measured back from the end of the validity.
type Plan struct {
	KillAfter time.Duration // it is asked to end so long before
	Margin    time.Duration // and killed so long before: for how long this process may get no processor time
}

// DefaultPlan gives a command a third of its lease to end in, at most 5 s. The lease is renewed at each
// third, so two renewals may fail before the command hears of it.
func DefaultPlan(ttl time.Duration) Plan { return PlanFor(min(5*time.Second, ttl/3)) }

// PlanFor keeps half of killAfter, at most 1 s, for the kill itself: on a machine with twenty processes
// ready to run for two processors, this one was seen to run 250 ms late.
func PlanFor(killAfter time.Duration) Plan {
	return Plan{KillAfter: killAfter, Margin: min(time.Second, killAfter/2)}
}

// Stopper applies a Plan to a lease whose end moves. Once it has asked the command to end, a renewal that
// comes too late changes nothing: the command is ending, and is not given more time than it was told.
type Stopper struct {
	Plan
	until time.Time // the end that was counted on when the command was asked to end; zero: it was not
}

// Look says what is due at now, of a lease that is trusted until until and ended already if over; and
// in how much time to look again. A lease that is over is nobody's any more: then there is no time for asking.
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

// Stopping reports whether the command was asked to end.
func (s *Stopper) Stopping() bool { return !s.until.IsZero() }

// lookAgain bounds how late a timer can be that a suspend has delayed.
const lookAgain = time.Second
