package node

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
)

// A server sends the messages of the inbox on the commands' connection, in RESP3. So the inbox is of the commands'
// process by construction, and ends with the connection. Its owner is the supervisor.

// attune makes the inbox of s one of what is published, if there is a Listener: unless it is, the inbox is subscribed anew. An
// error ends the session.
func (n *Node) attune(s *session) error {
	n.mu.Lock()
	channel, l := n.channel, n.listener
	n.mu.Unlock()
	if l == nil {
		return nil
	}
	here, p := n.shared()
	old := s.tuned
	if old != nil && !old.refused && old.same(p) {
		return errors.Join(old.subscribe(false), old.subscribeSharded())
	}
	if n.isClosing() {
		return nil
	}
	if n.cfg.Shard != nil {
		if !p.standing.Admitted() {
			return nil // whoever admits it has us look again
		}
		channel += ":" + p.standing.Marker()
	}
	in := s.newInbox(here, channel, l)
	s.tuned = in
	if err := in.say("SUBSCRIBE", channel); err != nil {
		return err
	}
	if old != nil {
		if !old.refused {
			n.lost(errMoved)
		}
		in.sent = old.sent // what else is subscribed bears another marker's id, and is not listened to
	}
	return errors.Join(in.subscribe(true), in.subscribeSharded())
}

// farewell has the server end the connection, and its subscriptions with it, and waits until it has:
// behind everything that was asked of it before. A server that does not answer is not waited for
// when Close is not, either.
func (n *Node) farewell(s *session) {
	if s.tuned == nil || s.submit(own, ownCall(quit, discard{})) != nil {
		return
	}
	select {
	case <-s.broken:
	case <-time.After(n.cfg.StallTimeout):
	case <-n.ctx.Done():
	}
}

// Done implements member.Sink. It runs on the reader.
func (c *confirmations) Done(call *member.Call) {
	refused, ok := call.Err.(*member.ReplyError)
	if call.Outcome != member.Refused || !ok {
		return // confirmed, or the connection has ended
	}
	n, s := c.in.node, c.in.session
	if c.verb == "ssubscribe" {
		c.in.shardedRefused(refused)
		return
	}
	n.lost(fmt.Errorf("%s: %w", strings.ToUpper(c.verb), refused))
	select {
	case s.refusal <- refused:
	default:
	}
}
