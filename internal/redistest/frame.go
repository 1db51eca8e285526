package redistest

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Limits of what is taken for RESP. They are Redis' own for requests; past them a stream is garbage.
const (
	maxBulk  = 512 << 20
	maxArray = 1 << 20
	maxLine  = 64 << 10
	maxDepth = 64
)

var errFrame = errors.New("redistest: not RESP")

// command is one request: its bytes as the client wrote them, and its arguments. A request without
// arguments (an empty line, *0) is no command; Redis skips it without a reply.
type command struct {
	raw  []byte
	args []string
}

func (c command) name() string {
	if len(c.args) == 0 {
		return ""
	}
	return strings.ToUpper(c.args[0])
}

// framer cuts a byte stream into frames. What it returns stays valid: bytes are never overwritten.
type framer struct{ buf []byte }

func (f *framer) feed(p []byte) { f.buf = append(f.buf, p...) }

// rest gives up the bytes that are not yet a frame.
func (f *framer) rest() []byte {
	b := f.buf
	f.buf = nil
	return b
}

func (f *framer) take(n int) []byte {
	b := f.buf[:n:n]
	f.buf = f.buf[n:]
	if len(f.buf) == 0 {
		f.buf = nil
	}
	return b
}

// command returns the next whole request; ok is false while it is incomplete.
func (f *framer) command() (c command, ok bool, err error) {
	n, args, err := scanCommand(f.buf)
	if n == 0 || err != nil {
		return command{}, false, err
	}
	return command{raw: f.take(n), args: args}, true, nil
}

// reply returns the bytes of the next whole reply or push, attributes included.
func (f *framer) reply() (raw []byte, ok bool, err error) {
	n, err := scanReply(f.buf)
	if n == 0 || err != nil {
		return nil, false, err
	}
	return f.take(n), true, nil
}

// scanCommand reads the request at the start of b. n is its length, 0 while it is incomplete.
func scanCommand(b []byte) (n int, args []string, err error) {
	line, pos, err := scanLine(b, 0)
	if pos == 0 || err != nil {
		return 0, nil, err
	}
	if len(line) == 0 || line[0] != '*' { // inline, as typed into telnet
		return pos, strings.Fields(string(line)), nil
	}
	count, err := scanLen(line[1:], maxArray)
	if err != nil {
		return 0, nil, err
	}
	for range max(count, 0) {
		var next int
		if line, next, err = scanLine(b, pos); next == 0 || err != nil {
			return 0, nil, err
		}
		if len(line) == 0 || line[0] != '$' {
			return 0, nil, fmt.Errorf("%w: argument starts with %q", errFrame, line)
		}
		size, err := scanLen(line[1:], maxBulk)
		if err != nil || size < 0 {
			return 0, nil, fmt.Errorf("%w: argument of length %q", errFrame, line[1:])
		}
		arg, next, err := scanBulk(b, next, size)
		if next == 0 || err != nil {
			return 0, nil, err
		}
		args = append(args, string(arg))
		pos = next
	}
	return pos, args, nil
}

// scanReply returns the length of the reply at the start of b, 0 while it is incomplete. Nested
// values are counted, not descended into, so depth costs nothing.
func scanReply(b []byte) (int, error) {
	pos := 0
	for open := 1; open > 0; {
		line, next, err := scanLine(b, pos)
		if next == 0 || err != nil {
			return 0, err
		}
		pos = next
		if len(line) == 0 {
			return 0, fmt.Errorf("%w: empty line where a reply should start", errFrame)
		}
		switch line[0] {
		case '+', '-', ':', '_', '#', ',', '(':
			open--
		case '$', '=', '!':
			size, err := scanLen(line[1:], maxBulk)
			if err != nil {
				return 0, err
			}
			if open--; size < 0 {
				continue
			}
			if _, pos, err = scanBulk(b, pos, size); pos == 0 || err != nil {
				return 0, err
			}
		case '*', '~', '>', '%', '|':
			count, err := scanLen(line[1:], maxArray)
			if err != nil {
				return 0, err
			}
			if line[0] == '%' || line[0] == '|' {
				count *= 2
			}
			if line[0] != '|' { // an attribute stands before the value that it belongs to
				open--
			}
			if open += max(count, 0); open > maxArray {
				return 0, fmt.Errorf("%w: more than %d values", errFrame, maxArray)
			}
		default:
			return 0, fmt.Errorf("%w: reply starts with %q", errFrame, line[0])
		}
	}
	return pos, nil
}

