package redistest

import (
	"cmp"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// segment is a piece of a stream on its way. end marks the end of the stream, which is orderly without err.
type segment struct {
	data []byte
	due  time.Time
	end  bool
	err  error
}

// stream is one direction of a connection.
type stream struct {
	queue []segment // in order of due
	bytes int       // in queue
	lost  bool      // something was lost: nothing more can arrive
}

func (s *stream) push(seg segment) {
	if n := len(s.queue); n > 0 && seg.due.Before(s.queue[n-1].due) {
		seg.due = s.queue[n-1].due
	}
	s.queue = append(s.queue, seg)
	s.bytes += len(seg.data)
}

func (s *stream) pop() segment {
	seg := s.queue[0]
	s.queue[0] = segment{}
	if s.queue = s.queue[1:]; len(s.queue) == 0 {
		s.queue = nil
	}
	s.bytes -= len(seg.data)
	return seg
}

// expect is a place in the order of replies.
type expect struct {
	frames int    // still to come from the server; 0: made up here
	made   []byte // then this is the reply
	act    action
	d      time.Duration
	sub    bool // its replies are confirmations of (un)subscribing
}

// relay is one connection through a Link. Its client holds it as a *conn. One goroutine, run,
// carries requests to the server; replies are queued by whoever brings them and taken by Read.
//
// All fields but server are guarded by link.mu.
type relay struct {
	link   *Link
	addr   string
	server backend // set before run starts
	change *sync.Cond
	serial int // place among the dials of the link

	upSeed, downSeed, pushSeed uint64 // of delays

	up      stream
	down    stream
	arrived []byte // what Read may take; due passed before the latest fault
	atEnd   bool   // after arrived comes the end of the stream
	endErr  error  // what Read returns there; nil is io.EOF

	// The client's side.
	closed        bool  // by the client
	broken        error // reset: reading and writing fail
	readDeadline  time.Time
	writeDeadline time.Time

	// The server's side.
	dead bool // run must stop; nothing more is forwarded
	gone bool // the server has closed

	zombieArmed bool
	zombieDelay time.Duration
	zombie      bool
	holdUntil   time.Time // nothing is forwarded before

	requests framer
	answers  framer
	raw      bool // not RESP: carried, not understood
	expected []expect
	subs     [3]map[string]struct{} // channels, patterns, sharded channels
	everSub  bool
}

func newRelay(l *Link, addr string) *relay {
	r := &relay{link: l, addr: addr}
	r.change = sync.NewCond(&l.mu)
	return r
}

// seedLocked restarts the random numbers of the connection.
func (r *relay) seedLocked() {
	for _, to := range []*uint64{&r.upSeed, &r.downSeed, &r.pushSeed} {
		*to = r.link.rand.Uint64()
	}
}

// run forwards requests until the connection has ended on either side. Owned by the Link, whose
// Close ends it and waits.
func (r *relay) run() {
	defer r.leave()
	for {
		seg, ok := r.takeRequest()
		switch {
		case !ok:
			return
		case seg.end:
			r.server.close()
			return
		case !r.forward(seg.data):
			r.awaitGone()
			return
		}
	}
}

// awaitGone waits until the server's side is known to have ended, if a request could not be sent. What the
// server wrote before its end is read until then: a client gets that, too, before its socket is reset.
func (r *relay) awaitGone() {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	for !r.dead && !r.closed && r.broken == nil {
		r.change.Wait()
	}
}

func (r *relay) leave() {
	r.server.close()
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.dead = true
	r.up = stream{lost: true}
	r.change.Broadcast()
	if r.closed || r.broken != nil { // else Close forgets it: Read may still wait for a flow
		delete(r.link.conns, r)
	}
}

// takeRequest waits for the next piece of the request stream that is due.
func (r *relay) takeRequest() (segment, bool) {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	for !r.dead {
		if len(r.up.queue) == 0 || r.link.requests == held {
			r.change.Wait()
			continue
		}
		due := r.up.queue[0].due
		if due.Before(r.holdUntil) {
			due = r.holdUntil
		}
		if time.Now().Before(due) {
			waitUntil(r.change, due)
			continue
		}
		seg := r.up.pop()
		r.change.Broadcast() // a writer may wait for room
		return seg, true
	}
	return segment{}, false
}

// pauseUntil keeps run where it is, and reports whether it may go on.
func (r *relay) pauseUntil(t time.Time) bool {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	for !r.dead && time.Now().Before(t) {
		waitUntil(r.change, t)
	}
	return !r.dead
}

// forward cuts a piece of the stream into commands and passes them on, each as the rules say.
// Commands without a rule travel together.
func (r *relay) forward(p []byte) bool {
	if r.isRaw() || startsRaw(r.requests.buf, p) {
		r.setRaw()
		return r.server.sendRaw(append(r.requests.rest(), p...)) == nil
	}
	r.requests.feed(p)
	var plain []command
	flush := func() bool {
		if len(plain) == 0 {
			return true
		}
		err := r.server.send(plain)
		plain = nil
		return err == nil
	}
	for {
		cmd, ok, err := r.requests.command()
		if err != nil {
			r.setRaw()
			return flush() && r.server.sendRaw(r.requests.rest()) == nil
		}
		if !ok {
			return flush()
		}
		if len(cmd.args) == 0 {
			plain = append(plain, cmd)
			continue
		}
		r.link.mu.Lock()
		rule, calls := r.link.pickLocked(cmd.args)
		r.link.mu.Unlock()
		if calls != nil {
			if !flush() {
				return false
			}
			for _, f := range calls {
				f(cmd.args)
			}
		}
		if rule == nil {
			if !r.expectReply(cmd, forward, 0) {
				return false
			}
			plain = append(plain, cmd)
			continue
		}
		if !flush() || !r.apply(rule, cmd) {
			return false
		}
	}
}

// apply does what a rule asks for, and reports whether the connection goes on.
func (r *relay) apply(rule *Rule, cmd command) bool {
	switch rule.act {
	case answer:
		r.answerHere(rule.text)
		return true
	case cutBefore:
		r.cut()
		return false
	case zombie:
		r.link.mu.Lock()
		r.zombieLocked(rule.d)
		until := r.holdUntil
		r.link.mu.Unlock()
		if !r.pauseUntil(until) {
			return false
		}
	case delayArrive:
		if !r.pauseUntil(time.Now().Add(rule.d)) {
			return false
		}
	}
	return r.expectReply(cmd, rule.act, rule.d) && r.server.send([]command{cmd}) == nil
}

// startsRaw reports whether a stream that begins with these bytes is not RESP, such as TLS.
func startsRaw(before, p []byte) bool {
	return len(before) == 0 && len(p) > 0 && p[0] < ' ' && p[0] != '\r' && p[0] != '\n'
}

func (r *relay) isRaw() bool {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	return r.raw
}

func (r *relay) setRaw() {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.setRawLocked()
}

func (r *relay) setRawLocked() {
	r.raw = true
	r.expected = nil
	if rest := r.answers.rest(); len(rest) > 0 {
		r.deliverLocked(rest, 0)
	}
}

// expectReply notes which replies a command will have. It must come before the command is sent.
func (r *relay) expectReply(cmd command, act action, d time.Duration) bool {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if r.dead {
		return false
	}
	e := expect{frames: 1, act: act, d: d}
	switch name := cmd.name(); name {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		e.frames, e.sub, r.everSub = max(1, len(cmd.args)-1), true, true
		set := r.subsOf(name[0])
		for _, c := range cmd.args[1:] {
			set[c] = struct{}{}
		}
	case "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE":
		e.sub, r.everSub = true, true
		set := r.subsOf(name[0])
		if len(cmd.args) == 1 {
			e.frames = max(1, len(set))
			clear(set)
		} else {
			e.frames = len(cmd.args) - 1
			for _, c := range cmd.args[1:] {
				delete(set, c)
			}
		}
	}
	r.expected = append(r.expected, e)
	return true
}

func (r *relay) subsOf(initial byte) map[string]struct{} {
	i := 0
	switch {
	case initial == 'P':
		i = 1
	case initial == 'S':
		i = 2
	}
	if r.subs[i] == nil {
		r.subs[i] = map[string]struct{}{}
	}
	return r.subs[i]
}

// answerHere puts a made-up reply in its place behind the replies still to come.
func (r *relay) answerHere(reply []byte) {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	r.expected = append(r.expected, expect{made: reply})
	r.madeUpLocked()
}

// madeUpLocked delivers the made-up replies whose turn it is.
func (r *relay) madeUpLocked() {
	for len(r.expected) > 0 && r.expected[0].frames == 0 {
		e := r.expected[0]
		r.expected = r.expected[1:]
		r.deliverLocked(e.made, 0)
	}
}

// fromServer takes what the server sends.
func (r *relay) fromServer(p []byte) {
	r.link.mu.Lock()
	var cut bool
	defer func() {
		r.link.mu.Unlock()
		if cut {
			r.server.abort()
		}
	}()
	if r.broken != nil || r.closed || r.down.lost {
		return
	}
	if r.raw {
		r.deliverLocked(append([]byte(nil), p...), 0)
		return
	}
	r.answers.feed(p)
	for {
		frame, ok, err := r.answers.reply()
		if err != nil {
			r.setRawLocked()
			return
		}
		if !ok {
			return
		}
		if cut = r.replyLocked(frame); cut {
			return
		}
	}
}

// replyLocked finds the place of one frame and delivers it. It reports whether the connection was
// cut instead.
func (r *relay) replyLocked(frame []byte) (cut bool) {
	if r.isPushLocked(frame) {
		if late, lost := r.link.pushFateLocked(r.pushSeed); !lost {
			r.deliverLocked(frame, late)
		}
		return false
	}
	if len(r.expected) == 0 {
		r.deliverLocked(frame, 0) // unasked, like "max number of clients reached"
		return false
	}
	e := &r.expected[0]
	switch e.act {
	case cutAfter:
		r.cutLocked()
		return true
	case loseReply:
		r.down.lost = true
	case delayReply:
		r.deliverLocked(frame, e.d)
	default:
		r.deliverLocked(frame, 0)
	}
	if e.frames--; e.frames == 0 || frame[0] == '-' {
		r.expected = r.expected[1:]
		r.madeUpLocked()
	}
	return false
}

// isPushLocked tells a pub/sub message from a reply: by its kind on a connection that subscribes,
// and by its type where RESP3 is spoken.
func (r *relay) isPushLocked(frame []byte) bool {
	if frame[0] != '>' && (frame[0] != '*' || !r.everSub) {
		return false
	}
	switch pushKind(frame) {
	case "message", "pmessage", "smessage":
		return true
	case "subscribe", "psubscribe", "ssubscribe", "unsubscribe", "punsubscribe", "sunsubscribe":
		return len(r.expected) == 0 || !r.expected[0].sub // sent unasked when a slot moves away
	}
	return frame[0] == '>'
}

// deliverLocked queues bytes for the client.
func (r *relay) deliverLocked(p []byte, late time.Duration) {
	if r.down.lost || r.link.replies == lost || r.zombie {
		r.down.lost = true
		return
	}
	r.down.push(segment{data: p, due: time.Now().Add(draw(r.downSeed, time.Now(), r.link.repliesDelay) + late)})
	r.change.Broadcast()
}

// serverGone notes that the server has closed the connection: err is io.EOF when it did so in order.
// It may come more than once.
func (r *relay) serverGone(err error) {
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if r.gone {
		return
	}
	r.gone, r.dead = true, true
	switch {
	case r.down.lost || r.link.replies == lost:
		r.down.lost = true
	default: // behind what the server wrote before
		end := segment{end: true, due: time.Now().Add(draw(r.downSeed, time.Now(), r.link.repliesDelay))}
		if err != io.EOF {
			end.err = reset("read")
		}
		r.down.push(end)
	}
	r.change.Broadcast()
}

// settleLocked makes readable what has arrived by now.
func (r *relay) settleLocked(now time.Time) {
	if r.link.replies == held {
		return
	}
	for len(r.down.queue) > 0 && !now.Before(r.down.queue[0].due) {
		seg := r.down.pop()
		if seg.end {
			r.atEnd, r.endErr = true, seg.err
			continue
		}
		r.arrived = append(r.arrived, seg.data...)
	}
}

// dropLocked loses what is under way in one direction.
func (r *relay) dropLocked(s *stream) {
	if len(s.queue) > 0 {
		*s = stream{lost: true}
	}
}

// zombieLocked breaks the client's side; what it wrote is forwarded after d, and then the end.
func (r *relay) zombieLocked(d time.Duration) {
	if r.zombie || r.dead {
		return
	}
	r.zombie, r.zombieArmed = true, false
	r.holdUntil = time.Now().Add(d)
	r.breakLocked()
	r.up.push(segment{end: true})
}

// cutLocked breaks both sides. The caller aborts the server's side after releasing the mutex.
func (r *relay) cutLocked() {
	r.dead = true
	r.up = stream{lost: true}
	r.breakLocked()
	delete(r.link.conns, r)
}

func (r *relay) breakLocked() {
	if r.broken == nil {
		r.broken = reset("read")
	}
	r.arrived, r.atEnd = nil, false
	r.down = stream{lost: true}
	r.change.Broadcast()
}

func (r *relay) cut() {
	r.link.mu.Lock()
	r.cutLocked()
	r.link.mu.Unlock()
	r.server.abort()
}

// conn is the client's end of a relay.
type conn relay

func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Addr: address(c.addr), Err: err}
}

