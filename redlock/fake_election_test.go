package redlock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Elections in fake time on embedded members: who leads, who is told, and what is left.

func campaign(t testing.TB, p anyClient, value string, opts ...redlock.LockOption) *redlock.Lease {
	t.Helper()
	return rt.Must(p.Election("boss", opts...).Campaign(t.Context(), []byte(value)))(t)
}

func campaigning(ctx context.Context, p anyClient, value string, opts ...redlock.LockOption) *redlock.Locking {
	return later(ctx, func(ctx context.Context) (*redlock.Lease, error) {
		return p.Election("boss", opts...).Campaign(ctx, []byte(value))
	})
}

type audience struct {
	mu    sync.Mutex
	told  []redlock.Leader
	heard redlock.Leader
	at    []time.Time
	done  chan struct{}
}

func observing(ctx context.Context, p anyClient) *audience {
	a := &audience{done: make(chan struct{})}
	go func() {
		defer close(a.done)
		for l := range p.Election("boss").Observe(ctx) {
			rt.Locked(&a.mu, func() { a.told, a.heard, a.at = append(a.told, l), l, append(a.at, time.Now()) })
		}
	}()
	return a
}

// words are what the audience was told, without what it was told before the last call of words.
func (a *audience) words() string {
	synctest.Wait()
	a.mu.Lock()
	defer a.mu.Unlock()
	var out []string
	for _, l := range a.told {
		if l.None {
			out = append(out, "-")
		} else {
			out = append(out, string(l.Value))
		}
	}
	a.told = nil
	return strings.Join(out, " ")
}

func (a *audience) value() []byte { return rt.Under(&a.mu, func() []byte { return a.heard.Value }) }

func (a *audience) last() time.Time {
	return rt.Under(&a.mu, func() time.Time { return a.at[len(a.at)-1] })
}

// observed runs a test with an observer on a client of its own. The observer has left when the test
// looks at what is left.
func observed(t *testing.T, n, clients int, test func(t *testing.T, d *redlocktest.Deployment, a *audience, all []*caller), opts ...redlock.Option) {
	t.Helper()
	withMany(t, n, clients+1, func(t *testing.T, d *redlocktest.Deployment, all []*caller) {
		ctx, cancel := context.WithCancel(t.Context())
		a := observing(ctx, all[clients])
		require.Equal(t, "-", a.words(), "nobody leads")
		test(t, d, a, all)
		cancel()
		<-a.done
		synctest.Wait()
		for _, key := range d.Leftovers() {
			require.NotContains(t, key, observersOf, "the observer has withdrawn")
		}
	}, opts...)
}

func observedInside(t *testing.T, n, clients int, test func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer), opts ...redlock.Option) {
	t.Helper()
	redlock.Among(t, n, clients+1, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		ctx, cancel := context.WithCancel(t.Context())
		a := observing(ctx, all[clients])
		require.Equal(t, "-", a.words(), "nobody leads")
		test(t, cluster, a, all)
		cancel()
		<-a.done
		synctest.Wait()
		for _, s := range cluster.Servers {
			v, err := s.Do(context.Background(), "EXISTS", observersOf)
			require.True(t, err != nil || v == int64(0), "the observer has withdrawn")
		}
	}, opts...)
}

func TestObserverIsWithdrawnAlthoughTheConnectionBreaks(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		ctx, cancel := context.WithCancel(t.Context())
		a := observing(ctx, p)
		require.Equal(t, "-", a.words())
		require.EqualValues(t, 1, redlock.Admin(t, cluster.Servers[0], "EXISTS", observersOf))
		p.EveryLink(func(l *redistest.Link) { l.CutBefore(redistest.WithArg(script.Observe.SHA), 1) }, 0)
		cancel()
		<-a.done
		p.Until(t, 0, "voting")
		time.Sleep(time.Second) // an entry lasts six
		for _, s := range cluster.Servers {
			require.EqualValues(t, 0, redlock.Admin(t, s, "EXISTS", observersOf))
		}
	}, redlock.Quiet)
}

const recordOf, observersOf = "redquorum:e1:{boss}", "redquorum:eo:{boss}"

func leads(t testing.TB, p anyClient) string {
	t.Helper()
	l := rt.Must(p.Election("boss").Leader(t.Context()))(t)
	if l.None {
		return "-"
	}
	return string(l.Value)
}

