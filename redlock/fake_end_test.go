package redlock_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// What ends, and when: leases, clients, owners, and what is owed for them.

// stuck is a Tracer that blocks in one kind of call until it is let go.
type stuck struct {
	tracer
	at      string
	idle    atomic.Bool // it lets all pass
	closed  atomic.Bool // Close has returned
	late    atomic.Int64
	in, out chan struct{}
	once    sync.Once
}

func sticking(at string) *stuck {
	return &stuck{at: at, in: make(chan struct{}), out: make(chan struct{})}
}

func (s *stuck) wait(at string) {
	if s.closed.Load() {
		s.late.Add(1)
	}
	if at == s.at && !s.idle.Load() {
		s.once.Do(func() { close(s.in) })
		<-s.out
	}
}

func (s *stuck) Lost(*redlock.LostError)                        { s.wait("lost") }
func (s *stuck) Request(context.Context, redlock.Request)       { s.wait("request") }
func (s *stuck) Member(string, bool, error)                     { s.wait("member") }
func (s *stuck) Guard(string, string, time.Time)                { s.wait("guard") }
func (s *stuck) RenewalEnd(context.Context, redlock.RenewalEnd) { s.wait("renewal's end") }
func (s *stuck) RenewalStart(ctx context.Context, _ redlock.RenewalStart) context.Context {
	s.wait("renewal")
	return ctx
}
func (s *stuck) Enabled(context.Context, slog.Level) bool  { return true }
func (s *stuck) Handle(context.Context, slog.Record) error { s.wait("log"); return nil }
func (s *stuck) WithAttrs([]slog.Attr) slog.Handler        { return s }
func (s *stuck) WithGroup(string) slog.Handler             { return s }

