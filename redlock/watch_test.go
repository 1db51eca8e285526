package redlock

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

// echoes asks with a command that changes nothing, and notes what it is told.
type echoes struct {
	mu    sync.Mutex
	said  []int // members, in the order of their answers
	told  []int // members that pushed
	ask   bool
	drops bool
}

func (e *echoes) question(buf *[]byte, _ memberset.Set, _ string, entry time.Duration) member.Command {
	word := "ask"
	if entry == 0 {
		word = "withdraw"
	}
	*buf = append((*buf)[:0], resp.Command("ECHO", word)...)
	return member.Command{Cmd: *buf}
}

func (e *echoes) answered(i int, c *member.Call, _ time.Time) (time.Duration, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if string(c.Reply.Str) != "ask" {
		return 0, errReply
	}
	e.said = append(e.said, i)
	return 0, nil
}

func (e *echoes) pushed(i int, _ script.News, _ member.State, _ time.Time) (dropped, ask bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, i)
	return e.drops, e.ask
}

func (e *echoes) take() (said, told []int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	said, told, e.said, e.told = e.said, e.told, nil, nil
	return said, told
}

// keptUp is a watch of a client, and how often each member was asked.
func keptUp(t *testing.T, p *Peer) (*watch, *echoes, []*redistest.Rule) {
	t.Helper()
	e := &echoes{}
	w := rt.Must(p.newWatch("await", LockName{Key: "k"}, 0, nil, e))(t)
	var rules []*redistest.Rule
	p.EveryLink(func(l *redistest.Link) {
		rules = append(rules, l.Call(redistest.WithArg("ask"), -1, func([]string) {}))
	})
	return w, e, rules
}

// keepUp calls next until ctx ends, as a caller does that waits for something that does not come.
func (w *watch) keepUp(ctx context.Context) error {
	for {
		if err := w.next(ctx); err != nil {
			return err
		}
	}
}

func awhile(t *testing.T, w *watch, d time.Duration) {
	t.Helper()
	require.ErrorIs(t, w.keepUp(rt.Within(t, d)), context.DeadlineExceeded)
}

func TestWatchIsKeptUpAtEveryMemberWhileItsCallerWaits(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		w, e, asked := keptUp(t, p)
		awhile(t, w, 2500*time.Millisecond)
		require.Equal(t, []int{3, 3, 3}, Hits(asked), "at once, and twice a heartbeat")
		e.take()

		e.ask = true
		Admin(t, cluster.Servers[1], "PUBLISH", script.Inbox(p.uuid), "o "+w.id+" 7")
		Admin(t, cluster.Servers[1], "PUBLISH", script.Inbox(p.uuid), "o "+w.id+"1 7") // another's
		Admin(t, cluster.Servers[1], "PUBLISH", script.Inbox(p.uuid), fmt.Sprintf("o other:%d 7", w.n))
		Admin(t, cluster.Servers[1], "PUBLISH", script.Inbox(p.uuid), "o "+w.id+" x") // no such form
		awhile(t, w, 100*time.Millisecond)
		said, told := e.take()
		require.Equal(t, []int{1}, told)
		require.Equal(t, []int{1}, said, "the member that pushed is asked, and no other")

		gone := p.EveryLinkCounts("withdraw")
		w.end()
		synctest.Wait()
		require.Equal(t, []int{1, 1, 1}, Hits(gone))
		require.Empty(t, watchesOf.of(p.Client).m)
	}, Quiet)
}

func (p *Peer) EveryLinkCounts(word string) (out []*redistest.Rule) {
	p.EveryLink(func(l *redistest.Link) {
		out = append(out, l.Call(redistest.WithArg(word), -1, func([]string) {}))
	})
	return out
}

func TestMemberThatDroppedTheWatchIsNotToldToWithdrawIt(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		w, e, _ := keptUp(t, p)
		awhile(t, w, 100*time.Millisecond)
		e.drops = true
		Admin(t, cluster.Servers[2], "PUBLISH", script.Inbox(p.uuid), "o "+w.id+" 7")
		require.NoError(t, w.next(t.Context()))
		gone := p.EveryLinkCounts("withdraw")
		w.end()
		synctest.Wait()
		require.Equal(t, []int{1, 1, 0}, Hits(gone))
	}, Quiet)
}

func TestMemberThatComesBackOrListensAnewIsAskedAtOnce(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		w, e, _ := keptUp(t, p)
		awhile(t, w, 10*time.Millisecond)
		e.take()
		p.Away(1)
		awhile(t, w, 2*time.Second)
		said, _ := e.take()
		require.NotContains(t, said, 1)
		p.Links[1].Heal()
		awhile(t, w, 990*time.Millisecond) // both its connections are dialled anew by then
		said, _ = e.take()
		require.Contains(t, said, 1)
	}, Quiet)
}

func TestWatchEndsWithItsContextWithTooFewMembersAndWithTheClient(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		w, _, _ := keptUp(t, p)
		awhile(t, w, 10*time.Millisecond)
		p.Away(0, 2)
		start := time.Now()
		patient := rt.Within(t, time.Minute)
		err := w.keepUp(patient)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrNoQuorum)
		require.NotErrorIs(t, err, ErrHeld)
		require.InDelta(t, 2, time.Since(start).Seconds(), 0.1)
		require.NotContains(t, err.Error(), p.uuid)
		w.end()

		w, _, _ = keptUp(t, p)
		ended := make(chan error)
		go func() { ended <- w.keepUp(t.Context()); w.end() }()
		synctest.Wait()
		require.NoError(t, p.Close())
		require.ErrorIs(t, <-ended, ErrClosed)
		require.ErrorIs(t, rt.Err(p.newWatch("await", LockName{Key: "k"}, 0, nil, &echoes{})), ErrClosed)
	})
}

func TestClientForgetsWhatAFormerLeaderSaid(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		kept := func(c *Peer) int {
			synctest.Wait()
			speakersOf.of(c.Client).mu.Lock()
			defer speakersOf.of(c.Client).mu.Unlock()
			return len(speakersOf.of(c.Client).m)
		}
		e := p.Election("boss")
		elected := func(opts ...LockOption) *Lease {
			l := rt.Must(p.Election("boss", opts...).Campaign(t.Context(), []byte("me")))(t)
			require.Equal(t, 1, kept(p))
			return l
		}
		l := elected()
		require.NoError(t, e.Proclaim(t.Context(), l, nil))
		require.NoError(t, l.Unlock(t.Context()))
		require.Zero(t, kept(p), "resigned")
		require.Error(t, e.Proclaim(t.Context(), l, nil))
		require.NotNil(t, speakersOf.of(p.Client).of(l.lease), "a call that has found the lease held")
		require.Zero(t, kept(p))

		l = elected()
		h := rt.Must(l.Handoff())(t)
		require.Zero(t, kept(p), "handed off")
		m := rt.Must(q.Adopt(t.Context(), h))(t)
		require.Zero(t, kept(q), "it has said nothing here")
		require.NoError(t, q.Election("boss").Proclaim(t.Context(), m, nil))
		require.Equal(t, 1, kept(q))
		require.NoError(t, m.Unlock(t.Context()))
		require.Zero(t, kept(q))

		elected(TTL(time.Second))
		time.Sleep(2 * time.Second)
		require.Zero(t, kept(p), "expired")

		held := q.Lock(t, "boss")
		require.ErrorIs(t, rt.Err(e.lock.TryLock(t.Context())), ErrHeld)
		require.NoError(t, held.Unlock(t.Context()))
		elected()
		require.NoError(t, p.Close())
		require.Zero(t, kept(p), "closed")
	}, Quiet)
}
