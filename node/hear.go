package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// ears numbers the inboxes of all nodes: see member.State.
var ears atomic.Uint64

// inbox is one subscription: of a connection of its own, or of the commands' connection.
type inbox struct {
	link     *link    // its own, or nil
	session  *session // the commands', or nil
	ear      uint64
	node     *Node
	listener member.Listener
	base     time.Time
	heard    atomic.Int64  // ns after base: the last arrival
	count    atomic.Uint64 // arrivals; a clock may stand still between a PING and its answer
	named    bool          // the first reply is that to CLIENT SETNAME
	looked   bool          // and there is one to a look at the marker

	memory    // before confirmed is closed
	confirmed chan struct{}
	gone      chan struct{}
	err       error // before gone is closed

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

// memory is where messages come from: from what a server process knew since it was marked. A vote in a message counts for this
// memory alone, so it is known before a message can come: from answers on the same connection, before the subscription.
type memory struct {
	runID string // of the process
	id    string // of the marker
	gen   uint64 // of the member
	era   uint64 // of the cluster
}

// newInbox begins an inbox that has a connection of its own, on which hello is all that is to be sent first. The generation is
// that of before. The process and the marker are learnt from the answers.
func (n *Node) newInbox(link *link, channel string, l member.Listener) (in *inbox, hello []byte) {
	look := n.seat.LookCommand()
	in = &inbox{
		link: link, ear: ears.Add(1), node: n, listener: l, base: time.Now(), named: n.cfg.ClientName != "",
		confirmed: make(chan struct{}), gone: make(chan struct{}), memory: memory{gen: n.State().Gen, era: n.seat.Era()},
		channel: channel, looked: look != nil,
	}
	in.channels, _ = l.(ability.ChannelListener)
	hello = resp.Command("INFO", "server")
	hello = append(hello, look...)
	hello = append(hello, resp.Command("SUBSCRIBE", channel)...)
	if in.named {
		hello = append(resp.Command("CLIENT", "SETNAME", n.cfg.ClientName), hello...)
	}
	return in, hello
}

// newInbox begins an inbox on the commands' connection. The look that found the marker was answered on s before the
// subscription is sent on s, and the reader gives messages to the new inbox from its confirmation on. So none from before that
// marker is taken for one of the generation after it.
func (s *session) newInbox(p *published, era uint64, channel string, l member.Listener) *inbox {
	in := &inbox{
		session: s, ear: ears.Add(1), node: s.node, listener: l, channel: channel,
		memory: memory{runID: p.state.RunID, id: p.standing.Marker(), gen: p.state.Gen, era: era},
	}
	in.channels, _ = l.(ability.ChannelListener)
	return in
}

// read is the connection's reader.
func (in *inbox) read(br *bufio.Reader) {
	in.err = in.messages(br)
	if errors.Is(in.err, io.EOF) {
		in.err = fmt.Errorf("closed by the server: %w", io.ErrUnexpectedEOF)
	}
	close(in.gone)
}

func (in *inbox) messages(br *bufio.Reader) error {
	var r member.Reply
	if in.named {
		if err := readReply(br, &r, 0); err != nil {
			return err
		}
	}
	if err := readReply(br, &r, 0); err != nil {
		return err
	}
	switch r.Kind {
	case '$':
		in.runID = resp.Field(r.Str, "run_id:")
	case '-':
		if refused := classify(string(r.Str)); !notPermitted(refused) {
			return fmt.Errorf("INFO: %w", refused)
		}
	default:
		return protocolError("answer to INFO")
	}
	if in.looked {
		if err := in.readMarker(br, &r); err != nil {
			return err
		}
	}
	for subscribed := false; ; {
		if err := readReply(br, &r, 0); err != nil {
			return err
		}
		now := time.Now()
		in.heard.Store(int64(now.Sub(in.base)))
		in.count.Add(1)
		switch {
		case r.Kind == '-':
			refused := classify(string(r.Str))
			if !in.shardedRefused(refused) {
				return fmt.Errorf("SUBSCRIBE: %w", refused)
			}
		case r.Kind == '$' && string(r.Str) == "PONG":
		case r.Kind != '*' || len(r.Elems) == 0:
			return protocolError("neither a message nor a pong")
		case string(r.Elems[0].Str) == "subscribe" && !subscribed:
			subscribed = true
			close(in.confirmed)
		case len(r.Elems) == 3:
			in.take(r.Elems, now)
		}
	}
}

// take takes one message, or the server's word about a subscription behind the first.
func (in *inbox) take(msg []member.Reply, now time.Time) {
	if string(msg[0].Str) == "message" && string(msg[1].Str) == in.channel {
		in.push(msg[2].Str, now)
		return
	}
	channel := string(msg[1].Str)
	switch string(msg[0].Str) {
	case "message":
		if in.channels != nil {
			in.channels.Channel(channel, msg[2].Str, now)
		}
	case "smessage":
		if strings.HasSuffix(channel, ":"+in.id) { // on this connection there may have been others
			in.push(msg[2].Str, now)
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

// readMarker learns what memory the member has that this connection stands at.
func (in *inbox) readMarker(br *bufio.Reader, r *member.Reply) error {
	if err := readReply(br, r, 0); err != nil {
		return err
	}
	if r.Kind == '-' {
		return fmt.Errorf("marker: %w", classify(string(r.Str)))
	}
	var err error
	in.id, err = guard.MarkerOf(r)
	return err
}

// same reports whether the commands go to the same server process, with the same memory, in the
// same generation.
func (in *inbox) same(p *published) bool {
	return p.state.RunID == in.runID && p.state.Gen == in.gen && p.standing.Marker() == in.id && in.era == in.node.seat.Era()
}

// push delivers a message, unless the commands are known to go to another server process, or to one
// that forgot meanwhile: their votes are of another generation than this message.
func (in *inbox) push(msg []byte, at time.Time) {
	if p := in.node.published.Load(); in.same(p) {
		in.listener.Push(msg, p.state, at)
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
