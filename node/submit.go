package node

import (
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// Submit queues c and returns. See member.Member and member.Call.
//
// While little is unanswered, the goroutine that calls Submit may write the queue to the socket,
// because the socket's buffer takes it. If c.Late, another goroutine writes.
func (n *Node) Submit(c *member.Call) { n.submit(c) }

// SubmitGroup queues calls one behind the other, with none of others between: see ability.Grouped.
// All are queued, or none.
func (n *Node) SubmitGroup(calls []*member.Call) { n.submit(calls...) }

func (n *Node) submit(calls ...*member.Call) {
	for {
		p := n.published.Load()
		err := p.err
		if p.session != nil {
			if err = p.session.submit(0, calls...); err == nil {
				return
			}
			if now := n.published.Load(); now.session != nil && now.session != p.session {
				continue // it broke while we looked
			}
		}
		for _, c := range calls {
			c.State = p.state.Brief
			n.finish(c, member.NotSent, err)
		}
		return
	}
}

// submit puts calls in line with none of others between, or returns why not; then nothing of them was
// sent and they are still the caller's. A note says that they are the node's own: these are queued
// without limits, and while the session is closing.
func (s *session) submit(note uint8, calls ...*member.Call) error {
	s.line.Lock()
	return s.submitLocked(note, calls)
}

// submitLocked is submit, with the line locked. It returns with the line unlocked.
func (s *session) submitLocked(note uint8, calls []*member.Call) error {
	now := s.node.published.Load()
	before, size := s.line.InFlight()
	late, looks := false, false
	for _, c := range calls {
		size += int64(line.Size(c, now.tag))
		late = late || c.Late
		looks = looks || !c.Unlooked
	}
	for _, c := range calls {
		if err := s.refusesLocked(c, note, now, before+len(calls)-1, size); err != nil {
			s.line.Unlock()
			return err
		}
	}
	if before == 0 {
		s.beginLocked(time.Now())
	}
	if looks && note == 0 {
		s.lookLocked(now)
	}
	if len(calls) > 1 && s.groupsLocked(calls) {
		s.line.AddGroup(calls, now.state.Brief, now.tag)
	} else {
		for _, c := range calls {
			s.lineUpLocked(c, note, now)
		}
	}
	s.writeLocked(late, before, size)
	return nil
}

// refusesLocked says why a call may not enter the line, beside so many calls and, with it, bytes.
func (s *session) refusesLocked(c *member.Call, note uint8, now *published, calls int, size int64) error {
	switch {
	case s.broke != nil:
		return s.err
	case note != 0:
		return nil
	case s.closing:
		return s.node.errClosed
	case now.barred != nil && c.Tagged && !c.Always:
		return now.barred
	case calls >= s.node.cfg.maxCalls || size > int64(s.node.cfg.MaxBytes):
		return s.node.errOverflow
	}
	return nil
}

// lookLocked puts a look in line if the last one is older than a ping.
func (s *session) lookLocked(now *published) {
	if c := s.node.seat.Overdue(); c != nil {
		s.lineUpLocked(c, own, now)
	}
}

// lineUpLocked puts a call in line, beside what belongs to it.
func (s *session) lineUpLocked(c *member.Call, note uint8, now *published) {
	of := now.state.Brief
	if s.node.joins(c) {
		s.line.Add(line.Entry{Call: c, Note: note}, of, now.tag, !s.apart)
		return
	}
	if ability.Asking(c) {
		s.line.Add(line.Entry{Call: ownCall(asking, discard{})}, of, now.tag, false)
	}
	if note == 0 && s.node.waits != nil && c.Tagged && !c.Always {
		note = acked
	}
	s.line.Add(line.Entry{Call: c, Note: note}, of, now.tag, false)
	if note == acked {
		s.line.Add(line.Entry{Call: s.waitCall()}, of, now.tag, false)
	}
}

// againLocked puts a call in line once more that was not executed, with the tag of this moment: see line.Again.
func (s *session) againLocked(e line.Entry, source string, before ...*member.Call) bool {
	now := s.node.published.Load()
	return s.line.Again(e, now.state.Gen, now.tag, source, before...)
}
