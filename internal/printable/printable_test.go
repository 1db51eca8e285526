package printable

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestTextFromOutsideIsEscaped(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                       "",
		"invoice: öß→":           "invoice: öß→",
		"a\x1b]0;x\x07\n\r":      `a\u001b]0;x\u0007\u000a\u000d`,
		"\xff":                   `\xff`,
		"\u202e\u009b\U000e0001": `\u202e\u009b\udb40\udc01`,
		"\ufffd":                 "\ufffd",
		"1234567890123456":       "1234567890123456",
		"12345678901234567":      "1234567890123…",
		"1234567890\xff\xff":     `1234567890…`,
	} {
		require.Equal(t, want, Text(in, 16+8*strings.Count(want, `\u`)), "%q", in)
	}
	require.Equal(t, "a\tb\n\\u001b\\xff", string(Lines([]byte("a\tb\n\x1b\xff"))))
}

// Whatever comes from outside leaves in one bounded line of valid UTF-8, and in JSON with its value.
func FuzzWhatLeavesIsPrintable(f *testing.F) {
	for _, s := range []string{"a", "\xff", "\x1b[31m", "é\u0301", "\u2028", "\ufffd", strings.Repeat("\u202e", 50), "\U000e0001"} {
		f.Add(s, 20)
	}
	f.Fuzz(func(t *testing.T, s string, most int) {
		most = 3 + most&0xff
		text := Text(s, most)
		require.True(t, len(text) <= most && utf8.ValidString(text), "%q", text)
		require.False(t, strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }), "%q", text)
		require.Equal(t, text, Text(text, most))
		whole := Text(s, 12*len(s))
		require.Equal(t, whole, strings.NewReplacer("\n", `\u000a`, "\t", `\u0009`).Replace(string(Lines([]byte(s)))))

		was, err := json.Marshal(s)
		require.NoError(t, err)
		var before, after string
		require.NoError(t, json.Unmarshal(was, &before))
		require.NoError(t, json.Unmarshal(Lines(was), &after), "%s", Lines(was))
		require.Equal(t, before, after)
	})
}