// hasEnded looks at the channel alone: the methods of a lease look at the clock.
func hasEnded(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

func TestContextsEndOnTimeAlthoughATracerOrALoggerBlocks(t *testing.T) {
	for _, at := range []string{"lost", "log", "renewal"} {
		t.Run(at, inDeployment(1, func(t *testing.T, d *redlocktest.Deployment) {
			hook := sticking(at)
			p := another(t, d, redlock.WithTracer(hook), redlock.WithLogger(slog.New(hook)))
			defer func() { _ = p.Close() }()
			defer close(hook.out)
			p.Hold(t, "first", redlock.TTL(4*time.Second))
			p.Hold(t, "renewed", redlock.AutoRenew(12*time.Second))
			second := p.Hold(t, "second", redlock.TTL(14*time.Second))
			done, until := second.Done(), second.ValidUntil()
			<-hook.in
			time.Sleep(time.Until(until) + time.Microsecond)
			synctest.Wait()
			require.True(t, hasEnded(done))
		}))
	}
}

// Cost: 2 s. Releases are dropped when the names of those that are owed take 64 MB.
func TestContextsEndOnTimeAlthoughALoggerBlocksThatIsToldOfDroppedReleases(t *testing.T) {
	deployed(t, 1, func(t *testing.T, d *redlocktest.Deployment) {
		hook := sticking("log")
		hook.idle.Store(true)
		p := another(t, d, redlock.WithLogger(slog.New(hook)))
		defer func() { _ = p.Close() }()
		defer close(hook.out)
		long := strings.Repeat("x", 100_000)
		for i := range 250 { // three times the name each, of 64 MB
			p.Lock(t, fmt.Sprint(long, i), redlock.TTL(4*time.Second))
		}
		second := p.Hold(t, "second", redlock.TTL(14*time.Second))
		done, until := second.Done(), second.ValidUntil()
		p.Away(0)
		time.Sleep(2 * time.Second) // that it is down has been told
		hook.idle.Store(false)
		<-hook.in
		time.Sleep(time.Until(until) + time.Microsecond)
		synctest.Wait()
		require.True(t, hasEnded(done))
	})
}

func TestCloseReturnsInTimeWhicheverCallOfATracerBlocks(t *testing.T) {
	for _, of := range []string{"lost", "log", "renewal", "request", "member", "member that is back"} {
		t.Run(of, inDeployment(3, func(t *testing.T, d *redlocktest.Deployment) {
			at, _, back := strings.Cut(of, " that ")
			hook := sticking(at)
			hook.idle.Store(true)
			p := another(t, d, redlock.WithTracer(hook), redlock.WithLogger(slog.New(hook)))
			lease := p.Hold(t, "k", redlock.AutoRenew(12*time.Second))
			done := lease.Done()
			p.Hold(t, "short", redlock.TTL(time.Second))
			if back {
				p.Away(0)
				p.Until(t, 0, redlock.MemberDown)
			}
			hook.idle.Store(false)
			if back {
				p.Back(0)
			} else {
				p.Away(0)
			}
			<-hook.in
			start := time.Now()
			require.NoError(t, p.Close())
			took := time.Since(start)
			if of == "lost" {
				require.Equal(t, redlock.LostClosed, redlock.LostFor(lease))
				require.NotContains(t, strings.Join(d.Leftovers(), " "), "1/k", "it is released where it can be")
			}
			hook.closed.Store(true)
			close(hook.out)
			time.Sleep(time.Minute)
			require.Zero(t, hook.late.Load(), "calls of Logger or Tracer")
			require.LessOrEqual(t, took, redlock.CloseWithin+redlock.CutWithin+redlock.HushWithin)
			require.True(t, hasEnded(done))
		}))
	}
}

// lateMember closes some time after it should have, as one of an overloaded process does.
type lateMember struct {
	redlock.Yes
	by time.Duration
}

func (m *lateMember) Close(ctx context.Context) error {
	<-ctx.Done()
	time.Sleep(m.by)
	return ctx.Err()
}

// diary is a Handler that takes its time, and knows when its last call began and ended.
type diary struct {
	slog.Handler
	takes        time.Duration
	began, ended atomic.Pointer[time.Time]
}

func (d *diary) Enabled(context.Context, slog.Level) bool { return true }
func (d *diary) WithGroup(string) slog.Handler            { return d }
func (d *diary) WithAttrs([]slog.Attr) slog.Handler       { return d }
func (d *diary) Handle(context.Context, slog.Record) error {
	now := time.Now()
	d.began.Store(&now)
	time.Sleep(d.takes)
	now = time.Now()
	d.ended.Store(&now)
	return nil
}

func TestLoggerIsNotCalledAfterCloseHasReturned(t *testing.T) {
	for name, tc := range map[string]struct {
		late, takes time.Duration
		says        bool
	}{
		"a member closes in time":                   {redlock.CutWithin / 2, 0, true},
		"a line is being written when time is over": {redlock.CutWithin - time.Millisecond, redlock.HushWithin / 2, true},
		"a member closes after Close has returned":  {time.Second, 0, false},
	} {
		t.Run(name, faketime.In(func(t *testing.T) {
			said := &diary{takes: tc.takes}
			c := rt.Must(redlock.New([]member.Member{&lateMember{by: tc.late}}, redlock.WithLogger(slog.New(said).With("a", "b").WithGroup("c"))))(t)
			require.NoError(t, c.Close())
			returned := time.Now()
			time.Sleep(time.Minute)
			if !tc.says {
				require.Nil(t, said.began.Load())
				return
			}
			require.NotNil(t, said.began.Load(), "what happens meanwhile is logged")
			require.False(t, said.ended.Load().After(returned))
		}))
	}
}

func TestCloseAtAnyMomentEndsEveryLease(t *testing.T) {
	for round := range 30 {
		c := redlock.Agreed(t, &redlock.Yes{}, func(c *redlock.Config) { c.TTL = 300 * time.Millisecond })
		var dones []<-chan struct{}
		for i := range 500 {
			l, err := c.Mutex(fmt.Sprint("k", i)).Lock(t.Context())
			if errors.Is(err, redlock.ErrTooSlow) { // on a busy machine
				continue
			}
			require.NoError(t, err)
			dones = append(dones, l.Done())
		}
		timer := time.NewTimer(time.Duration(round) * 5 * time.Millisecond) // any moment of a renewal
		<-timer.C
		require.NoError(t, c.Close())
		for _, done := range dones {
			require.True(t, hasEnded(done))
		}
	}
}

// slowMember takes its time to be told of a release, as the submission of very many does.
type slowMember struct {
	redlock.Yes
	releases atomic.Int64
}

func (m *slowMember) Submit(c *member.Call) {
	if bytes.Contains(c.Cmd, []byte(script.Release.SHA)) {
		m.releases.Add(1)
		time.Sleep(time.Millisecond)
	}
	m.Yes.Submit(c)
}

func TestManyLeasesThatEndAtOnceAllEndInTime(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		m := &slowMember{}
		c := redlock.Agreed(t, m)
		const n = 2000
		var late []<-chan struct{}
		var until time.Time
		for i := range n {
			l := rt.Must(c.Mutex(fmt.Sprint("k", i), redlock.TTL(4*time.Second)).Lock(t.Context()))(t)
			late, until = append(late, l.Done()), l.ValidUntil()
		}
		time.Sleep(time.Until(until) + time.Microsecond)
		synctest.Wait()
		open := 0
		for _, done := range late {
			if !hasEnded(done) {
				open++
			}
		}
		require.Zero(t, open, "contexts that wait for the releases of others")
		require.Less(t, m.releases.Load(), int64(n))
		time.Sleep(n * time.Millisecond)
		synctest.Wait()
		require.Equal(t, int64(n), m.releases.Load(), "and all are released")
	})
}

