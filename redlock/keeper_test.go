package redlock

import (
	"context"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

// A call carries leases of one script. If a member is several servers, they are of one slot as
// well.
func TestLeasesAreRenewedByScriptAndSlot(t *testing.T) {
	other := script.Script{SHA: strings.Repeat("f", 40)}
	kinds := map[string]string{script.Extend.SHA: "mutex", other.SHA: "other"}
	due := []struct{ name, kind string }{
		{"{a}1", "mutex"}, {"{b}1", "mutex"}, {"{a}2", "other"}, {"{b}2", "other"}, {"{a}3", "mutex"}, {"{b}3", "other"},
	}
	for _, tc := range []struct {
		name   string
		slots  bool
		expect []string
	}{
		{"one server", false, []string{"mutex {a}1 {b}1 {a}3", "other {a}2 {b}2 {b}3"}},
		{"a server for each slot", true, []string{"mutex {a}1 {a}3", "mutex {b}1", "other {a}2", "other {b}2 {b}3"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			heard := &renewals{kinds: kinds}
			all := []member.Member{heard}
			if tc.slots {
				all[0] = bySlot{heard}
			}
			c := rt.Must(New(all))(t)
			defer func() { _ = c.Close() }()
			var leases []*lease
			for _, d := range due {
				k := script.Exclusive(d.name)
				if d.kind == "other" {
					k = k.ExtendedBy(&other)
				}
				a := c.newAttempt(k, &terms{kind: &exclusive, ttl: time.Minute / 2, renew: true}, wait.Past{}, nil)
				leases = append(leases, leaseOf(a, time.Minute/8, false))
			}
			c.keeper.renewAll(leases, time.Now())
			require.ElementsMatch(t, tc.expect, heard.all())
			for _, l := range leases {
				require.Greater(t, time.Until(l.own.ValidUntil()), time.Minute*3/8, "a word above 0 renews")
			}
		})
	}
}

// leaseOf is a lease that an attempt is taken to have won, with so much of its validity left.
func leaseOf(a *attempt, left time.Duration, waited bool) *lease {
	now := time.Now()
	term := wait.Probe{Ballot: &a.b}.Start(core.ProbeGrant(1, now.Add(left), 0, false))
	return newLease(context.Background(), &a.hold, term, waited, now)
}

// renewals is a member that says yes to each renewal, and remembers whose they were.
type renewals struct {
	Yes
	kinds map[string]string // by script

	mu    sync.Mutex
	heard []string
}

// bySlot is one that spreads its keys over servers.
type bySlot struct{ *renewals }

func (m bySlot) StateOf(uint16) member.State { return m.State() }

func (m *renewals) all() []string {
	return rt.Under(&m.mu, func() []string { return slices.Clone(m.heard) })
}

func (m *renewals) Submit(c *member.Call) {
	words := strings.Split(string(c.Cmd), "\r\n") // *n $7 EVALSHA $40 sha $1 keys $k key …
	kind, n := m.kinds[words[4]], 1
	r := member.Reply{Kind: ':', Int: 1}
	if kind != "" {
		n, _ = strconv.Atoi(words[6])
		call := kind
		for i := range n {
			call += " " + words[8+2*i]
		}
		rt.Locked(&m.mu, func() { m.heard = append(m.heard, call) })
		r.Int = 2 // another kind's yes
		r = member.Reply{Kind: '*', Elems: slices.Repeat([]member.Reply{r}, n)}
	}
	st := m.State()
	c.Outcome, c.Reply, c.State, c.At = member.Answered, r, st.Brief, time.Now()
	c.Sink.Done(c)
}

// refuses answers an adoption at once, by a no. asked is called for each call.
type refuses struct {
	*renewals
	asked func(op string)
}

func (m refuses) Close(context.Context) error { m.asked("close"); return nil }

func (m refuses) Submit(c *member.Call) {
	op := "other"
	switch words := strings.Split(string(c.Cmd), "\r\n"); words[4] {
	case script.Adopt.SHA:
		op = "adopt"
	case script.Release.SHA:
		op = "release"
	}
	m.asked(op)
	st, no := m.State(), member.Reply{Kind: ':'}
	if op == "adopt" {
		no = member.Reply{Kind: '*', Elems: []member.Reply{no}}
	}
	c.Outcome, c.Reply, c.State, c.At = member.Answered, no, st.Brief, time.Now()
	c.Sink.Done(c)
}

// A majority may have refused, and the lease be over, before the last member is asked. Its release follows that call all the
// same, also if the client closes at this moment.
func TestCloseWaitsForTheReleaseThatFollowsAnAdoption(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var c *Client
		var mu sync.Mutex
		var calls []string
		closed := make(chan error, 1)
		nobody := func(string) {}
		last := refuses{&renewals{}, func(op string) {
			rt.Locked(&mu, func() { calls = append(calls, op) })
			if op == "adopt" {
				go func() { closed <- c.Close() }()
				time.Sleep(closeWithin / 10)
			}
		}}
		c = rt.Must(New([]member.Member{refuses{&renewals{}, nobody}, refuses{&renewals{}, nobody}, last}))(t)
		owner := script.OwnerOf(strings.Repeat("O", 26), 7)
		h := Handoff{key: "k", owner: &owner, token: 5, terms: terms{kind: &exclusive, ttl: time.Minute, renew: true}}
		require.ErrorIs(t, rt.Err(c.Adopt(t.Context(), h)), ErrNotHeld)
		require.NoError(t, <-closed)
		at := slices.Index(calls, "adopt")
		require.Contains(t, calls[at:slices.Index(calls, "close")], "release", "%v", calls)
	})
}

