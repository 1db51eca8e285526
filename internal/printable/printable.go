// Package printable makes text from outside fit to be shown. The name of a lock, a label, the value
// of a leader, and what a server says may hold any bytes. Metrics, spans, logs and the terminal get
// them as this package renders them: printable, in valid UTF-8, and bounded.
package printable

import (
	"strconv"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text returns s with at most most bytes, of which each can be printed: one line of valid UTF-8. It
// escapes what cannot be printed as in "\u001b" and, if it is no UTF-8, as in "\xff". A text that
// was cut ends with "…". Text leaves its own results unchanged, and everything else that fits.
func Text(s string, most int) string {
	if len(s) <= most && utf8.ValidString(s) && !hides(s) {
		return s
	}
	const more = "…"
	var out []byte
	fits := 0 // what fits if more follows
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		out = escaped(out, r, s[:n])
		if s = s[n:]; len(out) > most {
			return string(append(out[:fits], more...))
		}
		if len(out) <= most-len(more) {
			fits = len(out)
		}
	}
	return string(out)
}

func hides(s string) bool {
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return true
		}
	}
	return false
}

// Lines returns b with everything escaped that Text escapes, but for tabs and the ends of lines. A
// JSON text stays one, with the same value. It returns b itself if there is nothing to escape.
func Lines(b []byte) []byte {
	var out []byte
	for i := 0; i < len(b); {
		r, n := utf8.DecodeRune(b[i:])
		plain := r == '\n' || r == '\t' || unicode.IsPrint(r) && (r != utf8.RuneError || n > 1)
		if !plain && out == nil {
			out = append(make([]byte, 0, 2*len(b)), b[:i]...)
		}
		switch {
		case !plain:
			out = escaped(out, r, string(b[i:i+n]))
		case out != nil:
			out = append(out, b[i:i+n]...)
		}
		i += n
	}
	if out == nil {
		return b
	}
	return out
}

// escaped appends a rune that was decoded from of.
func escaped(out []byte, r rune, of string) []byte {
	switch {
	case r == utf8.RuneError && len(of) == 1:
		return append(out, `\x`+hex(rune(of[0]), 2)...)
	case unicode.IsPrint(r):
		return append(out, of...)
	case r > 0xffff: // as JSON has it
		high, low := utf16.EncodeRune(r)
		return append(out, `\u`+hex(high, 4)+`\u`+hex(low, 4)...)
	}
	return append(out, `\u`+hex(r, 4)...)
}

func hex(r rune, digits int) string {
	return strconv.FormatInt(int64(r)|1<<(4*digits), 16)[1:]
}
