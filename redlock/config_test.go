package redlock

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/node"
)

func TestFairIsRefusedByAKindThatHasNoStrictOrder(t *testing.T) {
	other := terms{kind: &kind{name: "other"}, ttl: time.Second}
	Fair()(&other)
	require.ErrorContains(t, other.check(&Config{}), "a lock of kind other has no option Fair")
}

func TestOneMemberIsNotAskedForTwiceAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
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
