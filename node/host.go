package node

import (
	"context"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// Recheck has the node compare its inbox with its commands' connection, and with the era.
func (n *Node) Recheck() { n.signalRecheck() }

// Stamp puts a slot that a grant found without the marker's id under this master's marker: one that
// came from another master and was not used before. It returns nil if the slot may be used now.
func (n *Node) Stamp(ctx context.Context, slot uint16) error { return n.seat.Stamp(ctx, slot) }

// ClockOffset implements ability.Clocked. It is as old as the last look at the marker: a
// PingInterval or so, and up to ten while the client is at rest. Without a restart guard ok is false.
func (n *Node) ClockOffset() (ahead, within time.Duration, ok bool) {
	o, ok := n.seat.HeardOffset()
	return o.Ahead, o.Within, ok
}

// host is the Node as the restart guard sees it.
type host Node

var _ guard.Host = (*host)(nil)

func (h *host) Name() string             { return h.name }
func (h *host) Recheck()                 { (*Node)(h).signalRecheck() }
func (h *host) Suspect()                 { (*Node)(h).suspicion() }
func (h *host) Closing() bool            { return (*Node)(h).isClosing() }
func (h *host) Context() context.Context { return h.ctx }

// Now costs one atomic load.
func (h *host) Now() guard.Present {
	p := h.published.Load()
	now := guard.Present{State: p.state, Standing: p.standing}
	if p.session != nil {
		now.Session = p.session
	}
	return now
}

// Publish is change.
func (h *host) Publish(edit func(gen *uint64, s *guard.Standing)) {
	(*Node)(h).change(func(p *published) { edit(&p.state.Gen, &p.standing) })
}

// Ask implements guard.Host. What bounds the calls of callers does not bound those of the guard.
func (h *host) Ask(ctx context.Context, cmd []byte) (member.Reply, error) {
	p := h.published.Load()
	if p.session == nil {
		return member.Reply{}, p.err
	}
	calls, err := p.session.Ask(ctx, [][]byte{cmd})
	if err != nil {
		return member.Reply{}, err
	}
	return calls[0].Reply, calls[0].Err
}

var _ guard.Session = (*session)(nil)

// Queue implements guard.Session.
func (s *session) Queue(c *member.Call) error { return s.submit(c, true) }

// Pause implements guard.Session.
func (s *session) Pause(news <-chan struct{}, d time.Duration) error {
	select {
	case <-news:
	case <-time.After(d):
	case <-s.broken:
		return s.cause()
	case <-s.node.accepting.Done():
		return s.node.errClosed
	}
	return nil
}
