package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
)

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