// apartBy moves base by mono on the monotonic and by wall on the wall clock.
func apartBy(base time.Time, mono, wall time.Duration) time.Time {
	moved := base.Add(wall)
	*(*int64)(unsafe.Add(unsafe.Pointer(&moved), 8)) += int64(mono - wall)
	return moved
}

func TestLeaseThatASuspendEndedIsNotHiddenByYoungerOnes(t *testing.T) {
	before := time.Now()
	after := apartBy(before, 500*time.Millisecond, time.Minute) // the machine slept for a minute
	for name, until := range map[string]time.Time{
		"over when it wakes":  before.Add(29 * time.Second),
		"over a moment later": before.Add(time.Minute + 500*time.Millisecond),
	} {
		t.Run(name, func(t *testing.T) {
			var k keeper
			require.Empty(t, k.takeDue(before))
			old := &lease{inKeeper: inKeeper{pos: -1}, key: "old", plan: plan{ttl: 30 * time.Second}, term: core.ProbeTerm(until, time.Time{}, 0)}
			k.putLocked(old, before, time.Time{})
			for i := range 20 {
				young := &lease{inKeeper: inKeeper{pos: -1}, key: "young", plan: plan{ttl: 3 * time.Second}, term: core.ProbeTerm(after.Add(time.Second+time.Duration(i)), time.Time{}, 0)}
				k.putLocked(young, after, time.Time{})
			}
			over := k.takeDue(after)
			if len(over) == 0 {
				over = k.takeDue(after.Add(500 * time.Millisecond))
			}
			require.Equal(t, []*lease{old}, over)
		})
	}
}

func TestContextEndsSoonAfterASuspendWhateverOtherLeasesDo(t *testing.T) {
	c := Agreed(t, &Yes{})
	l := rt.Must(c.Mutex("job", TTL(20*time.Second)).Lock(t.Context()))(t)
	done := l.Done()
	require.NoError(t, rt.Err(c.Mutex("younger", TTL(2*time.Second)).Lock(t.Context())))
	// What a suspend of a minute does: the lease ended long ago on the wall clock, and is to end on the other one.
	rt.Locked(&l.mu, func() { l.term = core.ProbeTerm(apartBy(l.term.Until(), 0, -time.Minute), time.Time{}, 0) })
	rt.Locked(&c.keeper.mu, func() { c.keeper.wall = apartBy(time.Now(), 0, -time.Minute) })
	start := time.Now()
	select {
	case <-done:
		t.Logf("%v after the machine woke up", time.Since(start))
	case <-time.After(10 * time.Second):
		t.Fatal("it hides behind younger leases")
	}
}

