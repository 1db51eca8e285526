package node

import (
	"errors"
	"fmt"

	"github.com/redquorum/redquorum/member"
)

// errUnacknowledged: Unknown. The master executed the call, and too few replicas acknowledged it.
var errUnacknowledged = errors.New("not acknowledged by enough replicas")

// waitCall is the WAIT behind a call whose answer counts only if replicas have it.
func (s *session) waitCall() *member.Call { return ownCall(s.node.waits, (*acknowledged)(s)) }

// acknowledged is the Sink of a WAIT: it ends the call before it. It runs on the reader.
type acknowledged session

func (a *acknowledged) Done(w *member.Call) {
	s := (*session)(a)
	c := s.held
	s.held = nil
	switch {
	case c == nil: // it was refused
	case w.Outcome == member.Answered && w.Reply.Kind == ':' && w.Reply.Int >= int64(s.node.cfg.MinReplicasAck):
		c.Finish()
	case w.Outcome == member.Answered:
		s.node.finish(c, member.Unknown, fmt.Errorf("%s: %w: %d of %d", s.node.name, errUnacknowledged, w.Reply.Int, s.node.cfg.MinReplicasAck))
	default:
		s.node.finish(c, member.Unknown, fmt.Errorf("%s: %w: WAIT: %w", s.node.name, errUnacknowledged, w.Err))
	}
}
