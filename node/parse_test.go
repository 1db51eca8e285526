package node

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

func parse(s string) (member.Reply, string, error) {
	br := bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(s)), 64)
	var r member.Reply
	err := readReply(br, &r, 0)
	rest, _ := io.ReadAll(br)
	return r, string(rest), err
}

func TestParse(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{":0\r\n", "0"},
		{":-9223372036854775808\r\n", "-9223372036854775808"},
		{":9223372036854775807\r\n", "9223372036854775807"},
		{":+5\r\n", "5"},
		{"+OK\r\n", "OK"},
		{"$0\r\n\r\n", ""},
		{"$5\r\na\r\nbc\r\n", "a\r\nbc"},
		{"$-1\r\n", "nil"},
		{"*-1\r\n", "nil"},
		{"_\r\n", "nil"},
		{"*0\r\n", "[]"},
		{"-ERR no\r\n", "-ERR no"},
		{"=8\r\ntxt:a\r\nb\r\n", "a\r\nb"},
		{"~2\r\n:1\r\n_\r\n", "[1 nil]"},
		{"%2\r\n+a\r\n:1\r\n+b\r\n%1\r\n:2\r\n:3\r\n", "[a 1 b [2 3]]"},
		{">2\r\n+message\r\n$1\r\nx\r\n", ">[message x]"},
		{"*3\r\n:1\r\n*2\r\n$1\r\na\r\n-E x\r\n$-1\r\n", "[1 [a -E x] nil]"},
	} {
		r, rest, err := parse(tc.in + ":rest\r\n")
		require.True(t, err == nil && show(r) == tc.want && rest == ":rest\r\n", "%q = %s, rest %q, %v", tc.in, show(r), rest, err)
	}
	for n := range 1200 {
		require.Equal(t, []string{strings.Repeat("x", n)}, wordsOf(t, resp.Command(strings.Repeat("x", n))))
	}
}

func TestParseRefusesWhatIsNotRESP(t *testing.T) {
	for _, in := range []string{
		"\r\n", ":\r\n", ":x\r\n", ":9223372036854775808\r\n", ":-9223372036854775809\r\n", ":99999999999999999999\r\n", ":1\n",
		"$-2\r\n", "$536870913\r\n", "$1\r\nab\r\n", "*-2\r\n", "*1048577\r\n", "HTTP/1.1 200 OK\r\n",
		"#t\r\n", ",1.5\r\n", "(12\r\n", "!1\r\nE\r\n", ":1_0\r\n", "*1\r\n>1\r\n:1\r\n", "=3\r\ntxt\r\n", "=4\r\ntxtx\r\n", "%-2\r\n", "%1048577\r\n", "|1\r\n:1\r\n",
		strings.Repeat("*1\r\n", 20) + ":1\r\n", "+" + strings.Repeat("x", 100) + "\r\n",
	} {
		if r, _, err := parse(in); !errors.As(err, new(protocolError)) {
			t.Errorf("%q = %s, %v", in, show(r), err)
		} else if strings.Contains(err.Error(), "HTTP") || strings.Contains(err.Error(), "xx") {
			t.Errorf("%q is quoted: %v", in, err)
		}
	}
	for _, in := range []string{"", ":1", "$5\r\nab", "$2\r\nab", "*2\r\n:1\r\n", "$536870912\r\nabc"} {
		r, _, err := parse(in)
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "%q = %s, %v", in, show(r), err)
	}
}

func TestParseTrustsNoLength(t *testing.T) {
	r, _, err := parse("$536870912\r\nabc")
	require.True(t, err != nil && cap(r.Str) <= 1<<20, "%d bytes reserved for a promise, %v", cap(r.Str), err)
	r, _, err = parse("*1048576\r\n:1\r\n")
	require.True(t, err != nil && cap(r.Elems) <= 1000, "%d elements reserved for a promise, %v", cap(r.Elems), err)
	long := strings.Repeat("0123456789", 300_000)
	br := bufio.NewReaderSize(strings.NewReader(bulk(long)), 64)
	require.True(t, readReply(br, &r, 0) == nil && string(r.Str) == long, "%d bytes", len(r.Str))
}

func TestParseUsesMemoryAgain(t *testing.T) {
	in := "*3\r\n:123456\r\n$5\r\nhello\r\n*2\r\n$2\r\nab\r\n$-1\r\n"
	var r member.Reply
	reader := strings.NewReader(in)
	br := bufio.NewReader(reader)
	read := func() {
		reader.Reset(in)
		br.Reset(reader)
		require.NoError(t, readReply(br, &r, 0))
	}
	read()
	require.Zero(t, testing.AllocsPerRun(100, read), "allocations for a reply of the same shape")
	require.Equal(t, "[123456 hello [ab nil]]", show(r), "%s", show(r))
}

func encode(b []byte, r member.Reply) []byte {
	switch r.Kind {
	case ':':
		return append(b, ":"+show(r)+"\r\n"...)
	case '$':
		return append(b, bulk(string(r.Str))...)
	case '_':
		return append(b, "$-1\r\n"...)
	case '*', '>':
		b = append(b, string(r.Kind)+show(member.Reply{Kind: ':', Int: int64(len(r.Elems))})+"\r\n"...)
		for _, e := range r.Elems {
			b = encode(b, e)
		}
		return b
	}
	return append(append(append(b, '-'), r.Str...), '\r', '\n')
}

// What is accepted is understood: written again by a second encoder and parsed again, it is the same.
func FuzzReply(f *testing.F) {
	for _, s := range []string{":1\r\n", "$3\r\nabc\r\n", "*2\r\n:1\r\n-ERR x\r\n", "+OK\r\n:2\r\n", "*1\r\n*1\r\n$-1\r\n", "$99\r\n", "-\r\n",
		"%1\r\n+a\r\n:1\r\n", "~1\r\n:1\r\n", ">2\r\n+x\r\n_\r\n", "=5\r\ntxt:a\r\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		var r, again member.Reply
		br := bufio.NewReader(bytes.NewReader(in))
		for range 3 { // into the memory of the one before
			if readReply(br, &r, 0) != nil {
				return
			}
			wire := encode(nil, r)
			err := readReply(bufio.NewReader(bytes.NewReader(wire)), &again, 0)
			require.True(t, err == nil && show(r) == show(again), "%q is %s and then %s, %v", in, show(r), show(again), err)
			require.Equal(t, wire, encode(nil, again), "%q: %q", in, wire)
		}
	})
}