func TestLeaderIsWhoHasTheLockAndHasProclaimed(t *testing.T) {
	observed(t, 3, 2, func(t *testing.T, d *redlocktest.Deployment, a *audience, all []*caller) {
		p, q := all[0], all[1]
		e := p.Election("boss")
		require.Equal(t, "-", leads(t, q))
		held := q.Lock(t, "boss")
		require.Equal(t, "-", leads(t, p), "the holder of the mutex has proclaimed nothing")
		unlock(t, held)

		l := campaign(t, p, "10.0.0.1")
		require.Greater(t, l.Token(), held.Token())
		got := rt.Must(q.Election("boss").Leader(t.Context()))(t)
		require.Equal(t, redlock.Leader{Value: []byte("10.0.0.1"), Token: l.Token()}, got)
		require.ErrorIs(t, q.Try(t, "boss"), redlock.ErrHeld, "it is the mutex of that name")
		in := rt.Must(q.Inspect(t.Context(), "boss"))(t)
		require.Equal(t, l.Owner(), in.Holders[0].Owner)
		require.Equal(t, 1, p.Stats()[redlock.KindElection].Held)

		require.Equal(t, "10.0.0.1", a.words())
		require.NoError(t, e.Proclaim(t.Context(), l, []byte("10.0.0.2")))
		require.Equal(t, "10.0.0.2", a.words())
		require.NoError(t, e.Proclaim(t.Context(), l, nil))
		require.Equal(t, "", leads(t, q), "an empty value is one")
		require.Equal(t, "", a.words())
		require.Empty(t, a.value(), "told, too")
		require.Equal(t, l.Token(), got.Token)

		require.Equal(t, 3, rt.Must(q.ForceUnlockSeen(t.Context(), in))(t))
		require.Equal(t, "-", leads(t, q))
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, "-", a.words(), "a force pushes nothing: observers ask within a third of an entry")
		time.Sleep(3 * time.Second)
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
		require.ErrorIs(t, e.Proclaim(t.Context(), l, []byte("x")), redlock.ErrLost)
		require.Equal(t, "-", leads(t, q))

		l = campaign(t, p, "again")
		require.Equal(t, "again", a.words())
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, "-", leads(t, q))
		require.Equal(t, "-", a.words())
		require.ErrorIs(t, l.Unlock(t.Context()), redlock.ErrNotHeld)
		require.ErrorIs(t, e.Proclaim(t.Context(), l, nil), redlock.ErrNotHeld)
		time.Sleep(31 * time.Second) // until the force is forgotten
	}, redlock.Quiet)
}

func TestNothingIsLeftOfAnElection(t *testing.T) {
	observedInside(t, 3, 1, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		l := campaign(t, all[0], "me")
		time.Sleep(20 * time.Second)
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, "me -", a.words())
		time.Sleep(2900 * time.Millisecond)
		for _, s := range cluster.Servers {
			require.Equal(t, int64(1), redlock.Admin(t, s, "EXISTS", recordOf))
			require.Equal(t, int64(0), redlock.Admin(t, s, "HEXISTS", recordOf, "v"))
		}
		time.Sleep(200 * time.Millisecond)
	}, redlock.Quiet)
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		campaign(t, p, "me")
		require.NoError(t, p.Close(), "which resigns")
		time.Sleep(3 * time.Second)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestElectionTakesWhatCanWork(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		ctx, none := t.Context(), context.Context(nil)
		long := make([]byte, 4096+1)
		good := func(context.Context, *redlock.Lease) error { t.Error("called"); return nil }
		for _, tc := range []struct {
			problem string
			call    func() error
		}{
			{"4097 bytes, but at most 4096", func() error { _, err := p.Election("boss").Campaign(ctx, long); return err }},
			{"4097 bytes", func() error { return p.Election("boss").Run(ctx, long, good) }},
			{"nil function", func() error { return p.Election("boss").Run(ctx, nil, nil) }},
			{"nil context", func() error { _, err := p.Election("boss").Leader(none); return err }},
			{"empty", func() error { _, err := p.Election("").Campaign(ctx, nil); return err }},
			{"no option As", func() error { _, err := p.Election("boss", redlock.As("me")).Campaign(ctx, nil); return err }},
			{"no option Fair", func() error { _, err := p.Election("boss", redlock.Fair()).Campaign(ctx, nil); return err }},
			{"TTL", func() error { _, err := p.Election("boss", redlock.TTL(time.Hour)).Leader(ctx); return err }},
			{"nil lease", func() error { return p.Election("boss").Proclaim(ctx, nil, nil) }},
		} {
			rt.Says(t, tc.call(), redlock.ErrInput, tc.problem)
		}
		told := 0
		for l, err := range p.Election("").Observe(ctx) {
			require.True(t, l.None)
			rt.Says(t, err, redlock.ErrInput, "observe")
			told++
		}
		require.Equal(t, 1, told)
		plain := p.Lock(t, "other")
		require.ErrorContains(t, p.Election("other").Proclaim(ctx, plain, nil), "not one of this election")
		unlock(t, plain)
		l := campaign(t, p, "me")
		require.ErrorIs(t, p.Election("else").Proclaim(ctx, l, nil), redlock.ErrInput)
		require.ErrorIs(t, p.Election("boss").Proclaim(ctx, l, long), redlock.ErrInput)
		require.Equal(t, "me", leads(t, q))
		require.NoError(t, p.Election("boss").Proclaim(ctx, l, long[:4096]))
		unlock(t, l)
		_, err := another(t, d, redlock.WithInterop()).Election("boss").Campaign(ctx, nil)
		rt.Says(t, err, redlock.ErrInput, "Config.Interop")

		require.NoError(t, p.Close())
		require.ErrorIs(t, rt.Err(p.Election("boss").Campaign(ctx, nil)), redlock.ErrClosed)
		require.ErrorIs(t, p.Election("boss").Run(ctx, nil, good), redlock.ErrClosed)
		require.ErrorIs(t, rt.Err(p.Election("boss").Leader(ctx)), redlock.ErrClosed)
		for range p.Election("boss").Observe(ctx) {
			t.Error("yielded")
		}
		time.Sleep(3 * time.Second)
		noKeys(t, d)
	}, redlock.Quiet)
}

