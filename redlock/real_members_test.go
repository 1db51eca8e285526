package redlock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// A cluster votes while any of its masters does: which part of it does not, and until when, must be told.
// Cost: 2 s, of the servers of a cluster.
func TestPartOfAClusterThatDoesNotVoteIsTold(t *testing.T) {
	t.Parallel()
	rt.Needs(t)
	ctx := rt.Within(t, 2*time.Minute)
	s := rt.Must(redistest.StartSharded(ctx, redistest.ShardedConfig{Masters: 2, NodeTimeout: 20 * time.Second}))(t)
	t.Cleanup(func() { _ = s.Close() })
	plain := redistest.NewEmbedded()
	t.Cleanup(func() { _ = plain.Close() })
	require.NoError(t, plain.ServeTCP("127.0.0.1:0"))
	urls := []string{"redis-cluster://" + strings.Join(s.Addrs(), ",") + "?failover_lag=1m", "redis://" + plain.Addr()}
	c, err := redlock.OpenWith(ctx, urls, patient, func(c *redlock.Config) {
		c.PingInterval, c.DialTimeout, c.StallTimeout = 100*time.Millisecond, 30*time.Second, 30*time.Second
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	await := func(what string, ok func(m redlock.MemberInfo) bool) redlock.MemberInfo {
		t.Helper()
		var m redlock.MemberInfo
		for start := time.Now(); !ok(m); time.Sleep(time.Millisecond) {
			require.Less(t, time.Since(start), time.Minute, what)
			m = c.Members()[0]
		}
		require.Zero(t, c.Members()[1].Silent, "one server has no parts")
		return m
	}
	await("all vote", func(m redlock.MemberInfo) bool { return m.State == redlock.MemberVoting && m.Silent == 0 })

	flushed := time.Now()
	require.NoError(t, rt.Err(s.Servers[0].Do(ctx, "FLUSHALL")))
	m := await("one master forgot", func(m redlock.MemberInfo) bool { return m.Silent > 0 && m.Until.After(time.Now()) })
	require.Equal(t, redlock.MemberVoting, m.State, "it votes for the locks of the other master")
	require.Equal(t, slot.Count/2, m.Silent)
	require.Equal(t, rt.As[*member.QuarantineError](t, m.Err).Until, m.Until)
	require.ErrorContains(t, m.Err, s.Servers[0].Addr())
	const long = 30*time.Second + time.Minute // MaxTTL and failover_lag
	ends := func(at time.Time) {
		t.Helper()
		require.WithinRange(t, at, flushed.Add(long-time.Second), time.Now().Add(long+time.Second))
	}
	ends(m.Until)
	names := [2]string{}
	for i := 0; names[0] == "" || names[1] == ""; i++ {
		name := "lock" + string(rune('a'+i))
		names[int(slot.Of(name))*2/slot.Count] = name
	}
	for i, want := range []string{redlock.MemberQuarantined, redlock.MemberVoting} {
		require.Equal(t, want, rt.Must(c.Inspect(ctx, names[i]))(t).Members[0].State, "for a lock of master %d", i)
	}

	s.Servers[1].Kill()
	m = await("the other master is down", func(m redlock.MemberInfo) bool {
		return m.Silent == slot.Count && m.State == redlock.MemberQuarantined // each is told when it is known
	})
	ends(m.Until) // each look at the server tells it anew

	s.Servers[0].Kill()
	m = await("nobody is left", func(m redlock.MemberInfo) bool {
		return m.State == redlock.MemberDown && m.Silent == slot.Count && m.Until.IsZero()
	})
	require.NotErrorIs(t, m.Err, redlock.ErrQuarantined)
}

// Who may not subscribe cannot be told of a lock that is handed over: a Lock that has to wait says so, and at once, and
// what does not wait works.
func TestUserWhoMayNotSubscribeIsTold(t *testing.T) {
	t.Parallel()
	r := rt.Real(t, 1).Servers[0].(*redistest.Real)
	redlock.Admin(t, r, "ACL", "SETUSER", "locker", "on", ">secret", "~*", "&*", "+@all", "-subscribe")
	c := opened(t, []string{"redis://locker:secret@" + r.Addr()}, patient, func(c *redlock.Config) { c.NoQuorumAfter = time.Hour })
	held := rt.Must(c.Mutex("name").TryLock(t.Context()))(t)
	_, err := c.Mutex("name").Lock(ending(t))
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.NotErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "SUBSCRIBE")
	require.ErrorContains(t, err, "NOPERM")
	require.NotContains(t, err.Error(), "secret")
	m := c.Members()[0]
	require.Equal(t, redlock.MemberVoting, m.State)
	require.ErrorContains(t, m.Err, "NOPERM")
	require.NoError(t, held.Unlock(t.Context()))
}
