package wait

import "time"

// Rules are what one kind of lock decides in its own way. All else of the package counts votes,
// whatever they are for. Each kind has a file with its rules.
type Rules struct {
	// split says what to do if some attempts have votes and none has a majority. A step that does
	// nothing means: look again at wake, or, if wake is zero, when something is heard.
	split func(b *Ballot, c survey, now time.Time) (s Step, wake time.Time)
	// lower reports whether a member gives a vote that the attempt yields to a waiter, and not back. A member that did give one
	// back is asked no more because of a waiter that it would not give it to. nil: it may be any.
	lower func(b *Ballot, waiter string) bool
	// hint is the waiter that a release asks the members to prefer, or "".
	hint func(b *Ballot) string
	// align goes on with an attempt that asks once and has no majority, and reports whether it does:
	// it listens then. nil: there is nothing to be done.
	align func(b *Ballot, now time.Time) bool
}

// Hint names the successor for the release, or "".
func (b *Ballot) Hint() string {
	if b.terms.Rules == nil { // the zero Ballot
		return ""
	}
	return b.terms.Rules.hint(b)
}