func TestResignHandsOverWithinTwoRoundTrips(t *testing.T) {
	const rtt = 10 * time.Millisecond
	observed(t, 5, 2, func(t *testing.T, d *redlocktest.Deployment, a *audience, all []*caller) {
		for _, p := range all {
			p.Slow(rtt, rtt, rtt, rtt, rtt)
		}
		l := campaign(t, all[0], "one")
		next := campaigning(t.Context(), all[1], "two")
		time.Sleep(time.Second)
		require.Equal(t, "one", a.words())
		start := time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		m := next.Get(t)
		require.LessOrEqual(t, next.At.Sub(start), 2*rtt, "a way to the member, a push, and a round trip for the value")
		time.Sleep(100 * time.Millisecond)
		require.LessOrEqual(t, a.last().Sub(start), 3*rtt)
		require.Contains(t, []string{"two", "- two"}, a.words())
		unlock(t, m)
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, "-", a.words())
		require.LessOrEqual(t, a.last().Sub(m.ValidUntil()), 3*rtt)
		for _, p := range all {
			p.Slow(0, 0, 0, 0, 0)
		}
	}, redlock.Quiet)
}

func TestCrashOfALeaderIsToldAtItsTTL(t *testing.T) {
	const rtt = 10 * time.Millisecond
	observedInside(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		for _, p := range all {
			p.Slow(rtt, rtt, rtt)
		}
		campaign(t, all[0], "one")
		time.Sleep(5 * time.Second)
		require.Equal(t, "one", a.words())
		all[0].Die()
		start := time.Now()
		var ended time.Duration // of the majority's keys
		for _, s := range cluster.Servers[:2] {
			ended = max(ended, time.Duration(redlock.Admin(t, s, "PTTL", "boss").(int64))*time.Millisecond)
		}
		require.LessOrEqual(t, ended, 10*time.Second)
		time.Sleep(ended + time.Millisecond + rtt + time.Millisecond)
		require.Equal(t, "-", a.words())
		require.LessOrEqual(t, a.last().Sub(start), ended+2*time.Millisecond+rtt)

		m := campaign(t, all[1], "two")
		require.Equal(t, "two", leads(t, all[2]))
		time.Sleep(100 * time.Millisecond)
		require.Equal(t, "two", a.words())
		all[1].Die()
		next := campaigning(t.Context(), all[2], "three")
		next.Get(t)
		require.LessOrEqual(t, next.At.Sub(start), ended+10*time.Second+8*rtt)
		time.Sleep(100 * time.Millisecond)
		require.Contains(t, []string{"three", "- three"}, a.words())
		require.ErrorIs(t, m.Err(), redlock.ErrLost)
		for _, p := range all {
			p.Slow(0, 0, 0)
		}
		unlock(t, next.Value)
	}, redlock.Quiet)
}

