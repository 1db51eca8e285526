// Package redlockprom exports Prometheus metrics of what a client of package redlock does.
//
//	metrics := redlockprom.New()
//	prometheus.MustRegister(metrics)
//	client, err := redlock.Open(ctx, urls, redlock.Config{Tracer: metrics.Tracer()})
//	metrics.Watch(client)
//
// Each client needs a Metrics of its own. If a process has several clients, give the metrics of each
// a label that tells them apart, those of the first too:
//
//	prometheus.WrapRegistererWith(prometheus.Labels{"client": "jobs"}, registry).MustRegister(metrics)
//
// Every metric that counts per lock has the kind of the lock as a label. The name of a lock is no
// label, because there are many names, and a name may tell what others must not read. WithKeyLabel
// makes a label of it. No metric holds a secret. dashboard.json is a Grafana dashboard of all
// metrics.
package redlockprom

import (
	"context"
	_ "embed"
	"errors"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/redquorum/redquorum/internal/printable"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/outcome"
)

// Dashboard is a Grafana dashboard of these metrics, as JSON.
//
//go:embed dashboard.json
var Dashboard []byte

// Metrics is a prometheus.Collector, and has a redlock.Tracer. Each client needs a Metrics of its own.
type Metrics struct {
	key func(string) string

	acquired    *prometheus.CounterVec
	took        *prometheus.HistogramVec
	waited      *prometheus.HistogramVec
	hold        *prometheus.HistogramVec
	validity    *prometheus.HistogramVec
	votes       *prometheus.HistogramVec
	raised      *prometheus.CounterVec
	passed      *prometheus.CounterVec
	reused      *prometheus.CounterVec
	extended    *prometheus.CounterVec
	lost        *prometheus.CounterVec
	released    *prometheus.CounterVec
	memberError *prometheus.CounterVec
	guard       *prometheus.CounterVec
	request     *prometheus.HistogramVec
	wakeups     *prometheus.CounterVec
	latches     *prometheus.HistogramVec
	build       prometheus.Gauge
	all         []prometheus.Collector

	held, kept, recalled, oldest, waiters, up, voting, silent, offset *prometheus.Desc

	mu     sync.Mutex
	client *redlock.Client
}

// Option changes the metrics that New makes.
type Option func(*Metrics)

// WithKeyLabel adds a label "key" with the value that f returns for a lock's name. f should return
// few different values, such as the part before a colon. What cannot be printed is escaped, as "\xff"
// of a name that is no UTF-8, and after 128 bytes the value is cut.
func WithKeyLabel(f func(name string) string) Option { return func(m *Metrics) { m.key = f } }

