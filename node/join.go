package node

import (
	"bufio"

	"github.com/redquorum/redquorum/member"
)

// Calls that wait in line one behind the other can be one command: a script that executes them in
// their order and returns an array of their answers (batch.lua of redlock/internal/script). That
// costs the server less than one command for each, and more where they are few.
//
// joinFew is how many calls become one command at least. Fewer travel alone.
const joinFew = 3

// alone is how the script refuses a call because it travels with others: such a server takes no
// such commands.
const alone = "TRYAGAIN alone"

// joins reports whether c may be part of a command. A vote that replicas must acknowledge has its
// own WAIT.
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

// joinLocked encodes what itemLocked has queued. The calls are not done yet: whoever ends them
// needs mu before.
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
		s.wbuf = appendJoined(s.wbuf, s.items, s.itemsTag, s.node.cfg.Shard != nil, false)
	}
	clear(s.items)
	s.items = s.items[:0]
}

// groupsLocked reports whether the calls of a group may be one command.
func (s *session) groupsLocked(calls []*member.Call) bool {
	for _, c := range calls {
		if !s.node.joins(c) || c.Item.Batch != calls[0].Item.Batch {
			return false
		}
	}
	return !s.apart && len(calls) > 1 && len(calls) <= joinMost
}

// groupLocked queues the calls of a group as one command of their own. No other call is in it,
// because a chained one looks at the answer to the one before it.
func (s *session) groupLocked(calls []*member.Call, tag string) {
	s.joinLocked()
	first := len(s.queue)
	for _, c := range calls {
		s.enqueueLocked(slot{call: c, size: len(c.Cmd) + tagSize(tag)})
	}
	s.queue[first].together = int32(len(calls))
	s.wbuf = appendJoined(s.wbuf, calls, tag, s.node.cfg.Shard != nil, true)
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
		// Keys of several slots, a key that the user may not touch: nothing was executed because of
		// one of them.
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

// travelApart ends the joining of calls: what this server says of them says too little, or it takes
// no such command.
func (s *session) travelApart() {
	s.mu.Lock()
	s.apart = true
	s.mu.Unlock()
}