func TestLateProclaimOfAFormerLeaderChangesNothing(t *testing.T) {
	observedInside(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		p, q := all[0], all[1]
		l := campaign(t, p, "one", redlock.TTL(time.Second))
		require.Equal(t, "one", a.words())
		p.EveryLink(func(l *redistest.Link) {
			l.DelayCommand(redistest.WithArg(script.Proclaim.SHA), -1, 1500*time.Millisecond)
		})
		require.ErrorIs(t, p.Election("boss").Proclaim(t.Context(), l, []byte("late")), redlock.ErrNoQuorum)
		m := campaign(t, q, "two")
		require.Contains(t, []string{"two", "- two"}, a.words())
		time.Sleep(2 * time.Second)
		require.Equal(t, "two", leads(t, all[2]))
		require.Equal(t, "", a.words())
		for _, s := range cluster.Servers {
			require.Equal(t, "two", redlock.Admin(t, s, "HGET", recordOf, "v"))
		}
		unlock(t, m)
		require.ErrorIs(t, l.Err(), redlock.ErrLost)
	}, redlock.Quiet)
}

// Members that come back empty, or have been away, hear the value with the next renewal.
func TestValueIsRepeatedWithRenewals(t *testing.T) {
	observedInside(t, 3, 1, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		p := all[0]
		p.Away(2)
		l := campaign(t, p, "me")
		require.Equal(t, "me", a.words())
		require.NoError(t, p.Election("boss").Proclaim(t.Context(), l, []byte("still me")))
		require.Equal(t, int64(0), redlock.Admin(t, cluster.Servers[2], "EXISTS", recordOf))
		p.Links[2].Heal()
		p.Until(t, 2, "voting")
		time.Sleep(4 * time.Second) // a renewal, and a re-join
		time.Sleep(4 * time.Second) // a renewal that the member confirms, or not: the value comes with each
		require.Equal(t, "still me", redlock.Admin(t, cluster.Servers[2], "HGET", recordOf, "v"))

		for _, i := range []int{0, 1} { // one after the other, so that the lease survives
			require.NoError(t, cluster.Flush(i))
			time.Sleep(8 * time.Second)
			require.Equal(t, "still me", redlock.Admin(t, cluster.Servers[i], "HGET", recordOf, "v"))
		}
		require.NoError(t, l.Err())
		require.Equal(t, "still me", leads(t, p))
		require.Equal(t, "still me", a.words(), "told once")
		unlock(t, l)
		require.Equal(t, "-", a.words())
	}, redlock.Quiet)
}

func TestCampaignThatIsCancelledWhileItProclaimsResigns(t *testing.T) {
	observedInside(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		p, q := all[0], all[1]
		for i, rule := range []func(l *redistest.Link) *redistest.Rule{
			func(l *redistest.Link) *redistest.Rule { // it comes late, and behind it the release
				return l.DelayCommand(redistest.WithArg(script.Proclaim.SHA), 1, 100*time.Millisecond)
			},
			func(l *redistest.Link) *redistest.Rule { // it was recorded, and the caller does not know
				return l.DelayReply(redistest.WithArg(script.Proclaim.SHA), 1, 100*time.Millisecond)
			},
		} {
			p.EveryLink(func(l *redistest.Link) { rule(l) })
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			_, err := p.Election("boss").Campaign(ctx, []byte("one"))
			cancel()
			require.ErrorIs(t, err, redlock.ErrNoQuorum, "case %d", i)
			rt.Says(t, err, context.DeadlineExceeded, "campaign")
			time.Sleep(200 * time.Millisecond)
			require.Equal(t, "-", leads(t, q))
			require.Contains(t, []string{"", "one -"}, a.words())
			l := campaign(t, q, "two")
			require.Equal(t, "two", a.words())
			unlock(t, l)
			require.Equal(t, "-", a.words())
		}
		require.Equal(t, 0, p.Stats()[redlock.KindElection].Held)
		time.Sleep(3 * time.Second)
	}, redlock.Quiet)
}

func TestLeaderWhoseValueIsNotRecordedLeadsAllTheSame(t *testing.T) {
	observedInside(t, 3, 1, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		p := all[0]
		p.EveryLink(func(l *redistest.Link) {
			l.Fail(redistest.WithArg(script.Proclaim.SHA), 1, "ERR try again")
		})
		l := campaign(t, p, "me")
		require.NoError(t, l.Err())
		require.Equal(t, "-", leads(t, p))
		require.Equal(t, "", a.words())
		time.Sleep(3500 * time.Millisecond)
		require.Equal(t, "me", leads(t, p))
		require.Equal(t, "me", a.words())
		unlock(t, l)
	}, redlock.Quiet)
}

