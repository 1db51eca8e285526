package entry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func members(t *testing.T, n int) (addrs []string) {
	t.Helper()
	if err := redistest.Available(); err != nil {
		t.Skipf("%v; install it: make redis", err)
	}
	for range n {
		r := rt.Must(redistest.StartReal(t.Context(), redistest.RealConfig{Persist: redistest.Volatile}))(t)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		addrs = append(addrs, r.Addr())
	}
	return addrs
}

// A floor allocates nothing for a lock and unlock: what it costs is the sockets and the members.
func TestFloorsAllocateNothing(t *testing.T) {
	if faketime.Race {
		t.Skip("RACE: a sync.Pool forgets at random under the race detector; make test runs this once more without")
	}
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
			require.Zero(t, testing.AllocsPerRun(500, once))
		})
	}
}

// What a member does not take at once is written all the same, in its order.
func TestAWireWritesWhatTheSocketDoesNotTake(t *testing.T) {
	set := members(t, 1)
	w := rt.Must(dialWire(t.Context(), set[0]))(t)
	defer w.Close()
	const many = 200_000 // 3 MB at once
	var batch []byte
	for range many {
		batch = append(batch, ping...)
	}
	f := newFan(many, func(r reply) bool { return r.kind == '+' })
	f.need, f.deny = many, many+1
	require.NoError(t, w.sendMany(batch, many, booking{to: f}, false))
	require.True(t, rt.Must(f.wait(rt.Within(t, time.Minute)))(t))
}

// A connection that ends answers what nobody will answer any more, and refuses what comes later.
func TestAWireThatEndsAnswersNo(t *testing.T) {
	set := members(t, 1)
	w := rt.Must(dialWire(t.Context(), set[0]))(t)
	f := newFan(1, truth)
	require.NoError(t, w.send(command("BLPOP", "nothing", "0"), booking{to: f}, false))
	w.Close()
	require.False(t, f.decided())
	<-w.gone
	require.Error(t, w.send(ping, booking{}, false))
}
