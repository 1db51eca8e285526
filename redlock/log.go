package redlock

import (
	"context"
	"log/slog"
)

// untilClosed is the Handler of a Logger. It is not called after Close has returned, because its owner may have put it away
// by then: a member that closes late, or a Tracer that blocked, would still use it.
type untilClosed struct {
	slog.Handler
	calls *alive // under way
}

// loggedUntilClosed is a Logger with such a Handler. One that has it already keeps it: the client has that of its members.
func loggedUntilClosed(l *slog.Logger) *slog.Logger {
	if l == nil {
		return nil
	}
	if _, ok := l.Handler().(untilClosed); ok {
		return l
	}
	return slog.New(untilClosed{l.Handler(), &alive{none: make(chan struct{}, 1)}})
}

func (h untilClosed) Enabled(ctx context.Context, level slog.Level) bool {
	if !h.calls.enter() {
		return false
	}
	defer h.calls.leave()
	return h.Handler.Enabled(ctx, level)
}

func (h untilClosed) Handle(ctx context.Context, r slog.Record) error {
	if !h.calls.enter() {
		return nil
	}
	defer h.calls.leave()
	return h.Handler.Handle(ctx, r)
}

func (h untilClosed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return untilClosed{h.Handler.WithAttrs(attrs), h.calls}
}

func (h untilClosed) WithGroup(name string) slog.Handler {
	return untilClosed{h.Handler.WithGroup(name), h.calls}
}

// hush has no call of the Logger begin from now on, and waits for those that are under way until ctx ends.
func (c *Client) hush(ctx context.Context) {
	h, ok := c.log.Handler().(untilClosed)
	if !ok { // there is no Logger
		return
	}
	h.calls.end()
	select {
	case <-h.calls.none:
	case <-ctx.Done():
	}
}