func TestObserverOutlivesAMajorityThatIsAway(t *testing.T) {
	observedInside(t, 3, 1, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		p, watcher := all[0], all[1]
		watcher.Away(0, 1)
		time.Sleep(10 * time.Second) // longer than NoQuorumAfter
		l := campaign(t, p, "one")
		asked := watcher.Count(script.Observe)
		time.Sleep(10 * time.Second)
		require.LessOrEqual(t, redlock.Hits(asked)[2], 20, "not all the time")
		require.Equal(t, "", a.words())
		watcher.EveryLink(func(l *redistest.Link) { l.Heal() }, 0, 1)
		watcher.Until(t, 0, "voting")
		watcher.Until(t, 1, "voting")
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, "one", a.words())
		unlock(t, l)
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, "-", a.words())
	}, redlock.Quiet)
}

func TestWordOfAMemberThatIsAwayNamesNobody(t *testing.T) {
	observedInside(t, 3, 1, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		p, watcher := all[0], all[1]
		l := campaign(t, p, "one")
		require.Equal(t, "one", a.words())
		p.Away(2)
		require.NoError(t, cluster.Flush(2))
		watcher.Away(0)
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, "", a.words(), "the member that is away may have a vote of it still")
		require.NoError(t, p.Election("boss").Proclaim(t.Context(), l, []byte("two")))
		require.Equal(t, "", a.words(), "one member names it")
		watcher.EveryLink(func(l *redistest.Link) { l.Heal() }, 0)
		watcher.Until(t, 0, "voting")
		require.Equal(t, "two", a.words())
		p.EveryLink(func(l *redistest.Link) { l.Heal() }, 2)
		unlock(t, l)
		time.Sleep(1100 * time.Millisecond) // the inbox at that member may still be on its way
		require.Equal(t, "-", a.words())
	}, redlock.Quiet)
}

// A leader that hands its lease to another process leads on: what the other says comes after what
// was said before.
func TestAdoptedLeaderProclaims(t *testing.T) {
	observed(t, 3, 2, func(t *testing.T, d *redlocktest.Deployment, a *audience, all []*caller) {
		p, q := all[0], all[1]
		l := campaign(t, p, "one")
		require.Equal(t, "one", a.words())
		require.NoError(t, p.Election("boss").Proclaim(t.Context(), l, []byte("two")))
		h := rt.Must(l.Handoff())(t)
		require.Equal(t, redlock.KindElection, h.Kind())
		h = rt.Must(redlock.ParseHandoff(h.Secret()))(t)
		m := rt.Must(q.Adopt(t.Context(), h))(t)
		require.ErrorIs(t, p.Election("boss").Proclaim(t.Context(), l, []byte("late")), redlock.ErrNotHeld)
		time.Sleep(8 * time.Second)
		require.Equal(t, "two", a.words())
		require.NoError(t, q.Election("boss").Proclaim(t.Context(), m, []byte("three")))
		require.Equal(t, "three", a.words())
		require.NoError(t, q.Election("boss").Proclaim(t.Context(), m, []byte("four")))
		require.Equal(t, "four", a.words())
		h = rt.Must(m.Handoff())(t)
		last := rt.Must(p.Adopt(t.Context(), h))(t)
		unlock(t, last) // without a word of its own
		require.Equal(t, "-", a.words())
		require.Equal(t, "-", leads(t, p))
		time.Sleep(3 * time.Second)
	}, redlock.Quiet)
}

// What an adopted leader says first counts, however much was said before: also if that was as much.
func TestAdoptedLeaderIsHeardAtOnce(t *testing.T) {
	for before := range 4 {
		observed(t, 3, 2, func(t *testing.T, d *redlocktest.Deployment, a *audience, all []*caller) {
			p, q := all[0], all[1]
			l := campaign(t, p, "one")
			for range before {
				require.NoError(t, p.Election("boss").Proclaim(t.Context(), l, []byte("one")))
			}
			for i, said := range []string{"two", "three", "four"} {
				p, q = q, p
				h := rt.Must(l.Handoff())(t)
				l = rt.Must(p.Adopt(t.Context(), h))(t)
				for range i {
					require.NoError(t, p.Election("boss").Proclaim(t.Context(), l, []byte("between")))
				}
				require.NoError(t, p.Election("boss").Proclaim(t.Context(), l, []byte(said)))
				require.Equal(t, said, leads(t, q))
			}
			unlock(t, l)
			require.Equal(t, "-", leads(t, q))
			time.Sleep(3 * time.Second)
		}, redlock.Quiet)
	}
}

