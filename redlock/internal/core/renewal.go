package core

import (
	"time"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/member"
)

// A lease is renewed by a majority that have it, in answer to one question. Its validity counts from before the submission of that.

// Count is what the members say of one lease in answer to one question.
type Count struct {
	ttl     time.Duration // for which they were asked to keep it
	sent    time.Time     // before the first call of the question was submitted
	yes     memberset.Set
	refused memberset.Set // once refused: a member that takes the lease back does not undo its refusal
	need    uint8
	won     bool // the lease is renewed, or it has ended, by what was said first
	lost    bool

	Done bool // the verdict has been carried out: the caller's own
}

// Asks begins the count of a question that asks all members to keep a lease for ttl.
func Asks(ttl time.Duration, members int) Count {
	return Count{ttl: ttl, need: uint8(member.Majority(members))}
}

// Book counts the word of member i, as an answer tells it: a number above 0 says that it has the lease. It returns whether that
// word is the one by which a majority has it, or has not. Silence is no word, and neither is what a member says that may not vote.
func (c *Count) Book(i int, a *Answer) (won, lost bool) {
	if a.Outcome != member.Answered || a.Idle() {
		return false, false
	}
	if c.sent.IsZero() || a.Sent.Before(c.sent) {
		c.sent = a.Sent
	}
	if a.N > 0 {
		c.yes = c.yes.With(i)
	} else {
		c.refused = c.refused.With(i)
	}
	if c.won || c.lost {
		return false, false
	}
	c.won = c.yes.Len() >= int(c.need)
	c.lost = !c.won && c.refused.Len() >= int(c.need)
	return c.won, c.lost
}
