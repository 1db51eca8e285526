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
