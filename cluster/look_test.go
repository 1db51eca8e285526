package cluster_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cluster"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/slot"
)

// A tool sees what a client sees, through any of the servers, and is told why where none answers.
func TestTopologyIsToldWithoutBeingAClient(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const dead = "127.0.0.1:1"
	for i, addr := range s.Addrs() {
		if i == 1 { // which is dialled elsewhere
			continue
		}
		masters, err := cluster.Topology(t.Context(), cluster.Config{
			Seeds: []string{dead, addr}, Node: node.Config{DialTimeout: time.Minute}, Dial: map[string]string{s.Addrs()[1]: "10.0.0.1:1"},
		})
		require.NoError(t, err)
		require.Len(t, masters, 3)
		var taken [slot.Count]bool
		for _, m := range masters {
			at := slices.Index(s.Addrs(), m.Addr)
			require.Equal(t, s.IDs[at], m.ID)
			if at == 1 {
				require.Equal(t, "10.0.0.1:1", m.Dial)
			} else {
				require.Equal(t, m.Addr, m.Dial)
			}
			for _, n := range m.Slots {
				require.False(t, taken[n])
				taken[n] = true
			}
		}
		require.NotContains(t, taken[:], false)
	}
	_, err := cluster.Topology(t.Context(), cluster.Config{Seeds: []string{dead, "127.0.0.1:2"}})
	require.ErrorContains(t, err, dead)
	require.ErrorContains(t, err, "127.0.0.1:2")
	_, err = cluster.Topology(t.Context(), cluster.Config{})
	require.ErrorContains(t, err, "Seeds is empty")
}
