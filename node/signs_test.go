package node

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
)

// A server that was emptied still knows its scripts, and counts the command that emptied it: docs/protocol.md, "First start".
func TestSignsOfAServerOutliveItsData(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"FLUSHALL", "FLUSHALL ASYNC", "FLUSHDB", "SWAPDB 0 1"} {
		s := rt.Real(t, 1).Servers[0]
		do := func(words ...string) any {
			t.Helper()
			v, err := s.Do(t.Context(), words...)
			require.NoError(t, err, words)
			return v
		}
		do("SET", "k", "v")
		require.Equal(t, servedSHA, do("SCRIPT", "LOAD", servedScript))
		words := strings.Fields(command)
		field := "cmdstat_" + strings.ToLower(words[0]) + ":"
		require.Empty(t, resp.Field([]byte(do("INFO", "commandstats").(string)), field), "%s is counted before", command)
		do(words...)
		require.EqualValues(t, 0, do("EXISTS", "k"), command)
		require.Equal(t, []any{int64(1)}, do("SCRIPT", "EXISTS", servedSHA), command)
		require.Regexp(t, "^calls=1,", resp.Field([]byte(do("INFO", "commandstats").(string)), field), command)
	}
}
