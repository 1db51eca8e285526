package node

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

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
	shared            // the inbox

	pulse  // since when an answer is missing
	ending // why it is over

	process guard.Process // behind it, learnt in the handshake; the supervisor's
	gone    sync.WaitGroup

	closing bool // no calls from outside any more; guarded by line
}

// writing is who writes what is in line, and when. The line sees to it that each byte is written once, in order.
type writing struct {
	kick chan struct{} // capacity 1: wakes the flusher

	trip   atomic.Int64  // ns until an answer came to a write
	parked atomic.Bool   // calls wait in line for an answer to an earlier write, see holdsLocked
	probe  atomic.Uint64 // not 0: when so many calls have left the line, the write at probed is answered
	probed time.Time     // written while probe is 0, read by the reader while it is not

	// guarded by line
	noted     uint64       // calls that had entered the line when shrink was called last
	ends      [deep]uint64 // calls that were sent by the last writes
	writes    int
	flushing  bool // somebody writes, or the flusher has been woken to
	turn      bool // with flushing: it is the flusher who writes
	flusherUp bool // there is a flusher
	dismissed bool // it ends when there is nothing to write
	gathering bool // who is to write lets others append before: the right to write, for one who takes it
}

// reading is the reader's alone.
type reading struct {
	now   time.Time
	heard time.Time    // the last answer arrived; read by the supervisor after end
	joint member.Reply // of several calls
	msg   member.Reply // beside the answers
	held  *member.Call // answered, and its WAIT is not
}

// repair is what a session knows of calls that its server did not execute. Guarded by line.
type repair struct {
	apart     bool // no more joining
	reloading int  // SCRIPT LOADs under way after a NOSCRIPT
}

// shared is the inbox of a session.
type shared struct {
	tuned   *inbox     // the last one that was asked for; the supervisor's
	refusal chan error // capacity 1: why it is none
	in      *inbox     // to which messages go: the last one that was confirmed; the reader's
}

// pulse is since when an answer is missing, and whether the supervisor sleeps too long to see it.
type pulse struct {
	base     time.Time     // progress counts from here
	progress atomic.Int64  // ns after base: the last arrival, or the first submission after silence
	woken    chan struct{} // capacity 1: wakes the supervisor, because a call came and it sleeps for long
	asleep   time.Time     // until then the supervisor sleeps, if nothing wakes it; guarded by line
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
	own    = 1 << iota // a call of the node's own
	told               // and messages are its answer
	acked              // a WAIT follows, and its answer decides
	auth               // AUTH on a connection in use, see authenticate
	behind             // the PING behind it
)

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

// ownCall is a call of the node's own, for goroutines that must not write.
func ownCall(cmd []byte, sink member.Sink) *member.Call {
	return &member.Call{Command: member.Command{Cmd: cmd}, Delivery: member.Delivery{Late: true}, Sink: sink}
}

// discard is the Sink of calls whose outcome does not matter.
type discard struct{}

func (discard) Done(*member.Call) {}
