package redlockprom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"net/http/httptest"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/outcome"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

const canary = "c4n4ry"

func open(t *testing.T, m *Metrics) *redlock.Client {
	t.Helper()
	d := redlocktest.New(t, 3, redlock.Config{
		Entry:        30 * time.Second, // what is granted to a waiter is not renewed before the figures are read
		PingInterval: 50 * time.Millisecond,
		Tracer:       m.Tracer(),
	})
	d.Delay(d.Client, 2*time.Millisecond)
	m.Watch(d.Client)
	return d.Client
}

// play lets a client do all that can be counted, and adds what servers would have to be broken for.
func play(t *testing.T, m *Metrics, name string) *prometheus.Registry {
	t.Helper()
	client := open(t, m)
	ctx := t.Context()
	lease, err := client.Mutex(name).Lock(ctx)
	must(t, err)
	_, err = client.Mutex(name).TryLock(ctx)
	must(t, err, redlock.ErrHeld)
	must(t, lease.Extend(ctx, 30*time.Second))
	got := make(chan *redlock.Lease)
	go func() {
		l, err := client.Mutex(name).Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		got <- l
	}()
	eventually(t, func() bool { // it waits at every member, and so is told of each one's grant
		seen, err := client.Inspect(ctx, name)
		must(t, err)
		for _, v := range seen.Members {
			if len(v.Queue) != 1 {
				return false
			}
		}
		return client.Stats()[redlock.KindMutex].Waiting == 1
	})
	must(t, lease.Unlock(ctx))
	lease = <-got
	_, err = client.ForceUnlock(ctx, name)
	must(t, err)
	must(t, lease.Extend(ctx, 30*time.Second), redlock.ErrLost)
	// Whoever books a loss tells it, and that may not be Extend.
	eventually(t, func() bool {
		return testutil.ToFloat64(m.lost.WithLabelValues(m.with(redlock.KindMutex, name, "refused")...)) == 1
	})
	_, err = client.Mutex(name, redlock.TTL(time.Second)).Lock(ctx)
	must(t, err)
	eventually(t, func() bool {
		return testutil.ToFloat64(m.lost.WithLabelValues(m.with(redlock.KindMutex, name, "expired")...)) == 1
	})
	_, err = client.Mutex(name).Lock(ctx)
	must(t, err)
	eventually(t, func() bool {
		for _, member := range client.Members() {
			if member.ClockWithin == 0 {
				return false
			}
		}
		return true
	})
	must(t, client.Latch(name, 2).CountDown(ctx))
	must(t, client.Latch(name, 3).CountDown(ctx), redlock.ErrConflict)
	must(t, client.Latch(name, 2).CountDown(ctx))
	must(t, client.Latch(name, 2).Await(ctx))
	for _, waited := range []bool{true, false} {
		m.Tracer().CallEnd(ctx, redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: name, Kind: redlock.KindMutex}}, Votes: 2, SecondRound: waited, Passed: true, Waited: waited, Validity: time.Second})
	}
	m.Tracer().Member("a:1", false, fmt.Errorf("a:1: %w", &member.ReplyError{Kind: member.KindAuth, Text: "WRONGPASS"}))
	registry := prometheus.NewPedanticRegistry()
	must(t, registry.Register(m))
	return registry
}

func must(t *testing.T, err error, want ...error) {
	t.Helper()
	if len(want) == 0 && err != nil || len(want) > 0 && !errors.Is(err, want[0]) {
		t.Fatal(err)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never")
		}
	}
}

func expect(t *testing.T, ok bool, format string, args ...any) {
	if t.Helper(); !ok {
		t.Errorf(format, args...)
	}
}

func TestMetrics(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		m := New()
		registry := play(t, m, "invoice")
		count(t, m, registry)
		countRequests(t, m, registry)
		areShown(t, registry)
	})
}

