package redlock_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// votesAt counts the members that have a lease, by their own word.
func votesAt(cluster *redistest.Cluster, l *redlock.Lease) int {
	n := 0
	for _, s := range cluster.Servers {
		if redlock.Has(s, l) {
			n++
		}
	}
	return n
}

// somebody is an owner of no client.
var somebody = script.OwnerOf(strings.Repeat("S", 26), 1)

// steal replaces the lock at members by somebody else's, as a forced release and a new holder would.
func steal(t testing.TB, cluster *redistest.Cluster, name string, ttl time.Duration, members ...int) {
	t.Helper()
	synctest.Wait() // for what is under way
	for _, i := range members {
		redlock.Admin(t, cluster.Servers[i], "DEL", name)
		redlock.Admin(t, cluster.Servers[i], "HSET", name, somebody, "1")
		redlock.Admin(t, cluster.Servers[i], "PEXPIRE", name, strconv.FormatInt(script.Millis(ttl), 10))
	}
}

type tracer struct {
	mu       sync.Mutex
	starts   []redlock.CallStart
	ends     []redlock.CallEnd
	lost     []*redlock.LostError
	released []string
	renewed  int
	members  []string
}

func (tr *tracer) CallStart(ctx context.Context, e redlock.CallStart) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.starts = append(tr.starts, e)
	return ctx
}

func (tr *tracer) CallEnd(_ context.Context, e redlock.CallEnd) {
	rt.Locked(&tr.mu, func() { tr.ends = append(tr.ends, e) })
}

func (tr *tracer) Lost(e *redlock.LostError) {
	rt.Locked(&tr.mu, func() { tr.lost = append(tr.lost, e) })
}

func (tr *tracer) Released(e redlock.Released) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.released = append(tr.released, fmt.Sprint(e.Kind, " ", e.Key, " ", e.Err))
}

func (tr *tracer) Renewed(redlock.LockName, bool) { rt.Locked(&tr.mu, func() { tr.renewed++ }) }

func (tr *tracer) Member(name string, up bool, _ error) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.members = append(tr.members, fmt.Sprint(name, " ", up))
}

func (tr *tracer) losses() []*redlock.LostError {
	return rt.Under(&tr.mu, func() []*redlock.LostError { return tr.lost })
}

func (tr *tracer) renewals() int { return rt.Under(&tr.mu, func() int { return tr.renewed }) }

func (tr *tracer) last() redlock.CallEnd {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if len(tr.ends) == 0 {
		return redlock.CallEnd{}
	}
	return tr.ends[len(tr.ends)-1]
}

func handoff(t testing.TB, l *redlock.Lease) redlock.Handoff {
	t.Helper()
	return rt.Must(l.Handoff())(t)
}

func adopt(t testing.TB, p anyClient, h redlock.Handoff) *redlock.Lease {
	t.Helper()
	return rt.Must(p.Adopt(t.Context(), h))(t)
}

func handOver(t testing.TB, l *redlock.Lease, to anyClient) *redlock.Lease {
	t.Helper()
	return adopt(t, to, handoff(t, l))
}

// inspect looks at a lock as an operator does.
func inspect(t testing.TB, p anyClient, name string) *redlock.Inspection {
	t.Helper()
	return rt.Must(p.Inspect(t.Context(), name))(t)
}

// restart ends members as a crash does, and starts them again.
func restart(t testing.TB, cluster *redistest.Cluster, keepMemory bool, members ...int) {
	t.Helper()
	cluster.Kill(members...)
	require.NoError(t, cluster.Restart(keepMemory, members...))
}

// inBubble and those below are fixtures for t.Run.
func inBubble(n int, test func(t *testing.T, cluster *redistest.Cluster)) func(t *testing.T) {
	return func(t *testing.T) { redlock.Bubble(t, n, test) }
}

func inAlone(n int, test func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { redlock.Alone(t, n, test, opts...) }
}

func inMany(n, clients int, test func(t *testing.T, d *redlocktest.Deployment, all []*caller), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { withMany(t, n, clients, test, opts...) }
}

func inDeployment(n int, test func(t *testing.T, d *redlocktest.Deployment), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { deployed(t, n, test, opts...) }
}

func inAmong(n, clients int, test func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { redlock.Among(t, n, clients, test, opts...) }
}

func inVoters(n int, test func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { voters(t, n, test, opts...) }
}

func inPair(n int, test func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { redlock.Pair(t, n, test, opts...) }
}

func inOne(n int, test func(t *testing.T, d *redlocktest.Deployment, p *caller), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { withOne(t, n, test, opts...) }
}

func inTwo(n int, test func(t *testing.T, d *redlocktest.Deployment, p, q *caller), opts ...redlock.Option) func(t *testing.T) {
	return func(t *testing.T) { withTwo(t, n, test, opts...) }
}