// A word that only a member has that is away does not outlive what an adopted leader says.
func TestAdoptedLeaderReplacesWhatItCannotSee(t *testing.T) {
	observedInside(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, a *audience, all []*redlock.Peer) {
		p, q := all[0], all[1]
		l := campaign(t, p, "one")
		synctest.Wait() // all have given their votes
		p.Away(1, 2)
		require.ErrorIs(t, p.Election("boss").Proclaim(t.Context(), l, []byte("unheard")), redlock.ErrNoQuorum)
		synctest.Wait() // the two that are away decide before the first one answers
		require.Equal(t, "unheard", redlock.Admin(t, cluster.Servers[0], "HGET", recordOf, "v"))
		h := rt.Must(l.Handoff())(t)
		q.Away(0)
		m := rt.Must(q.Adopt(t.Context(), h))(t)
		require.NoError(t, q.Election("boss").Proclaim(t.Context(), m, []byte("two")))
		q.EveryLink(func(l *redistest.Link) { l.Heal() }, 0)
		p.EveryLink(func(l *redistest.Link) { l.Heal() }, 1, 2)
		q.Until(t, 0, "voting")
		time.Sleep(8 * time.Second) // two renewals
		require.Equal(t, "two", redlock.Admin(t, cluster.Servers[0], "HGET", recordOf, "v"))
		require.Equal(t, "two", leads(t, p))
		unlock(t, m)
		require.Equal(t, "-", leads(t, q))
		time.Sleep(3 * time.Second)
	}, redlock.Quiet)
}

func TestRunLeadsAgainAndNeverTwice(t *testing.T) {
	observed(t, 3, 2, func(t *testing.T, d *redlocktest.Deployment, a *audience, all []*caller) {
		p, q := all[0], all[1]
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		running, most, terms := 0, 0, 0
		stubborn := make(chan struct{})
		fn := func(ctx context.Context, l *redlock.Lease) error {
			mu.Lock()
			running, terms = running+1, terms+1
			most = max(most, running)
			first := terms == 1
			mu.Unlock()
			assert.NoError(t, l.Err(), "it does not lead")
			if first { // it does not hear that its context has ended
				<-stubborn
			} else {
				select {
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
			rt.Locked(&mu, func() { running-- })
			return ctx.Err()
		}
		var wg sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			wg.Go(func() {
				errs[i] = p.Election("boss").Run(ctx, []byte("p"), fn)
				assert.Error(t, ctx.Err(), "Run has ended: %v", errs[i])
			})
		}
		time.Sleep(time.Second)
		require.Equal(t, "p", a.words())
		require.NoError(t, rt.Err(q.ForceUnlock(t.Context(), "boss")))
		m := campaign(t, q, "q")
		time.Sleep(20 * time.Second)
		rt.Locked(&mu, func() { require.Equal(t, 1, terms, "the others wait for the one that does not stop") })
		require.Contains(t, []string{"q", "- q"}, a.words())
		close(stubborn)
		time.Sleep(5 * time.Second)
		unlock(t, m)
		time.Sleep(10 * time.Second)
		rt.Locked(&mu, func() { require.GreaterOrEqual(t, terms, 8, "again and again") })
		require.Equal(t, "p", string(a.value()))
		cancel()
		wg.Wait()
		for _, err := range errs {
			require.ErrorIs(t, err, context.Canceled)
		}
		require.Equal(t, 1, most)
		time.Sleep(time.Millisecond)
		require.Equal(t, "-", leads(t, q))
		time.Sleep(40 * time.Second)
	}, redlock.Quiet)
}

// Run ends with the error of its function, unless the lease was lost, and with errors that do not
// pass.
func TestRunEndsWithTheErrorOfItsFunction(t *testing.T) {
	redlock.Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *redlock.Peer) {
		e := p.Election("boss")
		sorry := errors.New("sorry")
		n := 0
		err := e.Run(t.Context(), nil, func(context.Context, *redlock.Lease) error {
			if n++; n < 3 {
				return nil
			}
			return sorry
		})
		require.Equal(t, sorry, err)
		require.Equal(t, 3, n)

		ctx := rt.Within(t, time.Second)
		err = e.Run(ctx, nil, func(ctx context.Context, _ *redlock.Lease) error { <-ctx.Done(); return sorry })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, sorry)

		other := campaign(t, redlock.JoinAll(t, cluster, redlock.Quiet), "other")
		ctx = rt.Within(t, time.Second)
		err = e.Run(ctx, nil, func(context.Context, *redlock.Lease) error { return sorry })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, strings.Count(err.Error(), context.DeadlineExceeded.Error()), "%v", err)
		unlock(t, other)

		redlock.Admin(t, cluster.Servers[0], "SET", "boss", "x")
		redlock.Admin(t, cluster.Servers[1], "SET", "boss", "x")
		err = e.Run(t.Context(), nil, func(context.Context, *redlock.Lease) error { return sorry })
		require.ErrorIs(t, err, redlock.ErrForeignKey)
		for _, s := range cluster.Servers {
			redlock.Admin(t, s, "DEL", "boss")
		}

		p.Away(0, 1) // for a while too few members can be asked
		time.AfterFunc(20*time.Second, func() { p.EveryLink(func(l *redistest.Link) { l.Heal() }, 0, 1) })
		start := time.Now()
		require.Equal(t, sorry, e.Run(t.Context(), nil, func(context.Context, *redlock.Lease) error { return sorry }))
		require.Greater(t, time.Since(start), 19*time.Second)

		time.AfterFunc(time.Second, func() { _ = p.Close() })
		err = e.Run(t.Context(), nil, func(ctx context.Context, _ *redlock.Lease) error { <-ctx.Done(); return sorry })
		require.ErrorIs(t, err, redlock.ErrClosed)
		time.Sleep(3 * time.Second)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

