package redistest

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/resp"
)

func TestFramerCutsRequestsWhereverTheStreamIsSplit(t *testing.T) {
	var stream []byte
	stream = append(stream, resp.Command("SET", "k", "a\r\nb")...)
	stream = append(stream, "PING now\r\n"...)
	stream = append(stream, "*0\r\n"...)
	stream = append(stream, resp.Command("GET", "")...)
	want := [][]string{{"SET", "k", "a\r\nb"}, {"PING", "now"}, nil, {"GET", ""}}

	for split := range len(stream) {
		var f framer
		var got [][]string
		var raw []byte
		for _, part := range [][]byte{stream[:split], stream[split:]} {
			f.feed(part)
			for {
				c, ok, err := f.command()
				require.NoError(t, err)
				if !ok {
					break
				}
				got = append(got, c.args)
				raw = append(raw, c.raw...)
			}
		}
		require.Equal(t, want, got, "split at %d", split)
		require.Equal(t, stream, raw, "the frames together are the stream")
	}
}

func TestFramerCutsReplies(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want any
	}{
		{"+OK\r\n", "OK"},
		{"-NOSCRIPT No matching script\r\n", Error("NOSCRIPT No matching script")},
		{":-12\r\n", int64(-12)},
		{"$-1\r\n", nil},
		{"_\r\n", nil},
		{"*-1\r\n", nil},
		{"$0\r\n\r\n", ""},
		{"$4\r\na\r\nb\r\n", "a\r\nb"},
		{"#t\r\n", true},
		{",1.5\r\n", 1.5},
		{"!5\r\nERR x\r\n", Error("ERR x")},
		{"=5\r\ntxt:x\r\n", "txt:x"},
		{"*0\r\n", []any{}},
		{"*2\r\n*1\r\n:1\r\n+x\r\n", []any{[]any{int64(1)}, "x"}},
		{"%1\r\n+a\r\n:1\r\n", map[string]any{"a": int64(1)}},
		{">2\r\n+message\r\n$1\r\nx\r\n", []any{"message", "x"}},
		{"|1\r\n+ttl\r\n:3\r\n+OK\r\n", "OK"},
	} {
		for n := range len(tc.in) {
			got, err := scanReply([]byte(tc.in[:n]))
			require.NoError(t, err, "%q", tc.in[:n])
			require.Zero(t, got, "%q is not whole", tc.in[:n])
		}
		n, err := scanReply([]byte(tc.in + "+next\r\n"))
		require.NoError(t, err)
		require.Equal(t, len(tc.in), n, "%q", tc.in)
		v, err := parseReply([]byte(tc.in))
		require.NoError(t, err)
		require.Equal(t, tc.want, v, "%q", tc.in)
	}
}

func TestFramerRefusesWhatIsNotRESP(t *testing.T) {
	for _, in := range []string{"\r\n", "x\r\n", "$a\r\n", "$-2\r\n", "$1\r\nxyz", "*1048577\r\n", "*99999999999999999999\r\n"} {
		_, err := scanReply([]byte(in))
		require.ErrorIs(t, err, errFrame, "%q", in)
	}
	for _, in := range []string{"*1\r\n:1\r\n", "*1\r\n$-1\r\n", "*1\r\n$1\r\nxyz", "*x\r\n"} {
		_, _, err := scanCommand([]byte(in))
		require.ErrorIs(t, err, errFrame, "%q", in)
	}
}

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
