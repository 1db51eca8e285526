package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

func TestStatsCountWhatIsHeldAndWhoWaits(t *testing.T) {
	urls, stop := startMembers()
	defer stop()
	client := opened(t, urls, redlock.WithFreshMembers())
	nothing := map[redlock.Kind]redlock.Stats{redlock.KindMutex: {}, redlock.KindFair: {}, redlock.KindWrite: {}, redlock.KindRead: {}, redlock.KindElection: {}, redlock.KindSemaphore: {}}
	require.Equal(t, nothing, client.Stats())
	before := time.Now()
	first := locked(t, client, "a")
	between := time.Now()
	second := locked(t, client, "b")
	ctx, cancel := context.WithCancel(t.Context())
	waiting := (&redlock.Peer{Client: client}).LockLater(ctx, "a")
	require.Eventually(t, func() bool {
		s := client.Stats()[redlock.KindMutex]
		return s.Held == 2 && s.Waiting == 1 && s.Oldest.After(before) && s.Oldest.Before(between)
	}, 20*time.Second, time.Millisecond, "two held, one waits")
	cancel()
	<-waiting.Done
	permit, err := client.Semaphore("a", 2).Acquire(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, client.Stats()[redlock.KindSemaphore].Held)
	for _, l := range []*redlock.Lease{first, second, permit} {
		require.NoError(t, l.Unlock(t.Context()))
	}
	require.Equal(t, nothing, client.Stats(), "after all")
}
