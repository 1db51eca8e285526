package node

import (
	"cmp"
	"context"
	"sync/atomic"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

// host is the Node as the restart guard sees it.
type host Node

var (
	_ guard.Host    = (*host)(nil)
	_ guard.Session = (*session)(nil)
)

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

// Ask implements guard.Session. It submits cmds and waits until all are done; an error says that not all were answered or
// refused. It is the server's own where that said why it was about to close the connection.
func (s *session) Ask(ctx context.Context, cmds [][]byte) ([]member.Call, error) {
	w := &waiter{done: make(chan struct{})}
	w.left.Store(int32(len(cmds)))
	calls, all := make([]member.Call, len(cmds)), make([]*member.Call, len(cmds))
	for i, cmd := range cmds {
		calls[i], all[i] = *ownCall(cmd, w), &calls[i]
	}
	if s.submit(own, all...) != nil {
		return nil, s.cause()
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	for i, c := range all {
		if c.Outcome != member.Answered && c.Outcome != member.Refused {
			return nil, cmp.Or(whyClosed(calls[:i]), s.cause())
		}
	}
	return calls, nil
}

// waiter is the Sink of several calls; done is closed with the last of them.
type waiter struct {
	left atomic.Int32
	done chan struct{}
}

// Done implements member.Sink.
func (w *waiter) Done(*member.Call) {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}

// Queue implements guard.Session.
func (s *session) Queue(c *member.Call) error { return s.submit(own, c) }
