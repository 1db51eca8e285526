package redlockotel

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

const canary = "c4n4ry"

func open(t *testing.T, tracer redlock.Tracer) *redlock.Client {
	t.Helper()
	d := redlocktest.New(t, 3, redlock.Config{Tracer: tracer})
	d.Delay(d.Client, 2*time.Millisecond)
	return d.Client
}

// attributes of a span, as text.
func attributes(all []attribute.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		out[string(a.Key)] = fmt.Sprint(a.Value.AsInterface())
	}
	return out
}

func must(t *testing.T, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil || len(want) > 0 && !errors.Is(err, want[0]) {
		t.Fatal(err)
	}
}

func of(recorder *tracetest.SpanRecorder, prefix string) (out []trace.ReadOnlySpan) {
	for _, s := range recorder.Ended() {
		if strings.HasPrefix(s.Name(), prefix) {
			out = append(out, s)
		}
	}
	return out
}

// Each request is a span below that which it was made for, with its own times.
func TestRequestsAreSpans(t *testing.T) { faketime.Test(t, requestsAreSpans) }

func requestsAreSpans(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	tracer := New(WithTracerProvider(provider))
	client := open(t, tracer)
	ctx, job := provider.Tracer("test").Start(t.Context(), "job")
	lease, err := client.Mutex("a").Lock(ctx)
	must(t, err)
	time.Sleep(time.Second)
	end, last := provider.Tracer("test").Start(t.Context(), "end")
	must(t, lease.Unlock(end))
	time.Sleep(time.Second)
	acquire := of(recorder, "redlock acquire")[0]
	for prefix, parent := range map[string]oteltrace.SpanID{"EVALSHA acquire": acquire.SpanContext().SpanID(), "EVALSHA release": last.SpanContext().SpanID()} {
		addresses := map[string]bool{}
		for _, s := range of(recorder, prefix) {
			got := attributes(s.Attributes())
			_, op, _ := strings.Cut(prefix, " ")
			if s.Parent().SpanID() != parent || s.SpanKind() != oteltrace.SpanKindClient || got["db.system.name"] != "redis" || got["db.operation.name"] != "EVALSHA" ||
				got["db.stored_procedure.name"] != op || got["redlock.kind"] != "mutex" || s.Status().Code == codes.Error || !s.EndTime().After(s.StartTime()) {
				t.Errorf("%s: %v %v", s.Name(), got, s.Status())
			}
			addresses[got["server.address"]+":"+got["server.port"]] = true
		}
		for _, m := range client.Members() {
			if !addresses[m.Name] || len(addresses) != 3 {
				t.Errorf("%s: members %v", prefix, addresses)
			}
		}
	}
	if s := of(recorder, "EVALSHA acquire")[0]; s.StartTime().Before(acquire.StartTime()) {
		t.Error("asked before it began")
	}

	// What belongs to nothing that is sampled is no span, and errors are told by their kind.
	before := len(recorder.Ended())
	tracer.Request(t.Context(), redlock.Request{Op: "extend", Member: "a:1"})
	if New(WithTracerProvider(provider), WithoutRequests()).Request != nil {
		t.Error("WithoutRequests has spans of requests")
	}
	if n := len(recorder.Ended()); n != before {
		t.Errorf("%d spans too many", n-before)
	}
	for want, failure := range map[string]error{"OOM": &member.ReplyError{Text: "OOM " + canary}, "unanswered": member.ErrBroken} {
		before := len(of(recorder, "EVALSHA raise"))
		tracer.Request(ctx, redlock.Request{Op: "raise", Member: "/run/redis.sock", Err: failure, Sent: time.Now(), Took: time.Second})
		s := of(recorder, "EVALSHA raise")[before]
		got := attributes(s.Attributes())
		if got["error.type"] != want || (got["db.response.status_code"] == want) != (want == "OOM") || got["server.address"] != "/run/redis.sock" ||
			s.Status().Code != codes.Error || s.EndTime().Sub(s.StartTime()) != time.Second || strings.Contains(fmt.Sprint(got, s.Status()), canary) {
			t.Errorf("%s: %v %v", want, got, s.Status())
		}
	}
	job.End()
	last.End()
}

