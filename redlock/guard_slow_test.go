package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// Long tables of counters on slow members take longer to read than DialTimeout: 5 calls of 400 ms against 1 s.
func TestCountersAreRestoredThoughThatTakesLong(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		p := guarded(t, cluster, short, redlock.WithFreshMembers(), func(c *redlock.Config) { c.RestartGuard = redlock.Strict })
		p.Voting(t, 5)
		cluster.Kill(4)
		require.NoError(t, cluster.Restart(false, 4))
		p.Voting(t, 4)
		p.Until(t, 4, redlock.MemberQuarantined)
		for _, l := range p.Links {
			l.SetDelay(redistest.Delay{}, redistest.Delay{Fixed: 400 * time.Millisecond})
		}
		p.Until(t, 4, redlock.MemberVoting)
	})
}