func TestRenewalComesBeforeWhatIsLeftOfTheVotesEnds(t *testing.T) {
	c := Agreed(t, &Yes{})
	for _, left := range []time.Duration{10 * time.Millisecond, 89 * time.Millisecond, 980 * time.Millisecond, 3 * time.Second} {
		for _, renew := range []bool{true, false} {
			a := c.newAttempt(c.cfg.lockOf("k"), &terms{kind: &exclusive, ttl: 30 * time.Second, renew: renew}, wait.Past{}, nil)
			l := leaseOf(a, left, true)
			now := l.granted
			require.Greater(t, left, l.renewAt.Sub(now), "an answer takes time")
			for tries := 0; ; tries++ { // that are not confirmed
				at := l.renewAt
				if at.Sub(now) >= left {
					require.Greater(t, tries, 2, "one that is lost must not cost the lease")
					break
				}
				held, ask := l.ask(at)
				require.True(t, held)
				require.True(t, ask)
				require.LessOrEqual(t, tries, 1000, "asked without a pause")
			}
			a.abandon()
		}
	}
}

// Renewals of thousands of leases are the hottest path: whoever does not listen to them does not pay.
func TestRenewalWithoutARenewalTracerAllocatesOnlyItself(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(renewal{}), uintptr(96), "the next size of an allocation is 112")
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		l := p.Hold(t, "k", AutoRenew(30*time.Second))
		call := member.Call{Result: member.Result{Outcome: member.Answered, State: p.briefOf(0, 0), Reply: member.Reply{Elems: []member.Reply{{Int: 1}}}}}
		items, round := []renewItem{l.toRenew(30 * time.Second)}, &quorum.Round{Question: quorum.Question{Sent: time.Now()}}
		allocated := testing.AllocsPerRun(100, func() {
			items[0] = l.toRenew(30 * time.Second)
			n := &renewal{k: &p.keeper, sent: time.Now(), items: items}
			for call.Index = range 3 {
				n.Judge(round, &call)
			}
		})
		require.LessOrEqual(t, allocated, 1.0)
	}, Quiet)
}

// While a client waits and holds nothing, its keeper looks once a second, for names to forget: a crowd of waiters costs
// as many wake-ups as it has clients. A lease that comes then is looked at as often as any other.
func TestKeeperOfAClientThatOnlyWaitsSleeps(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		heard := &renewals{}
		c := rt.Must(New([]member.Member{heard}))(t)
		defer func() { _ = c.Close() }()
		due := func() time.Duration {
			synctest.Wait()
			c.keeper.mu.Lock()
			defer c.keeper.mu.Unlock()
			return time.Until(c.keeper.armed)
		}
		c.contended("k", time.Now(), false, false)
		require.Equal(t, contendedFor, due())
		a := c.newAttempt(script.Exclusive("k"), &terms{kind: &exclusive, ttl: time.Minute, renew: true}, wait.Past{}, nil)
		l := leaseOf(a, time.Minute, false)
		require.True(t, c.keeper.add(l))
		require.Equal(t, lookAgain, due())
		l.lose(LostClosed)
		time.Sleep(lookAgain)
		require.Equal(t, contendedFor, due())
		time.Sleep(contendedFor)
		synctest.Wait()
		require.True(t, sitesOf.of(c).empty())
	})
}

// slowToRejoin answers no re-join before it is told to.
type slowToRejoin struct {
	renewals
	open []*member.Call
}

func (m *slowToRejoin) Submit(c *member.Call) {
	rt.Locked(&m.mu, func() { m.open = append(m.open, c) })
}