func (c *conn) Read(p []byte) (int, error) {
	r := (*relay)(c)
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	for {
		now := time.Now()
		switch {
		case r.closed:
			return 0, c.opError("read", net.ErrClosed)
		case passed(r.readDeadline, now):
			return 0, c.opError("read", os.ErrDeadlineExceeded)
		case len(p) == 0:
			return 0, nil
		}
		r.settleLocked(now)
		if len(r.arrived) > 0 {
			n := copy(p, r.arrived)
			if r.arrived = r.arrived[n:]; len(r.arrived) == 0 {
				r.arrived = nil
			}
			return n, nil
		}
		if r.broken == nil && r.atEnd && r.endErr == nil {
			return 0, io.EOF
		}
		if err := cmp.Or(r.broken, r.endErr); err != nil {
			return 0, c.opError("read", err)
		}
		wake := r.readDeadline
		if len(r.down.queue) > 0 && r.link.replies != held {
			if due := r.down.queue[0].due; wake.IsZero() || due.Before(wake) {
				wake = due
			}
		}
		waitUntil(r.change, wake)
	}
}

func (c *conn) Write(p []byte) (int, error) {
	r := (*relay)(c)
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	for {
		now := time.Now()
		r.settleLocked(now)
		switch {
		case r.closed:
			return 0, c.opError("write", net.ErrClosed)
		case passed(r.writeDeadline, now):
			return 0, c.opError("write", os.ErrDeadlineExceeded)
		case r.broken != nil:
			return 0, c.opError("write", os.NewSyscallError("write", syscall.EPIPE))
		case r.atEnd: // the server has closed: it answers with a reset
			r.broken = reset("read")
			return len(p), nil
		}
		if r.link.window == 0 || r.up.bytes < r.link.window {
			break
		}
		waitUntil(r.change, r.writeDeadline)
	}
	if len(p) == 0 || r.dead || r.up.lost || r.link.requests == lost {
		r.up.lost = r.up.lost || len(p) > 0
		return len(p), nil
	}
	due := time.Now().Add(draw(r.upSeed, time.Now(), r.link.requestDelay))
	r.up.push(segment{data: append([]byte(nil), p...), due: due})
	if r.zombieArmed {
		r.zombieLocked(r.zombieDelay)
	}
	r.change.Broadcast()
	return len(p), nil
}

