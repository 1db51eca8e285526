package redlock

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/quorum"
	"github.com/redquorum/redquorum/redlock/internal/core"
	"github.com/redquorum/redquorum/redlock/internal/script"
)

func TestLeaseThatEndsWhileItIsMadeIsNotKeptForItsOwner(t *testing.T) {
	c := Agreed(t, &Yes{})
	l := rt.Must(c.Mutex("k", As("me")).Lock(t.Context()))(t)
	require.Len(t, ownersOf.of(c).m, 1)
	require.NoError(t, l.Unlock(t.Context()))
	ownersOf.of(c).put(l.lease) // as Lock does, a moment after the lease can be ended
	require.Empty(t, ownersOf.of(c).m)
}

// The timer that ends a lease may be late, after a suspend: the renewal itself looks at the clock.
func TestRenewalLooksAtTheClockAndNotAtTheTimer(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		l := p.Lock(t, "k", TTL(3*time.Second))
		p.keeper.remove(l.lease) // no timer
		time.Sleep(3 * time.Second)
		now := time.Now()
		said := core.Asks(time.Second, 1)
		said.Book(0, &core.Answer{Outcome: member.Answered, N: 1, Sent: now, Now: member.Brief{Votes: true}})
		require.False(t, l.renewed(&said, now, true, now))
		require.Equal(t, LostExpired, LostFor(l))
	})
}

func TestReleaseOfALeaseThatHasNotEndedAsksNobody(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		l := p.Lock(t, "k")
		r := l.hold.submitRelease(l.hold, memberset.All(3), false)
		defer r.Free()
		require.Zero(t, r.To)
	})
}

func TestRejoinForLessRenewsNothing(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		l := p.Lock(t, "k")
		n := &renewal{k: &p.keeper, items: []renewItem{l.toRenew(10 * time.Second)}}
		for _, ttl := range []time.Duration{time.Second, 10 * time.Second} {
			for i := range 2 {
				took := member.Call{Index: i, Result: member.Result{Outcome: member.Answered, State: p.briefOf(i, 0), Reply: member.Reply{Int: 1}}}
				rejoinJudge{n, 0}.Judge(&quorum.Round{Question: quorum.Question{Op: opRejoin, Sent: time.Now(), TTL: ttl}}, &took)
			}
			require.Equal(t, ttl == 10*time.Second, n.items[0].Verdict() == quorum.Won)
		}
	})
}

func TestLeaseContextLooksAtTheClockAndNotAtTheTimer(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		l := p.Lock(t, "k", TTL(3*time.Second))
		ctx := l.Context()
		p.keeper.remove(l.lease) // no timer
		time.Sleep(Validity(3*time.Second) - 1)
		require.NoError(t, ctx.Err())
		time.Sleep(time.Nanosecond)
		require.ErrorIs(t, ctx.Err(), context.Canceled)
		require.ErrorIs(t, context.Cause(ctx), ErrLost)
	})
}

// The holder unlocks at every moment around a renewal that finds a member without the lease: the
// re-join must not be left behind the release.
func TestNothingIsGivenBackAfterTheEnd(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		rejoins := p.Count(script.Rejoin)
		p.Slow(10*time.Millisecond, 14*time.Millisecond, 18*time.Millisecond)
		for at := time.Duration(0); at < 50*time.Millisecond; at += time.Millisecond {
			name := fmt.Sprint("k", at)
			l := p.Lock(t, name, AutoRenew(3*time.Second))
			time.Sleep(50 * time.Millisecond)
			Admin(t, cluster.Servers[1], "DEL", name)
			time.Sleep(time.Until(l.granted.Add(time.Second + at)))
			require.NoError(t, l.Unlock(t.Context()))
			time.Sleep(100 * time.Millisecond)
			Leftovers(t, cluster)
		}
		require.Greater(t, Hits(rejoins)[1], 20, "it was given back in many of the cases")
	}, Quiet)
}

// before is a member with something that happens at the moment before a script is submitted to it.
type before struct {
	member.Member
	script script.Script
	do     func()
}

func (m *before) Submit(c *member.Call) {
	if m.do != nil && ScriptOf(c) == m.script.SHA {
		m.do()
	}
	m.Member.Submit(c)
}

// A lease that ends while it is being given back: the release stands before the rejoin, which would leave
// a key that nobody owns. So the member is released once more.
func TestLeaseThatEndsWhileItIsGivenBackLeavesNothing(t *testing.T) {
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		var members []member.Member
		for _, s := range cluster.Servers {
			n := rt.Must(node.New(Config{}.withDefaults().node(node.Config{Network: "tcp", Addr: s.Addr(), Dialer: s.Path()})))(t)
			members = append(members, n)
		}
		last := &before{Member: members[2], script: script.Rejoin}
		members[2] = last
		c := rt.Must(New(members))(t)
		defer c.Close()
		synctest.Wait()
		l := rt.Must(c.Mutex("k").Lock(t.Context()))(t)
		synctest.Wait()
		Admin(t, cluster.Servers[2], "DEL", "k")
		last.do = func() { l.lose(LostClosed) }
		_ = l.Extend(t.Context(), 30*time.Second)
		synctest.Wait()
		require.ErrorIs(t, l.Err(), ErrLost)
		Leftovers(t, cluster)
	})
}

func TestLeaseOfNoSetIsNoLarger(t *testing.T) {
	require.LessOrEqual(t, int(unsafe.Sizeof(lease{})), 288, "the next size of an allocation is 320")
}