func TestWaiterWithAShortTTLHasTheLockAsSoonAsItIsFree(t *testing.T) {
	for _, ttl := range []time.Duration{300 * time.Millisecond, time.Second} {
		for beat := range 5 { // any moment between two heartbeats
			withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, h, w *caller) {
				d.Network(h.Client, redlocktest.Network{LoseRequests: true, LoseReplies: true}, 0) // it has the other two, and the waiter one
				held := h.Hold(t, "k")
				waiting := w.LockLater(t.Context(), "k", redlock.AutoRenew(ttl))
				synctest.Wait()
				h.Back(0)
				d.Cut(2)
				time.Sleep(3*time.Second + time.Duration(beat)*200*time.Millisecond)
				start := time.Now()
				require.NoError(t, held.Unlock(t.Context()))
				l := waiting.Get(t)
				require.Less(t, time.Since(start), 20*time.Millisecond, "two members of three are up and free")
				require.Greater(t, time.Until(l.ValidUntil()), ttl/2, "the vote in hand was kept fresh")
				time.Sleep(3 * time.Second)
				require.NoError(t, l.Err(), "two members of three have renewed it")
			})
		}
	}
}

func TestWaiterWithoutAMajorityLeavesItsVoteToOthers(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		never := func(c *redlock.Config) { c.NoQuorumAfter = -1 }
		cut := redlock.JoinAll(t, cluster, never)
		cluster.Kill(2)
		cut.Away(0)
		synctest.Wait()
		for range 8 { // of either rank
			other := redlock.Connect(t, cluster, never)
			other.Settle(t, 2)
			ctx, giveUp := context.WithCancel(t.Context())
			cut.LockLater(ctx, "k")
			time.Sleep(50 * time.Millisecond)
			start := time.Now()
			l := other.Lock(t, "k")
			require.Less(t, time.Since(start), time.Second)
			require.NoError(t, l.Unlock(t.Context()))
			giveUp()
			synctest.Wait()
		}
		cut.EveryLink(func(l *redistest.Link) { l.Heal() }, 0)
		start := time.Now()
		l := cut.Lock(t, "k")
		require.Less(t, time.Since(start), 2*time.Second, "and it has the lock when it can")
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// Asking anew is how it is found out that a member answers again. That is no reason to begin to be patient anew.
func TestWaiterGivesUpInTimeAlthoughMembersHangOrFail(t *testing.T) {
	for name, fault := range map[string]func(l *redistest.Link){
		"hang": func(l *redistest.Link) { l.PauseReplies() },
		"fail": func(l *redistest.Link) {
			l.Fail(redistest.Named("EVALSHA"), -1, "OOM command not allowed when used memory > 'maxmemory'.")
		},
	} {
		t.Run(name, inAlone(3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			p.EveryLink(fault, 0, 1)
			start := time.Now()
			require.ErrorIs(t, rt.Err(p.Mutex("k").Lock(t.Context())), redlock.ErrNoQuorum)
			require.Less(t, time.Since(start), 3*time.Second, "NoQuorumAfter is two")
			require.GreaterOrEqual(t, time.Since(start), 2*time.Second)
			p.EveryLink(func(l *redistest.Link) { l.Heal() }, 0, 1)
			p.EveryLink(func(l *redistest.Link) { l.Cut() }, 0, 1)
			time.Sleep(5 * time.Second)
			redlock.Leftovers(t, cluster)
		}, func(c *redlock.Config) { c.StallTimeout, c.PingInterval = time.Hour, time.Hour }))
	}
}

