package redlock

import (
	"context"
	"log/slog"
	"time"
)

// callbacks counts the calls of a client's Logger and Tracer that are under way. None begins after Close has returned,
// because their owner may have put away by then what they write to: a member that closes late would still use it.
type callbacks struct{ alive }

// untilClosed has a client's Logger and Tracer called until Close has returned. A Config that Open has seen keeps what it
// has: the client has that of its members.
func (c *Config) untilClosed() {
	if c.callbacks != nil || c.Logger == nil && c.Tracer == nil {
		return
	}
	c.callbacks = &callbacks{alive{none: make(chan struct{}, 1)}}
	if c.Logger != nil {
		c.Logger = slog.New(logging{c.Logger.Handler(), c.callbacks})
	}
}

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

// logging is the Handler of a Logger.
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
	return h.Handler.Handle(ctx, r)
}

func (h logging) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logging{h.Handler.WithAttrs(attrs), h.calls}
}

func (h logging) WithGroup(name string) slog.Handler {
	return logging{h.Handler.WithGroup(name), h.calls}
}

// tracers are the interfaces that a Tracer implements; nil where it does not.
type tracers struct {
	Tracer
	lost    LostTracer
	release ReleaseTracer
	renew   RenewTracer
	renewal RenewalTracer
	member  MemberTracer
	guard   GuardTracer
	request RequestTracer
	wake    WakeTracer
	latch   LatchTracer
}

// tracing is each interface of a Tracer. It passes on what happens until Close has returned.
type tracing struct {
	to    tracers
	calls *callbacks
}

// as is what passes on to an interface of a Tracer, or nil if the Tracer does not implement it.
func as[I any](t Tracer, to *I, through I) (out I) {
	var ok bool
	if *to, ok = t.(I); ok {
		out = through
	}
	return out
}

func newTracers(t Tracer, calls *callbacks) tracers {
	by := &tracing{calls: calls}
	return tracers{
		as[Tracer](t, &by.to.Tracer, by), as[LostTracer](t, &by.to.lost, by), as[ReleaseTracer](t, &by.to.release, by),
		as[RenewTracer](t, &by.to.renew, by), as[RenewalTracer](t, &by.to.renewal, by), as[MemberTracer](t, &by.to.member, by),
		as[GuardTracer](t, &by.to.guard, by), as[RequestTracer](t, &by.to.request, by), as[WakeTracer](t, &by.to.wake, by),
		as[LatchTracer](t, &by.to.latch, by),
	}
}

// call runs f, unless Close has returned.
func (t *tracing) call(f func()) {
	if t.calls.enter() {
		defer t.calls.leave()
		f()
	}
}

func (t *tracing) AcquireStart(ctx context.Context, e AcquireStart) context.Context {
	t.call(func() { ctx = t.to.AcquireStart(ctx, e) })
	return ctx
}

func (t *tracing) AcquireEnd(ctx context.Context, e AcquireEnd) {
	t.call(func() { t.to.AcquireEnd(ctx, e) })
}

func (t *tracing) LatchStart(ctx context.Context, e LatchStart) context.Context {
	t.call(func() { ctx = t.to.latch.LatchStart(ctx, e) })
	return ctx
}

func (t *tracing) RenewalStart(e RenewalStart) context.Context {
	ctx := context.Background()
	t.call(func() { ctx = t.to.renewal.RenewalStart(e) })
	return ctx
}

func (t *tracing) LatchEnd(ctx context.Context, e LatchEnd) {
	t.call(func() { t.to.latch.LatchEnd(ctx, e) })
}

func (t *tracing) RenewalEnd(ctx context.Context, e RenewalEnd) {
	t.call(func() { t.to.renewal.RenewalEnd(ctx, e) })
}

func (t *tracing) Request(ctx context.Context, e Request) {
	t.call(func() { t.to.request.Request(ctx, e) })
}

func (t *tracing) Guard(member, step string, until time.Time) {
	t.call(func() { t.to.guard.Guard(member, step, until) })
}

func (t *tracing) Member(name string, up bool, cause error) {
	t.call(func() { t.to.member.Member(name, up, cause) })
}

func (t *tracing) Woken(ctx context.Context, e Wake) { t.call(func() { t.to.wake.Woken(ctx, e) }) }
func (t *tracing) Lost(e *LostError)                 { t.call(func() { t.to.lost.Lost(e) }) }
func (t *tracing) Released(e Released)               { t.call(func() { t.to.release.Released(e) }) }
func (t *tracing) Renewed(e Renewed)                 { t.call(func() { t.to.renew.Renewed(e) }) }