// A client may hold thousands of leases when a member votes again, whose queue renewals need as well.
func TestVotesAreRegainedFewAtATime(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		const leases = 2*atOnce + 10
		slow := &slowToRejoin{}
		c := rt.Must(New([]member.Member{slow}))(t)
		for i := range leases {
			a := c.newAttempt(script.Exclusive(strconv.Itoa(i)), &terms{kind: &exclusive, ttl: time.Minute, renew: true}, wait.Past{}, nil)
			l := leaseOf(a, time.Minute/2, false)
			require.True(t, c.keeper.add(l))
		}
		c.keeper.votesAgain(0)
		asked := map[string]int{}
		for range 10 {
			synctest.Wait()
			slow.mu.Lock()
			open := slow.open
			slow.open = nil
			slow.mu.Unlock()
			require.LessOrEqual(t, len(open), atOnce)
			for _, call := range open {
				asked[strings.Split(string(call.Cmd), "\r\n")[8]]++
				slow.renewals.Submit(call) // which answers
			}
		}
		require.Len(t, asked, leases)
		for name, n := range asked {
			require.Equal(t, 1, n, name)
		}
		go func() { _ = c.Close() }()
		synctest.Wait()
		for _, call := range slow.open { // the releases
			slow.renewals.Submit(call)
		}
	})
}

// A member that cannot be reached keeps the entry of a waiter for as long as it may live there in a long line. Until then
// the release is owed.
func TestReleaseIsOwedForAsLongAsTheEntryMayLive(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		c := rt.Must(New([]member.Member{&renewals{}}))(t)
		defer func() { _ = c.Close() }()
		for start, owed := range map[wait.Start]time.Duration{wait.TryOnce: c.cfg.Entry, wait.WaitFirst: 4 * c.cfg.Entry} {
			a := c.newAttempt(script.Exclusive("k"), &terms{kind: &exclusive, ttl: time.Second}, wait.Past{Start: start}, nil)
			r := a.releaseQuestion(&a.hold, memberset.All(1), false)
			require.Equal(t, owed+time.Second, time.Until(r.OweUntil))
			a.abandon()
		}
	})
}

func TestLeaseHeapGivesTheSoonestFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	base := time.Now()
	var h leaseHeap
	in := map[*lease]time.Time{}
	leases := make([]*lease, 300)
	for i := range leases {
		leases[i] = &lease{inKeeper: inKeeper{pos: -1}}
	}
	for range 5000 {
		l := leases[rng.IntN(len(leases))]
		if l.pos >= 0 && rng.IntN(3) == 0 {
			h.remove(int(l.pos))
			delete(in, l)
			require.EqualValues(t, -1, l.pos)
		} else {
			in[l] = base.Add(time.Duration(rng.IntN(1000)))
			h.put(l, in[l])
		}
		require.Len(t, h, len(in))
		for i, e := range h {
			if int(e.l.pos) != i || !e.due.Equal(in[e.l]) || e.due.Before(h[(max(i, 1)-1)/arity].due) {
				t.Fatalf("at %d: %v", i, h)
			}
		}
	}
}

// Renewals that are not due yet go out with those that are, but not so many that their names fill a member's queue.
func TestRenewalsThatAreNotDueAreBoundedInBytes(t *testing.T) {
	for _, tc := range []struct {
		name string
		key  int // bytes
		want int // leases
	}{
		{"short names", 8, atOnce},
		{"long names", 8 << 10, bytesAtOnce >> 13},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var k keeper
			now := time.Now()
			for i := range 2 * atOnce {
				l := &lease{
					inKeeper: inKeeper{pos: -1}, key: strings.Repeat("k", tc.key), term: core.ProbeTerm(now.Add(6*time.Second), time.Time{}, 0),
					plan: plan{ttl: 9 * time.Second, renewAt: now.Add(time.Duration(i) * time.Microsecond)},
				}
				k.leases.put(l, l.renewAt)
			}
			require.Empty(t, k.takeDue(now))
			require.Len(t, k.queue, tc.want)
		})
	}
}
