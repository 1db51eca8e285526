package redlock

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
)

// Long tables of counters on slow members take longer to read than DialTimeout: 5 calls of 400 ms against 1 s.
func TestCountersAreRestoredThoughThatTakesLong(t *testing.T) {
	bubble(t, 5, func(t *testing.T, cluster *redistest.Cluster) {
		p := guarded(t, cluster, short, WithFreshMembers(), func(c *Config) { c.RestartGuard = Strict })
		p.voting(t, 5)
		cluster.Kill(4)
		require.NoError(t, cluster.Restart(false, 4))
		p.voting(t, 4)
		p.until(t, 4, MemberQuarantined)
		for _, l := range p.links {
			l.SetDelay(redistest.Delay{}, redistest.Delay{Fixed: 400 * time.Millisecond})
		}
		p.until(t, 4, MemberVoting)
	})
}
