package wait

import (
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// Start says how an attempt begins.
type Start uint8

const (
	AskFirst  Start = iota // ask, and wait if refused
	WaitFirst              // wait, because the lock is known to be contended
	TryOnce                // ask, and never wait
)

// Past says how an attempt begins, and what earlier attempts of the same caller have left to it.
type Past struct {
	Start Start
	left  *left // nil: nothing
}

// left is what an attempt leaves to the next one.
type left struct {
	tried         tried
	notBefore     time.Time     // do not ask before: asking was found to be in vain
	silentBefore  memberset.Set // members that did not answer then, until they do
	noQuorumSince time.Time     // since when fewer than a majority could be asked; zero: not so
	ticket        int64         // the caller's, agreed by an earlier attempt; 0: none
	lastAnswers   []said        // what the members told last
}

// tried counts attempts of one caller.
type tried struct {
	slow  int32     // had a majority, and were too slow to use it
	back  int32     // stood back in a row because of members that fail
	since time.Time // the end of the first that had a majority, and could not confirm its token
}

// tries is how many attempts may have a majority and be too slow to use it.
const tries = 3

// Past returns what the attempt leaves to the next one, after Again.
func (b *Ballot) Past() Past {
	l := b.more().left
	l.ticket, l.lastAnswers = b.ticket(), b.lastAnswers()
	return Past{b.start, &l}
}

// comesAfter begins with what another attempt has left.
func (b *Ballot) comesAfter(l *left) {
	b.more().left = *l
	for i, s := range l.lastAnswers {
		b.m[i].lastAnswer, b.m[i].err = s.lastAnswer, s.err
	}
	switch {
	case b.permits != nil:
		b.permits.anew = l.ticket
	case l.ticket > 0:
		b.tickets = newTickets(len(b.m), l.ticket)
	}
}

// endAttempt ends an attempt that another one may succeed.
func (b *Ballot) endAttempt(s *Step, why Cause, now time.Time, states []member.State) {
	if b.backOff(s, now, states) {
		return
	}
	b.phase, b.poll = over, poll{}
	if b.start == TryOnce || !b.more().tried.allows(why, now, b.terms.GiveUp) {
		s.Do, s.Cause = Lose, why
		return
	}
	b.start = WaitFirst
	s.Do, s.Cause = Again, why
}

// allows reports whether another attempt may follow one that had a majority in vain, and counts that one.
func (p *tried) allows(why Cause, now time.Time, giveUp time.Duration) bool {
	switch {
	case why == TooSlow:
		p.slow++
		return p.slow < tries
	case p.since.IsZero():
		p.since = now
		return true
	}
	return giveUp < 0 || clock.Elapsed(p.since, now) < giveUp
}

// standBack makes room for those who can have a majority. Only asking tells that a member which fails does so no more, and
// who asks may have a vote for Timeout that others want: so seldom, and more seldom from one time to the next.
func (b *Ballot) standBack(s *Step, failing memberset.Set, now time.Time) {
	s.Do, s.Cause = Again, StoodBack
	b.phase, b.silentBefore, b.notBefore = over, failing, time.Time{}
	if failing == 0 {
		b.tried.back = 0
		return
	}
	b.notBefore = now.Add(min(b.terms.Timeout<<min(b.tried.back, 10), max(b.terms.Timeout, time.Second)))
	b.tried.back++
}
