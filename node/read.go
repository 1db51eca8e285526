package node

import (
	"bufio"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// replies completes calls until the connection ends. It returns why it did.
func (s *session) replies(br *bufio.Reader) error {
	var f feed
	for size, fresh := br.Size(), false; ; {
		if br.Buffered() == 0 {
			s.letGo()
			if size != br.Size() {
				br = bufio.NewReaderSize(s.link.source, size)
			}
			if _, err := br.Peek(1); err != nil {
				return err
			}
			size = f.size(br)
			s.now, fresh = time.Now(), true // not before any reply of this batch arrived
		}
		if kind, err := br.Peek(1); err != nil {
			return err
		} else if kind[0] == '>' {
			if err := s.message(br); err != nil {
				return err
			}
			continue
		}
		if fresh { // a message is no answer: it does not show that our commands arrive
			s.touch(s.now)
			s.heard, fresh = s.now, false
		}
		first := s.line.First()
		if first == nil {
			return protocolError("a reply to nothing")
		}
		if n := first.Together; n > 1 {
			if err := s.joined(br, int(n)); err != nil {
				return err
			}
			continue
		}
		if err := readReply(br, &first.Call.Reply, 0); err != nil {
			return err
		}
		if !answers(first) {
			return protocolError("an answer to something else")
		}
		s.complete(s.line.Pop(), false, false)
	}
}

// message reads what the server sends beside the answers. It ends a call only if messages are all the answer to that.
func (s *session) message(br *bufio.Reader) error {
	if err := readReply(br, &s.msg, 0); err != nil {
		return err
	}
	last, err := s.pushed(s.msg.Elems)
	if err != nil || !last {
		return err
	}
	if first := s.line.First(); first == nil || first.Note != told {
		return protocolError("a message in the place of an answer")
	}
	s.line.Pop()
	return nil
}

// answers reports whether a reply can be that to its call, where a server is known to leave one out.
func answers(e *line.Entry) bool {
	r := &e.Call.Reply
	switch e.Note {
	case auth:
		return r.Kind == '-' || string(r.Str) == "OK"
	case behind:
		return string(r.Str) == "PONG"
	case told:
		return r.Kind == '-'
	}
	return true
}

// joined reads the answer to n calls and completes them. It runs on the reader.
func (s *session) joined(br *bufio.Reader, n int) error {
	all := &s.joint
	if err := readReply(br, all, 0); err != nil {
		return err
	}
	each := all.Kind == '*' && len(all.Elems) == n
	if !each && all.Kind != '-' {
		return protocolError("not as many answers as calls")
	}
	unexecuted := !each && s.refusesAll(all)
	for i := range n {
		first := s.line.First()
		if first == nil {
			return protocolError("a reply to nothing")
		}
		if r := &first.Call.Reply; each {
			*r, all.Elems[i] = all.Elems[i], *r // the memory of both is used again
		} else { // the whole script was refused, or ended
			r.Kind, r.Int, r.Str, r.Elems = all.Kind, 0, append(r.Str[:0], all.Str...), r.Elems[:0]
		}
		s.complete(s.line.Pop(), true, unexecuted)
	}
	return nil
}

// complete hands over one call that was answered: together with others, or refused with them for a reason that may be another
// one's. Nothing else makes a call Answered.
func (s *session) complete(entry line.Entry, together, unexecuted bool) {
	c := entry.Call
	c.At = s.now
	if c.Reply.Kind == '-' {
		s.refused(entry, together, unexecuted)
		return
	}
	c.Outcome = member.Answered
	if entry.Note == acked {
		s.held = c
		return
	}
	c.Finish()
}
