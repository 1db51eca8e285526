//go:build !race

package entry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// A floor allocates nothing for a lock and unlock: what it costs is the sockets and the members.
func TestFloorsAllocateNothing(t *testing.T) {
	set := members(t, 3)
	for name, shape := range map[string]string{"floor": Uncontended, "floor-scripts": Uncontended, "floor-notify": Separate, "floor-standing": Separate} {
		t.Run(name, func(t *testing.T) {
			spec := rt.Must(Find(name))(t)
			ctx := rt.Within(t, time.Minute)
			l := rt.Must(spec.Open(ctx, Env{Members: set, Lease: 9 * time.Second, Shape: shape}))(t)
			t.Cleanup(l.Close)
			key := "allocs:" + name
			once := func() {
				held, err := l.Acquire(ctx, key)
				if err == nil {
					err = held.Release(ctx)
				}
				assert.NoError(t, err)
			}
			for range 100 { // rooms and pools fill
				once()
			}
			least := testing.AllocsPerRun(500, once)
			for range 2 { // what reads the output of the servers allocates, too, as long as they start
				least = min(least, testing.AllocsPerRun(500, once))
			}
			require.Zero(t, least)
		})
	}
}
