package node

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"
	"strconv"
	"sync"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/guard"
)

const (
	evalsha = "$7\r\nEVALSHA\r\n$40\r\n"
	shaSize = 40
)

// scriptSHAs are those of all sources that nodes of this process were given: each has the same ones.
var scriptSHAs sync.Map

func scriptSHA(source string) string {
	if sha, ok := scriptSHAs.Load(source); ok {
		return sha.(string)
	}
	sum := sha1.Sum([]byte(source))
	sha, _ := scriptSHAs.LoadOrStore(source, hex.EncodeToString(sum[:]))
	return sha.(string)
}

// script finds the source of the script that c calls, and where the call names it. ok is false if c
// is no call of one of our scripts.
func (n *Node) script(c *member.Call) (source string, at int, ok bool) {
	end := int(c.Marks.Count) - len("\r\n")
	if at = end - shaSize - len(evalsha); at <= 0 {
		return "", 0, false
	}
	source, ok = n.scripts[string(c.Cmd[end-shaSize:end])]
	return source, at, ok
}

// sourceOf is the script that c executes: one of ours, or one that it has in full; "" if it is no
// script.
func (n *Node) sourceOf(c *member.Call) string {
	if source, _, ok := n.script(c); ok {
		return source
	}
	_, rest, ok := bytes.Cut(c.Cmd, []byte("\r\n$4\r\nEVAL\r\n$"))
	if !ok {
		return ""
	}
	size, source, _ := bytes.Cut(rest, []byte("\r\n"))
	if n, err := strconv.Atoi(string(size)); err == nil && n >= 0 && n <= len(source) {
		return string(source[:n])
	}
	return ""
}

// appendCall writes a call, with the keys of its slot in the place of those that all locks share.
func (n *Node) appendCall(b []byte, c *member.Call) []byte { return n.appendFrom(b, c, 0) }

// appendFrom writes what a call has from there on, which is in front of its shared keys.
func (n *Node) appendFrom(b []byte, c *member.Call, from int) []byte {
	m := &c.Marks
	if n.cfg.Shard == nil || m.Sharing == 0 {
		return append(b, c.Cmd[from:]...)
	}
	b = append(b, c.Cmd[from:m.Shared]...)
	for range m.Sharing { // the script finds its marker's id in the same key
		b = guard.AppendTokens(b, c.Slot)
	}
	return append(b, c.Cmd[m.More:]...)
}

// appendTagged writes a call that travels alone.
func (n *Node) appendTagged(b []byte, c *member.Call, tag string) []byte {
	b = n.appendCall(b, c)
	if c.Tagged {
		b = resp.AppendBulk(b, tag)
	}
	return b
}

// joinMost is how many calls one command carries at most. A server does nothing else meanwhile.
const joinMost = 128

// appendJoined writes calls as one, as the script that carries them wants it. sharded: at a master
// of a cluster, which takes no keys of several slots; there they are arguments, each with the
// counters of its own slot. chained: they are a group, see member.Item.Chained.
func appendJoined(b []byte, calls []*member.Call, tag string, sharded, chained bool) []byte {
	keys, args := 0, 0
	for _, c := range calls {
		keys += int(c.Item.Keys)
		args += int(c.Item.Args)
	}
	first := calls[0]
	words := 4 // the script, the number of keys, the letters, the tag
	if sharded {
		keys += len(calls)
		words++
	} else {
		keys += int(first.Marks.Sharing)
	}
	b = resp.AppendArray(b, 1+words+keys+args)
	b = append(b, evalsha...)
	b = append(b, first.Item.Batch...)
	b = append(b, '\r', '\n')
	var letters [joinMost]byte
	for i, c := range calls {
		letters[i] = c.Item.Letter
		if chained && i > 0 && c.Item.Chained != 0 {
			letters[i] = c.Item.Chained
		}
	}
	if sharded {
		b = resp.AppendInt(b, 0)
		b = resp.AppendBulk(b, letters[:len(calls)])
		b = resp.AppendInt(b, int64(3+keys)) // where the arguments begin
	} else {
		b = resp.AppendInt(b, int64(keys))
		b = append(b, first.Cmd[first.Marks.Shared:first.Marks.More]...)
	}
	for _, c := range calls {
		m := &c.Marks
		b = append(b, c.Cmd[m.Own:m.Shared]...)
		if sharded {
			b = guard.AppendTokens(b, c.Slot)
		}
		b = append(b, c.Cmd[m.More:m.Args]...)
	}
	if !sharded {
		b = resp.AppendBulk(b, letters[:len(calls)])
	}
	for _, c := range calls {
		b = append(b, c.Cmd[c.Marks.Args:]...)
	}
	return resp.AppendBulk(b, tag)
}

// tagSize is the length of tag as a RESP bulk string.
func tagSize(tag string) int {
	var digits [20]byte
	return len("$\r\n\r\n") + len(strconv.AppendInt(digits[:0], int64(len(tag)), 10)) + len(tag)
}
