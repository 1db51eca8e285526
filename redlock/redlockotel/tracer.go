// Package redlockotel makes OpenTelemetry spans of what a client of package redlock does.
//
//	client, err := redlock.Open(ctx, urls, redlock.Config{Tracer: redlockotel.New()})
//
// Each Lock and TryLock has a span "redlock acquire", a child of the span in its context, with the
// attributes
//
//	redlock.kind         the kind of the lock: mutex
//	redlock.outcome      granted, held, no_quorum, expired, canceled or error
//	redlock.try          true for TryLock
//	redlock.ttl_ms       the TTL that was asked for
//	redlock.votes        members that had granted; on a failure, redlock.quorum says how many were needed
//	redlock.token        the token
//	redlock.validity_ms  left at the grant
//
// It has these events:
//
//   - "wait": the call had to wait for the lock.
//   - "wakeup": something woke the waiter. redlock.source is notify (a member granted the waiting
//     request), expiry (a member's lock should have ended) or member (a member came back).
//     Heartbeats make no event.
//   - "second round": the token needed a second round.
//   - "member": the failure of one member, if the acquisition failed.
//
// A lease that ends although its holder did not end it has a span "redlock lost" of no length, with
// redlock.kind and redlock.reason. Spans have the name of a lock, redlock.key, only with WithKey.
// No span holds a secret.
//
// Each call about a latch has a span "redlock latch", with redlock.op (count down, arrive, await,
// remaining, delete latch, wait at barrier) and redlock.outcome: done, no_quorum, passed, conflict,
// canceled or error. The requests of the call are below it.
//
// Each request to a member has a span of kind CLIENT, by the conventions for Redis. It is a child
// of the acquisition, or of the span in the context of Unlock or Extend. Its name is "EVALSHA
// acquire", for example, and its attributes are
//
//	db.system.name            redis
//	db.operation.name         EVALSHA
//	db.stored_procedure.name  acquire, wait, yield, claim, raise, release, extend, rejoin, arrive, await or wait at barrier
//	server.address, .port     the member
//	error.type                on a failure; with db.response.status_code if the member said so: OOM, NOPERM, ...
//
// Its times are those of the request, so it ends when the answer arrives. The span of a slow member
// ends after the acquisition, which does not wait for it. If no sampled span is its parent, a
// request has no span. WithoutRequests leaves out the spans of all requests.
//
// Renewals that the client makes by itself belong to no caller's request. They go on while any
// lease is held, and carry up to 64 leases each. They have spans only with WithRenewals: "redlock
// renew" for each round, the root of a trace of its own. It links to the acquisitions of its leases
// that had a span, and has the requests to the members as children. Its attributes are
//
//	redlock.outcome      renewed; refused, if a majority refused any lease; no_quorum, if any was not decided
//	redlock.leases       in the round, of which redlock.renewed and redlock.refused
//	redlock.votes        members that had answered when it was decided; redlock.quorum says how many were needed
//	redlock.validity_ms  the least that is left of any renewed lease
//
// If a round has a single lease, its span has redlock.kind too, and redlock.key with WithKey.
package redlockotel

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/outcome"
)

const scope = "github.com/redquorum/redquorum/redlock/redlockotel"

// tracer has the functions of the Tracer.
type tracer struct {
	trace.Tracer
	key func(string) string
}

// Option changes the Tracer that New makes.
type Option func(*options)

type options struct {
	provider trace.TracerProvider
	key      func(string) string
	requests bool
	renewals bool
}

// WithTracerProvider replaces the global provider.
func WithTracerProvider(p trace.TracerProvider) Option { return func(o *options) { o.provider = p } }

// WithKey adds the attribute redlock.key with the value that f returns for a lock's name. What
// cannot be printed is escaped, as "\xff" of a name that is no UTF-8, and after 256 bytes the value is cut.
func WithKey(f func(name string) string) Option { return func(o *options) { o.key = f } }

// WithoutRequests leaves out the spans of requests to members.
func WithoutRequests() Option { return func(o *options) { o.requests = false } }

// WithRenewals adds the spans of renewals. There is one trace for up to 64 leases that the client
// renews by itself, every third of their TTL. In a Redis Cluster there is one for each slot with
// leases. The span of an Extend belongs to its caller.
func WithRenewals() Option { return func(o *options) { o.renewals = true } }

// New makes a Tracer. Several clients may share one.
func New(opts ...Option) redlock.Tracer {
	o := options{provider: otel.GetTracerProvider(), requests: true}
	for _, apply := range opts {
		apply(&o)
	}
	t := &tracer{o.provider.Tracer(scope), o.key}
	out := redlock.Tracer{CallStart: t.callStart, CallEnd: t.callEnd, Lost: t.lost, Woken: t.woken}
	if o.requests {
		out.Request = t.request
	}
	if o.renewals {
		out.RenewalStart, out.RenewalEnd = t.renewalStart, t.renewalEnd
	}
	return out
}

// named adds what tells the lock: nothing for a request about several.
func (t *tracer) named(kind redlock.Kind, name string, attrs ...attribute.KeyValue) []attribute.KeyValue {
	if kind != "" {
		attrs = append(attrs, attribute.String("redlock.kind", string(kind)))
	}
	if t.key != nil {
		attrs = append(attrs, attribute.String("redlock.key", text(t.key(name))))
	}
	return attrs
}

// text is what came from outside. Exporters drop whole batches for one attribute that is no UTF-8.
func text(s string) string { return printable.Text(s, 256) }

