package slot_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/mediocregopher/radix/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/slot"
)

// naiveTag finds the hash tag by the wording of the cluster specification, one byte at a time.
func naiveTag(key string) string {
	for i := range len(key) {
		if key[i] != '{' {
			continue
		}
		for j := i + 1; j < len(key); j++ {
			if key[j] == '}' {
				if j == i+1 {
					return key // nothing between the braces
				}
				return key[i+1 : j]
			}
		}
		return key // no '}' to the right of the first '{'
	}
	return key
}

// naiveOf divides by the polynomial x^16 + x^12 + x^5 + 1 one bit at a time.
func naiveOf(key string) uint16 {
	var register uint16
	for _, b := range []byte(naiveTag(key)) {
		for bit := 7; bit >= 0; bit-- {
			carry := register>>15 ^ uint16(b>>bit&1)
			register <<= 1
			if carry != 0 {
				register ^= 1<<12 | 1<<5 | 1
			}
		}
	}
	return register & 0x3FFF
}

// oddKeys are the keys on which implementations disagree when they disagree.
var oddKeys = []string{
	"", "{", "}", "{}", "{}x", "}{", "x{}", "a}b", "a}b{c", "{a", "a}", "a{b", "{{}}", "{{a}}", "{a}", "{{a}",
	"foo{}{bar}", "foo{{bar}}zap", "foo{bar}{zap}", "foo{bar", "{b}x", "b", "foo", "123456789",
	"\x00", "\x00{\xff}", "{\x00}", "a:b", ":", "{:}", "{a}:b", strings.Repeat("x", 5000), "ключ", "{ключ}",
}

// randomKey returns up to 39 random bytes, about a quarter of them braces.
func randomKey(rng *rand.Rand) string {
	b := make([]byte, rng.IntN(40))
	for i := range b {
		b[i] = byte(rng.Uint32())
		if rng.IntN(4) == 0 {
			b[i] = "{}"[rng.IntN(2)]
		}
	}
	return string(b)
}

func TestSlotFollowsTheClusterSpecification(t *testing.T) {
	for _, tc := range []struct {
		key, tag string
		slot     uint16
	}{
		// "123456789" and the hash tag cases are the examples of the specification.
		{"123456789", "123456789", 0x31C3},
		{"{user1000}.following", "user1000", 3443},
		{"{user1000}.followers", "user1000", 3443},
		{"foo{}{bar}", "foo{}{bar}", 8363},
		{"foo{{bar}}zap", "{bar", 4015},
		{"foo{bar}{zap}", "bar", 5061},
		{"foo", "foo", 12182},
		{"bar", "bar", 5061},
		{"", "", 0},
		{"{}", "{}", 15257},
	} {
		assert.Equal(t, tc.tag, slot.Tag(tc.key), "tag of %q", tc.key)
		assert.Equal(t, tc.slot, slot.Of(tc.key), "slot of %q", tc.key)
	}
}

func TestSlotAgreesWithABitwiseCRCAndTheRedisClient(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	keys := oddKeys
	for range 50_000 {
		keys = append(keys, randomKey(rng))
	}
	for _, key := range keys {
		require.Equal(t, naiveTag(key), slot.Tag(key), "tag of %q", key)
		require.Equal(t, naiveOf(key), slot.Of(key), "slot of %q", key)
		require.Equal(t, radix.ClusterSlot([]byte(key)), slot.Of(key), "slot of %q", key)
	}
}

func TestSlotDoesNotAllocate(t *testing.T) {
	long := "orders{" + strings.Repeat("customer/", 100) + "}"
	slot.TagOf(0) // fill the table
	var sink uint16
	assert.Zero(t, testing.AllocsPerRun(100, func() { sink += slot.Of(long) }), "Of")
	assert.Zero(t, testing.AllocsPerRun(100, func() { sink += uint16(len(slot.TagOf(42))) }), "TagOf")
	assert.LessOrEqual(t, testing.AllocsPerRun(100, func() { sink += uint16(len(slot.Sibling("p", long))) }), 1.0, "Sibling")
	room := make([]byte, 0, 2*len(long))
	assert.Zero(t, testing.AllocsPerRun(100, func() { sink += uint16(len(slot.AppendSibling(room, "p", long))) }), "AppendSibling")
	_ = sink
}

func TestEverySlotHasItsTag(t *testing.T) {
	for s := range uint16(slot.Count) {
		tag := slot.TagOf(s)
		require.Len(t, tag, 3)
		require.Equal(t, s, slot.Of(tag), "tag %q", tag)
		require.Equal(t, s, slot.Of("redquorum:tokens:{"+tag+"}"), "tag %q", tag)
	}
	assert.Panics(t, func() { slot.TagOf(slot.Count) })
}

// The tags are names of keys in running deployments, so they may never change.
func TestTagsAreThoseOfAllVersions(t *testing.T) {
	for s, want := range map[uint16]string{0: "06S", 1: "2Gx", 2: "5L5", 3: "4Iu", 5: "460", 6: "1Y7"} {
		assert.Equal(t, want, slot.TagOf(s), "slot %d", s)
	}
	var all strings.Builder
	for s := range uint16(slot.Count) {
		all.WriteString(slot.TagOf(s))
	}
	assert.Equal(t, "22a382faa224f82f4fd294f364728a852b2994681d661858723892c5c1dceb09", sha256Hex(all.String()), "SHA-256 of all tags in a row")
}

func TestSlotAgreesWithARealRedisServer(t *testing.T) {
	rt.Needs(t)
	ctx := rt.Within(t, time.Minute)
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
