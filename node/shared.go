package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
)

// A server that speaks RESP3 sends the messages of the inbox on the commands' connection. Then the
// inbox is of the commands' process by construction, and ends with the connection. Its owner is the
// supervisor. The inbox of any other server has a connection and a goroutine of its own: see listen.

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
//
// The look that found the marker was answered on s before the subscription is sent on s, and the
// reader gives messages to the new inbox from its confirmation on. So none from before that marker is
// taken for one of the generation after it.
func (n *Node) tune(s *session, channel string, l member.Listener) error {
	era, p, old := n.seat.Era(), n.published.Load(), s.tuned
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
	in := &inbox{
		session: s, ear: ears.Add(1), node: n, listener: l, channel: channel, era: era,
		runID: p.state.RunID, id: p.standing.Marker(), gen: p.state.Gen,
	}
	in.channels, _ = l.(ability.ChannelListener)
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
	if s.tuned == nil || s.submit(ownCall(quit, discard{}), true) != nil {
		return
	}
	timer := time.NewTimer(n.cfg.StallTimeout)
	defer timer.Stop()
	select {
	case <-s.broken:
	case <-timer.C:
	case <-n.ctx.Done():
	}
}

// confirmations is the Sink of a command about channels. RESP3 has no answer to it but one push for
// each channel, in the place of the answer; a refusal is an answer like any other.
type confirmations struct {
	call member.Call
	in   *inbox
	verb string
	left int
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

// pushed takes what the server sends beside the answers.
func (s *session) pushed(br *bufio.Reader) error {
	if err := readReply(br, &s.msg, 0); err != nil {
		return err
	}
	msg := s.msg.Elems
	if len(msg) != 3 {
		return nil // of what we did not ask for
	}
	now := time.Now()
	switch verb := string(msg[0].Str); verb {
	case "subscribe", "unsubscribe", "ssubscribe":
		return s.confirmed(verb, now)
	}
	if s.in != nil {
		s.in.take(msg, now)
	}
	return nil
}

// confirmed takes the server's word that one channel of the first call in line is subscribed, or is
// not any more.
func (s *session) confirmed(verb string, now time.Time) error {
	first := s.line.First()
	if first == nil {
		return protocolError("a confirmation of nothing")
	}
	c, ok := first.Call.Sink.(*confirmations)
	if !ok || c.verb != verb {
		return protocolError("a confirmation of something else")
	}
	s.now = now
	s.touch(now)
	in := c.in
	if channel := s.msg.Elems[1].Str; verb == "subscribe" && string(channel) == in.channel {
		s.in = in
		in.node.change(func(p *published) {
			if p.session == s {
				in.node.inbox, in.node.deaf = in, nil
			}
		})
	} else if s.in == in || verb == "ssubscribe" {
		in.take(s.msg.Elems, now)
	}
	if c.left--; c.left == 0 {
		s.complete(s.line.Pop(), false, false)
	}
	return nil
}