// Members that refuse everything for longer than NoQuorumAfter are an outage. It is over when a majority decides anything: a
// lock that is had, one that is held, a renewal. The next outage, however much later, has NoQuorumAfter again.
func TestOutageIsOverWhenAMajorityHasDecided(t *testing.T) {
	for name, decide := range map[string]func(t *testing.T, p, q *redlock.Peer){
		"a lock": func(t *testing.T, p, _ *redlock.Peer) { require.NoError(t, p.Lock(t, "free").Unlock(t.Context())) },
		"a try that is refused": func(t *testing.T, p, q *redlock.Peer) {
			q.Lock(t, "held")
			require.ErrorIs(t, rt.Err(p.Mutex("held").TryLock(t.Context())), redlock.ErrHeld)
		},
		"a renewal": func(*testing.T, *redlock.Peer, *redlock.Peer) {}, // of the lease below
	} {
		t.Run(name, inPair(3, func(t *testing.T, _ *redistest.Cluster, p, q *redlock.Peer) {
			if name == "a renewal" {
				p.Lock(t, "renewed")
			}
			outage := func(d time.Duration) {
				for _, l := range p.Links {
					rule := l.Fail(redistest.Named("EVALSHA"), -1, "NOREPLICAS Not enough good replicas to write.")
					time.AfterFunc(d, rule.Remove)
				}
			}
			outage(10 * time.Second)
			require.ErrorIs(t, rt.Err(p.Mutex("k").Lock(t.Context())), redlock.ErrNoQuorum)
			time.Sleep(20 * time.Second)
			decide(t, p, q)
			time.Sleep(time.Minute)
			outage(time.Second)
			l, err := p.Mutex("k").Lock(t.Context())
			require.NoError(t, err, "an outage of a second is within NoQuorumAfter")
			require.NoError(t, l.Unlock(t.Context()))
		}))
	}
}

func TestCloseReleasesUnderACallThatWaits(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		p.EveryLink(func(l *redistest.Link) { l.Pause() }, 0, 1)
		w := p.LockLater(t.Context(), "k")
		synctest.Wait()
		require.Equal(t, int64(1), redlock.Admin(t, cluster.Servers[2], "EXISTS", "k"))
		start := time.Now()
		require.NoError(t, p.Close())
		require.LessOrEqual(t, time.Since(start), redlock.CloseWithin)
		require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[2], "EXISTS", "k"))
		p.EveryLink(func(l *redistest.Link) { l.Cut(); l.Heal() }, 0, 1)
		require.ErrorIs(t, w.End(), redlock.ErrClosed)
	}, func(c *redlock.Config) { c.MemberTimeout = time.Minute })
}

