package slot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/slot"
)

func sha256Hex(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func TestSiblingHasOneOfThreeForms(t *testing.T) {
	tag := func(key string) string { return slot.TagOf(slot.Of(key)) }
	own := slot.TagOf(7)
	for _, tc := range []struct{ key, want string }{
		{"orders", "p:{orders}"},
		{"a:b", "p:{a:b}"},
		{"\x00\xff", "p:{\x00\xff}"},
		{"{orders}:1", "p:{orders}:1"},
		{"x{orders}", "p:x{orders}"},
		{"{{a}", "p:{{a}"}, // the tag "{a" is not plain, so nothing else has this form
		{"{a}:", "p:{a}:"},
		{"", "p:{" + tag("") + "}:"},
		{"{}", "p:{" + tag("{}") + "}:{}"},
		{"a}b", "p:{" + tag("a}b") + "}:a}b"},
		{"{", "p:{" + tag("{") + "}:{"},
		{"{a}", "p:{" + tag("a") + "}:{a}"},                      // p:{a} is the sibling of "a"
		{"{" + own + "}:a{", "p:{" + own + "}:{" + own + "}:a{"}, // p:{own}:a{ may be that of "a{"
		{"{" + own + "}a", "p:{" + own + "}a"},                   // no ':' behind the tag
		{"{" + own + "x}:a", "p:{" + own + "x}:a"},               // not a tag of the table
		{"x{" + own + "}:a", "p:x{" + own + "}:a"},               // bytes before the tag
		{"{" + own + "}:{" + own + "}:a", "p:{" + own + "}:{" + own + "}:{" + own + "}:a"}, // and so on
	} {
		assert.Equal(t, tc.want, slot.Sibling("p", tc.key), "sibling of %q", tc.key)
		assert.Equal(t, "before "+tc.want, string(slot.AppendSibling([]byte("before "), "p", tc.key)), "sibling of %q", tc.key)
	}
}

func TestCompatibleFollowsRedisson(t *testing.T) {
	for _, tc := range []struct {
		key, want string
		sameSlot  bool
	}{
		{"orders", "redisson_lock__channel:{orders}", true},
		{"{orders}:1", "redisson_lock__channel:{orders}:1", true},
		{"x{orders}", "redisson_lock__channel:x{orders}", true},
		{"{orders}", "redisson_lock__channel:{orders}", true}, // that of "orders", too
		{"a}b", "redisson_lock__channel:{a}b}", false},
		{"{}x", "redisson_lock__channel:{}x", false},
		{"", "redisson_lock__channel:{}", false},
	} {
		got := slot.Compatible("redisson_lock__channel", tc.key)
		assert.Equal(t, tc.want, got, "companion of %q", tc.key)
		assert.Equal(t, tc.sameSlot, slot.Of(got) == slot.Of(tc.key), "slots of %q and %q", tc.key, got)
	}
}

func TestPrefixWithABraceIsRefused(t *testing.T) {
	for _, prefix := range []string{"{", "a}", "{p}"} {
		assert.Panics(t, func() { slot.Sibling(prefix, "k") }, prefix)
		assert.Panics(t, func() { slot.AppendSibling(nil, prefix, "k") }, prefix)
		assert.Panics(t, func() { slot.Compatible(prefix, "k") }, prefix)
	}
}

// originOf reads the key back from its sibling. That it can is what makes siblings distinct.
func originOf(t testing.TB, prefix, sibling string) string {
	t.Helper()
	name, ok := strings.CutPrefix(sibling, prefix+":")
	require.True(t, ok, "sibling %q lacks its prefix", sibling)
	inner, hasBrace := strings.CutPrefix(name, "{")
	if !hasBrace {
		return name // tagged, with bytes before the tag
	}
	tag, rest, ok := strings.Cut(inner, "}")
	require.True(t, ok, "sibling %q has no closing brace", sibling)
	if rest == "" && !strings.Contains(tag, "{") {
		return tag // plain
	}
	if key, ok := strings.CutPrefix(rest, ":"); ok && len(tag) == 3 && tag == slot.TagOf(naiveOf(tag)) {
		return key
	}
	return name
}

func TestSiblingIsInTheSlotOfItsKeyAndLeadsBackToIt(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	keys := oddKeys
	for range 40_000 {
		keys = append(keys, randomKey(rng))
	}
	for _, key := range keys {
		sibling := slot.Sibling("redquorum:q", key)
		require.Equal(t, naiveOf(key), naiveOf(sibling), "key %q, sibling %q", key, sibling)
		require.Equal(t, key, originOf(t, "redquorum:q", sibling), "sibling %q", sibling)
	}
}

// Every string of up to eight pieces of a small alphabet that contains all the pieces siblings are
// made of: a collision, if there is one, shows up among short names.
func TestNoTwoShortKeysShareASibling(t *testing.T) {
	tag := slot.TagOf(slot.Of("")) // slot 0: that of the empty key
	pieces := []string{"{", "}", ":", "a", tag}
	owner := make(map[string]string)
	level := []string{""}
	for range 7 {
		var next []string
		for _, key := range level {
			sibling := slot.Sibling("p", key)
			other, taken := owner[sibling]
			require.False(t, taken, "%q and %q share %q", key, other, sibling)
			owner[sibling] = key
			for _, piece := range pieces {
				next = append(next, key+piece)
			}
		}
		level = next
	}
}
