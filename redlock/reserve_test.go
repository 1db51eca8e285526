package redlock

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/memberset"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/core"
)

// told are what the reservations of an open hold have brought.
type told struct {
	mu  sync.Mutex
	all []reserved
}

func (o *told) reserved(r reserved) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r.sent = time.Time{}
	o.all = append(o.all, r)
}

// heard takes away what was told when all that is under way has arrived.
func (o *told) heard() (all []reserved) {
	synctest.Wait()
	o.mu.Lock()
	defer o.mu.Unlock()
	all, o.all = o.all, nil
	return all
}

// opened is a lease whose hold is open, and its term. Its counters are behind the clock, as those of a lock that is used are.
func opened(t *testing.T, p *Peer) (l *Lease, o *told, term func() core.Term) {
	l, o = p.Hold(t, "k"), &told{}
	l.hold.opens(o)
	time.Sleep(time.Second)
	return l, o, func() core.Term {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.term
	}
}

func counter(t *testing.T, s redistest.Server) int64 {
	all := rt.Must(s.Do(t.Context(), "HVALS", member.TokensKey))(t).([]any)
	return rt.Must(strconv.ParseInt(all[0].(string), 10, 64))(t)
}

func TestOpenHoldGivesTokensThatNobodyElseGets(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		l, o, term := opened(t, p)
		_, ok := l.hold.nextToken()
		require.False(t, ok)
		require.True(t, l.hold.reserveMore(term(), false))
		require.False(t, l.hold.reserveMore(term(), false), "one is under way")
		require.Equal(t, []reserved{{more: true, alone: true}}, o.heard())
		n, asking := l.hold.tokensLeft(time.Now())
		require.Equal(t, int64(fewTokens), n)
		require.False(t, asking)
		last := int64(l.Token())
		for range fewTokens {
			token, _ := l.hold.nextToken()
			require.Equal(t, last+1, token)
			last = token
		}
		_, ok = l.hold.nextToken()
		require.False(t, ok)
		require.True(t, l.hold.reserveMore(term(), false))
		o.heard()
		n, _ = l.hold.tokensLeft(time.Now())
		require.EqualValues(t, 2*fewTokens, n, "twice as many as were given")
		require.NoError(t, l.Unlock(t.Context()))
		require.Greater(t, int64(q.Lock(t, "k").Token()), last+n)
	})
}

func TestReservationHearsWhoWaitsAndThatTheLockIsLost(t *testing.T) {
	Pair(t, 3, func(t *testing.T, cluster *redistest.Cluster, p, q *Peer) {
		l, o, term := opened(t, p)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { _, _ = q.Mutex("k").Lock(ctx); close(done) }()
		synctest.Wait()
		require.True(t, l.hold.reserveMore(term(), false))
		require.ElementsMatch(t, []reserved{{waits: true}, {waits: true, more: true}, {waits: true}}, o.heard())
		for _, s := range cluster.Servers {
			rt.Must(s.Do(t.Context(), "HDEL", "k", l.hold.owner))(t)
		}
		require.True(t, l.hold.reserveMore(term(), false))
		require.Equal(t, []reserved{{lost: true}}, o.heard(), "once")
		require.True(t, l.hold.b.Lacks(0, time.Now()))
		cancel()
		<-done
	})
}

// Others may have had a member meanwhile where a vote was given back, whether a refusal was heard or the vote has ended unheard, as
// that of a member which cannot be reached. So it confirms nothing; but its counter is not behind.
func TestMemberThatIsReJoinedHasTheEndOfTheRange(t *testing.T) {
	for _, how := range []string{"refused", "ended", "cut off"} {
		Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
			l, o, term := opened(t, p)
			require.True(t, l.hold.reserveMore(term(), false))
			require.Equal(t, []reserved{{more: true, alone: true}}, o.heard())
			most, s := counter(t, cluster.Servers[2]), cluster.Servers[2]
			require.Equal(t, int64(l.Token())+fewTokens, most)
			rt.Must(s.Do(t.Context(), "HSET", member.TokensKey, rt.Must(s.Do(t.Context(), "HKEYS", member.TokensKey))(t).([]any)[0].(string), "7"))(t)
			rt.Must(s.Do(t.Context(), "DEL", "k"))(t)
			switch how {
			case "refused":
				require.NoError(t, l.Extend(t.Context(), 30*time.Second))
			case "ended":
				require.True(t, l.hold.lacks(2, time.Now().Add(time.Hour)))
				l.hold.regain(memberset.Set(0).With(2), 30*time.Second, 0)
			case "cut off":
				p.Away(2)
				time.Sleep(40 * time.Second)
				p.EveryLink(func(l *redistest.Link) { l.Heal() }, 2)
				p.Until(t, 2, MemberVoting)
			}
			time.Sleep(time.Second)
			require.Equal(t, most, counter(t, s))

			rt.Must(cluster.Servers[0].Do(t.Context(), "HDEL", "k", l.hold.owner))(t)
			require.True(t, l.hold.reserveMore(term(), false))
			require.Equal(t, []reserved{{alone: true}}, o.heard(), "of its two votes, one is drawn")
		})
	}
}

func TestReservationThatIsLateReservesNothing(t *testing.T) {
	Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
		l, o, term := opened(t, p)
		p.Slow(2*p.cfg.MemberTimeout, 2*p.cfg.MemberTimeout, 2*p.cfg.MemberTimeout)
		require.True(t, l.hold.reserveMore(term(), false))
		time.Sleep(p.cfg.MemberTimeout)
		require.True(t, l.hold.reserveMore(term(), false), "the first one is over")
		p.Slow(0, 0, 0)
		time.Sleep(2 * p.cfg.MemberTimeout)
		require.Empty(t, o.heard())
		n, _ := l.hold.tokensLeft(time.Now())
		require.Zero(t, n)
		require.True(t, l.hold.reserveMore(term(), false))
		require.Equal(t, []reserved{{more: true, alone: true}}, o.heard())
		require.Equal(t, int64(l.Token())+fewTokens, counter(t, cluster.Servers[0]), "the same number again")
		ended := term()
		ended.End(ErrReleased, time.Now())
		require.False(t, l.hold.reserveMore(ended, false))
	})
}
