package node

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	hashslot "github.com/redquorum/redquorum/slot"
)

// ears numbers the inboxes of all nodes: see member.State.
var ears atomic.Uint64

// inbox is one subscription, on the connection of the commands.
type inbox struct {
	session  *session
	ear      uint64
	node     *Node
	listener member.Listener
	refused  bool // by the server; the supervisor's

	memory
	channel  string
	channels ability.ChannelListener // hears the other channels; may be nil
	sent     map[string]struct{}     // those that were subscribed; its owner's

	sharded sharded // of a master of a cluster
}

// sharded is the inbox as a sharded channel (Redis 7.0), in the slot of a master where its marker
// is. What is published there is not sent to all servers of the cluster. It comes besides the other
// one, to which scripts publish while nobody hears this one: where the server has none, and while
// the slot is being moved.
type sharded struct {
	asked   string // hash tag of the slot it was asked for in, or ""; guarded by board.mu, as the others
	heard   string // likewise, where the server confirmed it
	pending bool   // an answer is to come
	never   bool   // the server does not know or permit it
}

// newInbox begins an inbox on the commands' connection.
func (s *session) newInbox(m memory, channel string, l member.Listener) *inbox {
	in := &inbox{session: s, ear: ears.Add(1), node: s.node, listener: l, channel: channel, memory: m}
	in.channels, _ = l.(ability.ChannelListener)
	return in
}

// errMoved: the commands go to another process, or memory, than this inbox.
var errMoved = errors.New("the server was restarted, emptied, or marked")

// hearsLocked publishes whether the inbox is one of what is published.
func (n *Node) hearsLocked(p *published) {
	p.state.Inbox, p.state.Ear, p.state.Deaf = p.state.Up && n.inbox != nil && n.inbox.same(p), 0, nil
	switch {
	case p.state.Inbox:
		p.state.Ear = n.inbox.ear
	case p.state.Up && n.inbox == nil:
		p.state.Deaf = n.deaf
	}
}

// lost is the end of an inbox, or of the attempt to open one. The same failure again is no change.
func (n *Node) lost(why error) {
	n.change(func(*published) {
		n.inbox = nil
		if errors.Is(why, errMoved) {
			n.deaf = nil
		} else if why = fmt.Errorf("%s: inbox: %w", n.name, why); n.deaf == nil || n.deaf.Error() != why.Error() {
			n.deaf = why
		}
	})
}

// Subscribe implements ability.Subscriber.
func (n *Node) Subscribe(channels ...string) { n.want(1, channels) }

// Unsubscribe implements ability.Subscriber.
func (n *Node) Unsubscribe(channels ...string) { n.want(-1, channels) }

func (n *Node) want(more int, channels []string) {
	n.mu.Lock()
	if n.wanted == nil {
		n.wanted, n.altered = make(map[string]int), make(map[string]struct{})
	}
	for _, c := range channels {
		if n.wanted[c] += more; n.wanted[c] <= 0 {
			delete(n.wanted, c)
		}
		n.altered[c] = struct{}{}
	}
	n.mu.Unlock()
	wake(n.alter)
}

// subscribe makes the connection's subscriptions those that are wanted: of all channels, or of
// those that have changed.
func (in *inbox) subscribe(all bool) error {
	n := in.node
	var on, off []string
	n.mu.Lock()
	if all {
		for c := range n.wanted {
			on = append(on, c)
		}
		for c := range in.sent {
			if n.wanted[c] <= 0 {
				off = append(off, c)
			}
		}
	} else {
		for c := range n.altered {
			_, have := in.sent[c]
			switch want := n.wanted[c] > 0; {
			case want && !have:
				on = append(on, c)
			case have && !want:
				off = append(off, c)
			}
		}
	}
	clear(n.altered)
	n.mu.Unlock()
	if in.sent == nil {
		in.sent = make(map[string]struct{})
	}
	for _, c := range on {
		in.sent[c] = struct{}{}
	}
	for _, c := range off {
		delete(in.sent, c)
	}
	if err := in.say("SUBSCRIBE", on...); err != nil {
		return err
	}
	return in.say("UNSUBSCRIBE", off...)
}

