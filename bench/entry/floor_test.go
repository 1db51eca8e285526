package entry

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
