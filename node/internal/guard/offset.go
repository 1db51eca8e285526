package guard

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// Offset is how far a member's wall clock is from ours, as one look at its marker told.
type Offset struct{ Ahead, Within time.Duration }

// offsetOf dates the server's time at the middle of the round trip: the server read it at some
// moment of that.
func offsetOf(server int64, sent, arrived time.Time) Offset {
	half := arrived.Sub(sent) / 2
	return Offset{time.UnixMicro(server).Sub(sent.Add(half).Round(0)), max(half, time.Microsecond)}
}

// readOffset takes the server's time from the answer to a look that was sent at sent.
func readOffset(c *member.Call, sent time.Time) (o Offset, ok bool) {
	if e := c.Reply.Elems; c.Outcome == member.Answered && len(e) > 5 && e[5].Kind == ':' {
		return offsetOf(e[5].Int, sent, c.At), true
	}
	return Offset{}, false
}

// HeardOffset is how far the member's clock is from ours by the last look at its marker. Without a
// guard ok is false.
func (s *Seat) HeardOffset() (o Offset, ok bool) {
	if heard := s.offset.Load(); heard != nil {
		return *heard, true
	}
	return Offset{}, false
}