// Close ends the connection behind what was written, which still arrives.
func (c *conn) Close() error {
	r := (*relay)(c)
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if r.closed {
		return c.opError("close", net.ErrClosed)
	}
	r.closed = true
	if !r.zombie {
		if !r.up.lost && r.link.requests != lost {
			r.up.push(segment{end: true, due: time.Now().Add(draw(r.upSeed, time.Now(), r.link.requestDelay))})
		}
		r.down = stream{lost: true}
		r.arrived = nil
	}
	if r.dead {
		delete(r.link.conns, r)
	}
	r.change.Broadcast()
	return nil
}

func passed(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

func (c *conn) LocalAddr() net.Addr  { return address("client of " + c.addr) }
func (c *conn) RemoteAddr() net.Addr { return address(c.addr) }

func (c *conn) SetDeadline(t time.Time) error { return c.setDeadlines(&t, &t) }

func (c *conn) SetReadDeadline(t time.Time) error { return c.setDeadlines(&t, nil) }

func (c *conn) SetWriteDeadline(t time.Time) error { return c.setDeadlines(nil, &t) }

func (c *conn) setDeadlines(read, write *time.Time) error {
	r := (*relay)(c)
	r.link.mu.Lock()
	defer r.link.mu.Unlock()
	if r.closed {
		return c.opError("set", net.ErrClosed)
	}
	if read != nil {
		r.readDeadline = *read
	}
	if write != nil {
		r.writeDeadline = *write
	}
	r.change.Broadcast()
	return nil
}
