package node

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// A server that speaks RESP3 sends the messages of the inbox on the commands' connection. Then the
// inbox is of the commands' process by construction, and ends with the connection. Its owner is the
// supervisor. The inbox of any other server has a connection and a goroutine of its own: see listen.

var (
	hello2 = resp.Command("HELLO", "2")
	hello3 = resp.Command("HELLO", "3")
)

// helloOf asks for RESP3, which has messages and answers on one connection, or for the protocol of all
// servers where a message was refused on the connection of the commands.
func helloOf(apart bool) []byte {
	if apart {
		return hello2
	}
	return hello3
}

// speaks3 reports whether a server that was asked HELLO 3 agreed. Miniredis does, and refuses commands
// on a connection with subscriptions nevertheless.
func speaks3(c *member.Call) bool {
	if c.Outcome != member.Answered {
		return false
	}
	agreed := false
	for told := c.Reply.Elems; len(told) >= 2; told = told[2:] {
		switch string(told[0].Str) {
		case "proto":
			agreed = told[1].Int == 3
		case "server":
			if string(told[1].Str) == "miniredis" {
				return false
			}
		}
	}
	return agreed
}

// attune sees to it that there is an inbox, if there is a Listener: on s, or on its own. An error ends
// the session.
func (n *Node) attune(s *session) error {
	n.mu.Lock()
	channel, l := n.channel, n.listener
	n.mu.Unlock()
	switch {
	case l == nil:
		return nil
	case s.pushes && !s.mute.Load():
		n.stopListening()
		return n.tune(s, channel, l)
	case n.stopEar == nil && !n.isClosing():
		n.apart = n.apart || s.pushes
		ctx, stop := context.WithCancel(n.accepting)
		n.stopEar = stop
		n.ear.Go(func() { n.listen(ctx, channel, l) })
	}
	return nil
}

// stopListening ends the inbox that has a connection of its own, and waits for it.
func (n *Node) stopListening() {
	if n.stopEar != nil {
		n.stopEar()
		n.ear.Wait()
		n.stopEar = nil
	}
}

// tune makes the inbox of s one of what is published: unless it is, the inbox is subscribed anew.
func (n *Node) tune(s *session, channel string, l member.Listener) error {
	here, p := n.shared()
	old := s.tuned
	if old != nil && old.same(p) {
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
		n.lost(errMoved)
		in.sent = old.sent // what else is subscribed bears another marker's id, and is not listened to
	}
	return errors.Join(in.subscribe(true), in.subscribeSharded())
}

// errApart: the inbox gets a connection of its own.
var errApart = errors.New("the server does not permit the inbox beside the commands")

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
	if s.mute.Load() {
		return
	}
	n.lost(fmt.Errorf("%s: %w", strings.ToUpper(c.verb), refused))
	if s.in == nil { // nothing is subscribed here: the commands may stay
		s.mute.Store(true)
		n.signalRecheck()
		return
	}
	s.fail(member.ErrBroken, fmt.Errorf("%w: %w", errApart, refused))
}