func TestCallersThatDoNotFitIntoALineAreServedAndNotTakenForAMemberThatIsDown(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var members []member.Member
		p := &redlock.Peer{}
		for _, s := range cluster.Servers {
			p.Links = append(p.Links, s.Path())
			nc := node.Config{Network: "tcp", Addr: s.Addr(), Dialer: p.Links[len(p.Links)-1], MaxBytes: 8 << 10, Scripts: redlock.Scripts()}
			members = append(members, rt.Must(node.New(nc))(t))
		}
		c := rt.Must(redlock.New(members))(t)
		p.Client = c
		defer func() { _ = c.Close() }()
		p.Settle(t, 3)
		waits := p.Count(script.Wait)
		const n = 500
		errs := make(chan error, n)
		start := time.Now()
		for i := range n {
			go func() {
				l, err := c.Mutex(fmt.Sprint("k", i)).Lock(t.Context())
				if err == nil {
					err = l.Unlock(t.Context())
				}
				errs <- err
			}()
		}
		for range n {
			if err := <-errs; !errors.Is(err, redlock.ErrInDoubt) { // a release that did not fit is owed
				require.NoError(t, err)
			}
		}
		require.Less(t, time.Since(start), 500*time.Millisecond)
		require.Equal(t, []int{0, 0, 0}, redlock.Hits(waits), "who finds no room registers nowhere")
	})
}

func TestUnlockInAnInnerDoLeavesTheOuterHeld(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		m := p.Mutex("k", redlock.As("me"))
		require.NoError(t, m.Do(t.Context(), func(ctx context.Context, outer *redlock.Lease) error {
			beside := rt.Must(m.Lock(ctx))(t) // another goroutine of the same owner
			require.NoError(t, m.Do(ctx, func(ctx context.Context, inner *redlock.Lease) error {
				require.NoError(t, inner.Unlock(context.Background())) // early
				require.ErrorIs(t, inner.Unlock(context.Background()), redlock.ErrNotHeld, "it has one hold")
				require.ErrorIs(t, rt.Err(inner.Handoff()), redlock.ErrNotHeld)
				require.ErrorIs(t, inner.Extend(context.Background(), time.Second), redlock.ErrNotHeld)
				return nil
			}))
			require.NoError(t, beside.Err())
			require.NoError(t, beside.Unlock(ctx))
			return outer.Err()
		}), "the outer one is held until its own end")
		noKeysAtRest(t, d)
	})
}

func TestUnlockIsDecidedByTheMembersAlsoUnderTheContextOfAnInnerDo(t *testing.T) {
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		p.Slow(time.Millisecond, time.Millisecond, time.Millisecond)
		require.NoError(t, p.Mutex("outer").Do(t.Context(), func(ctx context.Context, outer *redlock.Lease) error {
			return p.Mutex("inner").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
				return outer.Unlock(ctx) // which ends with it
			})
		}))
	})
}

func TestDoThatHandsItsLeaseOffSucceeds(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		var h redlock.Handoff
		require.NoError(t, p.Mutex("k").Do(t.Context(), func(_ context.Context, l *redlock.Lease) (err error) {
			h, err = l.Handoff()
			return err
		}))
		require.NoError(t, adopt(t, q, h).Unlock(t.Context()))
	})
}

// Cost: 3 s with the race detector. Once in ten times so many entries find a last unlock that is two steps.
func TestReentryComesBeforeTheLastUnlockOrFindsTheLeaseEnded(t *testing.T) { reenter(t, 5_000) }

