package line

import (
	"bytes"
	"crypto/sha1"
	"encoding/hex"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

const (
	evalsha = "$7\r\nEVALSHA\r\n$40\r\n"
	shaSize = 40
)

// Script is the SHA-1 of the script that c calls, in hex, and false if c does not call one by its SHA-1.
func Script(c *member.Call) (sha []byte, ok bool) {
	at := scriptAt(c)
	if at <= 0 {
		return nil, false
	}
	return c.Cmd[at+len(evalsha) : int(c.Marks.Count)-len("\r\n")], true
}

// isOf reports whether source is the text of the script that c calls.
func isOf(c *member.Call, source string) bool {
	sha, _ := Script(c)
	sum := sha1.Sum([]byte(source))
	return hex.EncodeToString(sum[:]) == string(sha)
}

// scriptAt is where a call of a script says which one.
func scriptAt(c *member.Call) int { return int(c.Marks.Count) - len("\r\n") - shaSize - len(evalsha) }

// appendFrom writes what a call has from there on, which is in front of its shared keys, with the keys of its slot in the
// place of those that all locks share.
func (l *Line) appendFrom(b []byte, c *member.Call, from int) []byte {
	m := &c.Marks
	if !l.Sharded || m.Sharing == 0 {
		return append(b, c.Cmd[from:]...)
	}
	b = append(b, c.Cmd[from:m.Shared]...)
	for range m.Sharing { // the script finds its marker's id in the same key
		b = guard.AppendTokens(b, c.Slot)
	}
	return append(b, c.Cmd[m.More:]...)
}

// appendTagged writes a call that travels alone.
func (l *Line) appendTagged(b []byte, c *member.Call, tag string) []byte {
	b = l.appendFrom(b, c, 0)
	if c.Tagged {
		b = resp.AppendBulk(b, tag)
	}
	return b
}

// appendEval writes a call of a script with the source of it in the place of its SHA-1.
func (l *Line) appendEval(b []byte, c *member.Call, tag, source string) []byte {
	b = append(append(b, c.Cmd[:scriptAt(c)]...), "$4\r\nEVAL\r\n"...)
	b = resp.AppendBulk(b, source)
	b = l.appendFrom(b, c, int(c.Marks.Count))
	if c.Tagged {
		b = resp.AppendBulk(b, tag)
	}
	return b
}

// Most is how many calls one command carries at most. A server does nothing else meanwhile.
const Most = 128

// emptyBulk is an empty argument.
var emptyBulk = []byte("$0\r\n\r\n")

// kindsOf tells the script that carries calls what each of them is. fresh is how many are acquires
// without Repeated, freed how many are releases, lean how many of these are lean, and again how many have Again.
func kindsOf(kinds []byte, calls []*member.Call, sharded, chained bool) (fresh, freed, lean, again int) {
	var seen [32]uint64 // by slot, and slots that share a bit count as one: Repeated is never wrong
	var ttl []byte
	for i, c := range calls {
		last := c.Cmd[c.Marks.Last:]
		bit := uint64(1) << (c.Slot % 64)
		before := seen[c.Slot/64%32]&bit != 0
		seen[c.Slot/64%32] |= bit
		kind := c.Item.Kind
		if kind == resp.ReleaseItem {
			freed++
			if bytes.Equal(last, emptyBulk) {
				kind = resp.LeanItem
				lean++
			}
			kinds[i] = kind
			continue
		}
		if bytes.Equal(last, ttl) {
			kind += resp.Again
			again++
		}
		ttl = last
		if chained && i > 0 {
			kind += resp.Chained
		}
		if sharded || before {
			kind += resp.Repeated
		} else {
			fresh++
		}
		kinds[i] = kind
	}
	return fresh, freed, lean, again
}

// isFresh reports whether the lock and the bucket of an item stand in front of those of others: it may be of the steady case.
func isFresh(kind byte) bool { return kind < resp.AcquireItem+resp.Repeated }

// appendJoined writes calls as one, as the script that carries them wants it. sharded: at a master
// of a cluster, which takes no keys of several slots; there they are arguments, each with the
// counters of its own slot. chained: they are a group, see resp.Chained.
func appendJoined(b []byte, calls []*member.Call, tag string, sharded, chained bool) []byte {
	var space [Most]byte
	kinds := space[:len(calls)]
	fresh, freed, lean, again := kindsOf(kinds, calls, sharded, chained)
	first := calls[0]
	keys := len(calls) + 2*freed - lean
	words := 5 + fresh + 2*len(calls) - lean - again // the script, the number of keys, the kinds, the buckets, the tag
	if sharded {
		keys += len(calls)
		words++
	} else {
		keys += int(first.Marks.Sharing)
	}
	b = resp.AppendArray(b, 1+words+keys)
	b = append(b, evalsha...)
	b = append(b, first.Item.Batch...)
	b = append(b, '\r', '\n')
	if sharded {
		b = resp.AppendInt(b, 0)
		b = resp.AppendBulk(b, kinds)
		b = resp.AppendInt(b, int64(3+keys)) // where the owners begin
	} else {
		b = resp.AppendInt(b, int64(keys))
		b = append(b, first.Cmd[first.Marks.Shared:first.Marks.More]...)
	}
	for i, c := range calls {
		if isFresh(kinds[i]) {
			b = append(b, c.Cmd[c.Marks.Own:c.Marks.Shared]...)
		}
	}
	if freed > 0 {
		for i, c := range calls {
			if kinds[i] >= resp.ReleaseItem {
				b = append(b, c.Cmd[c.Marks.More:c.Marks.Lean]...)
			}
		}
	}
	for i, c := range calls {
		if isFresh(kinds[i]) {
			continue
		}
		b = append(b, c.Cmd[c.Marks.Own:c.Marks.Shared]...)
		if sharded {
			b = guard.AppendTokens(b, c.Slot)
		}
		if kinds[i] == resp.ReleaseItem {
			b = append(b, c.Cmd[c.Marks.Lean:c.Marks.Args]...)
		}
	}
	if !sharded {
		b = resp.AppendBulk(b, kinds)
	}
	for i, c := range calls {
		if isFresh(kinds[i]) {
			b = append(b, c.Cmd[c.Marks.Args:c.Marks.Owner]...)
		}
	}
	for i, c := range calls {
		end := len(c.Cmd)
		if kinds[i] == resp.LeanItem || kinds[i] < resp.ReleaseItem && kinds[i]%2 == 1 {
			end = int(c.Marks.Last)
		}
		b = append(b, c.Cmd[c.Marks.Owner:end]...)
	}
	b = resp.AppendHead(b, '$', resp.SlotWidth*(len(calls)-fresh))
	for i, c := range calls {
		if !isFresh(kinds[i]) {
			bucket := c.Cmd[int(c.Marks.Args)+len("$5\r\n") : int(c.Marks.Owner)-len("\r\n")]
			b = append(append(b, bucket...), "      "[:resp.SlotWidth-len(bucket)]...)
		}
	}
	return resp.AppendBulk(append(b, '\r', '\n'), tag)
}

// Size is about how many bytes a call is that travels alone.
func Size(c *member.Call, tag string) int { return len(c.Cmd) + len(tag) }
