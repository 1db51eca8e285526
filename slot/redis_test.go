package slot_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/mediocregopher/radix/v4"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/slot"
)

func TestSlotAgreesWithARealRedisServer(t *testing.T) {
	rt.Needs(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	server := rt.Must(redistest.StartSharded(ctx, redistest.ShardedConfig{Masters: 1}))(t)
	t.Cleanup(func() { _ = server.Close() })
	conn := rt.Must((radix.Dialer{}).Dial(ctx, "tcp", server.Addrs()[0]))(t)
	t.Cleanup(func() { _ = conn.Close() })

	rng := rand.New(rand.NewPCG(7, 8))
	keys := oddKeys
	for range 5_000 {
		keys = append(keys, randomKey(rng))
	}
	for _, key := range oddKeys {
		keys = append(keys, slot.Sibling("redquorum:q", key))
	}
	for s := uint16(0); s < slot.Count; s += 97 {
		keys = append(keys, slot.TagOf(s))
	}
	slots := make([]int, len(keys))
	pipeline := radix.NewPipeline()
	for i, key := range keys {
		pipeline.Append(radix.FlatCmd(&slots[i], "CLUSTER", "KEYSLOT", key))
	}
	require.NoError(t, conn.Do(ctx, pipeline))
	for i, key := range keys {
		require.Equal(t, slots[i], int(slot.Of(key)), "slot of %q", key)
	}
}
