package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What a script pushes is understood as it is, and nothing else is.
func TestPushIsParsedInFullOrNotAtAll(t *testing.T) {
	p, ok := parsePush("g me:1 7 1000 other:2 2500")
	require.True(t, ok)
	require.Equal(t, push{grant: true, owner: "me:1", n: 1, token: 7, server: 1000, other: "other:2", ttl: 2500 * time.Millisecond}, p)
	p, ok = parsePush("x me:1 other:2")
	require.True(t, ok)
	require.Equal(t, push{gone: true, owner: "me:1", n: 1, other: "other:2"}, p)
	for _, bad := range []string{
		"", "x me:1", "g me:1 7 1000 -", "g me:1 7 1000 - 1 1", "g me:1 7 1000 - -1", "g me:1 7 1000 - x", "g me:1 0 1000 - 1", "g me 7 1000 - 1",
		"g me:1 7 1000 - 99999999999999999", "w me:1", "w me:1 a b", "y me:1 a",
	} {
		_, ok := parsePush(bad)
		require.False(t, ok, bad)
	}
}
