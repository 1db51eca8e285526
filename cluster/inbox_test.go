package cluster_test

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
	"github.com/redquorum/redquorum/slot"
)

// unsharded are servers without sharded channels, as before Redis 7.0.
func unsharded(t *testing.T) redistest.RealConfig {
	t.Helper()
	rt.Needs(t)
	if !rt.Installed(t).Has(redistest.ShardedChannels) {
		return redistest.RealConfig{}
	}
	return redistest.RealConfig{Args: []string{"--rename-command", "SSUBSCRIBE", "", "--rename-command", "SPUBLISH", ""}}
}

func sharded(t *testing.T) redistest.RealConfig {
	t.Helper()
	rt.Needs(t, redistest.ShardedChannels)
	return redistest.RealConfig{}
}

// slow has heartbeats that are too late to help: a hand-over that does not come by push fails the test.
func slow(c *redlock.Config) { c.Entry = 30 * time.Minute }

func calls(t *testing.T, s *redistest.Sharded, command string) (n int) {
	t.Helper()
	for _, r := range s.Servers {
		info := asked(t, r, "INFO", "commandstats")
		if found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(info.(string)); found != nil {
			k := rt.Must(strconv.Atoi(found[1]))(t)
			n += k
		}
	}
	return n
}

// pushed hands a lock over by push, while meanwhile happens after the waiter has begun to wait.
func pushed(t *testing.T, a, b *redlock.Client, name string, meanwhile func()) {
	t.Helper()
	l := lock(t, a, name)
	got := waiting(t, a, b, name)
	meanwhile()
	require.NoError(t, l.Unlock(t.Context()))
	require.NoError(t, got.Get(t).Unlock(t.Context()))
}

// spared waits until locks that are handed over cost no PUBLISH: both clients have subscribed where their master is heard.
func spared(t *testing.T, s *redistest.Sharded, a, b *redlock.Client, not string) {
	t.Helper()
	becomes(t, "none hears of others' locks", func() bool {
		before := calls(t, s, not)
		for _, name := range names {
			pushed(t, a, b, name, func() {})
		}
		return calls(t, s, not) == before
	})
}

// A waiter, a latch and an observer are told by pushes in every slot: heartbeats are too late to help. Where the servers can,
// what wakes a waiter does not go to all of them. Cost: 3 s, of two clusters of real servers.
func TestPushesAreShardedWhereTheServersCan(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name     string
		server   func(t *testing.T) redistest.RealConfig
		yes, not string
	}{{"sharded", sharded, "spublish", "publish"}, {"not sharded", unsharded, "publish", "spublish"}} {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			s := start(t, redistest.ShardedConfig{Server: kind.server(t)})
			a, b := open(t, s, slow), open(t, s, slow)
			spared(t, s, a, b, kind.not)
			require.Positive(t, calls(t, s, kind.yes))
			for _, name := range names {
				latched(t, a, b, name)
				observed(t, a, b, name)
			}
			if kind.name == "sharded" {
				toldToAll(t, s)
				inboxMoves(t, s, a, b)
			}
		})
	}
}

func latched(t *testing.T, a, b *redlock.Client, name string) {
	ctx := ending(t)
	for round := range uint64(2) {
		mine := func(c *redlock.Client) *redlock.Latch { return c.Latch(name, 3, redlock.Round(round)) }
		opened := make(chan error, 1)
		require.NoError(t, mine(a).Arrive(ctx, "part"))
		require.NoError(t, mine(b).Arrive(ctx, "part"), "it counts once")
		go func() { opened <- mine(b).Await(ctx) }()
		becomes(t, "its watch is there", func() bool {
			in, err := a.InspectLatch(ctx, name)
			return err == nil && in.Members[0].Latch != nil && in.Members[0].Latch.Waiting == 1
		})
		require.NoError(t, mine(a).CountDown(ctx))
		require.Equal(t, 1, rt.Must(mine(b).Remaining(ctx))(t))
		require.Empty(t, opened)
		require.NoError(t, mine(a).CountDown(ctx))
		require.NoError(t, <-opened, "%q: round %d", name, round)
		require.NoError(t, mine(a).Await(ctx))
	}
	require.ErrorIs(t, b.Latch(name, 4).Arrive(ctx, "late"), redlock.ErrPassed)
	require.NoError(t, a.Latch(name, 3, redlock.Round(1)).Delete(ctx))
	require.Nil(t, rt.Must(a.InspectLatch(ctx, name))(t).Latch)
}

