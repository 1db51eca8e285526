package node

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/node/internal/guard"
)

const (
	// inlineBytes: a caller writes by itself only while fewer bytes than this are unanswered. The
	// socket buffer then has room whatever the peer does, so that the caller cannot be blocked by a
	// peer that has stopped reading; everything beyond is left to the flusher.
	inlineBytes = 64 << 10
	// chunk is the most that is written under one write deadline.
	chunk = 256 << 10
	// keepBuffer is the largest write buffer that is kept for the next write.
	keepBuffer = 1 << 20
	// leanBuffer is the largest one that is kept while little is written.
	leanBuffer = 4 << 10
)

// slot is one call in line.
type slot struct {
	call     *member.Call
	size     int  // bytes, as written
	repaired bool // answered NOSCRIPT once
	acked    bool // a WAIT follows, and its answer decides
	joined   bool // answered together with others
	refused  bool // with them, for a reason that may be another one's
	auth     bool // AUTH on a connection in use, see authenticate
	behind   bool // the PING behind it
	// together is how many calls, from this one on, are one command: their answers come as one. It
	// is known when they are encoded, and 0 for all others.
	together int32
}

// session is one command connection after authentication. Calls are queued in one order, written in
// that order and answered in that order.
//
// Three goroutines have parts in it: any number of callers append to queue and buffer under mu, and
// one of them, or the flusher, writes what has gathered; the reader alone completes calls, so that
// each is done exactly once. fail may be called by anybody; the reader then ends and completes the
// rest, knowing of each whether a byte of it was handed to the connection.
type session struct {
	node *Node
	link *link
	base time.Time // progress counts from here

	process guard.Process // behind it, learnt in the handshake; the supervisor's
	pushes  bool          // the server sends messages on this connection, too; likewise
	tuned   *inbox        // the last one that was asked for here; likewise

	kick   chan struct{} // capacity 1: wakes the flusher
	woken  chan struct{} // capacity 1: wakes the supervisor, because a call came and it sleeps for long
	broken chan struct{} // closed by fail
	gone   sync.WaitGroup

	mute atomic.Bool // the inbox was refused here

	progress      atomic.Int64  // ns after base: the last arrival, or the first submission after silence
	answered      atomic.Uint64 // calls that left the line; written by the reader
	answeredBytes atomic.Int64

	trip   atomic.Int64  // ns until an answer came to a write
	parked atomic.Bool   // calls wait in line for an answer to an earlier write, see holdsLocked
	probe  atomic.Uint64 // not 0: when so many calls have left the line, the write at probed is answered
	probed time.Time     // written while probe is 0, read by the reader while it is not

	mu          sync.Mutex // never held during I/O
	queue       []slot     // behind the reader's batch
	wbuf, spare []byte
	items       []*member.Call // the last ones of the line, behind wbuf: they may still become one command
	itemsTag    string         // their tag
	apart       bool           // no more joining
	queued      uint64         // calls that entered the line
	queuedBytes int64
	noted       uint64       // queued, when shrink was called last
	sent        uint64       // calls of queued whose bytes were handed to a write
	ends        [deep]uint64 // sent, of the last writes
	writes      int
	flushing    bool         // somebody writes, or the flusher has been woken to
	turn        bool         // with flushing: it is the flusher who writes
	flusherUp   bool         // there is a flusher
	dismissed   bool         // it ends when there is nothing to write
	gathering   bool         // who is to write lets others append before: the right to write, for one who takes it
	first       *member.Call // goes in line right before the next call from outside that is not Unlooked; see Hold
	asleep      time.Time    // until then the supervisor sleeps, if nothing wakes it
	closing     bool         // no calls from outside any more
	reloading   int          // SCRIPT LOADs under way after a NOSCRIPT
	broke       *broke       // not nil: why the session ended
	err         error        // with broke: what a call gets that was not sent
	lost        error        // with broke: what a call gets that was

	// the reader's
	in    *inbox // to which messages go: the last one that was confirmed here
	msg   member.Reply
	batch []slot
	next  int
	now   time.Time
	heard time.Time    // the last answer arrived; read by the supervisor after end
	joint member.Reply // of several calls
	held  *member.Call // answered, and its WAIT is not
}

