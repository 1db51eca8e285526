package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
)

// The harness is for tests that a user of package redlocktest could not write. All others see what a
// user sees (user_test.go). These need the inside:
//
//   - Tests that read or write keys of members: counters that are set to disagree (Skew), votes that a
//     member has by its own word (Has), a lock that is taken away at some members, what a script left.
//   - Tests that count calls of one script, or break, hold or delay a connection at one of them: costs
//     (Count), lost votes, raises, renewals and releases, calls that arrive late.
//   - Tests with random delays from a seed (Jitter), and with pushes that are lost or late.
//   - Tests without the restart guard that kill members and start them again at once, and tests of the
//     guard itself, which make clients at chosen moments.
//   - Tests of clients that newClient makes of members that are no servers (Yes), or of parts of a client.
//   - The searches: seeds of the swarm and the schedules.

// Peer is one client of a cluster, as a process of its own would be: with its own network paths.
type Peer struct {
	*Client
	Links []*redistest.Link // to each member, with faults of their own
}

// JoinAll makes a client with paths of its own to every member, and waits until it can vote and be woken
// everywhere.
func JoinAll(t testing.TB, cluster *redistest.Cluster, opts ...Option) *Peer {
	t.Helper()
	p := Connect(t, cluster, opts...)
	p.Settle(t, cluster.Len())
	return p
}

// Connect is JoinAll without the wait.
func Connect(t testing.TB, cluster *redistest.Cluster, opts ...Option) *Peer {
	t.Helper()
	return connect(t, cluster, nil, func(*Peer) {}, opts)
}

// connect makes a client over links that prepare has changed before anybody dials.
func connect(t testing.TB, cluster *redistest.Cluster, guard *node.Guard, prepare func(p *Peer), opts []Option) *Peer {
	t.Helper()
	p := &Peer{}
	for _, s := range cluster.Servers {
		p.Links = append(p.Links, s.Path())
	}
	prepare(p)
	members := make([]member.Member, cluster.Len())
	for i, s := range cluster.Servers {
		nc := configOf(opts).node(node.Config{Network: "tcp", Addr: s.Addr(), Dialer: p.Links[i]})
		nc.Guard = guard
		n := rt.Must(node.New(nc))(t)
		members[i] = n
	}
	c := rt.Must(New(members, opts...))(t)
	p.Client = c
	t.Cleanup(func() { _ = c.Close() })
	return p
}

func configOf(opts []Option) Config {
	cfg := ConfigOf(opts...)
	cfg.untilClosed()
	return cfg.withDefaults()
}

func (p *Peer) Settle(t testing.TB, n int) {
	t.Helper()
	p.await(t, 30*time.Second, fmt.Sprint("ready: ", n), func() bool {
		return p.with(func(st member.State) bool { return st.Up && st.Inbox }) >= n
	})
}

// Voting waits until n members vote and can push.
func (p *Peer) Voting(t testing.TB, n int) {
	t.Helper()
	p.await(t, 2*time.Minute, fmt.Sprint("voting: ", n), func() bool {
		return p.with(func(st member.State) bool { return st.Votes && st.Inbox }) == n
	})
}

func (p *Peer) Until(t testing.TB, i int, state string) {
	t.Helper()
	p.await(t, 2*time.Minute, state, func() bool { return p.Members()[i].State == state })
}

func (p *Peer) with(is func(st member.State) bool) (n int) {
	for _, st := range p.states() {
		if is(st) {
			n++
		}
	}
	return n
}

// await looks at the members whenever one of them has changed.
func (p *Peer) await(t testing.TB, patience time.Duration, what string, ready func() bool) {
	t.Helper()
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		changed := p.changed()
		if ready() {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("not %s: %+v", what, p.Members())
		}
	}
}

func (p *Peer) State(i int) member.State { return p.Client.state(i) }

// Bubble runs a test in fake time on n embedded members, and closes everything inside the bubble.
func Bubble(t *testing.T, n int, test func(t *testing.T, cluster *redistest.Cluster)) {
	t.Helper()
	faketime.Test(t, func(t *testing.T) { test(t, rt.Embedded(t, n)) })
}

func Alone(t *testing.T, n int, test func(t *testing.T, cluster *redistest.Cluster, p *Peer), opts ...Option) {
	t.Helper()
	Bubble(t, n, func(t *testing.T, cluster *redistest.Cluster) { test(t, cluster, JoinAll(t, cluster, opts...)) })
}

func Pair(t *testing.T, n int, test func(t *testing.T, cluster *redistest.Cluster, p, q *Peer), opts ...Option) {
	t.Helper()
	Among(t, n, 2, func(t *testing.T, cluster *redistest.Cluster, all []*Peer) { test(t, cluster, all[0], all[1]) }, opts...)
}

func Among(t *testing.T, n, clients int, test func(t *testing.T, cluster *redistest.Cluster, all []*Peer), opts ...Option) {
	t.Helper()
	Bubble(t, n, func(t *testing.T, cluster *redistest.Cluster) { test(t, cluster, Peers(t, cluster, clients, opts...)) })
}

