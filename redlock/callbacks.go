package redlock

import (
	"context"
	"log/slog"
)

// callbacks counts the calls of a client's Logger and Tracer that are under way. None begins after Close has returned,
// because their owner may have put away by then what they write to: a member that closes late would still use it.
type callbacks struct{ inflight }

// hush has no call begin from now on, and waits for those that are under way until ctx ends.
func (s *callbacks) hush(ctx context.Context) {
	if s == nil {
		return
	}
	s.end()
	select {
	case <-s.none:
	case <-ctx.Done():
	}
}

// logging is the Handler of a Logger: each line begins with the name of the library.
type logging struct {
	slog.Handler
	calls *callbacks
}

func (h logging) Enabled(ctx context.Context, level slog.Level) bool {
	if !h.calls.enter() {
		return false
	}
	defer h.calls.leave()
	return h.Handler.Enabled(ctx, level)
}

func (h logging) Handle(ctx context.Context, r slog.Record) error {
	if !h.calls.enter() {
		return nil
	}
	defer h.calls.leave()
	r.Message = "redlock: " + r.Message
	return h.Handler.Handle(ctx, r)
}

func (h logging) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logging{h.Handler.WithAttrs(attrs), h.calls}
}

func (h logging) WithGroup(name string) slog.Handler {
	return logging{h.Handler.WithGroup(name), h.calls}
}

// untilClosed is the Tracer, whose functions are called until Close has returned.
func (t Tracer) untilClosed(calls *callbacks) Tracer {
	if f := t.CallStart; f != nil {
		t.CallStart = func(ctx context.Context, e CallStart) context.Context {
			calls.call(func() { ctx = f(ctx, e) })
			return ctx
		}
	}
	if f := t.RenewalStart; f != nil {
		t.RenewalStart = func(ctx context.Context, e RenewalStart) context.Context {
			calls.call(func() { ctx = f(ctx, e) })
			return ctx
		}
	}
	t.CallEnd, t.RenewalEnd, t.Request = two(calls, t.CallEnd), two(calls, t.RenewalEnd), two(calls, t.Request)
	t.Woken, t.Member, t.Guard = three(calls, t.Woken), three(calls, t.Member), three(calls, t.Guard)
	t.Lost, t.Released = single(calls, t.Lost), single(calls, t.Released)
	return t
}

// call runs f, unless Close has returned.
func (s *callbacks) call(f func()) {
	if s.enter() {
		defer s.leave()
		f()
	}
}

// single, two and three are f until Close has returned, by the number of its arguments; nil if f is.
func single[A any](calls *callbacks, f func(A)) func(A) {
	if f == nil {
		return nil
	}
	return func(a A) { calls.call(func() { f(a) }) }
}

func two[A, B any](calls *callbacks, f func(A, B)) func(A, B) {
	if f == nil {
		return nil
	}
	return func(a A, b B) { calls.call(func() { f(a, b) }) }
}

func three[A, B, C any](calls *callbacks, f func(A, B, C)) func(A, B, C) {
	if f == nil {
		return nil
	}
	return func(a A, b B, c C) { calls.call(func() { f(a, b, c) }) }
}