// A function that returns at once leads once a second, and lets others lead meanwhile. What ends
// Run ends the pause.
func TestRunLeadsAtMostOnceASecond(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		ctx := rt.Within(t, 9500*time.Millisecond)
		start := time.Now()
		var terms [2]int
		var wg sync.WaitGroup
		for i, of := range []*caller{p, q} {
			wg.Go(func() {
				err := of.Election("boss").Run(ctx, nil, func(context.Context, *redlock.Lease) error {
					terms[i]++
					return nil
				})
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		require.Equal(t, 9500*time.Millisecond, time.Since(start), "not the end of a pause")
		for i, n := range terms {
			require.True(t, n >= 9 && n <= 10, "candidate %d has led %d times", i, n)
		}
		n := 0
		err := p.Election("boss").Run(t.Context(), nil, func(context.Context, *redlock.Lease) error {
			if n++; n == 2 {
				return errors.New("end")
			}
			time.Sleep(3 * time.Second)
			start = time.Now()
			return nil
		})
		require.EqualError(t, err, "end")
		require.Less(t, time.Since(start), 100*time.Millisecond, "no pause after a longer term")
	}, redlock.Quiet)
}

func TestCloseEndsElections(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		err := p.Election("boss").Run(t.Context(), nil, func(_ context.Context, l *redlock.Lease) error {
			defer func() {
				require.True(t, hasEnded(l.Done()))
				require.Zero(t, p.Links[0].Conns()+p.Links[1].Conns()+p.Links[2].Conns(), "Close waits")
			}()
			return p.Close()
		})
		require.ErrorIs(t, err, redlock.ErrClosed)
		n := 0
		for l := range q.Election("boss").Observe(t.Context()) {
			require.True(t, l.None)
			n++
			require.NoError(t, q.Close())
			require.Zero(t, q.Links[0].Conns()+q.Links[1].Conns()+q.Links[2].Conns(), "Close waits")
		}
		require.Equal(t, 1, n)
		time.Sleep(6 * time.Second)
		redlock.Leftovers(t, cluster)
	}, redlock.Quiet)
}

func TestObserverCostsOneCallPerHeartbeat(t *testing.T) {
	redlock.Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *redlock.Peer) {
		l := campaign(t, p, "me")
		synctest.Wait() // a member that has not answered yet would push later
		calls := q.Count(script.Observe)
		ctx, cancel := context.WithCancel(t.Context())
		a := observing(ctx, q)
		time.Sleep(10*time.Second + time.Millisecond)
		require.Equal(t, []int{11, 11, 11}, redlock.Hits(calls))
		cancel()
		<-a.done
		synctest.Wait()
		require.Equal(t, []int{12, 12, 12}, redlock.Hits(calls), "it withdraws")
		for _, s := range cluster.Servers {
			require.Equal(t, int64(0), redlock.Admin(t, s, "EXISTS", observersOf))
		}
		proclaims := p.Count(script.Proclaim)
		time.Sleep(10 * time.Second)
		require.Equal(t, []int{3, 3, 3}, redlock.Hits(proclaims), "one with each renewal")
		unlock(t, l)
		synctest.Wait()
		require.Equal(t, []int{4, 4, 4}, redlock.Hits(proclaims))
	}, redlock.Quiet)
}