// say sends one command about channels, unless there are none.
func (in *inbox) say(verb string, channels ...string) error {
	if len(channels) == 0 {
		return nil
	}
	cmd := resp.Command(append([]string{verb}, channels...)...)
	c := &confirmations{in: in, verb: strings.ToLower(verb), left: len(channels)}
	c.call = *ownCall(cmd, c)
	return in.session.submit(told, &c.call)
}

// shardedIn is the name of the channel in a slot.
func (in *inbox) shardedIn(tag string) string {
	base := in.channel[:len(in.channel)-len(in.id)-1]
	return base + ":{" + tag + "}:" + in.id
}

// subscribeSharded subscribes where the marker is now, unless that was done. Its owner calls it.
func (in *inbox) subscribeSharded() error {
	n := in.node
	home, ok := n.seat.HomeSlot()
	if !ok || !strings.HasSuffix(in.channel, ":"+in.id) {
		return nil
	}
	tag := hashslot.TagOf(home)
	n.mu.Lock()
	s := &in.sharded
	if s.never || s.pending || s.asked == tag {
		n.mu.Unlock()
		return nil
	}
	s.asked, s.pending = tag, true
	n.mu.Unlock()
	return in.say("SSUBSCRIBE", in.shardedIn(tag))
}

// shardedRefused takes an error that is the answer to SSUBSCRIBE.
func (in *inbox) shardedRefused(refused *member.ReplyError) {
	n := in.node
	n.mu.Lock()
	s := &in.sharded
	was := s.pending
	s.asked, s.pending = "", false // its owner tries again
	s.never = was && refused.Kind != member.KindCluster && refused.Kind != member.KindLoading
	n.mu.Unlock()
}

// shardedSubscribed takes the server's word that it sends, or does not any more, what is published.
func (in *inbox) shardedSubscribed(channel string, on bool) {
	n := in.node
	n.change(func(*published) {
		s := &in.sharded
		if !on && channel == in.shardedIn(s.heard) {
			s.heard = ""
		}
		if s.asked == "" || channel != in.shardedIn(s.asked) {
			return // an earlier one
		}
		if on {
			s.heard, s.pending = s.asked, false
		} else if !s.pending {
			s.asked = ""
		}
	})
	if !on {
		n.signalRecheck()
	}
}

// other takes what is no message for the Listener itself.
func (in *inbox) other(msg []member.Reply, now time.Time) {
	channel := string(msg[1].Str)
	switch string(msg[0].Str) {
	case "message":
		if in.channels != nil {
			in.channels.Channel(channel, msg[2].Str, now)
		}
	case "ssubscribe":
		in.shardedSubscribed(channel, true)
	case "sunsubscribe": // the slot was given away
		in.shardedSubscribed(channel, false)
	case "subscribe":
		if in.channels != nil {
			in.channels.Channel(channel, nil, now)
		}
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

// pushed takes what the server sent beside the answers, and reports whether that is the last of what answers the first call.
func (s *session) pushed(msg []member.Reply) (last bool, _ error) {
	if len(msg) != 3 {
		return false, nil // of what we did not ask for
	}
	now := time.Now()
	switch verb := string(msg[0].Str); verb {
	case "subscribe", "unsubscribe", "ssubscribe":
		return s.confirmed(verb, msg, now)
	}
	if s.in != nil {
		s.in.take(msg, now)
	}
	return false, nil
}

// confirmed takes the server's word that one channel of the first call in line is subscribed, or is
// not any more.
func (s *session) confirmed(verb string, msg []member.Reply, now time.Time) (last bool, _ error) {
	first := s.line.First()
	if first == nil {
		return false, protocolError("a confirmation of nothing")
	}
	c, ok := first.Call.Sink.(*confirmations)
	if !ok || c.verb != verb {
		return false, protocolError("a confirmation of something else")
	}
	s.now = now
	s.touch(now)
	in := c.in
	if channel := msg[1].Str; verb == "subscribe" && string(channel) == in.channel {
		s.in = in
		in.node.change(func(p *published) {
			if p.session == s {
				in.node.inbox, in.node.deaf = in, nil
			}
		})
	} else if s.in == in || verb == "ssubscribe" {
		in.take(msg, now)
	}
	c.left--
	return c.left == 0, nil
}