// newSession starts the reader of a session over l. It ends after fail; end waits for it, and for the
// flusher.
func (n *Node) newSession(l *link) *session {
	s := &session{node: n, link: l, base: time.Now(), kick: make(chan struct{}, 1), woken: make(chan struct{}, 1), broken: make(chan struct{})}
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
	s.mu.Lock()
	first := s.broke == nil
	if first {
		s.broke = &broke{kind, cause}
		s.err = fmt.Errorf("%s: %w: %w", s.node.name, member.ErrDown, cause)
		s.lost = fmt.Errorf("%s: %w", s.node.name, s.broke)
		close(s.broken)
	}
	s.mu.Unlock()
	if first {
		s.link.cut()
	}
}

// cause is why the session broke, a *broke. For use after fail.
func (s *session) cause() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broke
}

// refuse makes submit refuse every call that is not the node's own.
func (s *session) refuse() {
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
}

// inFlight counts the calls and bytes in line.
func (s *session) inFlight() (calls int, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inFlightLocked()
}

func (s *session) inFlightLocked() (calls int, size int64) {
	return int(s.queued - s.answered.Load()), s.queuedBytes - s.answeredBytes.Load()
}

// waiting is the moment since when the first call in line has been first, and false if there is
// none.
func (s *session) waiting() (since time.Time, busy bool) {
	calls, _ := s.inFlight()
	return s.base.Add(time.Duration(s.progress.Load())), calls > 0
}

func (s *session) touch(now time.Time) { s.progress.Store(int64(now.Sub(s.base))) }

// beginLocked notes that the line, which was empty, is no longer. If the supervisor sleeps for longer than a call may go
// without an answer, it is woken.
func (s *session) beginLocked(now time.Time) {
	s.touch(now)
	if s.asleep.Sub(now) > s.node.cfg.StallTimeout {
		s.asleep = now
		select {
		case s.woken <- struct{}{}:
		default:
		}
	}
}

// sleep notes that the supervisor sleeps, and returns for how long it may: not for longer than a call that is in line may
// go without an answer.
func (s *session) sleep(now time.Time, wait time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if calls, _ := s.inFlightLocked(); calls > 0 {
		wait = min(wait, s.node.cfg.StallTimeout)
	}
	s.asleep = now.Add(wait)
	return wait
}

// submit puts c in line, or returns why not; then nothing of c was sent and c is still the
// caller's. own calls are those of the node: they are queued without limits, and while the session
// is closing.
func (s *session) submit(c *member.Call, own bool) error {
	s.mu.Lock()
	return s.submitLocked(c, own)
}

