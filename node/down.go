package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"

	"github.com/redquorum/redquorum/member"
)

// reader completes calls until the connection ends, then all the rest.
func (s *session) reader(br *bufio.Reader) {
	err := s.replies(br)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("closed by the server: %w", io.ErrUnexpectedEOF)
	}
	s.fail(member.ErrBroken, err)
	s.node.fell(s) // before the calls are done: whoever then looks at State sees that it is down
	s.abandon()
}

// abandon completes every call in line after the connection has ended. It is the reader's last act;
// submit has refused since fail, so nothing can be queued behind it.
func (s *session) abandon() {
	s.line.Lock()
	unsent, lost := s.err, s.lost
	s.line.Unlock()
	s.line.Abandon(func(c *member.Call, sent bool) {
		if sent {
			s.node.finish(c, member.Unknown, lost)
		} else {
			s.node.finish(c, member.NotSent, unsent)
		}
	})
}

// fall edits p to say that there is no connection, because of cause.
func (n *Node) fall(p *published, cause error) {
	reason := cause
	if b, ok := cause.(*broke); ok {
		reason = b.cause // what is refused from now on was not on that connection
	}
	err := fmt.Errorf("%s: %w", n.name, cause)
	if !p.state.Up && p.state.Err != nil && p.state.Err.Error() == err.Error() {
		return // the same failure again is no change
	}
	p.state.Up, p.session, p.state.Err = false, nil, err
	n.inbox = nil // ended with the connection
	p.err = fmt.Errorf("%s: %w: %w", n.name, member.ErrDown, reason)
}

// fell publishes that s has broken, if s was up.
func (n *Node) fell(s *session) {
	n.change(func(p *published) {
		if p.session == s {
			n.fall(p, s.cause())
		}
	})
}