// New makes the metrics. Register them, and give their Tracer to redlock.Open.
func New(opts ...Option) *Metrics {
	m := &Metrics{}
	for _, o := range opts {
		o(m)
	}
	labels := func(own ...string) []string {
		own = append(own, "kind")
		if m.key != nil {
			own = append(own, "key")
		}
		return own
	}
	counter := func(name, help string, own ...string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, own)
		m.all = append(m.all, v)
		return v
	}
	histogram := func(name, help string, buckets []float64, own ...string) *prometheus.HistogramVec {
		v := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, own)
		m.all = append(m.all, v)
		return v
	}
	quick := prometheus.ExponentialBuckets(0.0002, 2.5, 13)       // 0.2 ms to 12 s
	long := prometheus.ExponentialBuckets(0.001, 4, 12)           // 1 ms to 1.2 h
	validities := []float64{.1, .25, .5, 1, 2, 5, 10, 20, 30, 60} // leases of seconds
	m.acquired = counter("redlock_acquire_total", "Calls of Lock and TryLock, by outcome: granted, held, no_quorum, expired, canceled, error.", labels("outcome")...)
	m.took = histogram("redlock_acquire_duration_seconds", "Duration of Lock and TryLock, waiting included, by outcome.", quick, labels("outcome")...)
	m.waited = histogram("redlock_wait_duration_seconds", "Duration of the calls of Lock that had to wait and were granted.", long, labels()...)
	m.hold = histogram("redlock_hold_duration_seconds", "Time from grant to unlock.", long, labels()...)
	m.validity = histogram("redlock_grant_validity_seconds", "Validity left when a lock was granted.", validities, labels()...)
	m.votes = histogram("redlock_grant_votes", "Members that had granted when a lock was granted.", []float64{1, 2, 3, 4, 5, 6, 7}, labels()...)
	m.raised = counter("redlock_token_writeback_total", "Grants whose token needed a second round, because the members' counters disagreed.", labels()...)
	m.passed = counter("redlock_passed_total", "Grants that another caller of the client passed on, without a command.", labels()...)
	m.reused = counter("redlock_kept_used_total", "Grants of a lock that the client had kept.", labels()...)
	m.extended = counter("redlock_extend_total", "Renewals that were decided, by outcome: renewed, refused.", labels("outcome")...)
	m.lost = counter("redlock_lost_total", "Leases that ended although their holder did not end them, by reason: expired, refused, max_hold, closed.", labels("reason")...)
	m.released = counter("redlock_release_total", "Calls of Unlock, by outcome: released, lost, in_doubt, error.", labels("outcome")...)
	m.memberError = counter("redlock_member_errors_total", "Failures of a member when it went down or when there was no quorum, by error.", "member", "error")
	m.guard = counter("redlock_guard_events_total", "Steps of the restart guard at a member: marked, forgot, quarantined, lifted, restored, tokens_by_clock.", "member", "step")
	m.request = histogram("redlock_member_request_duration_seconds", "Time until a member answered a request, including the time in line, by operation: acquire, wait, yield, claim, raise, release, extend, rejoin; of latches: arrive, await.", quick, "member", "op")
	m.wakeups = counter("redlock_wakeups_total", "What woke waiting callers of Lock, by source: notify (a member granted the waiting request); and what makes them ask again: poll (a heartbeat, every third of Entry), expiry (a member's lock should have ended), member (a member came back).", labels("source")...)
	m.latches = histogram("redlock_latch_duration_seconds", "Duration of calls about latches, by operation: count_down, arrive, await, remaining, delete_latch, wait_at_barrier; and by outcome: done, no_quorum, passed, conflict, canceled, error.", long, latchLabels(m.key != nil)...)
	m.build = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "redlock_build_info", Help: "Always 1; the version of the library is a label.", ConstLabels: prometheus.Labels{"version": version()},
	})
	m.build.Set(1)
	m.all = append(m.all, m.build)
	m.held = prometheus.NewDesc("redlock_held", "Leases that are held.", []string{"kind"}, nil)
	m.kept = prometheus.NewDesc("redlock_kept", "Locks that are kept without a lease.", []string{"kind"}, nil)
	m.recalled = prometheus.NewDesc("redlock_kept_recalled_total", "Kept locks that were given up because another client waited.", []string{"kind"}, nil)
	m.oldest = prometheus.NewDesc("redlock_oldest_held_seconds", "Age of the oldest lease that is held, 0 if there is none.", []string{"kind"}, nil)
	m.waiters = prometheus.NewDesc("redlock_waiters", "Callers of Lock that are waiting.", []string{"kind"}, nil)
	m.up = prometheus.NewDesc("redlock_member_up", "1 while the member can be reached.", []string{"member"}, nil)
	m.voting = prometheus.NewDesc("redlock_member_voting", "1 while the member votes: it can be reached and is trusted to remember.", []string{"member"}, nil)
	m.silent = prometheus.NewDesc("redlock_member_silent_slots", "Hash slots for whose locks a Redis Cluster does not vote, while it votes for others; 0 for one server.", []string{"member"}, nil)
	m.offset = prometheus.NewDesc("redlock_member_clock_offset_seconds", "How far the member's wall clock is ahead of this machine's, give or take half a round trip; absent before the first answer.", []string{"member"}, nil)
	m.begin()
	return m
}

// The values of the labels kind, outcome, reason and step.
var (
	lockKinds = []string{string(redlock.KindMutex), string(redlock.KindFair), string(redlock.KindElection), string(redlock.KindWrite), string(redlock.KindRead), string(redlock.KindSemaphore)}
	outcomes  = []string{"granted", "held", "no_quorum", "expired", "canceled", "error"}
	reasons   = []redlock.LostReason{redlock.LostExpired, redlock.LostRefused, redlock.LostMaxHold, redlock.LostClosed}
	steps     = []string{"marked", "forgot", "quarantined", "lifted", "restored", "tokens_by_clock"}
)

