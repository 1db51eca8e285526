package node

import (
	"time"

	"github.com/redquorum/redquorum/member"
)

// offset is how far the member's wall clock is from ours, as one look at its marker told.
type offset struct{ ahead, within time.Duration }

// offsetOf dates the server's time at the middle of the round trip: it was read at some moment of that.
func offsetOf(server int64, sent, arrived time.Time) offset {
	half := arrived.Sub(sent) / 2
	return offset{time.UnixMicro(server).Sub(sent.Add(half).Round(0)), max(half, time.Microsecond)}
}

// toldTime takes the server's time from an answer to a look that was sent at sent.
func (n *Node) toldTime(c *member.Call, sent time.Time) {
	if e := c.Reply.Elems; c.Outcome == member.Answered && len(e) > 5 && e[5].Kind == ':' {
		o := offsetOf(e[5].Int, sent, c.At)
		n.offset.Store(&o)
	}
}

// ClockOffset implements member.Clocked. It is as old as the last look at the marker, PingInterval or so;
// without a restart guard there is none.
func (n *Node) ClockOffset() (ahead, within time.Duration, ok bool) {
	o := n.offset.Load()
	if o == nil {
		return 0, 0, false
	}
	return o.ahead, o.within, true
}
