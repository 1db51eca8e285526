// Package redlockotel makes OpenTelemetry spans of what a client of package redlock does.
//
//	client, err := redlock.Open(ctx, urls, redlock.WithTracer(redlockotel.New()))
//
// A span "redlock acquire" covers each Lock and TryLock, a child of the span in their context, with
//
//	redlock.outcome      granted, held, no_quorum, expired, canceled or error
//	redlock.try          whether it was TryLock
//	redlock.ttl_ms       what was asked for
//	redlock.votes        members that had granted, of redlock.quorum that were needed where it failed
//	redlock.fence        the token
//	redlock.validity_ms  left at the grant
//
// and events "wait" (it was refused first) and "second round" (the token needed one). Where it failed, each
// member's failure is an event "member". A lease that ends without its holder is a span "redlock lost" of no length, with
// redlock.reason. A lock's name is an attribute (redlock.key) only with WithKey. No span holds a secret.
//
// The spans end here: there are none for the commands at the members.
package redlockotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
)

const scope = "github.com/redquorum/redquorum/redlock/redlockotel"

// Tracer is a redlock.Tracer. Several clients may share one.
type Tracer struct {
	tracer trace.Tracer
	key    func(string) string
}

// Option changes New.
type Option func(*options)

type options struct {
	provider trace.TracerProvider
	key      func(string) string
}

// WithTracerProvider replaces the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.provider = p } }

// WithKey adds what f makes of a lock's name as redlock.key.
func WithKey(f func(name string) string) Option { return func(o *options) { o.key = f } }

// New makes a Tracer.
func New(opts ...Option) *Tracer {
	o := options{provider: otel.GetTracerProvider()}
	for _, apply := range opts {
		apply(&o)
	}
	return &Tracer{tracer: o.provider.Tracer(scope), key: o.key}
}

func (t *Tracer) named(name string, attrs ...attribute.KeyValue) []attribute.KeyValue {
	if t.key != nil {
		attrs = append(attrs, attribute.String("redlock.key", t.key(name)))
	}
	return attrs
}

// AcquireStart implements redlock.Tracer.
func (t *Tracer) AcquireStart(ctx context.Context, e redlock.AcquireStart) context.Context {
	ctx, _ = t.tracer.Start(ctx, "redlock acquire", trace.WithAttributes(t.named(e.Key,
		attribute.Bool("redlock.try", e.Try), attribute.Int64("redlock.ttl_ms", e.TTL.Milliseconds()))...))
	return ctx
}

// AcquireEnd implements redlock.Tracer.
func (t *Tracer) AcquireEnd(ctx context.Context, e redlock.AcquireEnd) {
	span := trace.SpanFromContext(ctx)
	defer span.End()
	outcome := outcomeOf(e.Err)
	span.SetAttributes(attribute.String("redlock.outcome", outcome))
	if e.Waited {
		span.AddEvent("wait")
	}
	if e.SecondRound {
		span.AddEvent("second round")
	}
	if e.Err == nil {
		span.SetAttributes(attribute.Int("redlock.votes", e.Votes), attribute.Int64("redlock.fence", int64(e.Token)),
			attribute.Int64("redlock.validity_ms", e.Validity.Milliseconds()))
		return
	}
	t.failed(span, outcome, e.Err)
}

// failed tells why. The text of an error quotes the lock's name, so it is not taken over as it is.
func (t *Tracer) failed(span trace.Span, outcome string, err error) {
	if outcome != "held" && outcome != "canceled" {
		span.SetStatus(codes.Error, outcome)
		span.SetAttributes(attribute.String("error.type", outcome))
	}
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return
	}
	yes, _, _ := q.Counts()
	span.SetAttributes(attribute.Int("redlock.votes", yes), attribute.Int("redlock.quorum", q.Need))
	for _, v := range q.Votes {
		if v.Err == nil {
			continue
		}
		attrs := []attribute.KeyValue{attribute.String("server.address", v.Member)}
		if reply := (*quorum.ReplyError)(nil); errors.As(v.Err, &reply) {
			attrs = append(attrs, attribute.String("db.response.status_code", firstWord(reply.Text)))
		}
		span.AddEvent("member", trace.WithAttributes(attrs...))
	}
}

func firstWord(s string) string {
	for i := range len(s) {
		if s[i] == ' ' {
			return s[:i]
		}
	}
	return s
}

func outcomeOf(err error) string {
	switch {
	case err == nil:
		return "granted"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, redlock.ErrHeld): // also where a deadline passed while it waited
		return "held"
	case errors.Is(err, redlock.ErrTooSlow):
		return "expired"
	case errors.Is(err, redlock.ErrNoQuorum), errors.Is(err, redlock.ErrQuarantined):
		return "no_quorum"
	case errors.Is(err, context.DeadlineExceeded):
		return "canceled"
	}
	return "error"
}

// Lost implements redlock.LostTracer.
func (t *Tracer) Lost(e *redlock.LostError) {
	_, span := t.tracer.Start(context.Background(), "redlock lost", trace.WithAttributes(t.named(e.Key,
		attribute.String("redlock.reason", string(e.Reason)), attribute.Int64("redlock.fence", int64(e.Token)))...))
	span.SetStatus(codes.Error, string(e.Reason))
	span.End()
}
