package redlock

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/clock"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/slot"
	"github.com/stretchr/testify/require"
)

// peer is one client of a cluster, as a process of its own would be: with its own network paths.
type peer struct {
	*Client
	links []*redistest.Link // to each member, with faults of their own
}

// join makes a client with paths of its own to every member, and waits until it can vote and be woken
// everywhere.
func join(t testing.TB, cluster *redistest.Cluster, opts ...Option) *peer {
	t.Helper()
	p := connect(t, cluster, opts...)
	p.settle(t, cluster.Len())
	return p
}

// connect is join without the wait.
func connect(t testing.TB, cluster *redistest.Cluster, opts ...Option) *peer {
	t.Helper()
	p := &peer{}
	var cfg Config
	for _, o := range opts {
		o(&cfg)
	}
	members := make([]member.Member, cluster.Len())
	for i, s := range cluster.Servers {
		link := s.Path()
		p.links = append(p.links, link)
		nc := cfg.withDefaults().node(node.Config{Network: "tcp", Addr: s.Addr(), Dialer: link})
		n, err := node.New(nc)
		require.NoError(t, err)
		members[i] = n
	}
	c, err := New(members, opts...)
	require.NoError(t, err)
	p.Client = c
	t.Cleanup(func() { _ = c.Close() })
	return p
}

// settle waits until n members are up with a confirmed inbox.
func (p *peer) settle(t testing.TB, n int) {
	t.Helper()
	limit := time.NewTimer(30 * time.Second)
	defer limit.Stop()
	for {
		changed := p.changed()
		ready := 0
		for _, st := range p.states() {
			if st.Up && st.Inbox {
				ready++
			}
		}
		if ready >= n {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("only %d of %d members are ready", ready, n)
		}
	}
}

// voting waits until n members vote and can push.
func (p *peer) voting(t testing.TB, n int) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for {
		changed := p.changed()
		votes := 0
		for _, st := range p.states() {
			if st.Votes && st.Inbox {
				votes++
			}
		}
		if votes == n {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("%d members vote, not %d: %+v", votes, n, p.Members())
		}
	}
}

// until waits for a member's state.
func (p *peer) until(t testing.TB, i int, state string) {
	t.Helper()
	limit := time.NewTimer(2 * time.Minute)
	defer limit.Stop()
	for {
		changed := p.changed()
		if p.Members()[i].State == state {
			return
		}
		select {
		case <-changed:
		case <-limit.C:
			t.Fatalf("not %s: %+v", state, p.Members())
		}
	}
}

// State is what the client knows of a member.
func (p *peer) State(i int) member.State { return p.Client.state(i) }

// bubble runs a test in fake time on n embedded members, and closes everything inside the bubble.
func bubble(t *testing.T, n int, test func(t *testing.T, cluster *redistest.Cluster)) {
	t.Helper()
	fakeTime(t, func(t *testing.T) {
		test(t, rt.Embedded(t, n))
	})
}

// fakeTime is synctest.Test, on one processor where the race detector is on: all timers of a bubble
// share one race context, so that two of them that run at the same moment on two processors crash the
// detector (Go 1.26: two goroutines that each receive from a timer after Reset(0) are enough).
func fakeTime(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	if raceEnabled {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	}
	synctest.Test(t, test)
}

// seeds is how many of n seeds to play: under the race detector, which is ten times as slow, and with
// -short a quarter.
func seeds(n uint64) uint64 {
	if raceEnabled || testing.Short() {
		return (n + 3) / 4
	}
	return n
}

// lasting are the keys that a member keeps for good.
var lasting = []string{"redquorum:tokens", "redquorum:boot", "redquorum:quarantine"}

// leftovers fails the test if anything but what lasts is left on a member.
func leftovers(t testing.TB, cluster *redistest.Cluster) {
	t.Helper()
	left, err := cluster.Leftovers(context.Background(), lasting...)
	require.NoError(t, err)
	require.Empty(t, left, "keys left behind")
}

// quiet pings members rarely, for tests that spend minutes or hold still for exact counts.
func quiet(c *Config) { c.PingInterval, c.StallTimeout = time.Hour, 10*time.Second }