// submitLocked is submit. It returns without mu.
func (s *session) submitLocked(c *member.Call, own bool) error {
	now := s.node.published.Load()
	size := s.sizeOf(c, now.tag)
	calls, inFlight := s.inFlightLocked()
	if err := s.refusesLocked(c, own, now, calls, inFlight+int64(size)); err != nil {
		s.mu.Unlock()
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

// authenticate puts AUTH in line, and a PING right behind it. Redis 7.2 and 7.4 do not answer an AUTH
// that they refuse while other answers wait to be sent. All answers behind it would then go to the
// wrong calls. The PING shows it before the next one does: see answers.
func (s *session) authenticate(auth *member.Call) error {
	s.mu.Lock()
	now := s.node.published.Load()
	pong := ownCall(ping, discard{})
	calls, inFlight := s.inFlightLocked()
	size := inFlight + int64(s.sizeOf(auth, now.tag)+s.sizeOf(pong, now.tag))
	if err := s.refusesLocked(auth, true, now, calls, size); err != nil {
		s.mu.Unlock()
		return err
	}
	if calls == 0 {
		s.beginLocked(time.Now())
	}
	s.lineUpLocked(auth, true, now, s.sizeOf(auth, now.tag))
	s.queue[len(s.queue)-1].auth = true
	s.lineUpLocked(pong, true, now, s.sizeOf(pong, now.tag))
	s.queue[len(s.queue)-1].behind = true
	s.writeLocked(true, calls, size)
	return nil
}

// answers reports whether a reply can be that to its call.
func (e *slot) answers() bool {
	r := &e.call.Reply
	switch {
	case e.auth:
		return r.Kind == '-' || string(r.Str) == "OK"
	case e.behind:
		return string(r.Str) == "PONG"
	}
	return true
}

// submitGroup puts calls in line with none of others between, or returns why not; then they are
// still the caller's.
func (s *session) submitGroup(group []*member.Call) error {
	s.mu.Lock()
	now := s.node.published.Load()
	calls, size := s.inFlightLocked()
	late, looks := false, false
	for _, c := range group {
		size += int64(s.sizeOf(c, now.tag))
		late = late || c.Late
		looks = looks || !c.Unlooked
	}
	for _, c := range group {
		if err := s.refusesLocked(c, false, now, calls+len(group)-1, size); err != nil {
			s.mu.Unlock()
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
		for _, c := range group {
			c.Outcome, c.Err, c.State = member.Unanswered, nil, now.state.Brief()
		}
		s.groupLocked(group, now.tag)
	} else {
		for _, c := range group {
			s.lineUpLocked(c, false, now, s.sizeOf(c, now.tag))
		}
	}
	s.writeLocked(late, calls, size)
	return nil
}

// sizeOf is the number of bytes of a call that travels alone.
func (s *session) sizeOf(c *member.Call, tag string) int {
	if c.Tagged {
		return len(c.Cmd) + tagSize(tag)
	}
	return len(c.Cmd)
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

// lineUpLocked puts a call in line.
func (s *session) lineUpLocked(c *member.Call, own bool, now *published, size int) {
	c.Outcome, c.Err, c.State = member.Unanswered, nil, now.state.Brief()
	if !s.apart && s.node.joins(c) {
		s.itemLocked(c, now.tag)
		s.enqueueLocked(slot{call: c, size: size})
		return
	}
	s.joinLocked()
	if c.Asking() {
		s.askingLocked()
	}
	before := len(s.wbuf)
	s.wbuf = s.node.appendTagged(s.wbuf, c, now.tag)
	acked := s.node.waits != nil && c.Tagged && !c.Always && !own
	s.enqueueLocked(slot{call: c, size: len(s.wbuf) - before, acked: acked})
	if acked {
		s.waitLocked()
	}
}

// writeLocked sees to it that what is in line is written, by this goroutine or by another one. calls
// were in flight before, and size bytes are now. It returns without mu.
func (s *session) writeLocked(late bool, calls int, size int64) {
	if s.flushing && !(s.gathering && s.queued-s.sent >= enough) || !s.flushing && s.holdsLocked() {
		s.mu.Unlock()
		return
	}
	s.flushing, s.gathering = true, false
	if late || size > inlineBytes {
		s.wakeLocked()
		s.mu.Unlock()
		return
	}
	s.writeInline(calls)
}

// ownCall is a call of the node's own, for goroutines that must not write.
func ownCall(cmd []byte, sink member.Sink) *member.Call {
	return &member.Call{Command: member.Command{Cmd: cmd}, Delivery: member.Delivery{Late: true}, Sink: sink}
}

var asking = resp.Command("ASKING")

// askingLocked queues what makes a master of a cluster take the next call for a slot that it is
// about to get.
func (s *session) askingLocked() {
	s.wbuf = append(s.wbuf, asking...)
	s.enqueueLocked(slot{call: ownCall(asking, discard{}), size: len(asking)})
}

// waitLocked queues WAIT behind a call whose answer counts only if replicas have it.
func (s *session) waitLocked() {
	s.wbuf = append(s.wbuf, s.node.waits...)
	s.enqueueLocked(slot{call: ownCall(s.node.waits, (*acknowledged)(s)), size: len(s.node.waits)})
}

// acknowledged is the Sink of a WAIT: it ends the call before it. It runs on the reader.
type acknowledged session

func (a *acknowledged) Done(w *member.Call) {
	s := (*session)(a)
	c := s.held
	s.held = nil
	switch {
	case c == nil: // it was refused
	case w.Outcome == member.Answered && w.Reply.Kind == ':' && w.Reply.Int >= int64(s.node.cfg.MinReplicasAck):
		c.Finish()
	case w.Outcome == member.Answered:
		s.node.finish(c, member.Unknown, fmt.Errorf("%s: %w: %d of %d", s.node.name, member.ErrUnacknowledged, w.Reply.Int, s.node.cfg.MinReplicasAck))
	default:
		s.node.finish(c, member.Unknown, fmt.Errorf("%s: %w: WAIT: %w", s.node.name, member.ErrUnacknowledged, w.Err))
	}
}

func (s *session) enqueueLocked(entry slot) {
	s.queue = append(s.queue, entry)
	s.queued++
	s.queuedBytes += int64(entry.size)
}

// writeInline writes the buffer on the goroutine of a caller, which holds mu; others is the number
// of calls that were in flight before. It returns without mu.
func (s *session) writeInline(others int) {
	if others >= 2 && s.queued-s.sent < enough {
		// Company: whoever is runnable appends first. This gathers batches without a timer.
		s.gathering = true
		s.mu.Unlock()
		runtime.Gosched()
		s.mu.Lock()
		if !s.gathering { // another caller has taken over
			s.mu.Unlock()
			return
		}
		s.gathering = false
		if _, size := s.inFlightLocked(); size > inlineBytes {
			s.wakeLocked()
			s.mu.Unlock()
			return
		}
	}
	if s.broke != nil { // meanwhile: the reader completes what is queued
		s.mu.Unlock()
		return
	}
	buf := s.takeLocked()
	s.mu.Unlock()
	err := s.write(buf)
	s.mu.Lock()
	s.giveLocked(buf)
	s.flushing = !s.emptyLocked() && !s.holdsLocked()
	if s.flushing && err == nil { // gathered during the write: not this caller's any more
		s.wakeLocked()
	}
	s.mu.Unlock()
	if err != nil {
		s.fail(member.ErrBroken, fmt.Errorf("write: %w", err))
	}
}

// holdsLocked reports whether calls gather before they are written. The reader has them written when an earlier write is
// answered, see letGo.
func (s *session) holdsLocked() bool {
	l := s.lineLocked()
	until := l.until()
	if s.answered.Load() >= until {
		return false
	}
	s.parked.Store(true)
	return s.answered.Load() < until // or else the reader may have looked at parked before
}

// lineLocked is what decides whether a write waits.
func (s *session) lineLocked() line {
	return line{
		trip: time.Duration(s.trip.Load()), bytes: len(s.wbuf), waiting: s.queued - s.sent,
		oldest: s.ends[s.writes%deep], before: s.ends[(s.writes+deep-2)%deep], last: s.ends[(s.writes+deep-1)%deep],
	}
}

// letGo is called by the reader when it has read all that has arrived.
func (s *session) letGo() {
	if end := s.probe.Load(); end != 0 && s.answered.Load() >= end {
		s.trip.Store(max(1, int64(s.now.Sub(s.probed))))
		s.probe.Store(0)
	}
	if !s.parked.Load() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.flushing && !s.emptyLocked() && !s.holdsLocked() {
		s.flushing = true
		s.wakeLocked()
	}
}

// takeLocked takes the buffer for writing. From here on its calls count as sent.
func (s *session) takeLocked() []byte {
	s.joinLocked()
	buf := s.wbuf
	s.wbuf, s.spare = s.spare[:0], nil
	s.sent = s.queued
	s.parked.Store(false)
	s.ends[s.writes%deep] = s.sent
	s.writes++
	if s.probe.Load() == 0 {
		s.probed = time.Now()
		s.probe.Store(s.sent)
	}
	return buf
}

// emptyLocked reports whether nothing waits to be written.
func (s *session) emptyLocked() bool { return len(s.wbuf) == 0 && len(s.items) == 0 }

func (s *session) giveLocked(buf []byte) {
	if cap(buf) <= keepBuffer {
		s.spare = buf[:0]
	}
}

// shrink gives back the write buffers and the flusher of a connection that carried little since it was
// called last.
func (s *session) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	idle := s.queued-s.noted <= enough
	s.noted = s.queued
	if !idle {
		return
	}
	if cap(s.spare) > leanBuffer {
		s.spare = nil
	}
	if len(s.wbuf) == 0 && cap(s.wbuf) > leanBuffer {
		s.wbuf = nil
	}
	if s.flusherUp {
		s.dismissed = true
		s.kickLocked()
	}
}

func (s *session) write(buf []byte) error {
	for len(buf) > 0 {
		part := buf[:min(len(buf), chunk)]
		n, err := s.link.direct.write(part)
		if err != nil {
			return err
		}
		if n < len(part) {
			if err := s.writeWithin(part[n:]); err != nil {
				return err
			}
		}
		buf = buf[len(part):]
	}
	return nil
}

// writeWithin writes what the peer may have to make room for first.
func (s *session) writeWithin(part []byte) error {
	if err := s.link.wire.SetWriteDeadline(time.Now().Add(s.node.cfg.WriteTimeout)); err != nil {
		return err
	}
	if _, err := s.link.wire.Write(part); err != nil {
		return err
	}
	if s.link.direct == nil {
		return nil
	}
	return s.link.wire.SetWriteDeadline(time.Time{}) // it would end a later direct write
}

// wakeLocked leaves the buffer to the flusher. flushing is set.
func (s *session) wakeLocked() {
	s.turn = true
	switch {
	case s.flusherUp:
		s.kickLocked()
	case s.broke == nil: // so the reader has not ended, and end waits for this one too
		s.flusherUp, s.dismissed = true, false
		s.gone.Go(s.flusher)
	}
}

func (s *session) kickLocked() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// flusher writes for callers that must not or may not. It ends when the session breaks, or when it was dismissed and there
// is nothing to write.
func (s *session) flusher() {
	for s.flush() {
		select {
		case <-s.broken:
			return
		case <-s.kick:
		}
	}
}

// flush writes until nothing is left, or what is left gathers. It reports whether the flusher stays.
func (s *session) flush() bool {
	for {
		runtime.Gosched() // as in writeInline
		s.mu.Lock()
		if s.broke != nil {
			s.mu.Unlock()
			return false
		}
		if !s.turn || s.emptyLocked() || s.holdsLocked() { // without its turn it was dismissed, and a caller may write
			s.flushing, s.turn = s.flushing && !s.turn, false
			stays := !s.dismissed
			s.flusherUp = stays
			s.mu.Unlock()
			return stays
		}
		buf := s.takeLocked()
		s.mu.Unlock()
		if err := s.write(buf); err != nil {
			s.fail(member.ErrBroken, fmt.Errorf("write: %w", err))
			return false
		}
		s.mu.Lock()
		s.giveLocked(buf)
		s.mu.Unlock()
	}
}

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
	f := feed{br: br}
	for fresh := false; ; {
		if f.br.Buffered() == 0 {
			s.letGo()
			if err := f.fill(s.link.source); err != nil {
				return err
			}
			s.now, fresh = time.Now(), true // not before any reply of this batch arrived
		}
		br := f.br
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
		if s.next == len(s.batch) && !s.refill() {
			return protocolError("a reply to nothing")
		}
		if n := s.batch[s.next].together; n > 1 {
			if err := s.joined(br, int(n)); err != nil {
				return err
			}
			continue
		}
		entry := s.batch[s.next]
		if err := readReply(br, &entry.call.Reply, 0); err != nil {
			return err
		}
		if !entry.answers() {
			return protocolError("AUTH was not answered")
		}
		s.batch[s.next] = slot{}
		s.next++
		s.complete(entry)
	}
}

// refill takes the line over from the callers, and reports whether there is one. Items stay theirs:
// nobody answers what is not encoded yet, and joinLocked counts them in the queue.
func (s *session) refill() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	encoded := len(s.queue) - len(s.items)
	items := s.queue[encoded:]
	s.batch, s.queue = s.queue[:encoded], append(s.batch[:0], items...)
	clear(items)
	s.next = 0
	return len(s.batch) > 0
}

func (s *session) leave(entry slot) {
	s.answeredBytes.Add(int64(entry.size))
	s.answered.Add(1)
}

// complete hands over one call that was answered.
func (s *session) complete(entry slot) {
	c := entry.call
	c.At = s.now
	if c.Reply.Kind != '-' {
		s.leave(entry)
		c.Outcome = member.Answered
		if entry.acked {
			s.held = c
			return
		}
		c.Finish()
		return
	}
	refused := classify(string(c.Reply.Str))
	if again := refused.Kind == member.KindNoScript && !entry.repaired; again || entry.refused {
		repeat := s.repair
		if !again {
			repeat = s.repeatAlone
		}
		if done, err := repeat(entry); done {
			return
		} else if err != nil {
			s.leave(entry)
			s.node.finish(c, member.NotSent, err)
			return
		}
	}
	if entry.joined && (refused.Kind == member.KindAuth || strings.HasPrefix(refused.Text, alone)) {
		s.travelApart() // such a call is told which command it was
	}
	if refused.Kind == member.KindAuth {
		refused = naming(refused, string(c.Reply.Str), s.node.sourceOf(c))
	}
	s.leave(entry)
	if s.node.seat.Suspects(refused) && c.State.Gen == s.node.State().Gen {
		s.node.suspicion()
	}
	s.node.finish(c, member.Refused, refused)
}

// repair puts a call that was answered NOSCRIPT, and so was not executed, in line again as EVAL
// with the source of the script. It reports whether it did; an error says that the call must not be
// sent again, and neither that the script is not ours.
func (s *session) repair(entry slot) (done bool, _ error) {
	c := entry.call
	source, at, ok := s.node.script(c)
	if !ok {
		return false, nil
	}
	return s.repeat(entry, true, func() {
		if c.Item != nil && s.reloading == 0 {
			s.reloadLocked(c.Item.Batch)
		}
	}, func() {
		if _, size := s.inFlightLocked(); size+int64(len(source)) <= int64(s.node.cfg.MaxBytes) {
			s.wbuf = append(append(s.wbuf, c.Cmd[:at]...), "$4\r\nEVAL\r\n"...)
			s.wbuf = resp.AppendBulk(s.wbuf, source)
			s.wbuf = s.node.appendFrom(s.wbuf, c, int(c.Marks.Count))
		} else {
			s.wbuf = s.node.appendCall(s.wbuf, c) // enough EVALs of it are in line already, they load it
		}
	})
}

// repeat puts a call that was not executed in line again, as encode writes it, behind what first
// writes. repaired: it is not repaired once more.
//
// That the attempt has not begun its release is checked in the critical section that queues: the
// attempt sets Ended before it submits the release, so either the release sees the repeated call
// before it in line, or this sees Ended. Otherwise the call would execute behind its own release
// and leave a key that nobody owns.
func (s *session) repeat(entry slot, repaired bool, first, encode func()) (done bool, _ error) {
	c := entry.call
	s.mu.Lock()
	if s.broke != nil {
		err := s.err
		s.mu.Unlock()
		return false, err
	}
	now := s.node.published.Load()
	if c.Over() || c.Tagged && !c.Always && c.State.Gen != now.state.Gen {
		s.mu.Unlock()
		return false, s.node.errEnded
	}
	s.joinLocked() // what waits in line is written before
	first()
	if c.Asking() {
		s.askingLocked()
	}
	before := len(s.wbuf)
	encode()
	if c.Tagged {
		s.wbuf = resp.AppendBulk(s.wbuf, now.tag)
	}
	s.leave(entry) // the old place in line
	s.enqueueLocked(slot{call: c, size: len(s.wbuf) - before, repaired: repaired, acked: entry.acked})
	if entry.acked {
		s.waitLocked()
	}
	if !s.flushing {
		s.flushing = true
		s.wakeLocked()
	}
	s.mu.Unlock()
	return true, nil
}

// reloadLocked queues SCRIPT LOAD of the script of batches. It comes by no other way, because the calls
// of a batch are repaired one by one. EVAL brings every other script, when a call needs it.
func (s *session) reloadLocked(batch string) {
	load := resp.Command("SCRIPT", "LOAD", s.node.scripts[batch])
	s.reloading++
	s.wbuf = append(s.wbuf, load...)
	s.enqueueLocked(slot{call: ownCall(load, (*reload)(s)), size: len(load)})
}

// reload counts the SCRIPT LOADs of a session that are done.
type reload session

func (r *reload) Done(c *member.Call) {
	s := (*session)(r)
	refused, _ := c.Err.(*member.ReplyError)
	s.mu.Lock()
	s.reloading--
	if refused != nil && notPermitted(refused) {
		s.apart = true // the batches' script comes by no other way
	}
	s.mu.Unlock()
}

// abandon completes every call in line after the connection has ended. It is the reader's last act;
// submit has refused since fail, so nothing can be queued behind it.
func (s *session) abandon() {
	s.mu.Lock()
	rest, sent, unsent, lost := s.queue, s.sent, s.err, s.lost
	s.queue, s.wbuf, s.spare, s.items = nil, nil, nil, nil
	s.mu.Unlock()
	position := s.answered.Load() // the number of the first call in line
	for _, part := range [][]slot{s.batch[s.next:], rest} {
		for _, entry := range part {
			s.leave(entry)
			if position < sent {
				s.node.finish(entry.call, member.Unknown, lost)
			} else {
				s.node.finish(entry.call, member.NotSent, unsent)
			}
			position++
		}
	}
	s.batch, s.next = nil, 0
}

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

// room is the pause before another look when the line is full and releases are owed.
const room = 20 * time.Millisecond

// pay submits the debts that are due, as many as half of the line takes: the other half is for
// calls from outside. all ignores how full the line is: for a new connection, on which debts come
// before anything else. It returns the time until more are due, 0 for none.
func (n *Node) pay(s *session, all bool) time.Duration {
	limit := math.MaxInt
	if !all {
		if n.owed.none() {
			return 0
		}
		if limit = n.places(s); limit <= 0 {
			return room
		}
	}
	debts, more := n.owed.due(time.Now(), limit, all)
	for i, d := range debts {
		if !all && n.places(s) <= 0 {
			n.owed.release(debts[i:])
			return room
		}
		if err := s.submit(&d.call, true); err != nil {
			n.owed.release(debts[i:])
			return more
		}
	}
	if len(debts) == limit {
		return room
	}
	return more
}

// places is how many debts the line takes now.
func (n *Node) places(s *session) int {
	calls, size := s.inFlight()
	if 2*size > int64(n.cfg.MaxBytes) {
		return 0
	}
	return n.cfg.MaxCalls/2 - calls + 1
}
