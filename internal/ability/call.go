package ability

import (
	"errors"

	"github.com/redquorum/redquorum/member"
)

// ErrEnded: NotSent again, because the attempt of the call has begun its release. It is not repeated after NOSCRIPT.
var ErrEnded = errors.New("attempt has ended")

// Over reports whether the attempt of this call has begun its release.
func Over(d *member.Delivery) bool { return d.Ended != nil && d.Ended.Load() }

// Hop is the note of a member that passes a call on to one of several servers. Only that member
// looks into it.
type Hop interface {
	// Done receives the result in place of the owner's Sink, and passes it on to that Sink in the
	// end.
	member.Sink
	// Asking reports whether the server must first be told that another server sent it the call
	// (ASKING).
	Asking() bool
}

// Asking reports whether the server must first be told that another server sent it the call.
func Asking(c *member.Call) bool {
	if c.Hop == nil {
		return false
	}
	h, ok := c.Hop.(Hop)
	return ok && h.Asking()
}
