package node

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// reader completes calls until the connection ends, then all the rest.
func (s *session) reader(br *bufio.Reader) {
	err := s.replies(br)
	if errors.Is(err, io.EOF) {
		err = fmt.Errorf("closed by the server: %w", io.ErrUnexpectedEOF)
	}
	s.fail(member.ErrBroken, err)
	s.node.fell(s) // before the calls are done: whoever then looks at State sees that it is down
	s.abandon()
}

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
			if err := s.pushed(br); err != nil {
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
			return protocolError("AUTH was not answered")
		}
		s.complete(s.line.Pop(), false, false)
	}
}

// answers reports whether a reply can be that to its call.
func answers(e *line.Entry) bool {
	r := &e.Call.Reply
	switch e.Note {
	case auth:
		return r.Kind == '-' || string(r.Str) == "OK"
	case behind:
		return string(r.Str) == "PONG"
	}
	return true
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
		first := s.line.First()
		if first == nil {
			return protocolError("a reply to nothing")
		}
		if r := &first.Call.Reply; all.Kind == '*' {
			*r, all.Elems[i] = all.Elems[i], *r // the memory of both is used again
		} else { // the whole script was refused, or ended
			r.Kind, r.Int, r.Str, r.Elems = all.Kind, 0, append(r.Str[:0], all.Str...), r.Elems[:0]
		}
		s.complete(s.line.Pop(), true, refused)
	}
	return nil
}

// complete hands over one call that was answered: together with others, or refused with them for a reason that may be another
// one's.
func (s *session) complete(entry line.Entry, together, refusedTogether bool) {
	c := entry.Call
	c.At = s.now
	if c.Reply.Kind != '-' {
		c.Outcome = member.Answered
		if entry.Note == acked {
			s.held = c
			return
		}
		c.Finish()
		return
	}
	refused := classify(string(c.Reply.Str))
	if again := refused.Kind == member.KindNoScript && !entry.Repaired; again || refusedTogether {
		if done, err := s.repeat(entry, again); done {
			return
		} else if err != nil {
			s.node.finish(c, member.NotSent, err)
			return
		}
	}
	if together && (refused.Kind == member.KindAuth || strings.HasPrefix(refused.Text, alone)) {
		s.travelApart() // such a call is told which command it was
	}
	if refused.Kind == member.KindAuth {
		refused = naming(refused, string(c.Reply.Str), s.node.scripts.in(c))
	}
	if s.node.seat.Suspects(refused) && c.State.Gen == s.node.State().Gen {
		s.node.suspicion()
	}
	s.node.finish(c, member.Refused, refused)
}

// abandon completes every call in line after the connection has ended. It is the reader's last act;
// submit has refused since fail, so nothing can be queued behind it.
func (s *session) abandon() {
	s.line.Lock()
	unsent, lost := s.err, s.lost
	s.line.Unlock()
	s.line.Abandon(func(c *member.Call, sent bool) {
		if sent {
			s.node.finish(c, member.Unknown, lost)
		} else {
			s.node.finish(c, member.NotSent, unsent)
		}
	})
}

// pushed takes what the server sends beside the answers.
func (s *session) pushed(br *bufio.Reader) error {
	if err := readReply(br, &s.msg, 0); err != nil {
		return err
	}
	msg := s.msg.Elems
	if len(msg) != 3 {
		return nil // of what we did not ask for
	}
	now := time.Now()
	switch verb := string(msg[0].Str); verb {
	case "subscribe", "unsubscribe", "ssubscribe":
		return s.confirmed(verb, now)
	}
	if s.in != nil {
		s.in.take(msg, now)
	}
	return nil
}

// confirmed takes the server's word that one channel of the first call in line is subscribed, or is
// not any more.
func (s *session) confirmed(verb string, now time.Time) error {
	first := s.line.First()
	if first == nil {
		return protocolError("a confirmation of nothing")
	}
	c, ok := first.Call.Sink.(*confirmations)
	if !ok || c.verb != verb {
		return protocolError("a confirmation of something else")
	}
	s.now = now
	s.touch(now)
	in := c.in
	if channel := s.msg.Elems[1].Str; verb == "subscribe" && string(channel) == in.channel {
		s.in = in
		in.node.change(func(p *published) {
			if p.session == s {
				in.node.inbox, in.node.deaf = in, nil
			}
		})
	} else if s.in == in || verb == "ssubscribe" {
		in.take(s.msg.Elems, now)
	}
	if c.left--; c.left == 0 {
		s.complete(s.line.Pop(), false, false)
	}
	return nil
}