func TestLongReentryComesBeforeTheLastUnlockOrFindsTheLeaseEnded(t *testing.T) {
	rt.Long(t, "often finds what the short one finds once in ten times")
	reenter(t, 40_000)
}

func reenter(t *testing.T, entries int) {
	c := redlock.Agreed(t, &redlock.Yes{})
	m := c.Mutex("k", redlock.As("me"))
	var wg sync.WaitGroup
	var taken atomic.Int64
	for range 8 {
		wg.Go(func() {
			for range entries {
				l, err := m.Lock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				if err := l.Unlock(context.Background()); errors.Is(err, redlock.ErrNotHeld) {
					taken.Add(1)
				}
			}
		})
	}
	wg.Wait()
	require.Zero(t, taken.Load(), "leases that were ended under who had just entered them")
}

func TestReleaseIsOwedUntilTheLongestTTLThatWasAskedForIsOver(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		l := p.Hold(t, "k", redlock.TTL(time.Second))
		require.NoError(t, l.Extend(t.Context(), 30*time.Second))
		first := p.Hold(t, "handed", redlock.TTL(time.Second))
		require.NoError(t, first.Extend(t.Context(), 30*time.Second))
		synctest.Wait()
		adopted := handOver(t, first, q)
		synctest.Wait()
		p.Away(2)
		q.Away(2)
		synctest.Wait()
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, adopted.Unlock(t.Context()))
		time.Sleep(10 * time.Second)
		p.Back(2)
		q.Back(2)
		require.NoError(t, errors.Join(p.Close(), q.Close())) // which pay what is owed still
		noKeys(t, d)
	})
}

func TestHandoffOfAnotherKindIsRefused(t *testing.T) {
	text := func(kind, format string) string {
		return "redquorum1." + base64.RawURLEncoding.EncodeToString([]byte(`{`+kind+`"k":"aw==","o":"A:7","t":5,"l":1000,"v":`+format+`}`))
	}
	for _, kind := range []string{``, `"c":"mutex",`} { // a text without a kind is that of a mutex
		require.Equal(t, redlock.KindMutex, rt.Must(redlock.ParseHandoff(text(kind, "1")))(t).Kind())
	}
	_, err := redlock.ParseHandoff(text(`"c":"semaphore",`, "1"))
	rt.Says(t, err, redlock.ErrInput, "a kind that this version does not know")
	require.ErrorContains(t, rt.Err(redlock.ParseHandoff(text(`"c":"semaphore",`, "3"))), "another version")
	for _, kind := range []redlock.Kind{redlock.KindFair, redlock.KindWrite, redlock.KindRead, redlock.KindElection} { // clients that know the mutex alone refuse these by their format
		require.Equal(t, kind, rt.Must(redlock.ParseHandoff(text(fmt.Sprintf(`"c":%q,`, kind), "2")))(t).Kind())
		require.ErrorContains(t, rt.Err(redlock.ParseHandoff(text(fmt.Sprintf(`"c":%q,`, kind), "1"))), "a kind that this version does not know")
	}
}

