package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGlobMatchesAsRedisDoes(t *testing.T) {
	for _, tc := range []struct {
		pattern, s string
		want       bool
	}{
		{"*", "", true}, {"*", "a/b", true}, {"a*c", "abbc", true}, {"a*c", "abb", false}, {"**a", "a", true},
		{"?", "", false}, {"?", "a", true}, {"a?", "a", false},
		{"[ab]x", "bx", true}, {"[ab]x", "cx", false}, {"[^ab]", "c", true}, {"[^ab]", "a", false}, {"[a-c]", "b", true}, {"[c-a]", "b", true},
		{"[a", "a", true}, {`\*`, "*", true}, {`\*`, "a", false}, {`[\]]`, "]", true},
		{"redquorum:tokens*", "redquorum:tokens:{x}", true}, {"redquorum:tokens*", "redquorum:q:{x}", false},
		{"", "", true}, {"", "a", false}, {"a", "", false},
	} {
		require.Equal(t, tc.want, globMatch(tc.pattern, tc.s), "%q against %q", tc.pattern, tc.s)
	}
}
