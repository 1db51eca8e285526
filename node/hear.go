package node

import (
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
)

// memory is where messages come from: from what a server process knew since it was marked. A vote in a message counts for this
// memory alone, so it is known before a message can come: from answers on the same connection, before the subscription.
type memory struct {
	runID string // of the process
	id    string // of the marker
	gen   uint64 // of the member
	era   uint64 // of the cluster
}

// shared is the memory that the commands go to, for an inbox on their connection. The look that found the marker was answered
// before the subscription is sent, and the reader gives messages to the new inbox from its confirmation on. So none from before
// that marker is taken for one of the generation after it.
func (n *Node) shared() (memory, *published) {
	era := n.seat.Era()
	p := n.published.Load()
	return memory{runID: p.state.RunID, id: p.standing.Marker(), gen: p.state.Gen, era: era}, p
}

// same reports whether the commands go to the same server process, with the same memory, in the
// same generation.
func (in *inbox) same(p *published) bool {
	return p.state.RunID == in.runID && p.state.Gen == in.gen && p.standing.Marker() == in.id && in.era == in.node.seat.Era()
}

// take takes one message, or the server's word about a subscription behind the first.
func (in *inbox) take(msg []member.Reply, now time.Time) {
	channel := msg[1].Str
	switch string(msg[0].Str) {
	case "message":
		if string(channel) == in.channel {
			in.push(msg[2].Str, now)
			return
		}
	case "smessage":
		if strings.HasSuffix(string(channel), ":"+in.id) { // on this connection there may have been others
			in.push(msg[2].Str, now)
		}
	}
	in.other(msg, now)
}

// push delivers a message, unless the commands are known to go to another server process, or to one
// that forgot meanwhile: their votes are of another generation than this message.
func (in *inbox) push(msg []byte, at time.Time) {
	if p := in.node.published.Load(); in.same(p) {
		in.listener.Push(msg, p.state, at)
	}
}