// everyLink applies f to the paths of a peer to the given members, to all if none are given.
func (p *peer) everyLink(f func(l *redistest.Link), members ...int) {
	for i, l := range p.links {
		if len(members) == 0 || slices.Contains(members, i) {
			f(l)
		}
	}
}

// slow gives the path to each member a round trip of its own, half of it each way.
func (p *peer) slow(rtt ...time.Duration) {
	for i, d := range rtt {
		p.links[i].SetDelay(redistest.Delay{Fixed: d / 2}, redistest.Delay{Fixed: d / 2})
	}
}

// die takes a peer off the network for good, as the end of its process would, without a farewell.
func (p *peer) die() {
	p.everyLink(func(l *redistest.Link) { l.Refuse(true); l.Cut() })
}

// count counts the calls of a script on the path to each member from now on.
func (p *peer) count(s script.Script) []*redistest.Rule {
	var rules []*redistest.Rule
	p.everyLink(func(l *redistest.Link) {
		rules = append(rules, l.Call(redistest.WithArg(s.SHA), -1, func([]string) {}))
	})
	return rules
}

func hits(rules []*redistest.Rule) (n []int) {
	for _, r := range rules {
		n = append(n, r.Hits())
	}
	return n
}

// lock takes a lock that is expected to be had.
func (p *peer) lock(t testing.TB, name string, opts ...LockOption) *Lease {
	t.Helper()
	l, err := p.Mutex(name, opts...).Lock(t.Context())
	require.NoError(t, err)
	return l
}

// hold is lock for the goroutine of the test, and waits for the members that did not decide.
func (p *peer) hold(t testing.TB, name string, opts ...LockOption) *Lease {
	t.Helper()
	l := p.lock(t, name, opts...)
	synctest.Wait()
	return l
}

// locking is a Lock on a goroutine of its own.
type locking struct {
	done  chan struct{}
	lease *Lease
	err   error
	at    time.Time // when it returned
}

func (p *peer) lockLater(ctx context.Context, name string, opts ...LockOption) *locking {
	w := &locking{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = p.Mutex(name, opts...).Lock(ctx)
		w.at = time.Now()
	}()
	return w
}

// get waits for a Lock that is expected to succeed.
func (w *locking) get(t testing.TB) *Lease {
	t.Helper()
	<-w.done
	require.NoError(t, w.err)
	return w.lease
}

func (w *locking) pending() bool {
	select {
	case <-w.done:
		return false
	default:
		return true
	}
}

// admin executes a command at a member, beside all paths.
func admin(t testing.TB, s redistest.Server, args ...string) any {
	t.Helper()
	v, err := s.Do(context.Background(), args...)
	require.NoError(t, err)
	return v
}

// skew sets the token counters of a name, one member after the other.
func skew(t testing.TB, cluster *redistest.Cluster, name string, counters ...int64) {
	t.Helper()
	for i, n := range counters {
		admin(t, cluster.Servers[i], "HSET", member.TokensKey, bucketOf(name), strconv.FormatInt(n, 10))
	}
}

// Keys of a lock's queue, and of who waits in it.
func queueOf(name string) string   { return slot.Sibling("redquorum:q", name) }
func waitersOf(name string) string { return slot.Sibling("redquorum:w", name) }

func bucketOf(name string) string { return strconv.FormatInt(script.Exclusive(name).Bucket, 10) }

// counter reads the token counter of a name at a member, 0 where it has none.
func counter(t testing.TB, s redistest.Server, name string) int64 {
	t.Helper()
	v := admin(t, s, "HGET", member.TokensKey, bucketOf(name))
	if v == nil {
		return 0
	}
	n, err := strconv.ParseInt(fmt.Sprint(v), 10, 64)
	require.NoError(t, err)
	return n
}

// has reports whether a lease has the vote of a member, by the member's own word.
func has(s redistest.Server, l *Lease) bool {
	v, err := s.Do(context.Background(), "HEXISTS", l.Key(), OwnerOf(l))
	return err == nil && v == int64(1)
}