func count(t *testing.T, m *Metrics, registry *prometheus.Registry) {
	want := `
# HELP redlock_acquire_total Calls of Lock and TryLock, by outcome: granted, held, no_quorum, expired, canceled, error.
# TYPE redlock_acquire_total counter
redlock_acquire_total{kind="mutex",outcome="canceled"} 0
redlock_acquire_total{kind="mutex",outcome="error"} 0
redlock_acquire_total{kind="mutex",outcome="expired"} 0
redlock_acquire_total{kind="mutex",outcome="granted"} 6
redlock_acquire_total{kind="mutex",outcome="held"} 1
redlock_acquire_total{kind="mutex",outcome="no_quorum"} 0
# HELP redlock_extend_total Renewals that were decided, by outcome: renewed, refused.
# TYPE redlock_extend_total counter
redlock_extend_total{kind="mutex",outcome="refused"} 1
redlock_extend_total{kind="mutex",outcome="renewed"} 1
# HELP redlock_held Leases that are held.
# TYPE redlock_held gauge
redlock_held{kind="mutex"} 1
# HELP redlock_kept Locks that are kept without a lease.
# TYPE redlock_kept gauge
redlock_kept{kind="mutex"} 0
# HELP redlock_kept_recalled_total Kept locks that were given up because another client waited.
# TYPE redlock_kept_recalled_total counter
redlock_kept_recalled_total{kind="mutex"} 0
# HELP redlock_kept_used_total Grants of a lock that the client had kept.
# TYPE redlock_kept_used_total counter
redlock_kept_used_total{kind="mutex"} 1
# HELP redlock_lost_total Leases that ended although their holder did not end them, by reason: expired, refused, max_hold, closed.
# TYPE redlock_lost_total counter
redlock_lost_total{kind="mutex",reason="closed"} 0
redlock_lost_total{kind="mutex",reason="expired"} 1
redlock_lost_total{kind="mutex",reason="max_hold"} 0
redlock_lost_total{kind="mutex",reason="refused"} 1
# HELP redlock_member_errors_total Failures of a member when it went down or when there was no quorum, by error.
# TYPE redlock_member_errors_total counter
redlock_member_errors_total{error="auth",member="a:1"} 1
# HELP redlock_passed_total Grants that another caller of the client passed on, without a command.
# TYPE redlock_passed_total counter
redlock_passed_total{kind="mutex"} 1
# HELP redlock_release_total Calls of Unlock, by outcome: released, lost, in_doubt, error.
# TYPE redlock_release_total counter
redlock_release_total{kind="mutex",outcome="error"} 0
redlock_release_total{kind="mutex",outcome="in_doubt"} 0
redlock_release_total{kind="mutex",outcome="lost"} 0
redlock_release_total{kind="mutex",outcome="released"} 1
# HELP redlock_waiters Callers of Lock that are waiting.
# TYPE redlock_waiters gauge
redlock_waiters{kind="mutex"} 0
`
	for kind := range m.client.Stats() { // all that there are
		if kind == redlock.KindMutex {
			continue
		}
		want = regexp.MustCompile(`(.*)\{kind="mutex"(.*)\} \d+\n`).ReplaceAllString(want, "$0$1{kind=\""+string(kind)+"\"$2} 0\n")
	}
	var names []string
	for _, line := range regexp.MustCompile(`# TYPE (\S+)`).FindAllStringSubmatch(want, -1) {
		names = append(names, line[1])
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), names...); err != nil {
		t.Error(err)
	}
	began := values(t, registry, "redlock_guard_events_total")
	for _, member := range m.client.Members() {
		for _, step := range steps {
			_, ok := began[member.Name+" "+step]
			expect(t, ok, "the first step %q of %s would be no increase: %v", step, member.Name, began)
		}
	}
	problems, err := testutil.GatherAndLint(registry)
	expect(t, err == nil && len(problems) == 0, "names: %v, %v", problems, err)
}