func observed(t *testing.T, a, b *redlock.Client, name string) {
	ctx, cancel := context.WithCancel(ending(t))
	told := make(chan redlock.Leader, 9)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for l := range b.Election(name).Observe(ctx) {
			told <- l
		}
	}()
	hears := func(want redlock.Leader) {
		t.Helper()
		select {
		case l := <-told:
			require.Equal(t, want.None, l.None, name)
			if !want.None {
				require.Equal(t, want, l, name)
			}
		case <-ctx.Done():
			t.Fatalf("%q: not told of %+v", name, want)
		}
	}
	hears(redlock.Leader{None: true})
	e := a.Election(name)
	l := rt.Must(e.Campaign(ctx, []byte("one")))(t)
	hears(redlock.Leader{Value: []byte("one"), Token: l.Token()})
	require.NoError(t, e.Proclaim(ctx, l, []byte("two")))
	hears(redlock.Leader{Value: []byte("two"), Token: l.Token()})
	got := rt.Must(b.Election(name).Leader(ctx))(t)
	require.Equal(t, redlock.Leader{Value: []byte("two"), Token: l.Token()}, got)
	require.NoError(t, l.Unlock(ctx))
	hears(redlock.Leader{None: true})
	cancel()
	<-done
}

// toldToAll is a message that nobody hears in the sharded inbox, and that goes to the other one: a client may not listen there
// yet, or that slot may be given away at this moment.
func toldToAll(t *testing.T, s *redistest.Sharded) {
	wait := ""
	for _, source := range redlocktest.Scripts() {
		if strings.Contains(source, "tag ~= '!' and KEYS[2] ~= KEYS[3] and redis.call('HGET', KEYS[3], 'id') ~= tag then") { // of wait alone
			wait = source
			break
		}
	}
	require.NotEmpty(t, wait)
	n := slot.Of("k")
	at := s.Owner(t.Context(), int(n))
	counters := member.TokensKey + ":{" + slot.TagOf(n) + "}"
	asked(t, at, "HSET", counters, "id", "run 5")
	for _, place := range []string{slot.TagOf(n), slot.TagOf((n + slot.Count/2) % slot.Count)} { // here, and where it is refused
		before := calls(t, s, "publish")
		for i, owner := range []string{strings.Repeat("A", 26) + ":1", strings.Repeat("B", 26) + ":1"} {
			_, err := at.Do(t.Context(), "EVAL", wait, "5", "k", counters, counters, "redquorum:q:{k}", "redquorum:w:{k}",
				strconv.Itoa(int(n)), owner, "60000", "60000", "run 5/"+place)
			require.NoError(t, err)
			require.Equal(t, before+i, calls(t, s, "publish"), "a waiter is announced to the owner")
		}
		asked(t, at, "DEL", "k", "redquorum:q:{k}", "redquorum:w:{k}")
	}
}

// inboxMoves gives away the slot of a marker, where the inbox of its master is. Meanwhile nothing is lost, and then the inbox
// is in another slot.
func inboxMoves(t *testing.T, s *redistest.Sharded, a, b *redlock.Client) {
	for range 2 {
		keys := asked(t, s.Servers[0], "KEYS", "redquorum:boot:*"+nodeID(t, s.Servers[0]))
		require.Len(t, keys, 1)
		home := int(slot.Of(keys.([]any)[0].(string)))
		pushed(t, a, b, names[0], func() { require.NoError(t, s.Move(t.Context(), home, 0, 1)) })
		spared(t, s, a, b, "publish")
	}
}
