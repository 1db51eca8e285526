package node

import (
	"fmt"

	"github.com/redquorum/redquorum/member"
)

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
	if n.inbox != nil && n.inbox.session != nil {
		n.inbox = nil // ended with the connection
	}
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
