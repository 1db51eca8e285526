package wait

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
)

// Overheard is what a waiting attempt learns from the channels of a lock that Redisson shares.
type Overheard uint8

const (
	Confirmed Overheard = iota // the subscription is confirmed: earlier messages are lost
	Turn                       // the next message is of our own release, which leaves the lock to others
	Freed
)

// shared is what a ballot knows besides, of a lock that is shared with Redisson.
type shared struct {
	freed  memberset.Set // others have freed the lock there, by their own message: ask
	again  memberset.Set // the subscription is new there: ask
	turn   memberset.Set // the next message there is of our own making
	pauses []pause       // by member
}

// pause is when a vote that a yield gave back is offered again, and how long that was put off.
type pause struct {
	at  time.Time
	off time.Duration
}

// Overhears books what the attempt heard of member i.
func (b *Ballot) Overhears(i int, what Overheard) {
	s, one := b.shared, memberset.Set(0).With(i)
	switch {
	case what == Confirmed:
		s.again |= one
	case what == Turn:
		s.turn |= one
	case s.turn.Has(i):
		s.turn &^= one
	default:
		s.freed |= one
	}
}

// ask takes the members that are to be asked for what was heard of them.
func (s *shared) ask() (to memberset.Set, freed bool) {
	if to = s.freed; to != 0 {
		s.freed, s.again = 0, s.again&^to
		return to, true
	}
	to, s.again = s.again, 0
	return to, false
}

// yieldAgain has a vote that a yield gave back for one yielded again after a pause, each twice as long as
// the one before. Redisson's waiters do not announce themselves: one that came meanwhile, perhaps with all
// the other votes, then waits for ours no longer than it was away, instead of until our next heartbeat.
func (b *Ballot) yieldAgain(i int, now time.Time) {
	switch o := &b.shared.pauses[i]; {
	case o.at.IsZero():
		o.off = min(max(10*time.Millisecond, 2*o.off), b.terms.Entry/3)
		o.at = now.Add(o.off)
	case clock.Until(o.at, now) <= 0:
		o.at = time.Time{}
		b.m[i].mayYieldAgain()
	}
}