func (t *tracer) callStart(ctx context.Context, e redlock.CallStart) context.Context {
	if e.Kind == redlock.KindLatch {
		ctx, _ = t.Start(ctx, "redlock latch", trace.WithAttributes(t.named(e.Kind, e.Key, attribute.String("redlock.op", e.Op))...))
		return ctx
	}
	ctx, _ = t.Start(ctx, "redlock acquire", trace.WithAttributes(t.named(e.Kind, e.Key,
		attribute.Bool("redlock.try", strings.HasPrefix(e.Op, "try ")), attribute.Int64("redlock.ttl_ms", e.TTL.Milliseconds()))...))
	return ctx
}

func (t *tracer) callEnd(ctx context.Context, e redlock.CallEnd) {
	span := trace.SpanFromContext(ctx)
	defer span.End()
	how := outcome.Of(e.Err)
	if e.Kind == redlock.KindLatch {
		how = outcome.OfLatch(e.Err)
	}
	span.SetAttributes(attribute.String("redlock.outcome", how))
	if e.Waited {
		span.AddEvent("wait")
	}
	if e.SecondRound {
		span.AddEvent("second round")
	}
	switch {
	case e.Passed && !e.Waited:
		span.AddEvent("kept")
	case e.Passed:
		span.AddEvent("passed on")
	}
	switch {
	case e.Err != nil:
		t.failed(span, how, e.Err)
	case e.Kind != redlock.KindLatch:
		span.SetAttributes(attribute.Int("redlock.votes", e.Votes), attribute.Int64("redlock.token", int64(e.Token)),
			attribute.Int64("redlock.validity_ms", e.Validity.Milliseconds()))
	}
}

// failed tells why. The text of an error quotes the lock's name, so it is not taken over as it is.
func (t *tracer) failed(span trace.Span, outcome string, err error) {
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
		attrs := server(v.Member)
		if reply := (*member.ReplyError)(nil); errors.As(v.Err, &reply) {
			attrs = append(attrs, attribute.String("db.response.status_code", firstWord(reply.Text)))
		}
		span.AddEvent("member", trace.WithAttributes(attrs...))
	}
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return text(word)
}

func (t *tracer) lost(e *redlock.LostError) {
	_, span := t.Start(context.Background(), "redlock lost", trace.WithAttributes(t.named(e.Kind, e.Key,
		attribute.String("redlock.reason", string(e.Reason)), attribute.Int64("redlock.token", int64(e.Token)))...))
	span.SetStatus(codes.Error, string(e.Reason))
	span.End()
}

func (t *tracer) renewalStart(ctx context.Context, e redlock.RenewalStart) context.Context {
	attrs := []attribute.KeyValue{attribute.Int("redlock.leases", e.Leases)}
	var links []trace.Link
	for lock, acquired := range e.Each {
		if e.Leases == 1 {
			attrs = t.named(lock.Kind, lock.Key, attrs...)
		}
		if s := trace.SpanContextFromContext(acquired); s.IsValid() {
			links = append(links, trace.Link{SpanContext: s})
		}
	}
	ctx, _ = t.Start(ctx, "redlock renew", trace.WithLinks(links...), trace.WithAttributes(attrs...))
	return ctx
}

func (t *tracer) renewalEnd(ctx context.Context, e redlock.RenewalEnd) {
	span := trace.SpanFromContext(ctx)
	defer span.End()
	outcome := "renewed"
	switch {
	case e.Refused > 0:
		outcome = "refused"
	case e.Undecided > 0:
		outcome = "no_quorum"
	}
	span.SetAttributes(attribute.String("redlock.outcome", outcome), attribute.Int("redlock.renewed", e.Renewed), attribute.Int("redlock.refused", e.Refused),
		attribute.Int("redlock.votes", e.Members), attribute.Int("redlock.quorum", e.Need))
	if e.Renewed > 0 {
		span.SetAttributes(attribute.Int64("redlock.validity_ms", e.Validity.Milliseconds()))
	}
	if outcome != "renewed" {
		span.SetStatus(codes.Error, outcome)
		span.SetAttributes(attribute.String("error.type", outcome))
	}
}

// woken leaves out heartbeats, because they would fill the span of a long wait.
func (t *tracer) woken(ctx context.Context, _ redlock.LockName, by redlock.WakeReason) {
	if by != "poll" {
		trace.SpanFromContext(ctx).AddEvent("wakeup", trace.WithAttributes(attribute.String("redlock.source", string(by))))
	}
}

// request records the kind of an error and not its text, because the text may quote what the member
// was told.
func (t *tracer) request(ctx context.Context, e redlock.Request) {
	if !trace.SpanContextFromContext(ctx).IsSampled() {
		return
	}
	attrs := t.named(e.Kind, e.Key, attribute.String("db.system.name", "redis"), attribute.String("db.operation.name", "EVALSHA"),
		attribute.String("db.stored_procedure.name", e.Op))
	attrs = append(attrs, server(e.Member)...)
	_, span := t.Start(ctx, "EVALSHA "+e.Op, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(e.Sent), trace.WithAttributes(attrs...))
	if e.Err != nil {
		kind := "unanswered" // and perhaps executed
		if reply := (*member.ReplyError)(nil); errors.As(e.Err, &reply) {
			kind = firstWord(reply.Text)
			span.SetAttributes(attribute.String("db.response.status_code", kind))
		}
		span.SetAttributes(attribute.String("error.type", kind))
		span.SetStatus(codes.Error, kind)
	}
	span.End(trace.WithTimestamp(e.Sent.Add(e.Took)))
}

// server tells which member it was.
func server(member string) []attribute.KeyValue {
	host, port, err := net.SplitHostPort(member)
	n, notNumber := strconv.Atoi(port)
	if err != nil || notNumber != nil {
		return []attribute.KeyValue{attribute.String("server.address", text(member))}
	}
	return []attribute.KeyValue{attribute.String("server.address", text(host)), attribute.Int("server.port", n)}
}