// A round of renewals is one trace, however many leases it has, with a link to the acquisition of each.
func TestRenewalsAreSpansIfWanted(t *testing.T) {
	const leases = 3
	renewed := func(t *testing.T, opts ...Option) *tracetest.SpanRecorder {
		recorder := tracetest.NewSpanRecorder()
		opts = append(opts, WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorder))), WithKey(strings.ToUpper))
		client := open(t, New(opts...))
		for i := range leases { // renewed after three seconds
			_, err := client.Mutex(fmt.Sprint("lock", i), redlock.AutoRenew(9*time.Second)).Lock(t.Context())
			must(t, err)
		}
		time.Sleep(4 * time.Second)
		return recorder
	}
	faketime.Test(t, func(t *testing.T) {
		recorder := renewed(t)
		if n := len(of(recorder, "redlock renew")) + len(of(recorder, "EVALSHA extend")); n > 0 {
			t.Errorf("%d spans that nobody wanted", n)
		}
	})
	faketime.Test(t, func(t *testing.T) {
		recorder := renewed(t, WithRenewals())
		acquired, linked := map[oteltrace.SpanID]bool{}, map[oteltrace.SpanID]bool{}
		for _, s := range of(recorder, "redlock acquire") {
			acquired[s.SpanContext().SpanID()] = true
		}
		rounds := of(recorder, "redlock renew") // those that are due at the same time go together
		for _, s := range rounds {
			for _, l := range s.Links() {
				linked[l.SpanContext.SpanID()] = true
			}
			got := attributes(s.Attributes())
			if s.Parent().IsValid() || s.SpanKind() != oteltrace.SpanKindInternal || got["redlock.leases"] != fmt.Sprint(len(s.Links())) ||
				got["redlock.outcome"] != "renewed" || got["redlock.renewed"] != got["redlock.leases"] || got["redlock.refused"] != "0" ||
				got["redlock.votes"] < "2" || got["redlock.quorum"] != "2" || got["redlock.validity_ms"] < "1" || s.Status().Code == codes.Error {
				t.Errorf("%v %v", got, s.Status())
			}
			if alone := len(s.Links()) == 1; (got["redlock.key"] != "") != alone || (got["redlock.kind"] == "mutex") != alone {
				t.Errorf("%s %q of %d leases", got["redlock.kind"], got["redlock.key"], len(s.Links()))
			}
			below := 0 // the requests of a round are below it, one for each member
			for _, e := range of(recorder, "EVALSHA extend") {
				if e.Parent().SpanID() == s.SpanContext().SpanID() && e.SpanContext().TraceID() == s.SpanContext().TraceID() {
					below++
				}
			}
			if below != 3 {
				t.Errorf("%d requests of a round", below)
			}
		}
		if !maps.Equal(linked, acquired) || len(linked) != leases {
			t.Errorf("linked to %v, of the acquisitions %v", linked, acquired)
		}
	})
}

func TestRenewalsThatFailSaySo(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := New(WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorder))), WithRenewals())
	none := func(func(redlock.LockName, context.Context) bool) {}
	for _, e := range []redlock.RenewalEnd{{Leases: 2, Renewed: 1, Refused: 1}, {Leases: 2, Renewed: 1, Undecided: 1}, {Leases: 2, Refused: 1, Undecided: 1}, {Leases: 2, Renewed: 1}} {
		tracer.RenewalEnd(tracer.RenewalStart(t.Context(), redlock.RenewalStart{Leases: e.Leases, Each: none}), e)
	}
	for i, want := range []string{"refused", "no_quorum", "refused", "renewed"} {
		s := recorder.Ended()[i]
		got := attributes(s.Attributes())
		if got["redlock.outcome"] != want || (s.Status().Code == codes.Error) != (want != "renewed") || (got["error.type"] == want) != (want != "renewed") {
			t.Errorf("%d: %v %v", i, got, s.Status())
		}
	}
}

func TestWakeupsAreEvents(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	tracer := New(WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorder))))
	ctx := tracer.CallStart(t.Context(), redlock.CallStart{LockName: redlock.LockName{Key: "a"}})
	for _, by := range []redlock.WakeReason{"poll", "expiry", "notify"} {
		tracer.Woken(ctx, redlock.LockName{Key: "a"}, by)
	}
	tracer.CallEnd(ctx, redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: "a"}}})
	var got []string
	for _, e := range recorder.Ended()[0].Events() {
		got = append(got, e.Name+" "+attributes(e.Attributes)["redlock.source"])
	}
	if fmt.Sprint(got) != "[wakeup expiry wakeup notify]" {
		t.Error(got)
	}
}

func TestSpansTellWhatHappened(t *testing.T) { faketime.Test(t, spansTellWhatHappened) }