// Seeds is how many of n seeds to play: under the race detector, which is ten times as slow, and with
// -short a quarter.
func Seeds(n uint64) uint64 {
	if faketime.Race || testing.Short() {
		return (n + 3) / 4
	}
	return n
}

func Long(t testing.TB) {
	t.Helper()
	rt.Long(t, "takes a minute")
}

// Lasting are the keys that a member keeps for good.
var Lasting = []string{"redquorum:tokens", "redquorum:boot", "redquorum:quarantine"}

func Leftovers(t testing.TB, cluster *redistest.Cluster) {
	t.Helper()
	require.Empty(t, rt.Must(cluster.Leftovers(context.Background(), Lasting...))(t), "keys left behind")
}

// NothingLeft is Leftovers when all that is under way has arrived.
func NothingLeft(t testing.TB, cluster *redistest.Cluster) {
	t.Helper()
	synctest.Wait()
	Leftovers(t, cluster)
}

// Quiet pings members rarely, for tests that spend minutes or hold still for exact counts.
func Quiet(c *Config) { c.PingInterval, c.StallTimeout = time.Hour, 10*time.Second }

// EveryLink applies f to the paths of a peer to the given members, to all if none are given.
func (p *Peer) EveryLink(f func(l *redistest.Link), members ...int) {
	for i, l := range p.Links {
		if len(members) == 0 || slices.Contains(members, i) {
			f(l)
		}
	}
}

// Slow gives the path to each member a round trip of its own, half of it each way.
func (p *Peer) Slow(rtt ...time.Duration) {
	for i, d := range rtt {
		p.Links[i].SetDelay(redistest.Delay{Fixed: d / 2}, redistest.Delay{Fixed: d / 2})
	}
}

// Away takes a peer off the network at the given members, at all if none are given, until its links are healed.
func (p *Peer) Away(members ...int) {
	p.EveryLink(func(l *redistest.Link) { l.Refuse(true); l.Cut() }, members...)
}

// Die takes a peer off the network for good, as the end of its process would, without a farewell.
func (p *Peer) Die() { p.Away() }

// Count counts the calls of a script on the path to each member from now on.
func (p *Peer) Count(s script.Script) []*redistest.Rule {
	var rules []*redistest.Rule
	p.EveryLink(func(l *redistest.Link) {
		rules = append(rules, l.Call(redistest.WithArg(s.SHA), -1, func([]string) {}))
	})
	return rules
}

func Hits(rules []*redistest.Rule) (n []int) {
	for _, r := range rules {
		n = append(n, r.Hits())
	}
	return n
}

func (p *Peer) Lock(t testing.TB, name string, opts ...LockOption) *Lease {
	t.Helper()
	return rt.Must(p.Mutex(name, opts...).Lock(t.Context()))(t)
}

func (p *Peer) Try(t testing.TB, name string, opts ...LockOption) error {
	_, err := p.Mutex(name, opts...).TryLock(t.Context())
	return err
}

// LockFor is a Lock that gives up after a while, and of which the error alone matters.
func (p *Peer) LockFor(t testing.TB, name string, patience time.Duration, opts ...LockOption) error {
	ctx := rt.Within(t, patience)
	_, err := p.Mutex(name, opts...).Lock(ctx)
	return err
}

// Hold is lock for the goroutine of the test, and waits for the members that did not decide.
func (p *Peer) Hold(t testing.TB, name string, opts ...LockOption) *Lease {
	t.Helper()
	l := p.Lock(t, name, opts...)
	synctest.Wait()
	return l
}

type Locking = rt.Later[*Lease]

func (p *Peer) LockLater(ctx context.Context, name string, opts ...LockOption) *Locking {
	return rt.Begin(func() (*Lease, error) { return p.Mutex(name, opts...).Lock(ctx) })
}

func Admin(t testing.TB, s redistest.Server, args ...string) any {
	t.Helper()
	return rt.Must(s.Do(context.Background(), args...))(t)
}

func Skew(t testing.TB, cluster *redistest.Cluster, name string, counters ...int64) {
	t.Helper()
	for i, n := range counters {
		Admin(t, cluster.Servers[i], "HSET", member.TokensKey, BucketOf(name), strconv.FormatInt(n, 10))
	}
}

// Keys of a lock's queue, and of who waits in it.
func QueueOf(name string) string   { return slot.Sibling("redquorum:q", name) }
func WaitersOf(name string) string { return slot.Sibling("redquorum:w", name) }

func BucketOf(name string) string { return strconv.FormatInt(script.Exclusive(name).Bucket, 10) }

// Counter reads the token counter of a name at a member, 0 where it has none.
func Counter(t testing.TB, s redistest.Server, name string) int64 {
	t.Helper()
	v := Admin(t, s, "HGET", member.TokensKey, BucketOf(name))
	if v == nil {
		return 0
	}
	return rt.Must(strconv.ParseInt(fmt.Sprint(v), 10, 64))(t)
}