// scanLine returns the line at pos without its end, and where the next one begins: 0 if the line is
// not there yet.
func scanLine(b []byte, pos int) (line []byte, next int, err error) {
	i := bytes.IndexByte(b[pos:], '\n')
	if i < 0 {
		if len(b)-pos > maxLine {
			return nil, 0, fmt.Errorf("%w: line without an end", errFrame)
		}
		return nil, 0, nil
	}
	return bytes.TrimSuffix(b[pos:pos+i], []byte{'\r'}), pos + i + 1, nil
}

func scanBulk(b []byte, pos, size int) (text []byte, next int, err error) {
	if len(b)-pos < size+2 {
		return nil, 0, nil
	}
	if b[pos+size] != '\r' || b[pos+size+1] != '\n' {
		return nil, 0, fmt.Errorf("%w: bulk string longer than announced", errFrame)
	}
	return b[pos : pos+size], pos + size + 2, nil
}

func scanLen(digits []byte, limit int) (int, error) {
	n, err := strconv.Atoi(string(digits))
	if err != nil || n < -1 || n > limit {
		return 0, fmt.Errorf("%w: length %q", errFrame, digits)
	}
	return n, nil
}

// pushKind returns the first element of an array or push frame, which says what a pub/sub message
// is, or "".
func pushKind(frame []byte) string {
	line, pos, _ := scanLine(frame, 0)
	if pos == 0 || len(line) == 0 || (line[0] != '*' && line[0] != '>') {
		return ""
	}
	if line, pos, _ = scanLine(frame, pos); pos == 0 || len(line) == 0 {
		return ""
	}
	switch line[0] {
	case '$':
		size, err := scanLen(line[1:], maxBulk)
		if err != nil || size < 0 {
			return ""
		}
		text, _, _ := scanBulk(frame, pos, size)
		return string(text)
	case '+':
		return string(line[1:])
	}
	return ""
}

// Error is an error reply: its text without the leading minus.
type Error string

func (e Error) Error() string { return string(e) }

// parseReply turns a whole frame into a value: int64, string, nil, bool, float64, []any, map[string]any
// or Error. Attributes are dropped.
func parseReply(frame []byte) (any, error) {
	v, _, err := parseValue(frame, 0, 0)
	return v, err
}

func parseValue(b []byte, pos, depth int) (v any, next int, err error) {
	if depth > maxDepth {
		return nil, 0, fmt.Errorf("%w: nested deeper than %d", errFrame, maxDepth)
	}
	line, pos, err := scanLine(b, pos)
	if err != nil || pos == 0 || len(line) == 0 {
		return nil, 0, fmt.Errorf("%w: truncated", errFrame)
	}
	text := string(line[1:])
	switch line[0] {
	case '+', '(':
		return text, pos, nil
	case '-':
		return Error(text), pos, nil
	case '_':
		return nil, pos, nil
	case '#':
		return text == "t", pos, nil
	case ':':
		n, err := strconv.ParseInt(text, 10, 64)
		return n, pos, err
	case ',':
		f, err := strconv.ParseFloat(text, 64)
		return f, pos, err
	case '$', '=', '!':
		size, err := scanLen(line[1:], maxBulk)
		if err != nil || size < 0 {
			return nil, pos, err
		}
		bulk, next, err := scanBulk(b, pos, size)
		if err != nil || next == 0 {
			return nil, 0, fmt.Errorf("%w: truncated", errFrame)
		}
		if line[0] == '!' {
			return Error(bulk), next, nil
		}
		return string(bulk), next, nil
	}
	count, err := scanLen(line[1:], maxArray)
	if err != nil {
		return nil, 0, err
	}
	if count < 0 {
		return nil, pos, nil
	}
	if line[0] == '%' || line[0] == '|' {
		count *= 2
	}
	list := make([]any, 0, min(count, 1024))
	for range count {
		if v, pos, err = parseValue(b, pos, depth+1); err != nil {
			return nil, 0, err
		}
		list = append(list, v)
	}
	switch line[0] {
	case '|':
		return parseValue(b, pos, depth+1)
	case '%':
		m := make(map[string]any, len(list)/2)
		for i := 0; i+1 < len(list); i += 2 {
			m[fmt.Sprint(list[i])] = list[i+1]
		}
		return m, pos, nil
	}
	return list, pos, nil
}