// begin has counters begin at 0, so that their first increase is one for rate and increase. With a label "key"
// it is not known what to begin.
func (m *Metrics) begin() {
	if m.key != nil {
		return
	}
	for _, kind := range lockKinds {
		for _, o := range outcomes {
			m.acquired.WithLabelValues(o, kind)
		}
		for _, r := range reasons {
			m.lost.WithLabelValues(string(r), kind)
		}
		for _, o := range []string{"renewed", "refused"} {
			m.extended.WithLabelValues(o, kind)
		}
		for _, o := range []string{"released", "lost", "in_doubt", "error"} {
			m.released.WithLabelValues(o, kind)
		}
		m.raised.WithLabelValues(kind)
		m.passed.WithLabelValues(kind)
		m.reused.WithLabelValues(kind)
	}
}

// version of the library in this program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/redquorum/redquorum" && m.Version != "" {
			return m.Version
		}
	}
	return "unknown"
}

// Watch makes the gauges report on client. Without it, there are only counters and histograms.
func (m *Metrics) Watch(client *redlock.Client) {
	for _, i := range client.Members() {
		for _, step := range steps {
			m.guard.WithLabelValues(address(i.Name), step)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.client = client
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.all {
		c.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.held, m.kept, m.recalled, m.oldest, m.waiters, m.up, m.voting, m.silent, m.offset} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.all {
		c.Collect(ch)
	}
	m.mu.Lock()
	client := m.client
	m.mu.Unlock()
	if client == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for kind, s := range client.Stats() {
		gauge(m.held, float64(s.Held), string(kind))
		gauge(m.kept, float64(s.Kept), string(kind))
		ch <- prometheus.MustNewConstMetric(m.recalled, prometheus.CounterValue, float64(s.Recalled), string(kind))
		age := 0.0
		if !s.Oldest.IsZero() {
			age = time.Since(s.Oldest).Seconds()
		}
		gauge(m.oldest, age, string(kind))
		gauge(m.waiters, float64(s.Waiting), string(kind))
	}
	for _, i := range client.Members() {
		i.Name = address(i.Name)
		gauge(m.up, is(i.State != redlock.MemberDown), i.Name)
		gauge(m.voting, is(i.State == redlock.MemberVoting), i.Name)
		gauge(m.silent, float64(i.Silent), i.Name)
		if i.ClockWithin > 0 {
			gauge(m.offset, i.ClockAhead.Seconds(), i.Name)
		}
	}
}

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// with adds the labels of the lock: its kind, and that of the key, if there is to be one.
func (m *Metrics) with(kind redlock.Kind, key string, own ...string) []string {
	own = append(own, string(kind))
	if m.key != nil {
		own = append(own, label(m.key(key)))
	}
	return own
}

// label is text from outside as the value of a label: client_golang panics at what is no UTF-8.
func label(text string) string { return printable.Text(text, 128) }

// address is the name of a member as the value of a label. It is cut only where no address is so long,
// so that two members stay two.
func address(name string) string { return printable.Text(name, 4096) }

// Tracer has the metrics count what a client does.
func (m *Metrics) Tracer() redlock.Tracer {
	e := events{m}
	return redlock.Tracer{
		CallEnd: e.callEnd, RenewalEnd: e.renewalEnd, Lost: e.lost, Released: e.released, Member: e.member, Guard: e.guard, Request: e.request, Woken: e.woken,
	}
}

// events are the functions of the Tracer.
type events struct{ m *Metrics }

func (v events) callEnd(_ context.Context, e redlock.CallEnd) {
	m := v.m
	if e.Kind == redlock.KindLatch {
		m.latch(e)
		return
	}
	how := outcome.Of(e.Err)
	m.acquired.WithLabelValues(m.with(e.Kind, e.Key, how)...).Inc()
	m.took.WithLabelValues(m.with(e.Kind, e.Key, how)...).Observe(e.Elapsed.Seconds())
	if e.Err != nil {
		m.failures(e.Err)
		return
	}
	m.validity.WithLabelValues(m.with(e.Kind, e.Key)...).Observe(e.Validity.Seconds())
	m.votes.WithLabelValues(m.with(e.Kind, e.Key)...).Observe(float64(e.Votes))
	if e.Waited {
		m.waited.WithLabelValues(m.with(e.Kind, e.Key)...).Observe(e.Elapsed.Seconds())
	}
	if e.SecondRound {
		m.raised.WithLabelValues(m.with(e.Kind, e.Key)...).Inc()
	}
	switch {
	case e.Passed && !e.Waited:
		m.reused.WithLabelValues(m.with(e.Kind, e.Key)...).Inc()
	case e.Passed:
		m.passed.WithLabelValues(m.with(e.Kind, e.Key)...).Inc()
	}
}

// failures counts what members did wrong.
func (m *Metrics) failures(err error) {
	var q *redlock.QuorumError
	if !errors.As(err, &q) {
		return
	}
	for _, v := range q.Votes {
		if v.Err != nil {
			m.memberError.WithLabelValues(address(v.Member), kindOf(v.Err)).Inc()
		}
	}
}

var kinds = map[member.Kind]string{
	member.KindOther: "other", member.KindForeign: "foreign", member.KindForgot: "forgot", member.KindNoScript: "no_script",
	member.KindReadOnly: "read_only", member.KindLoading: "loading", member.KindBusy: "busy", member.KindOverloaded: "overloaded",
	member.KindAuth: "auth", member.KindCluster: "cluster", member.KindExhausted: "exhausted",
}

// kindOf has few values.
func kindOf(err error) string {
	var reply *member.ReplyError
	switch {
	case errors.As(err, &reply):
		if k := kinds[reply.Kind]; k != "" {
			return k
		}
		return "other"
	case errors.Is(err, redlock.ErrQuarantined):
		return "quarantined"
	case errors.Is(err, member.ErrStalled):
		return "stalled"
	case errors.Is(err, member.ErrOverflow):
		return "overflow"
	case errors.Is(err, member.ErrBroken):
		return "broken"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "silent"
	}
	return "down"
}

func (v events) renewalEnd(_ context.Context, e redlock.RenewalEnd) {
	for lock, renewed := range e.Each {
		outcome := "refused"
		if renewed {
			outcome = "renewed"
		}
		v.m.extended.WithLabelValues(v.m.with(lock.Kind, lock.Key, outcome)...).Inc()
	}
}

func (v events) lost(e *redlock.LostError) {
	v.m.lost.WithLabelValues(v.m.with(e.Kind, e.Key, string(e.Reason))...).Inc()
}

func (v events) released(e redlock.Released) {
	m := v.m
	outcome := "error"
	switch {
	case e.Err == nil:
		outcome = "released"
	case errors.Is(e.Err, redlock.ErrLost):
		outcome = "lost"
	case errors.Is(e.Err, redlock.ErrInDoubt):
		outcome = "in_doubt"
	}
	m.released.WithLabelValues(m.with(e.Kind, e.Key, outcome)...).Inc()
	m.hold.WithLabelValues(m.with(e.Kind, e.Key)...).Observe(e.Held.Seconds())
}

func (v events) member(name string, up bool, cause error) {
	if !up && cause != nil && !errors.Is(cause, member.ErrConnecting) {
		v.m.memberError.WithLabelValues(address(name), kindOf(cause)).Inc()
	}
}

func (v events) guard(member, step string, _ time.Time) {
	v.m.guard.WithLabelValues(address(member), step).Inc()
}

// request ignores requests that were never answered, because they have no duration.
func (v events) request(_ context.Context, e redlock.Request) {
	if reply := (*member.ReplyError)(nil); e.Err == nil || errors.As(e.Err, &reply) {
		v.m.request.WithLabelValues(address(e.Member), e.Op).Observe(e.Took.Seconds())
	}
}

// latchLabels are those of calls about latches, which have no kind.
func latchLabels(key bool) []string {
	if key {
		return []string{"op", "outcome", "key"}
	}
	return []string{"op", "outcome"}
}

func (m *Metrics) latch(e redlock.CallEnd) {
	labels := []string{strings.ReplaceAll(e.Op, " ", "_"), outcome.OfLatch(e.Err)}
	if m.key != nil {
		labels = append(labels, label(m.key(e.Key)))
	}
	m.latches.WithLabelValues(labels...).Observe(e.Elapsed.Seconds())
	if e.Err != nil {
		m.failures(e.Err)
	}
}

func (v events) woken(_ context.Context, lock redlock.LockName, by redlock.WakeReason) {
	v.m.wakeups.WithLabelValues(v.m.with(lock.Kind, lock.Key, string(by))...).Inc()
}
