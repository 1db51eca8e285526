package node

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/ability"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/line"
)

// submit puts c in line, or returns why not; then nothing of c was sent and c is still the
// caller's. own calls are those of the node: they are queued without limits, and while the session
// is closing.
func (s *session) submit(c *member.Call, own bool) error {
	s.line.Lock()
	return s.submitLocked(c, own)
}

// submitLocked is submit, with the line locked. It returns with the line unlocked.
func (s *session) submitLocked(c *member.Call, own bool) error {
	now := s.node.published.Load()
	size := line.Size(c, now.tag)
	calls, inFlight := s.line.InFlight()
	if err := s.refusesLocked(c, own, now, calls, inFlight+int64(size)); err != nil {
		s.line.Unlock()
		return err
	}
	if calls == 0 {
		s.beginLocked(time.Now())
	}
	if !own && !c.Unlooked {
		s.lookLocked(now)
	}
	s.lineUpLocked(c, own, now, size)
	s.writeLocked(c.Late, calls, inFlight+int64(size))
	return nil
}

// submitGroup puts calls in line with none of others between, or returns why not; then they are
// still the caller's.
func (s *session) submitGroup(group []*member.Call) error {
	s.line.Lock()
	now := s.node.published.Load()
	calls, size := s.line.InFlight()
	late, looks := false, false
	for _, c := range group {
		size += int64(line.Size(c, now.tag))
		late = late || c.Late
		looks = looks || !c.Unlooked
	}
	for _, c := range group {
		if err := s.refusesLocked(c, false, now, calls+len(group)-1, size); err != nil {
			s.line.Unlock()
			return err
		}
	}
	if calls == 0 {
		s.beginLocked(time.Now())
	}
	if looks {
		s.lookLocked(now)
	}
	if s.groupsLocked(group) {
		s.line.AddGroup(group, now.state.Brief, now.tag)
	} else {
		for _, c := range group {
			s.lineUpLocked(c, false, now, line.Size(c, now.tag))
		}
	}
	s.writeLocked(late, calls, size)
	return nil
}

// refusesLocked says why a call may not enter the line, beside so many calls and, with it, bytes.
func (s *session) refusesLocked(c *member.Call, own bool, now *published, calls int, size int64) error {
	switch {
	case s.broke != nil:
		return s.err
	case s.closing && !own:
		return s.node.errClosed
	case now.barred != nil && c.Tagged && !c.Always && !own:
		return now.barred
	case !own && (calls >= s.node.cfg.maxCalls || size > int64(s.node.cfg.MaxBytes)):
		return s.node.errOverflow
	}
	return nil
}

// lookLocked puts a look in line if the last one is older than a ping.
func (s *session) lookLocked(now *published) {
	if c := s.node.seat.Overdue(); c != nil {
		s.lineUpLocked(c, true, now, len(c.Cmd))
	}
}

// lineUpLocked puts a call in line, beside what belongs to it.
func (s *session) lineUpLocked(c *member.Call, own bool, now *published, size int) {
	of, entry := now.state.Brief, line.Entry{Call: c, Size: size}
	if s.node.joins(c) {
		s.line.Add(entry, of, now.tag, !s.apart)
		return
	}
	if ability.Asking(c) {
		s.line.Add(line.Entry{Call: ownCall(asking, discard{})}, of, now.tag, false)
	}
	if s.node.waits != nil && c.Tagged && !c.Always && !own {
		entry.Note = acked
	}
	s.line.Add(entry, of, now.tag, false)
	if entry.Note == acked {
		s.line.Add(line.Entry{Call: s.waitCall()}, of, now.tag, false)
	}
}

// Ask implements guard.Session. It submits cmds and waits until all are done; an error says that not all were answered or
// refused. It is the server's own where that said why it was about to close the connection.
func (s *session) Ask(ctx context.Context, cmds [][]byte) ([]member.Call, error) {
	w := &waiter{done: make(chan struct{})}
	w.left.Store(int32(len(cmds)))
	calls := make([]member.Call, len(cmds))
	for i, cmd := range cmds {
		calls[i] = *ownCall(cmd, w)
		if s.submit(&calls[i], true) != nil { // broken: those before are done by its reader
			for range cmds[i:] {
				w.Done(nil)
			}
			break
		}
	}
	select {
	case <-w.done:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var reason error
	for i := range calls {
		switch c := &calls[i]; {
		case c.Outcome != member.Answered && c.Outcome != member.Refused:
			return nil, cmp.Or(reason, s.cause())
		case reason == nil && c.Outcome == member.Refused:
			if refused, ok := c.Err.(*member.ReplyError); ok && !notPermitted(refused) {
				reason = refused
			}
		}
	}
	return calls, nil
}

// waiter is the Sink of several calls; done is closed with the last of them.
type waiter struct {
	left atomic.Int32
	done chan struct{}
}

// Done implements member.Sink.
func (w *waiter) Done(*member.Call) {
	if w.left.Add(-1) == 0 {
		close(w.done)
	}
}