func spansTellWhatHappened(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	client := open(t, New(WithTracerProvider(provider)))
	ctx, parent := provider.Tracer("test").Start(t.Context(), "request")
	lease, err := client.Mutex("a").Lock(ctx)
	must(t, err)
	_, err = client.Mutex("a").TryLock(ctx)
	must(t, err, redlock.ErrHeld)
	_, err = client.ForceUnlock(ctx, "a")
	must(t, err)
	must(t, lease.Extend(ctx, 30*time.Second), redlock.ErrLost)
	time.Sleep(time.Second) // a loss is told by whoever finds it first, and that may not be Extend
	spans := of(recorder, "redlock ")
	if len(spans) != 3 {
		t.Fatal(spans)
	}
	granted, held, lost := spans[0], spans[1], spans[2]
	got := attributes(granted.Attributes())
	if granted.Name() != "redlock acquire" || granted.Parent().SpanID() != parent.SpanContext().SpanID() || got["redlock.outcome"] != "granted" ||
		got["redlock.token"] != fmt.Sprint(lease.Token()) || got["redlock.kind"] != "mutex" || got["redlock.try"] != "false" || got["redlock.ttl_ms"] != "30000" || got["redlock.votes"] < "2" || got["redlock.validity_ms"] < "1" {
		t.Errorf("granted: %s %v", granted.Name(), got)
	}
	got = attributes(held.Attributes())
	if got["redlock.outcome"] != "held" || got["redlock.try"] != "true" || got["redlock.quorum"] != "2" || held.Status().Code == codes.Error {
		t.Errorf("held: %v %v", got, held.Status())
	}
	got = attributes(lost.Attributes())
	if lost.Name() != "redlock lost" || got["redlock.reason"] != "refused" || got["redlock.kind"] != "mutex" || lost.Status().Code != codes.Error {
		t.Errorf("lost: %s %v", lost.Name(), got)
	}
	for _, s := range recorder.Ended() {
		if _, named := attributes(s.Attributes())["redlock.key"]; named {
			t.Errorf("%s tells the lock's name", s.Name())
		}
	}
}

// Neither a password nor a name gets into a span; a name only as WithKey says.
func TestSpansHoldNoSecret(t *testing.T) {
	for _, named := range []bool{false, true} {
		faketime.Test(t, func(t *testing.T) { spansHoldNoSecret(t, named) })
	}
}

func spansHoldNoSecret(t *testing.T, named bool) {
	recorder := tracetest.NewSpanRecorder()
	opts := []Option{WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorder)))}
	if named {
		opts = append(opts, WithKey(func(name string) string { kind, _, _ := strings.Cut(name, ":"); return kind }))
	}
	tracer := New(opts...)
	client := open(t, tracer)
	name := "invoice:" + canary
	lease, err := client.Mutex(name).Lock(t.Context())
	must(t, err)
	h, err := lease.Handoff()
	must(t, err)
	ctx := tracer.CallStart(context.Background(), redlock.CallStart{LockName: redlock.LockName{Key: name}})
	tracer.CallEnd(ctx, redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: name}}, Waited: true, SecondRound: true, Passed: true, Err: &redlock.QuorumError{Failure: quorum.Failure{Key: name, Votes: []quorum.MemberVote{
		{Member: "b:1", Err: errors.New("password " + canary)}, {Member: "b:2", Err: &member.ReplyError{Text: "NOPERM user " + canary}},
	}}}})
	tracer.Lost(&redlock.LostError{LockName: redlock.LockName{Key: name}, Reason: redlock.LostExpired})
	secret := h.Secret()
	all := ""
	for _, s := range recorder.Ended() {
		all += fmt.Sprintln(s.Name(), s.Status(), attributes(s.Attributes()))
		for _, e := range s.Events() {
			all += fmt.Sprintln(e.Name, attributes(e.Attributes))
		}
	}
	if strings.Contains(all, canary) || strings.Contains(all, string(secret)) || strings.Contains(all, "invoice") != named {
		t.Error(all)
	}
	for _, want := range []string{"wait", "second round", "passed on", "server.address:b", "server.port:1", "db.response.status_code:NOPERM"} {
		if !strings.Contains(all, want) {
			t.Errorf("lacks %s:\n%s", want, all)
		}
	}
}

// Exporters drop the whole batch of a span with an attribute that is no UTF-8.
func TestTextFromOutsideIsEscapedInSpans(t *testing.T) {
	t.Parallel()
	const odd, want = "k\xff\x1b", `k\xff\u001b`
	recorder := tracetest.NewSpanRecorder()
	tracer := New(WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorder))), WithKey(func(name string) string { return name }))
	ctx := tracer.CallStart(t.Context(), redlock.CallStart{LockName: redlock.LockName{Key: odd}})
	refused := &member.ReplyError{Text: odd + " by the member"}
	tracer.Request(ctx, redlock.Request{LockName: redlock.LockName{Key: odd}, Member: odd, Err: refused})
	tracer.Request(ctx, redlock.Request{LockName: redlock.LockName{Key: odd}, Member: odd + ":1", Err: refused})
	tracer.CallEnd(ctx, redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: odd}}, Err: &redlock.QuorumError{Failure: quorum.Failure{Votes: []quorum.MemberVote{{Member: odd, Err: refused}}}}})
	seen := 0
	look := func(attrs []attribute.KeyValue) {
		for name, value := range attributes(attrs) {
			if strings.HasPrefix(value, "k") {
				seen++
				if value != want {
					t.Errorf("%s is %q", name, value)
				}
			}
		}
	}
	for _, s := range recorder.Ended() {
		look(s.Attributes())
		for _, e := range s.Events() {
			look(e.Attributes)
		}
	}
	if seen != 11 {
		t.Errorf("%d attributes", seen)
	}
}
