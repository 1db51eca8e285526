package node

import (
	"bufio"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/guard"
)

// Calls that wait in line one behind the other can be one command: a script that executes them in their order
// and returns an array of their answers (batch.lua of redlock/internal/script). That costs the server less than one command
// for each, and more where they are few.
const (
	joinFew  = 3   // fewer travel alone
	joinMost = 128 // a server does nothing else meanwhile
)

// alone is how the script refuses a call because it travels with others: such a server takes no such commands.
const alone = "TRYAGAIN alone"

// joins reports whether c may be part of a command. A vote that replicas must acknowledge has its own WAIT.
func (n *Node) joins(c *member.Call) bool {
	return c.Item != nil && c.Tagged && n.waits == nil && !c.Asking()
}

// itemLocked queues a call whose encoding waits until it is known what stands behind it.
func (s *session) itemLocked(c *member.Call, tag string) {
	if n := len(s.items); n > 0 && (n == joinMost || tag != s.itemsTag || c.Item.Batch != s.items[0].Item.Batch) {
		s.joinLocked()
	}
	s.itemsTag = tag
	s.items = append(s.items, c)
}

// joinLocked encodes what itemLocked has queued. The calls are not done yet: whoever ends them needs mu before.
func (s *session) joinLocked() {
	switch {
	case len(s.items) == 0:
		return
	case len(s.items) < joinFew:
		for _, c := range s.items {
			s.wbuf = s.node.appendTagged(s.wbuf, c, s.itemsTag)
		}
	default:
		s.queue[len(s.queue)-len(s.items)].together = int32(len(s.items))
		s.wbuf = appendJoined(s.wbuf, s.items, s.itemsTag, s.node.cfg.Shard != nil)
	}
	clear(s.items)
	s.items = s.items[:0]
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

// appendJoined writes calls as one, as the script that carries them wants it. sharded: at a master of a cluster, which
// takes no keys of several slots; there they are arguments, each with the counters of its own slot.
func appendJoined(b []byte, calls []*member.Call, tag string, sharded bool) []byte {
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

// joined reads the answer to n calls and completes them. It runs on the reader.
func (s *session) joined(br *bufio.Reader, n int) error {
	all := &s.joint
	if err := readReply(br, all, 0); err != nil {
		return err
	}
	refused := false
	switch {
	case all.Kind == '*' && len(all.Elems) == n:
	case all.Kind != '-':
		return protocolError("not as many answers as calls")
	default:
		// Keys of several slots, a key that the user may not touch: nothing was executed because of one of them.
		kind := classify(string(all.Str)).Kind
		if refused = kind == member.KindCluster || kind == member.KindAuth; refused {
			s.travelApart()
		}
	}
	for i := range n {
		if s.next == len(s.batch) && !s.refill() {
			return protocolError("a reply to nothing")
		}
		entry := s.batch[s.next]
		s.batch[s.next] = slot{}
		s.next++
		entry.joined, entry.refused = true, refused
		if r := &entry.call.Reply; all.Kind == '*' {
			*r, all.Elems[i] = all.Elems[i], *r // the memory of both is used again
		} else { // the whole script was refused, or ended
			r.Kind, r.Int, r.Str, r.Elems = all.Kind, 0, append(r.Str[:0], all.Str...), r.Elems[:0]
		}
		s.complete(entry)
	}
	return nil
}

// repeatAlone puts a call in line again that was refused together with others, and not executed.
func (s *session) repeatAlone(entry slot) (done bool, _ error) {
	return s.repeat(entry, entry.repaired, func() {}, func() { s.wbuf = s.node.appendCall(s.wbuf, entry.call) })
}

// travelApart ends the joining of calls: what this server says of them says too little, or it takes no such command.
func (s *session) travelApart() {
	s.mu.Lock()
	s.apart = true
	s.mu.Unlock()
}
