package redlock

import (
	"context"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
)

func TestFairIsRefusedByAKindThatHasNoStrictOrder(t *testing.T) {
	other := terms{kind: &kind{name: "other"}, ttl: time.Second}
	Fair()(&other)
	require.ErrorContains(t, other.check(&Config{}), "a lock of kind other has no option Fair")
}

// A number without its unit, and a duration that would overflow, are refused wherever a duration is given.
func TestDurationWithoutItsUnitIsRefused(t *testing.T) {
	fields := []string{"MaxTTL", "MaxHold", "MemberTimeout", "NoQuorumAfter", "DialTimeout", "StallTimeout", "PingInterval", "CredentialsEvery"}
	for _, name := range fields {
		for d, why := range map[time.Duration]string{60: name + " is 60ns, must be at least 1ms", 1 << 62: "must be at most 876000h0m0s"} {
			cfg := Config{}
			reflect.ValueOf(&cfg).Elem().FieldByName(name).SetInt(int64(d))
			rt.Says(t, cfg.withDefaults().validate(), ErrInput, why, name)
		}
	}
	for _, d := range []time.Duration{-1, 0, time.Millisecond, 100 * 365 * 24 * time.Hour} {
		require.NoError(t, Config{MaxHold: d, NoQuorumAfter: d}.withDefaults().validate(), d)
		require.NoError(t, (&terms{kind: &exclusive, maxHold: d}).check(&Config{}), d)
	}
	err := (&terms{kind: &exclusive, maxHold: 60}).check(&Config{})
	require.ErrorContains(t, err, "MaxHold is 60ns, must be at least 1ms: a number without a unit counts nanoseconds, write 60*time.Second or the like")
	_, err = node.New(node.Config{Addr: "127.0.0.1:1", PingInterval: 1000})
	require.ErrorContains(t, err, "node: Config.PingInterval is 1µs, must be at least 1ms")
}

func TestOneMemberIsNotAskedForTwiceAtATime(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		asked, release := 0, make(chan struct{})
		c := Config{Credentials: func(_ context.Context, member string) (string, string, error) {
			asked++
			<-release
			return "u", "of " + member, nil
		}}
		target, err := node.ParseTarget("redis-sentinel://a,b/m")
		require.NoError(t, err)
		give := c.credentialsOf(target)
		done := make(chan string)
		go func() { _, password, _ := give(t.Context()); done <- password }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err = give(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 1, asked)
		close(release)
		require.Equal(t, "of m@a:26379,b:26379", <-done)
		_, _, err = give(t.Context())
		require.NoError(t, err)
		require.Nil(t, Config{}.credentialsOf(target))
	})
}
