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

// sharded are servers with sharded channels.
func sharded(t *testing.T) redistest.RealConfig {
	t.Helper()
	rt.Needs(t, redistest.ShardedChannels)
	return redistest.RealConfig{}
}

// slow has heartbeats that are too late to help: a hand-over that does not come by push fails the test.
func slow(c *redlock.Config) { c.Entry = 3 * time.Minute }

// calls is how often the servers have executed a command.
func calls(t *testing.T, s *redistest.Sharded, command string) (n int) {
	t.Helper()
	for _, r := range s.Servers {
		info, err := r.Do(t.Context(), "INFO", "commandstats")
		require.NoError(t, err)
		if found := regexp.MustCompile(`cmdstat_` + command + `:calls=(\d+)`).FindStringSubmatch(info.(string)); found != nil {
			k, err := strconv.Atoi(found[1])
			require.NoError(t, err)
			n += k
		}
	}
	return n
}

// pushed hands a lock over by push, while meanwhile happens after the waiter has begun to wait.
func pushed(t *testing.T, a, b *redlock.Client, name string, meanwhile func()) {
	t.Helper()
	l, err := a.Mutex(name).Lock(ending(t))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	got := make(chan error, 1)
	go func() {
		next, err := b.Mutex(name).Lock(ctx)
		if err == nil {
			err = next.Unlock(t.Context())
		}
		got <- err
	}()
	require.Eventually(t, func() bool {
		seen, err := a.Inspect(t.Context(), name)
		return err == nil && len(seen.Members[0].Queue) == 1
	}, 20*time.Second, time.Millisecond)
	meanwhile()
	require.NoError(t, l.Unlock(t.Context()))
	require.NoError(t, <-got, "the push is lost")
}

// Where the servers can, what wakes a waiter does not go to all of them.
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
			require.Eventually(t, func() bool { // once both have subscribed
				before := calls(t, s, kind.not)
				for _, name := range names {
					pushed(t, a, b, name, func() {})
				}
				return calls(t, s, kind.yes) > 0 && calls(t, s, kind.not) == before
			}, 20*time.Second, 10*time.Millisecond)
		})
	}
}

// What nobody hears in the sharded inbox goes to the other one: a client may not listen there yet, or that slot may be given
// away at this moment.
func TestMessageThatNobodyHearsInTheShardedInboxIsToldToAll(t *testing.T) {
	t.Parallel()
	s := start(t, redistest.ShardedConfig{Server: sharded(t)})
	wait := ""
	for _, source := range redlock.Scripts() {
		if strings.Contains(source, "tag ~= '!' and KEYS[2] ~= KEYS[3] and redis.call('HGET', KEYS[3], 'id') ~= tag then") { // of wait alone
			wait = source
			break
		}
	}
	require.NotEmpty(t, wait)
	n := slot.Of("k")
	at := s.Owner(t.Context(), int(n))
	counters := member.TokensKey + ":{" + slot.TagOf(n) + "}"
	_, err := at.Do(t.Context(), "HSET", counters, "id", "run 5")
	require.NoError(t, err)
	for _, place := range []string{slot.TagOf(n), slot.TagOf((n + slot.Count/2) % slot.Count)} { // here, and where it is refused
		before := calls(t, s, "publish")
		for i, owner := range []string{"alice:1", "bob:1"} {
			_, err = at.Do(t.Context(), "EVAL", wait, "5", "k", counters, counters, "redquorum:q:{k}", "redquorum:w:{k}",
				strconv.Itoa(int(n)), owner, "60000", "60000", "run 5/"+place)
			require.NoError(t, err)
			require.Equal(t, before+i, calls(t, s, "publish"), "a waiter is announced to the owner")
		}
		_, err = at.Do(t.Context(), "DEL", "k", "redquorum:q:{k}", "redquorum:w:{k}")
		require.NoError(t, err)
	}
}

// The inbox of a master is in the slot of its marker. While that slot is given away nothing is lost, and then
// the inbox is in another one.
func TestShardedInboxIsInASlotOfItsMasterAgain(t *testing.T) {
	t.Parallel()
	s := start(t, redistest.ShardedConfig{Server: sharded(t)})
	a, b := open(t, s, slow), open(t, s, slow)
	spared := func() bool {
		before := calls(t, s, "publish")
		pushed(t, a, b, names[0], func() {})
		return calls(t, s, "publish") == before
	}
	require.Eventually(t, spared, 20*time.Second, 10*time.Millisecond)
	for range 2 {
		keys, err := s.Servers[0].Do(t.Context(), "KEYS", "redquorum:boot:*"+nodeID(t, s.Servers[0]))
		require.NoError(t, err)
		require.Len(t, keys, 1)
		home := int(slot.Of(keys.([]any)[0].(string)))
		pushed(t, a, b, names[0], func() { require.NoError(t, s.Move(t.Context(), home, 0, 1)) })
		require.Eventually(t, spared, 20*time.Second, 10*time.Millisecond)
	}
}