func TestHandedOffLeaseHasTheTermsOfItsOwner(t *testing.T) {
	for name, tc := range map[string]struct {
		opts []redlock.LockOption
		ends time.Duration // after the grant; 0: not within a minute
	}{
		"fixed":       {[]redlock.LockOption{redlock.TTL(30 * time.Second)}, 30 * time.Second},
		"renewed":     {[]redlock.LockOption{redlock.AutoRenew(20 * time.Second)}, 0},
		"for a while": {[]redlock.LockOption{redlock.AutoRenew(20 * time.Second), redlock.MaxHold(40 * time.Second)}, 40 * time.Second},
		"for long":    {[]redlock.LockOption{redlock.MaxHold(0)}, 0}, // as the Config says
	} {
		for n := range 4 {
			waited, after := n%2 == 0, []time.Duration{500 * time.Millisecond, 8 * time.Second}[n/2]
			t.Run(fmt.Sprintf("%s, waited for %v, after %v", name, waited, after), inDeployment(3, func(t *testing.T, d *redlocktest.Deployment) {
				h, p, q := another(t, d), another(t, d), another(t, d)
				var mine *redlock.Lease
				if waited {
					before := h.Hold(t, "k")
					w := p.LockLater(t.Context(), "k", tc.opts...)
					time.Sleep(100 * time.Millisecond)
					require.NoError(t, before.Unlock(t.Context()))
					mine = w.Get(t)
				} else {
					mine = p.Lock(t, "k", tc.opts...)
				}
				granted := time.Now()
				time.Sleep(after)
				next := handOver(t, mine, q)
				if tc.ends == 0 {
					time.Sleep(time.Minute)
					require.NoError(t, next.Err())
					require.NoError(t, next.Unlock(t.Context()))
					return
				}
				<-next.Done()
				require.InDelta(t, tc.ends.Seconds(), time.Since(granted).Seconds(), tc.ends.Seconds()/50)
			}))
		}
	}
}

// A call that comes behind the release of the adopter would leave a vote, or a place in a queue, of nobody.
func TestHandoffWaitsForCallsThatTakeAVoteOrAPlace(t *testing.T) {
	far := func(p *redlock.Peer) { p.Slow(0, 0, 400*time.Millisecond) }
	renewing := func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer, other ...string) *redlock.Lease {
		l := p.Hold(t, "k", redlock.AutoRenew(9*time.Second))
		redlock.Admin(t, cluster.Servers[2], "DEL", "k")
		if len(other) > 0 {
			redlock.Admin(t, cluster.Servers[2], "HSET", "k", other[0], "5")
			redlock.Admin(t, cluster.Servers[2], "PEXPIRE", "k", "60000")
		}
		far(p)
		time.Sleep(3*time.Second + 500*time.Millisecond) // it was renewed, refused by one member, and asks that for the vote now
		return l
	}
	theirs := strings.Repeat("O", 26) + ":1"
	for name, held := range map[string]func(t *testing.T, cluster *redistest.Cluster, p, before *redlock.Peer) *redlock.Lease{
		"an acquire": func(t *testing.T, _ *redistest.Cluster, p, _ *redlock.Peer) *redlock.Lease {
			far(p)
			return p.Lock(t, "k")
		},
		"a re-join": func(t *testing.T, cluster *redistest.Cluster, p, _ *redlock.Peer) *redlock.Lease {
			return renewing(t, cluster, p)
		},
		"a wish": func(t *testing.T, cluster *redistest.Cluster, p, _ *redlock.Peer) *redlock.Lease {
			return renewing(t, cluster, p, theirs)
		},
		"a wait": func(t *testing.T, _ *redistest.Cluster, p, before *redlock.Peer) *redlock.Lease {
			first := before.Hold(t, "k")
			far(p)
			w := p.LockLater(t.Context(), "k")
			time.Sleep(50 * time.Millisecond)
			require.NoError(t, first.Unlock(t.Context()))
			return w.Get(t)
		},
		"an adoption": func(t *testing.T, _ *redistest.Cluster, p, before *redlock.Peer) *redlock.Lease {
			far(p)
			return handOver(t, before.Hold(t, "k", redlock.AutoRenew(9*time.Second)), p)
		},
		"an acquire before a downgrade": func(t *testing.T, _ *redistest.Cluster, p, _ *redlock.Peer) *redlock.Lease {
			far(p)
			return rt.Must(writes(t, p, "k", redlock.TTL(9*time.Second)).Downgrade(t.Context()))(t)
		},
	} {
		t.Run(name, inBubble(3, func(t *testing.T, cluster *redistest.Cluster) {
			before, p, q := redlock.JoinAll(t, cluster), redlock.JoinAll(t, cluster), redlock.JoinAll(t, cluster)
			require.NoError(t, handOver(t, held(t, cluster, p, before), q).Unlock(t.Context()))
			time.Sleep(2 * time.Second)
			redlock.Admin(t, cluster.Servers[2], "HDEL", "k", theirs)
			redlock.Leftovers(t, cluster)
		}))
	}
}

