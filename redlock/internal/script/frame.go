package script

import (
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/slot"
)

// frame is a script call while it is encoded.
type frame struct {
	buf   *[]byte // the caller's; nil: none
	b     []byte
	marks resp.Marks
}

// begin opens EVALSHA with so many keys and arguments. The member adds one more argument, its marker id
// (member.Command.Tagged).
func begin(buf *[]byte, s *Script, keys, args int) frame {
	f := frame{buf: buf}
	if buf != nil {
		f.b = (*buf)[:0]
	}
	f.b = resp.AppendArray(f.b, 3+keys+args+1)
	f.b = append(f.b, "$7\r\nEVALSHA\r\n$40\r\n"...)
	f.b = append(f.b, s.SHA...)
	f.b = append(f.b, '\r', '\n')
	f.marks.Count = uint8(len(f.b))
	f.b = resp.AppendInt(f.b, int64(keys))
	f.marks.Own = uint8(len(f.b))
	return f
}

// share writes the first keys of those that all locks of a member share, behind the lock's own first key.
func (f *frame) share(n uint8) {
	f.marks.Shared, f.marks.Sharing = int32(len(f.b)), n
	f.b = append(f.b, sharedText[n]...)
	f.marks.More = int32(len(f.b))
}

// sharedText has the first so many of the keys that all locks of a member share, encoded, in the order of KEYS.
var sharedText = [...]string{"", tokensText, tokensText + string(resp.AppendBulk(nil, member.MarkerKey))}

var tokensText = string(resp.AppendBulk(nil, member.TokensKey))

// keysEnd notes that the arguments begin.
func (f *frame) keysEnd() { f.marks.Args = int32(len(f.b)) }

// key writes the name of a key that belongs to the lock of that name. Without a prefix it is the lock's own.
func (f *frame) key(prefix, name string) {
	switch prefix {
	case "":
		f.text(name)
	case redissonPrefix:
		f.text(slot.Compatible(prefix, name))
	default:
		var space [128]byte // names of a usual length cost no memory
		f.b = resp.AppendBulk(f.b, slot.AppendSibling(space[:0], prefix, name))
	}
}

func (f *frame) text(s string)          { f.b = resp.AppendBulk(f.b, s) }
func (f *frame) number(n int64)         { f.b = resp.AppendInt(f.b, n) }
func (f *frame) millis(d time.Duration) { f.number(Millis(d)) }

// command ends the call: it is about keys in that slot.
func (f *frame) command(slot uint16, item *resp.Item) member.Command {
	if f.buf != nil {
		*f.buf = f.b
	}
	return member.Command{Cmd: f.b, Tagged: true, Slot: slot, Marks: f.marks, Item: item}
}

// Millis returns d in milliseconds, rounded up, because a key must never end before the client
// believes that it does.
func Millis(d time.Duration) int64 {
	return int64((d + time.Millisecond - 1) / time.Millisecond)
}
