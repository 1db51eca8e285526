package redlockotel

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
)

const canary = "c4n4ry"

func open(t *testing.T, tracer *Tracer) (*redistest.Cluster, *redlock.Client) {
	t.Helper()
	cluster := redistest.NewEmbeddedCluster(3)
	t.Cleanup(func() { _ = cluster.Close() })
	var urls []string
	for i := range 3 {
		if err := cluster.Embedded(i).ServeTCP("127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		urls = append(urls, "redis://"+cluster.Servers[i].Addr())
	}
	client, err := redlock.Open(t.Context(), urls, redlock.WithConfig(redlock.Config{MemberTimeout: 10 * time.Second, DialTimeout: 10 * time.Second}),
		redlock.WithFreshMembers(), redlock.WithTracer(tracer))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return cluster, client
}

// attributes of a span, as text.
func attributes(all []attribute.KeyValue) map[string]string {
	out := map[string]string{}
	for _, a := range all {
		out[string(a.Key)] = a.Value.Emit()
	}
	return out
}

func TestSpansTellWhatHappened(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := trace.NewTracerProvider(trace.WithSpanProcessor(recorder))
	_, client := open(t, New(WithTracerProvider(provider)))
	ctx, parent := provider.Tracer("test").Start(t.Context(), "request")
	lease, err := client.Mutex("a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Mutex("a").TryLock(ctx); !errors.Is(err, redlock.ErrHeld) {
		t.Fatal(err)
	}
	if _, err := client.ForceUnlock(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if err := lease.Extend(ctx, 30*time.Second); !errors.Is(err, redlock.ErrLost) {
		t.Fatal(err)
	}
	spans := recorder.Ended()
	for end := time.Now().Add(20 * time.Second); len(spans) < 3 && time.Now().Before(end); spans = recorder.Ended() {
		runtime.Gosched() // a loss is told by whoever finds it first, and that may not be Extend
	}
	if len(spans) != 3 {
		t.Fatalf("%d spans", len(spans))
	}
	granted, held, lost := spans[0], spans[1], spans[2]
	got := attributes(granted.Attributes())
	if granted.Name() != "redlock acquire" || granted.Parent().SpanID() != parent.SpanContext().SpanID() || got["redlock.outcome"] != "granted" ||
		got["redlock.fence"] != fmt.Sprint(lease.Token()) || got["redlock.try"] != "false" || got["redlock.ttl_ms"] != "30000" || got["redlock.votes"] < "2" || got["redlock.validity_ms"] < "1" {
		t.Errorf("granted: %s %v", granted.Name(), got)
	}
	got = attributes(held.Attributes())
	if got["redlock.outcome"] != "held" || got["redlock.try"] != "true" || got["redlock.quorum"] != "2" || held.Status().Code == codes.Error {
		t.Errorf("held: %v %v", got, held.Status())
	}
	got = attributes(lost.Attributes())
	if lost.Name() != "redlock lost" || got["redlock.reason"] != "refused" || lost.Status().Code != codes.Error {
		t.Errorf("lost: %s %v", lost.Name(), got)
	}
	for _, s := range spans {
		if _, named := attributes(s.Attributes())["redlock.key"]; named {
			t.Errorf("%s tells the lock's name", s.Name())
		}
	}
}

// Neither a password nor a name gets into a span; a name only as WithKey says.
func TestSpansHoldNoSecret(t *testing.T) {
	for _, named := range []bool{false, true} {
		recorder := tracetest.NewSpanRecorder()
		opts := []Option{WithTracerProvider(trace.NewTracerProvider(trace.WithSpanProcessor(recorder)))}
		if named {
			opts = append(opts, WithKey(func(name string) string { kind, _, _ := strings.Cut(name, ":"); return kind }))
		}
		tracer := New(opts...)
		_, client := open(t, tracer)
		name := "invoice:" + canary
		lease, err := client.Mutex(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		h, err := lease.Handoff()
		if err != nil {
			t.Fatal(err)
		}
		ctx := tracer.AcquireStart(context.Background(), redlock.AcquireStart{Key: name})
		tracer.AcquireEnd(ctx, redlock.AcquireEnd{Key: name, Waited: true, SecondRound: true, Err: &redlock.QuorumError{Failure: quorum.Failure{Key: name, Votes: []quorum.MemberVote{
			{Member: "b:1", Err: errors.New("password " + canary)}, {Member: "b:2", Err: &quorum.ReplyError{Text: "NOPERM user " + canary}},
		}}}})
		tracer.Lost(&redlock.LostError{Key: name, Reason: redlock.LostExpired})
		secret, _ := h.MarshalText()
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
		for _, want := range []string{"wait", "second round", "server.address:b:1", "db.response.status_code:NOPERM"} {
			if !strings.Contains(all, want) {
				t.Errorf("lacks %s:\n%s", want, all)
			}
		}
	}
}