// Has reports whether a lease has the vote of a member, by the member's own word.
func Has(s redistest.Server, l *Lease) bool {
	v, err := s.Do(context.Background(), "HEXISTS", l.Key(), OwnerOf(l))
	return err == nil && v == int64(1)
}

// LostFor returns why a lease ended, "" if it was not lost.
func LostFor(l *Lease) LostReason {
	var lost *LostError
	if errors.As(l.Err(), &lost) {
		return lost.Reason
	}
	return ""
}

// Agreed is a client of one member that is no server.
func Agreed(t testing.TB, m member.Member, opts ...Option) *Client {
	t.Helper()
	c := rt.Must(New([]member.Member{m}, opts...))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// Yes is a member without Redis that agrees to everything, inside Submit: for numbers that an embedded
// server would take too long for.
type Yes struct {
	mu     sync.Mutex
	tokens int64
	calls  map[string]int // by script
	deaf   bool           // it has no inbox
}

func (y *Yes) Name() string                   { return "yes" }
func (y *Yes) Listen(string, member.Listener) {}
func (y *Yes) Close(context.Context) error    { return nil }
func (y *Yes) State() member.State {
	return member.State{Brief: member.Brief{Gen: 1, Epoch: 1, Votes: true}, Up: true, Inbox: !y.deaf}
}
func (y *Yes) Called(s script.Script) int { y.mu.Lock(); defer y.mu.Unlock(); return y.calls[s.SHA] }
func (y *Yes) Submit(c *member.Call) {
	words := strings.Split(string(c.Cmd), "\r\n") // *n $7 EVALSHA $40 sha $1 keys
	r := member.Reply{Kind: ':', Int: 1}
	y.mu.Lock()
	if y.calls == nil {
		y.calls = make(map[string]int)
	}
	y.calls[words[4]]++
	switch words[4] {
	case script.Acquire.SHA:
		y.tokens++
		r.Int = y.tokens
	case script.Extend.SHA:
		n, _ := strconv.Atoi(words[6])
		r = member.Reply{Kind: '*', Elems: slices.Repeat([]member.Reply{r}, n)}
	case script.RWExtend.SHA: // with a queue for each
		n, _ := strconv.Atoi(words[6])
		r = member.Reply{Kind: '*', Elems: slices.Repeat([]member.Reply{r}, n/2)}
	}
	y.mu.Unlock()
	st := y.State()
	c.Outcome, c.Reply, c.State, c.At = member.Answered, r, st.Brief, time.Now()
	c.Sink.Done(c)
}

// Jitter gives every path of a peer random delays, the same for the same seed.
func (p *Peer) Jitter(seed uint64, request, reply, push time.Duration) {
	for i, l := range p.Links {
		l.Seed(seed*100 + uint64(i))
		l.SetDelay(redistest.Delay{Jitter: request}, redistest.Delay{Jitter: reply})
		l.DelayPush(redistest.Delay{Jitter: push})
	}
}

func Peers(t testing.TB, cluster *redistest.Cluster, n int, opts ...Option) []*Peer {
	t.Helper()
	all := make([]*Peer, n)
	for i := range all {
		all[i] = Connect(t, cluster, opts...)
	}
	for _, p := range all {
		p.Settle(t, cluster.Len())
	}
	return all
}

func ScriptOf(c *member.Call) string {
	const head = "$40\r\n"
	for i := 0; i+len(head)+40 <= len(c.Cmd); i++ {
		if string(c.Cmd[i:i+len(head)]) == head {
			return string(c.Cmd[i+len(head) : i+len(head)+40])
		}
	}
	return ""
}

func Validity(ttl time.Duration) time.Duration { return clock.Validity(ttl, clock.DefaultDrift) }

// Guarded is connect with the restart guard, as Open sets it up.
func Guarded(t testing.TB, cluster *redistest.Cluster, opts ...Option) *Peer {
	t.Helper()
	return GuardedVia(t, cluster, func(*Peer) {}, opts...)
}

// GuardedVia is Guarded over links that prepare has changed before anybody dials.
func GuardedVia(t testing.TB, cluster *redistest.Cluster, prepare func(p *Peer), opts ...Option) *Peer {
	t.Helper()
	return connect(t, cluster, configOf(opts).guard(cluster.Len()), prepare, opts)
}

// OpenAll connects to the cluster as a user would: over TCP, without fault links. Its servers were made for
// the test, and where they are restarted they remember everything.
func OpenAll(tb testing.TB, cluster *redistest.Cluster, opts ...Option) *Client {
	tb.Helper()
	c, err := Open(tb.Context(), cluster.URLs(), ConfigOf(append([]Option{WithFreshMembers(), func(c *Config) { c.RestartGuard = GuardOff }}, opts...)...))
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