func TestHandoffWaitsForStallTimeoutAndHalfOfTheValidityAtMost(t *testing.T) {
	for most, opt := range map[time.Duration]redlock.LockOption{time.Second: redlock.AutoRenew(20 * time.Second), time.Second / 2: redlock.TTL(time.Second)} {
		redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
			p.EveryLink(func(l *redistest.Link) { l.PauseRequests() }, 2)
			l := p.Lock(t, "k", opt)
			began := time.Now()
			h := handoff(t, l)
			require.InDelta(t, most, time.Since(began), float64(20*time.Millisecond))
			require.NoError(t, adopt(t, p, h).Unlock(t.Context()))
		}, func(c *redlock.Config) { c.StallTimeout = time.Second })
	}
}

func TestClosedClientSaysSo(t *testing.T) {
	withTwo(t, 1, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		h, theirs := handoff(t, p.Lock(t, "k")), q.Hold(t, "theirs")
		require.NoError(t, q.Close())
		require.ErrorIs(t, theirs.Unlock(t.Context()), redlock.ErrClosed)
		require.ErrorIs(t, theirs.Err(), redlock.ErrLost)
		require.ErrorIs(t, context.Cause(theirs.Context()), redlock.ErrClosed)
		require.NoError(t, q.Close(), "twice")
		require.ErrorIs(t, q.Try(t, "j"), redlock.ErrClosed)
		require.ErrorIs(t, rt.Err(q.Adopt(t.Context(), h)), redlock.ErrClosed)
		require.ErrorIs(t, rt.Err(q.Mutex("j").Lock(t.Context())), redlock.ErrClosed)
		l, err := p.Adopt(t.Context(), h)
		require.NoError(t, err, "it was not touched")
		require.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		began := time.Now()
		require.NoError(t, p.Close())
		require.Zero(t, time.Since(began), "nothing is left to wait for")
	})
}

func TestAdoptThatCloseInterruptsSaysSoAndLeavesTheLeaseAsItWas(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, next *caller) {
		q := another(t, d, func(c *redlock.Config) {
			c.MemberTimeout, c.StallTimeout, c.PingInterval = time.Minute, time.Hour, time.Hour
		})
		h := handoff(t, p.Lock(t, "k"))
		d.Network(q.Client, redlocktest.Network{LoseReplies: true})
		adopted := rt.Go(func() error { return rt.Err(q.Adopt(context.Background(), h)) })
		synctest.Wait()
		require.NoError(t, q.Close())
		require.ErrorIs(t, <-adopted, redlock.ErrClosed)
		require.NoError(t, adopt(t, next, h).Unlock(t.Context()))
	})
}

// Each look of the keeper costs a lone caller a change of goroutines: more than the rest of a lock in memory.
func TestLeasesThatComeAndGoDoNotWakeTheKeeper(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		for callers, rounds := range map[int]int{1: 500, 64: 50} {
			looks := map[time.Time]bool{}
			for range rounds {
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() { cycle(t, p, fmt.Sprint(i)) })
				}
				all.Wait()
				time.Sleep(time.Millisecond)
				synctest.Wait()
				looks[redlock.KeeperLooks(p.Client)] = true
			}
			require.NotContains(t, looks, time.Time{}, "it is not woken each time")
			require.LessOrEqual(t, len(looks), 2+callers*rounds/100, "a hundredth of the locks")
			require.LessOrEqual(t, len(looks), 2+rounds/100, "ten times a second")
			time.Sleep(250 * time.Millisecond)
			require.Zero(t, redlock.KeeperLooks(p.Client), "it rests when there is nothing")
		}
	})
}
