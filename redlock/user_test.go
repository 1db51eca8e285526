package redlock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Helpers of tests that see what a user sees: members of redlocktest, in fake time, and clients that
// redlock.Open has made, with the restart guard. Tests that look into members, or that break a
// connection at one command, use the harness instead (harness_test.go).

// caller is a client of a deployment, as another process would have it. It has no links: Delay and Network of the
// deployment are in their place.
type caller struct {
	*redlock.Peer
	d *redlocktest.Deployment
}

func callerOf(c *redlock.Client, d *redlocktest.Deployment) *caller {
	return &caller{&redlock.Peer{Client: c}, d}
}

// entry is the default of Config.Entry.
const entry = 3 * time.Second

func deployed(t *testing.T, n int, test func(t *testing.T, d *redlocktest.Deployment), opts ...redlock.Option) {
	t.Helper()
	faketime.Test(t, func(t *testing.T) { test(t, redlocktest.New(t, n, redlock.ConfigOf(opts...))) })
}

// withOne is deployed with one client, withTwo with two, and withMany with several.
func withOne(t *testing.T, n int, test func(t *testing.T, d *redlocktest.Deployment, p *caller), opts ...redlock.Option) {
	t.Helper()
	withMany(t, n, 1, func(t *testing.T, d *redlocktest.Deployment, all []*caller) { test(t, d, all[0]) }, opts...)
}

func withTwo(t *testing.T, n int, test func(t *testing.T, d *redlocktest.Deployment, p, q *caller), opts ...redlock.Option) {
	t.Helper()
	withMany(t, n, 2, func(t *testing.T, d *redlocktest.Deployment, all []*caller) { test(t, d, all[0], all[1]) }, opts...)
}

func withThree(t *testing.T, test func(t *testing.T, d *redlocktest.Deployment, a, b, c *caller)) {
	t.Helper()
	withMany(t, 3, 3, func(t *testing.T, d *redlocktest.Deployment, all []*caller) { test(t, d, all[0], all[1], all[2]) }, redlock.Quiet)
}

func withMany(t *testing.T, n, clients int, test func(t *testing.T, d *redlocktest.Deployment, all []*caller), opts ...redlock.Option) {
	t.Helper()
	deployed(t, n, func(t *testing.T, d *redlocktest.Deployment) {
		all := []*caller{callerOf(d.Client, d)}
		for len(all) < clients {
			all = append(all, callerOf(d.Open(redlock.ConfigOf(opts...)), d))
		}
		for _, p := range all {
			p.Settle(t, n)
		}
		test(t, d, all)
	}, opts...)
}

func another(t testing.TB, d *redlocktest.Deployment, opts ...redlock.Option) *caller {
	t.Helper()
	p := callerOf(d.Open(redlock.ConfigOf(opts...)), d)
	p.Settle(t, len(p.Members()))
	return p
}

func moreOf(t testing.TB, d *redlocktest.Deployment, n int, opts ...redlock.Option) (all []*caller) {
	t.Helper()
	for range n {
		all = append(all, another(t, d, opts...))
	}
	return all
}

// Settle waits until n members vote and tell of grants.
func (p *caller) Settle(t testing.TB, n int) {
	t.Helper()
	p.until(t, func(all []redlock.MemberInfo) bool {
		ready := 0
		for _, m := range all {
			if m.State == redlock.MemberVoting && m.Err == nil {
				ready++
			}
		}
		return ready >= n
	})
}

func (p *caller) Until(t testing.TB, i int, state string) {
	t.Helper()
	p.until(t, func(all []redlock.MemberInfo) bool { return all[i].State == state })
}

func (p *caller) until(t testing.TB, ready func(all []redlock.MemberInfo) bool) {
	t.Helper()
	for start := time.Now(); !ready(p.Members()); time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(start), 2*time.Minute, "%+v", p.Members())
	}
}

func (p *caller) Slow(roundTrips ...time.Duration) {
	for i, d := range roundTrips {
		p.d.Delay(p.Client, d, i)
	}
}

// Away takes a client off the network at the given members, at all if none are given. Back ends that.
func (p *caller) Away(members ...int) {
	p.d.Network(p.Client, redlocktest.Network{Cut: true}, members...)
}

func (p *caller) Back(members ...int) { p.d.Network(p.Client, redlocktest.Network{}, members...) }

func (p *caller) Die() { p.d.Crash(p.Client) }

// noKeys fails the test if a key is left on a member, and noKeysAtRest when all that is under way has arrived.
func noKeys(t testing.TB, d *redlocktest.Deployment) {
	t.Helper()
	require.Empty(t, d.Leftovers(), "keys left behind")
}

func noKeysAtRest(t testing.TB, d *redlocktest.Deployment) {
	t.Helper()
	synctest.Wait()
	noKeys(t, d)
}

// votesSeen counts the members that have a lease, as an operator sees them who asks by another client.
func votesSeen(t testing.TB, by *caller, l *redlock.Lease) (n int) {
	t.Helper()
	for _, m := range inspect(t, by, l.Key()).Members {
		for _, v := range m.Votes {
			if v.Owner == l.Owner() {
				n++
			}
		}
	}
	return n
}

// anyClient is what helpers ask of a client: that of a user, or one of the harness.
type anyClient interface {
	Mutex(name string, opts ...redlock.LockOption) *redlock.Mutex
	RWMutex(name string, opts ...redlock.LockOption) *redlock.RWMutex
	Semaphore(name string, limit int, opts ...redlock.LockOption) *redlock.Semaphore
	Election(name string, opts ...redlock.LockOption) *redlock.Election
	Multi(names []string, opts ...redlock.LockOption) *redlock.Multi
	Adopt(ctx context.Context, h redlock.Handoff) (*redlock.Lease, error)
	Inspect(ctx context.Context, name string) (*redlock.Inspection, error)
}
