package node

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/redquorum/redquorum/member"
)

// protocolError is a reply that no Redis sends. It says what was wrong and never quotes the peer,
// which may be an echo of what we sent.
type protocolError string

func (e protocolError) Error() string { return "not the Redis protocol: " + string(e) }

// Bounds of a reply. Memory grows with what has arrived, not with what a header promises.
const (
	maxDepth = 16
	maxBulk  = 512 << 20 // bytes, as in Redis
	maxElems = 1 << 20
	growth   = 64 << 10 // bytes taken on trust
)

// readReply parses one reply of RESP2 or RESP3 into r, whose slices are used again. What RESP3 adds
// gets the shape that RESP2 has for it: a map is an array of keys and values, a set is an array. Only a push keeps its
// kind, '>'. What no command of ours is answered by is no reply. After an error the position in the stream is unknown and the
// connection must end.
func readReply(br *bufio.Reader, r *member.Reply, depth int) error {
	if depth > maxDepth {
		return protocolError("arrays too deep")
	}
	line, err := br.ReadSlice('\n')
	switch {
	case err == bufio.ErrBufferFull:
		return protocolError("line too long")
	case err != nil:
		return err
	case len(line) < 3 || line[len(line)-2] != '\r':
		return protocolError("line without end")
	}
	body := line[1 : len(line)-2]
	r.Kind, r.Int, r.Str, r.Elems = line[0], 0, r.Str[:0], r.Elems[:0]
	switch line[0] {
	case ':':
		r.Int, err = number(body)
		return err
	case '+':
		r.Kind, r.Str = '$', append(r.Str, body...)
		return nil
	case '-':
		r.Str = append(r.Str, body...)
		return nil
	case '_':
		return nil
	case '$':
		return readBulk(br, r, body)
	case '=':
		return readVerbatim(br, r, body)
	case '*', '~':
		r.Kind = '*'
		return readArray(br, r, body, 1, depth)
	case '%':
		r.Kind = '*'
		return readArray(br, r, body, 2, depth)
	case '>':
		if depth > 0 {
			return protocolError("push inside a reply")
		}
		return readArray(br, r, body, 1, depth)
	}
	return protocolError(fmt.Sprintf("reply of type 0x%02x", line[0]))
}

func readBulk(br *bufio.Reader, r *member.Reply, header []byte) error {
	size, err := number(header)
	if err != nil {
		return err
	}
	if size == -1 {
		r.Kind = '_'
		return nil
	}
	if size < 0 || size > maxBulk {
		return protocolError("string length out of bounds")
	}
	for have := 0; have < int(size); {
		want := min(int(size), max(cap(r.Str), 2*have+growth))
		if cap(r.Str) < want {
			r.Str = append(make([]byte, 0, want), r.Str...)
		}
		r.Str = r.Str[:want]
		if _, err := io.ReadFull(br, r.Str[have:]); err != nil {
			return err
		}
		have = want
	}
	end, err := br.Peek(2)
	if err != nil {
		return err
	}
	if end[0] != '\r' || end[1] != '\n' {
		return protocolError("string without end")
	}
	_, err = br.Discard(2)
	return err
}

// readVerbatim reads a string that says of what format it is, three letters and a colon.
func readVerbatim(br *bufio.Reader, r *member.Reply, header []byte) error {
	if err := readBulk(br, r, header); err != nil {
		return err
	}
	if len(r.Str) < len("txt:") || r.Str[3] != ':' {
		return protocolError("verbatim string without its format")
	}
	r.Kind, r.Str = '$', append(r.Str[:0], r.Str[len("txt:"):]...)
	return nil
}

// readArray reads as many elements as header says, times each.
func readArray(br *bufio.Reader, r *member.Reply, header []byte, times, depth int) error {
	size, err := number(header)
	if err != nil {
		return err
	}
	if size == -1 {
		r.Kind = '_'
		return nil
	}
	if size < 0 || size > maxElems {
		return protocolError("array length out of bounds")
	}
	for i := range times * int(size) {
		if i < cap(r.Elems) {
			r.Elems = r.Elems[:i+1] // keeps the slices of the element that was there
		} else {
			r.Elems = append(r.Elems, member.Reply{})
		}
		if err := readReply(br, &r.Elems[i], depth+1); err != nil {
			return err
		}
	}
	return nil
}

// number parses a decimal integer of 64 bits.
func number(b []byte) (n int64, err error) {
	plain := len(b) > 0 && len(b) <= 18
	for i := 0; plain && i < len(b); i++ {
		digit := b[i] - '0'
		plain = digit <= 9
		n = 10*n + int64(digit)
	}
	if plain {
		return n, nil
	}
	if n, err = strconv.ParseInt(string(b), 10, 64); err != nil {
		return 0, protocolError("number malformed or out of bounds")
	}
	return n, nil
}