// lostFor returns why a lease ended, "" if it was not lost.
func lostFor(l *Lease) LostReason {
	var lost *LostError
	if errors.As(l.Err(), &lost) {
		return lost.Reason
	}
	return ""
}

// yes is a member without Redis that agrees to everything, inside Submit: for numbers that an embedded
// server would take too long for.
type yes struct {
	mu     sync.Mutex
	tokens int64
	calls  map[string]int // by script
}

func (y *yes) Name() string                   { return "yes" }
func (y *yes) Listen(string, member.Listener) {}
func (y *yes) Close(context.Context) error    { return nil }
func (y *yes) State() member.State {
	return member.State{Gen: 1, Epoch: 1, Up: true, Votes: true, Inbox: true}
}
func (y *yes) called(s script.Script) int { y.mu.Lock(); defer y.mu.Unlock(); return y.calls[s.SHA] }
func (y *yes) Submit(c *member.Call) {
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
	}
	y.mu.Unlock()
	c.Outcome, c.Reply, c.State, c.At = member.Answered, r, y.State(), time.Now()
	c.Sink.Done(c)
}

// jitter gives every path of a peer random delays, the same for the same seed.
func (p *peer) jitter(seed uint64, request, reply, push time.Duration) {
	for i, l := range p.links {
		l.Seed(seed*100 + uint64(i))
		l.SetDelay(redistest.Delay{Jitter: request}, redistest.Delay{Jitter: reply})
		l.DelayPush(redistest.Delay{Jitter: push})
	}
}

func peers(t testing.TB, cluster *redistest.Cluster, n int, opts ...Option) []*peer {
	t.Helper()
	all := make([]*peer, n)
	for i := range all {
		all[i] = connect(t, cluster, opts...)
	}
	for _, p := range all {
		p.settle(t, cluster.Len())
	}
	return all
}

// scriptOf finds which script a call is of.
func scriptOf(c *member.Call) string {
	const head = "$40\r\n"
	for i := 0; i+len(head)+40 <= len(c.Cmd); i++ {
		if string(c.Cmd[i:i+len(head)]) == head {
			return string(c.Cmd[i+len(head) : i+len(head)+40])
		}
	}
	return ""
}

func validity(ttl time.Duration) time.Duration { return clock.Validity(ttl, clock.DefaultDrift) }

// guarded is connect with the restart guard, as Open sets it up.
func guarded(t testing.TB, cluster *redistest.Cluster, opts ...Option) *peer {
	t.Helper()
	return guardedVia(t, cluster, func(*peer) {}, opts...)
}

// guardedVia is guarded over links that prepare has changed before anybody dials.
func guardedVia(t testing.TB, cluster *redistest.Cluster, prepare func(p *peer), opts ...Option) *peer {
	t.Helper()
	p := &peer{}
	for _, s := range cluster.Servers {
		p.links = append(p.links, s.Path())
	}
	prepare(p)
	var cfg Config
	for _, o := range opts {
		o(&cfg)
	}
	cfg = cfg.withDefaults()
	guard := cfg.guard(cluster.Len())
	var members []member.Member
	for i, s := range cluster.Servers {
		nc := cfg.node(node.Config{Network: "tcp", Addr: s.Addr(), Dialer: p.links[i]})
		nc.Guard = guard
		n, err := node.New(nc)
		require.NoError(t, err)
		members = append(members, n)
	}
	c, err := New(members, opts...)
	require.NoError(t, err)
	p.Client = c
	t.Cleanup(func() { _ = c.Close() })
	return p
}

// open connects to the cluster as a user would: over TCP, without fault links. Its servers were made for
// the test, and where they are restarted they remember everything.
func open(tb testing.TB, cluster *redistest.Cluster, opts ...Option) *Client {
	tb.Helper()
	var urls []string
	for _, s := range cluster.Servers {
		urls = append(urls, "redis://"+s.Addr())
	}
	c, err := Open(tb.Context(), urls, append([]Option{WithFreshMembers(), func(c *Config) { c.RestartGuard = GuardOff }}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
