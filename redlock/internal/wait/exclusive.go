package wait

import (
	"bytes"
	"crypto/sha1"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/duration"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// Exclusive are the rules of the lock that has one holder. A split yields to the attempt whose
// owner hashes lowest, and the waiter succeeds that most members name.
var Exclusive = Rules{split: (*Ballot).splitUp, lower: (*Ballot).hashesHigher, hint: (*Ballot).mostNamed}

// hashesHigher reports whether the owner of the attempt hashes higher than a waiter, as the script yield compares them.
func (b *Ballot) hashesHigher(waiter string) bool {
	theirs, ours := sha1.Sum([]byte(waiter)), sha1.Sum([]byte(b.owner))
	return bytes.Compare(theirs[:], ours[:]) < 0
}

// excluded books that the lock is another's at member i.
func (b *Ballot) excluded(i int, a *Answer) {
	m := &b.m[i]
	b.askAt(i, a.At.Add(duration.FromMillis(-a.N)+time.Millisecond))
	m.lastAnswer = refused
	m.found()
	b.core.Refused(i, a.Server)
}

// heldAfterGiveUp books that member i answers with a vote that was given up, or with an older one.
func (b *Ballot) heldAfterGiveUp(i int, a *Answer) {
	m := &b.m[i]
	switch {
	case b.permits != nil:
		b.keeps(i, a.Permits)
	case a.N == b.core.GivenUp(i) && b.core.Has(i) == core.None && m.yield != yielding:
		m.yield = yieldLost
	case m.yield == yieldLost:
		m.yield = noYield
	}
}

// mayYield reports whether member i has something of ours that another attempt could use.
func (b *Ballot) mayYield(i int) bool {
	m := &b.m[i]
	return b.core.Token(i) > 0 && m.yield != yieldedBack || m.yield == yieldLost
}

// Offer is a vote that is given up.
type Offer struct {
	Given  core.Given
	Ticket int64 // where the attempt stands from then on; 0: not known, or without tickets
	Slots  []int // of a Claim, what is asked for instead; nil: the attempt waits for any
}

// splitUp yields the votes in hand two round trips after every member has answered or been silent
// for too long. All members then give to the same attempt.
func (b *Ballot) splitUp(c survey, now time.Time) (s Step, wake time.Time) {
	switch {
	case c.offers == 0:
		b.split = time.Time{}
	case c.allHeard && b.split.IsZero():
		b.split = now.Add(max(time.Millisecond, 2*b.rtt))
	}
	if b.split.IsZero() || clock.Until(b.split, now) > 0 {
		return Step{}, b.split
	}
	b.split = time.Time{}
	if out := b.yield(now); len(out) > 0 {
		return Step{Do: Yield, Offers: out}, time.Time{}
	}
	return Step{}, time.Time{}
}

// yield gives up every vote in hand that was not offered in vain already, and those whose yield was
// lost.
func (b *Ballot) yield(now time.Time) (out []Offer) {
	for i := range b.m {
		m := &b.m[i]
		if !b.mayYield(i) {
			continue
		}
		out = append(out, Offer{Given: b.core.GiveUp(i, nil, nil), Ticket: b.ticketAt(i)})
		m.yield, b.again[i].wished = yielding, false
		b.entryShortened(i, now)
		m.sent++
		if m.pending == 0 {
			m.since = now
		}
	}
	return out
}

// YieldAnswered books the result of a yield: a new token if the vote stayed ours.
func (b *Ballot) YieldAnswered(i int, a *Answer) quorum.Vote {
	m := &b.m[i]
	if m.yield == yielding {
		m.yield = noYield
	}
	switch {
	case !b.books(i, a):
	case b.core.GivenBack(i, &a.Answer):
		m.found()
		if !b.again[i].wished {
			m.yield = yieldedBack
		}
	case b.core.Token(i) == 0:
		m.lastAnswer = refused
	}
	return a.counts(false)
}
