package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/member"
)

// A snapshot of a machine that is started twice: both have the client's name, and the number of its next attempt.
func TestCopyOfAProcessIsAnotherOwner(t *testing.T) {
	Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		one, two := JoinAll(t, cluster), JoinAll(t, cluster)
		two.uuid = one.uuid
		two.seq.Store(one.seq.Load())
		l := one.Hold(t, "k")
		require.ErrorIs(t, two.Try(t, "k"), ErrHeld)
		require.NoError(t, l.Unlock(t.Context()))
	})
}

// What a push grants is not known to the replicas that must acknowledge a vote. Without a date it counts for nothing, and
// the attempt asks: TestAttemptIsTrusted says what becomes of it.
func TestPushWhereReplicasMustAcknowledgeHasNoDate(t *testing.T) {
	p, ok := pushOf([]byte("g me:1 7 1000 - 2500"), member.State{})
	require.True(t, ok)
	require.EqualValues(t, 1000, p.Server)
	p, ok = pushOf([]byte("g me:1 7 1000 - 2500"), member.State{Acks: true})
	require.True(t, ok)
	require.Zero(t, p.Server)
	require.EqualValues(t, 7, p.Token)
}
