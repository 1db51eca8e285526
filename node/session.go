package node

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
	"github.com/redquorum/redquorum/node/internal/line"
)

// session is one command connection after authentication. Calls are queued in one order, written in
// that order and answered in that order.
//
// Three goroutines have parts in it: any number of callers append to the line under its mutex, and
// one of them, or the flusher, writes what has gathered; the reader alone completes calls, so that
// each is done exactly once. fail may be called by anybody; the reader then ends and completes the
// rest, knowing of each whether a byte of it was handed to the connection.
type session struct {
	node *Node
	link *link

	line    line.Line // the order
	writing           // who writes, and when
	reading           // answers, and what they are read into
	repair            // calls that were not executed
	shared            // the inbox, if it is on this connection

	pulse  // since when an answer is missing
	ending // why it is over

	process guard.Process // behind it, learnt in the handshake; the supervisor's
	gone    sync.WaitGroup

	// guarded by line
	first   *member.Call // goes in line right before the next call from outside that is not Unlooked; see Hold
	ahead   func()       // is called when it does
	closing bool         // no calls from outside any more
}

// ending is why a session is over. Guarded by line.
type ending struct {
	broken chan struct{} // closed by fail
	broke  *broke        // not nil: why the session ended
	err    error         // with broke: what a call gets that was not sent
	lost   error         // with broke: what a call gets that was
}

// The notes of calls in line.
const (
	acked  = 1 << iota // a WAIT follows, and its answer decides
	auth               // AUTH on a connection in use, see authenticate
	behind             // the PING behind it
)

// newSession starts the reader of a session over l. It ends after fail; end waits for it, and for the
// flusher.
func (n *Node) newSession(l *link) *session {
	s := &session{node: n, link: l}
	s.line.Sharded = n.cfg.Shard != nil
	s.base, s.broken = time.Now(), make(chan struct{})
	s.woken, s.kick = make(chan struct{}, 1), make(chan struct{}, 1)
	s.gone.Go(func() { l.read(s.reader) })
	return s
}

// broke is why a connection ended: kind is member.ErrBroken or ErrStalled.
type broke struct{ kind, cause error }

func (b *broke) Error() string   { return b.kind.Error() + ": " + b.cause.Error() }
func (b *broke) Unwrap() []error { return []error{b.kind, b.cause} }

// end breaks the session, if it is not yet, and waits until all its calls are done and its
// goroutines have ended. Not for the reader, nor for anything that runs on it.
func (s *session) end(cause error) {
	s.fail(member.ErrBroken, cause)
	s.gone.Wait()
}

// fail ends the connection. kind is member.ErrBroken or ErrStalled. Only the first call counts.
func (s *session) fail(kind, cause error) {
	s.line.Lock()
	first := s.broke == nil
	if first {
		s.broke = &broke{kind, cause}
		s.err = fmt.Errorf("%s: %w: %w", s.node.name, member.ErrDown, cause)
		s.lost = fmt.Errorf("%s: %w", s.node.name, s.broke)
		close(s.broken)
	}
	s.line.Unlock()
	if first {
		s.link.cut()
	}
}

// cause is why the session broke, a *broke. For use after fail.
func (s *session) cause() error {
	s.line.Lock()
	defer s.line.Unlock()
	return s.broke
}

// refuse makes submit refuse every call that is not the node's own.
func (s *session) refuse() {
	s.line.Lock()
	s.closing = true
	s.line.Unlock()
}

// inFlight counts the calls and bytes in line.
func (s *session) inFlight() (calls int, size int64) {
	s.line.Lock()
	defer s.line.Unlock()
	return s.line.InFlight()
}

// submit puts c in line, or returns why not; then nothing of c was sent and c is still the
// caller's. own calls are those of the node: they are queued without limits, and while the session
// is closing.
func (s *session) submit(c *member.Call, own bool) error {
	s.line.Lock()
	return s.submitLocked(c, own)
}

// submitLocked is submit. It returns without mu.
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
	if s.first != nil && !own && !c.Unlooked {
		s.firstLocked(now)
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
	if s.first != nil && looks {
		s.firstLocked(now)
	}
	if s.groupsLocked(group) {
		s.line.AddGroup(group, now.state.Brief(), now.tag)
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
	case !own && (calls >= s.node.cfg.MaxCalls || size > int64(s.node.cfg.MaxBytes)):
		return s.node.errOverflow
	}
	return nil
}

// lineUpLocked puts a call in line, beside what belongs to it.
func (s *session) lineUpLocked(c *member.Call, own bool, now *published, size int) {
	of, entry := now.state.Brief(), line.Entry{Call: c, Size: size}
	if s.node.joins(c) {
		s.line.Add(entry, of, now.tag, !s.apart)
		return
	}
	if c.Asking() {
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

// ownCall is a call of the node's own, for goroutines that must not write.
func ownCall(cmd []byte, sink member.Sink) *member.Call {
	return &member.Call{Command: member.Command{Cmd: cmd}, Delivery: member.Delivery{Late: true}, Sink: sink}
}

var asking = resp.Command("ASKING")

// ask submits cmds and waits until all are done; an error says that not all were answered or
// refused. It is the server's own where that said why it was about to close the connection.
func (n *Node) ask(ctx context.Context, s *session, cmds [][]byte) ([]member.Call, error) {
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

// discard is the Sink of calls whose outcome does not matter.
type discard struct{}

func (discard) Done(*member.Call) {}