func TestLeaderIsNotToldByAMinority(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, p, q *caller) {
		l := campaign(t, p, "me")
		q.Away(1, 2)
		_, err := q.Election("boss").Leader(t.Context())
		rt.Says(t, err, redlock.ErrNoQuorum, `leader "boss"`)
		q.Back(1)
		q.Until(t, 1, "voting")
		require.Equal(t, "me", leads(t, q), "a majority is enough")
		unlock(t, l)
		q.Back(2)
		q.Until(t, 2, "voting")
		d.Network(q.Client, redlocktest.Network{LoseReplies: true}, 2)
		before := time.Now()
		require.Equal(t, "-", leads(t, q))
		require.Equal(t, before, time.Now(), "what the third would say changes nothing")
		l = campaign(t, p, "me")
		synctest.Wait() // until the members that did not decide have it, too
		require.Equal(t, "me", leads(t, q))
		require.Equal(t, before, time.Now())
		d.Network(q.Client, redlocktest.Network{LoseReplies: true}, 0)
		start := time.Now()
		require.ErrorIs(t, rt.Err(q.Election("boss").Leader(t.Context())), redlock.ErrNoQuorum)
		require.Equal(t, 200*time.Millisecond, time.Since(start), "no longer than MemberTimeout")
		ctx := rt.Within(t, 50*time.Millisecond)
		require.ErrorIs(t, rt.Err(q.Election("boss").Leader(ctx)), context.DeadlineExceeded)
		q.Back()
		unlock(t, l)
	}, redlock.Quiet)
}

func TestEventsOfALeaderTellItsKind(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		k := &kindListener{heard: map[string]redlock.Kind{}}
		p, other := redlock.JoinAll(t, cluster, redlock.WithTracer(k), redlock.Quiet), redlock.JoinAll(t, cluster, redlock.Quiet)
		before := other.Hold(t, "boss")
		waits := campaigning(t.Context(), p, "me")
		time.Sleep(10 * time.Millisecond)
		unlock(t, before)
		l := waits.Get(t)
		ctx, cancel := context.WithCancel(t.Context())
		a := observing(ctx, p)
		require.Equal(t, "me", leads(t, p))
		time.Sleep(10 * time.Second)
		cancel()
		<-a.done
		unlock(t, l)
		l = campaign(t, p, "me")
		require.NoError(t, rt.Err(other.ForceUnlock(t.Context(), "boss")))
		<-l.Done()
		synctest.Wait()
		k.mu.Lock()
		for _, event := range []string{
			"CallStart", "CallEnd", "Woken", "Released", "Renewed true", "Renewed false", "Lost", "RenewalStart boss",
			"Request wait boss", "Request proclaim boss", "Request observe boss", "Request resign boss", "Request release boss",
		} {
			require.Contains(t, k.heard, event)
		}
		for event, kind := range k.heard {
			require.Equal(t, redlock.KindElection, kind, event)
		}
		k.mu.Unlock()

		// Two leases of one script are renewed in one call.
		l = campaign(t, other, "me")
		synctest.Wait() // no call of the campaign is under way
		proclaims, extends := other.Count(script.Proclaim), other.Count(script.Extend)
		beside := other.Hold(t, "beside", redlock.AutoRenew(10*time.Second))
		time.Sleep(5 * time.Second)
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(extends))
		require.Equal(t, []int{1, 1, 1}, redlock.Hits(proclaims))
		unlock(t, beside)
		unlock(t, l)
	})
}

func TestObserverOutlivesAForeignKey(t *testing.T) {
	redlock.Among(t, 3, 2, func(t *testing.T, cluster *redistest.Cluster, all []*redlock.Peer) {
		for _, s := range cluster.Servers[:2] {
			redlock.Admin(t, s, "SET", "boss", "data")
		}
		ctx, cancel := context.WithCancel(t.Context())
		a := observing(ctx, all[1])
		asked := all[1].Count(script.Observe)
		time.Sleep(10 * time.Second)
		require.Equal(t, "", a.words())
		require.LessOrEqual(t, redlock.Hits(asked)[0], 20, "not all the time")
		for _, s := range cluster.Servers[:2] {
			redlock.Admin(t, s, "DEL", "boss")
		}
		l := campaign(t, all[0], "me")
		time.Sleep(1100 * time.Millisecond)
		require.Equal(t, "me", a.words())
		unlock(t, l)
		cancel()
		<-a.done
	}, redlock.Quiet)
}
