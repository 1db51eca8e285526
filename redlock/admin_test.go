package redlock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/script"
	"github.com/redquorum/redquorum/redlock/internal/wait"
)

func TestInspectTellsHolderTokensAndQueue(t *testing.T) {
	Pair(t, 5, func(t *testing.T, cluster *redistest.Cluster, a, b *Peer) {
		seen := rt.Must(a.Inspect(t.Context(), "k"))(t)
		require.Empty(t, seen.Holders)
		held := a.Lock(t, "k", TTL(10*time.Second))
		synctest.Wait() // all five have voted
		ctx, cancel := context.WithCancel(t.Context())
		done := rt.Go(func() error { return rt.Err(b.Mutex("k").Lock(ctx)) })
		time.Sleep(500 * time.Millisecond)
		cluster.Kill(4)
		time.Sleep(time.Millisecond)
		seen = rt.Must(b.Inspect(t.Context(), "k"))(t)
		require.Equal(t, KindMutex, seen.Kind)
		require.Len(t, seen.Holders, 1)
		h := seen.Holders[0]
		require.Equal(t, []any{held.Owner(), held.Token(), 4, script.Hash([]byte(held.hold.owner))}, []any{h.Owner, h.Token, h.Votes, h.owner})
		require.Error(t, seen.Members[4].Err)
		require.Equal(t, MemberDown, seen.Members[4].State)
		for _, v := range seen.Members[:4] {
			require.NoError(t, v.Err)
			require.Len(t, v.Votes, 1)
			require.InDelta(t, 9.5, v.Votes[0].TTL.Seconds(), 0.1)
			require.Equal(t, held.Token(), v.Counter)
			require.Len(t, v.Queue, 1)
			require.True(t, v.Queue[0].Live)
			require.InDelta(t, 0.5, v.Queue[0].Waiting.Seconds(), 0.1)
			require.NotContains(t, v.Votes[0].Owner+v.Queue[0].Owner, ":")
			require.Equal(t, held.Owner(), v.Votes[0].Owner)
			require.False(t, strings.HasPrefix(held.hold.owner, held.Owner()))
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		require.NoError(t, held.Unlock(t.Context()))
	})
}

func TestHoldersAreThoseThatAMajorityNames(t *testing.T) {
	vote := func(owner string, token uint64) VoteView { return VoteView{Owner: owner, Token: token, owner: owner} }
	seen := []MemberView{
		{Votes: []VoteView{vote("a", 3), vote("b", 5)}},
		{Votes: []VoteView{vote("b", 4), vote("c", 6)}},
		{Votes: []VoteView{vote("a", 7)}},
	}
	require.Equal(t, []Holder{{VoteView: vote("a", 7), Votes: 2}, {VoteView: vote("b", 5), Votes: 2}}, holders(seen, 2))
	require.Len(t, holders(seen, 1), 3)
	require.Empty(t, holders(seen, 3))
}

// A hash of the application may have a TTL: a session, a cart. It is nobody's lock, and no operator deletes it by mistake. Nor
// is one that never ends, or a string.
func TestDataIsNoLockOfAnyKindAndStays(t *testing.T) {
	for _, tc := range []struct {
		ends bool
		read string
		data []string
	}{
		{true, "HGETALL", []string{"HSET", "k", "name", "ann", "age", "7"}},
		{true, "HGETALL", []string{"HSET", "k", "item:15", "2"}},
		{true, "HGETALL", []string{"HSET", "k", "r", "255", "g", "10", "b", "20"}},
		{false, "HGETALL", []string{"HSET", "k", "field", "precious"}},
		{false, "GET", []string{"SET", "k", "precious"}},
	} {
		Alone(t, 3, func(t *testing.T, cluster *redistest.Cluster, p *Peer) {
			var before []any
			for _, s := range cluster.Servers {
				Admin(t, s, tc.data...)
				if tc.ends {
					Admin(t, s, "EXPIRE", "k", "1800")
				}
				before = append(before, Admin(t, s, tc.read, "k"))
			}
			for what, ask := range map[string]func() (*Lease, error){
				"TryLock":       func() (*Lease, error) { return p.Mutex("k").TryLock(t.Context()) },
				"Lock":          func() (*Lease, error) { return p.Mutex("k").Lock(t.Context()) },
				"fair TryLock":  func() (*Lease, error) { return p.Mutex("k", Fair()).TryLock(t.Context()) },
				"fair Lock":     func() (*Lease, error) { return p.Mutex("k", Fair()).Lock(t.Context()) },
				"write TryLock": func() (*Lease, error) { return p.RWMutex("k").TryLock(t.Context()) },
				"write Lock":    func() (*Lease, error) { return p.RWMutex("k").Lock(t.Context()) },
				"TryRLock":      func() (*Lease, error) { return p.RWMutex("k").TryRLock(t.Context()) },
				"RLock":         func() (*Lease, error) { return p.RWMutex("k").RLock(t.Context()) },
				"Campaign":      func() (*Lease, error) { return p.Election("k").Campaign(t.Context(), nil) },
			} {
				_, err := ask()
				require.ErrorIs(t, err, ErrForeignKey, what)
				require.NotErrorIs(t, err, ErrHeld, what)
			}
			seen := rt.Must(p.Inspect(t.Context(), "k"))(t)
			require.Empty(t, seen.Holders)
			for _, v := range seen.Members {
				require.Equal(t, member.KindForeign, wait.KindOf(v.Err))
			}
			require.ErrorIs(t, rt.Err(p.ForceUnlock(t.Context(), "k")), ErrForeignKey)
			_, err := p.ForceUnlockSeen(t.Context(), &Inspection{Key: "k", Holders: []Holder{{VoteView: VoteView{owner: script.Hash([]byte(tc.data[2]))}}}})
			require.ErrorIs(t, err, ErrForeignKey)
			for i, s := range cluster.Servers {
				require.Equal(t, before[i], Admin(t, s, tc.read, "k"))
			}
		})
	}
}

func TestVersionOfALimitIsAboveThoseBeforeAndNotBehindTheClocks(t *testing.T) {
	const second, hour, tick = int64(1e6), int64(3600e6), int64(1e4)
	now := time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)
	at, us := now.Unix()*100, now.UnixMicro()
	heard := func(version int64) int64 { return script.StoredLimit(version, 7) }
	for _, c := range []struct {
		name   string
		heard  int64
		clocks []int64
		want   int64
	}{
		{"the first, at members that tell no time", 0, []int64{0, 0, 0}, 1},
		{"the first", 0, []int64{us, us, us}, at},
		{"members that did not answer", 0, []int64{0, us, 0}, at},
		{"the greatest clock", 0, []int64{us - 5*second, us + 3*second, us}, at + 300},
		{"a part of a hundredth", 0, []int64{us + tick - 1}, at},
		{"after one of another moment", heard(at - 9), []int64{us, us}, at},
		{"after one of this moment", heard(at), []int64{us, us}, at + 1},
		{"after many of this moment", heard(at + 99), []int64{us, us}, at + 100},
		{"after the end of a limit", script.StoredLimit(at, script.NoLimit), []int64{us, us}, at + 1},
		{"clocks that went back", heard(at), []int64{us - hour, us - hour}, at + 1},
		{"one from before versions had a time", heard(5), []int64{us}, at},
		{"the bound of a clock", 0, []int64{us, us + hour}, at + 360000},
		{"a clock beyond it is wrong, and the others count", 0, []int64{us + second, us + hour + 1, us}, at + 100},
		{"no clock within it", heard(5), []int64{us + 2*hour, us + 3*hour}, 6},
		{"a clock that would be beyond what members count exactly", heard(5), []int64{int64(1) << 40 * tick}, 6},
	} {
		got := laterLimit(c.heard, c.clocks, now)
		require.Equal(t, c.want, got, c.name)
		require.Greater(t, script.StoredLimit(got, 0), c.heard, c.name)
		require.Less(t, script.StoredLimit(got, script.NoLimit), int64(1)<<53, c.name)
	}
}

// Members and clients write a stored limit as a number, in scripts that have doubles for it.
func TestVersionsOfLimitsAreExactUntilTheYear2318(t *testing.T) {
	last := time.Date(2318, 1, 1, 0, 0, 0, 0, time.UTC)
	stored := script.StoredLimit(laterLimit(0, []int64{last.UnixMicro()}, last), script.NoLimit)
	require.Less(t, stored, int64(1)<<53)
	require.Equal(t, stored, int64(float64(stored)))
	beyond := time.Date(2319, 1, 1, 0, 0, 0, 0, time.UTC)
	require.Greater(t, script.StoredLimit(laterLimit(0, []int64{beyond.UnixMicro()}, beyond), 0), int64(1)<<53)
}