// values of a metric by its labels: of a histogram, how many samples it has.
func values(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	must(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, one := range f.GetMetric() {
			var labels []string
			for _, l := range one.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if f.GetName() == name {
				out[strings.Join(labels, " ")] = one.GetGauge().GetValue() + one.GetCounter().GetValue() + float64(one.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

// countRequests checks, of members, the time of what was answered; of waiters, what moved them.
func countRequests(t *testing.T, m *Metrics, registry *prometheus.Registry) {
	n := testutil.ToFloat64(m.wakeups.WithLabelValues("notify", "mutex"))
	expect(t, n >= 2, "told of %v grants: a majority of three was needed", n)
	offsets := values(t, registry, "redlock_member_clock_offset_seconds")
	expect(t, len(offsets) == 3, "clocks: %v", offsets)
	for name, ahead := range offsets {
		expect(t, ahead >= -30 && ahead <= 30, "the clock of %s, which is in this process, is %v s ahead", name, ahead)
		for _, op := range []string{"acquire", "wait", "release", "extend"} {
			eventually(t, func() bool { return values(t, registry, "redlock_member_request_duration_seconds")[name+" "+op] > 0 })
		}
	}
	for _, err := range []error{nil, fmt.Errorf("a:1: %w", &member.ReplyError{Text: "OOM"}), member.ErrBroken} {
		m.Tracer().Request(t.Context(), redlock.Request{Member: "a:1", Op: "acquire", Took: time.Second, Err: err})
	}
	n = values(t, registry, "redlock_member_request_duration_seconds")["a:1 acquire"]
	expect(t, n == 2, "%v durations of two answers", n)
}

// areShown checks that the dashboard asks for metrics that exist, and for all of them. The document lists the same, and no
// other one, with its alerts, names a metric or the value of a label that nobody would ever see.
func areShown(t *testing.T, registry *prometheus.Registry) {
	families, err := registry.Gather()
	must(t, err)
	exists, labels := map[string]bool{}, map[string]bool{}
	for _, f := range families {
		exists[f.GetName()] = false
		for _, one := range f.GetMetric() {
			for _, l := range one.GetLabel() {
				labels[f.GetName()+" "+l.GetName()+" "+l.GetValue()] = true
			}
		}
	}
	var dashboard struct {
		Title  string
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	must(t, json.Unmarshal(Dashboard, &dashboard))
	name, ofHistogram := regexp.MustCompile(`redlock_[a-z_]+`), regexp.MustCompile(`_(bucket|sum|count)$`)
	for _, p := range dashboard.Panels {
		expect(t, len(p.Targets) > 0, "panel %q asks for nothing", p.Title)
		for _, target := range p.Targets {
			for _, found := range name.FindAllString(target.Expr, -1) {
				base := ofHistogram.ReplaceAllString(found, "")
				_, ok := exists[base]
				expect(t, ok, "panel %q asks for %s, which does not exist", p.Title, found)
				exists[base] = true
			}
		}
	}
	for name, asked := range exists {
		expect(t, asked, "no panel shows %s", name)
	}
	listed, selector := map[string]bool{}, regexp.MustCompile(`(redlock_[a-z_]+)\{(\w+)[=!~]+"([\w|\\]+)"`)
	pages, err := filepath.Glob("../../docs/*.md")
	must(t, err)
	for _, page := range pages {
		text, err := os.ReadFile(page)
		must(t, err)
		for _, found := range name.FindAllString(string(text), -1) {
			listed[found] = listed[found] || filepath.Base(page) == "metrics.md"
			_, ok := exists[ofHistogram.ReplaceAllString(found, "")]
			expect(t, ok, "%s tells of %s, which does not exist", page, found)
		}
		for _, found := range selector.FindAllStringSubmatch(string(text), -1) {
			for value := range strings.FieldsFuncSeq(found[3], func(r rune) bool { return r == '|' || r == '\\' }) {
				expect(t, labels[found[1]+" "+found[2]+" "+value], "%s asks for %s, and %s is never %s", page, found[0], found[2], value)
			}
		}
	}
	for name := range exists {
		expect(t, listed[name], "docs/metrics.md does not tell of %s", name)
	}
}

// Neither a password, nor an owner, nor a name gets into a metric; a name only as WithKeyLabel says.
func TestMetricsHoldNoSecret(t *testing.T) {
	name := "invoice:" + canary
	exposed := func(m *Metrics) (text string) {
		faketime.Test(t, func(t *testing.T) {
			registry := play(t, m, name)
			m.Tracer().CallEnd(t.Context(), redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: name, Kind: redlock.KindMutex}}, Err: &redlock.QuorumError{Failure: quorum.Failure{
				Votes: []quorum.MemberVote{{Member: "b:1", Vote: quorum.No, Err: errors.New("password " + canary)}},
			}}})
			w := httptest.NewRecorder()
			promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			text = w.Body.String()
		})
		return text
	}
	if text := exposed(New()); strings.Contains(text, canary) || strings.Contains(text, "invoice") || !strings.Contains(text, `member="b:1"`) {
		t.Error(text)
	}
	byPart := New(WithKeyLabel(func(name string) string { part, _, _ := strings.Cut(name, ":"); return part }))
	if text := exposed(byPart); strings.Contains(text, canary) || !strings.Contains(text, `redlock_acquire_total{key="invoice",kind="mutex",outcome="granted"} 6`) {
		t.Error(text)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for want, err := range map[string]error{
		"granted": nil, "held": errors.Join(redlock.ErrHeld, context.DeadlineExceeded), "canceled": errors.Join(redlock.ErrHeld, context.Canceled),
		"no_quorum": errors.Join(redlock.ErrNoQuorum, context.DeadlineExceeded), "expired": redlock.ErrTooSlow, "error": redlock.ErrForeignKey,
	} {
		expect(t, outcome.Of(err) == want && slices.Contains(outcomes, want), "%v: %s, want %s", err, outcome.Of(err), want)
	}
	for want, err := range map[string]error{
		"auth": &member.ReplyError{Kind: member.KindAuth}, "stalled": member.ErrStalled, "silent": context.DeadlineExceeded, "down": member.ErrDown,
		"quarantined": &member.QuarantineError{}, "overflow": member.ErrOverflow, "broken": member.ErrBroken, "other": &member.ReplyError{},
	} {
		expect(t, kindOf(err) == want, "%v: %s, want %s", err, kindOf(err), want)
	}
}

// A name, a member's address and whatever WithKeyLabel makes of a name may be any bytes.
func TestNamesThatAreNoTextAreEscapedInLabels(t *testing.T) {
	t.Parallel()
	const odd = "k\xff\x1b"
	m := New(WithKeyLabel(func(name string) string { return name + strings.Repeat("x", 1000) }))
	tr := m.Tracer()
	failed := &redlock.QuorumError{Failure: quorum.Failure{Votes: []quorum.MemberVote{{Member: odd, Err: errors.New("x")}}}}
	tr.CallEnd(t.Context(), redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: odd, Kind: redlock.KindMutex}}, Waited: true, SecondRound: true})
	tr.CallEnd(t.Context(), redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: odd, Kind: redlock.KindMutex}}, Err: failed})
	tr.CallEnd(t.Context(), redlock.CallEnd{CallStart: redlock.CallStart{LockName: redlock.LockName{Key: odd, Kind: redlock.KindLatch}, Op: "await"}, Err: failed})
	tr.RenewalEnd(t.Context(), redlock.RenewalEnd{Each: func(yield func(redlock.LockName, bool) bool) { yield(redlock.LockName{Key: odd}, false) }})
	tr.Lost(&redlock.LostError{LockName: redlock.LockName{Key: odd}})
	tr.Released(redlock.Released{LockName: redlock.LockName{Key: odd}})
	tr.Member(odd, false, errors.New("x"))
	tr.Guard(odd, "marked", time.Time{})
	tr.Request(t.Context(), redlock.Request{Member: odd, Op: "acquire"})
	registry := prometheus.NewPedanticRegistry()
	must(t, registry.Register(m))
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	for _, want := range []string{`redlock_lost_total{key="k\\xff\\u001b` + strings.Repeat("x", 114) + `…",`, `redlock_guard_events_total{member="k\\xff\\u001b",`} {
		expect(t, strings.Contains(w.Body.String(), want), "lacks %s:\n%s", want, w.Body)
	}
}

// The metrics of each client of a process are registered with a label of their own, as the package says.
func TestMetricsOfSeveralClientsAreOneRegistry(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewPedanticRegistry()
	for _, client := range []string{"web", "jobs"} {
		must(t, prometheus.WrapRegistererWith(prometheus.Labels{"client": client}, registry).Register(New()))
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
}
