package entry

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// wire is one raw connection shared by all callers. Whoever finds it idle writes everything that is
// queued; one goroutine reads and books the answers, in the order of the requests.
//
// It is as fast as such a connection gets: the socket is written to directly, a caller that finds the
// member busy lets others join its write, and nothing is allocated for an operation.
type wire struct {
	conn net.Conn
	raw  syscall.RawConn
	gone chan struct{} // closed when the reader has ended

	mu       sync.Mutex // guards the fields below; not held over a write
	queued   []byte
	spare    []byte
	writing  bool
	dead     error
	asked    []booking // requests that the reader has not taken
	answered int       // requests that the reader has taken from asked, and not answered

	// What the writing caller hands to put, so that a write allocates nothing.
	out   []byte
	wrote int
	bad   error
	put   func(fd uintptr) bool
}

// answerer hears of answers.
type answerer interface {
	// answer is called by the readers of all members, by several at once. r is valid until it returns.
	answer(member int, op uint64, r reply, ok bool)
}

// booking is who hears the answer to one request; nobody if to is nil.
type booking struct {
	to     answerer
	op     uint64
	member int
}

func (b booking) answer(r reply, ok bool) {
	if b.to != nil {
		b.to.answer(b.member, b.op, r, ok)
	}
}

// backlog bounds the requests that a member has not answered. Whoever returns at the majority can get
// that far ahead of a slow member.
const backlog = 16384

// busy is from how many requests without an answer on a caller lets others join its write.
const busy = 4

var errBehind = errors.New("member is too far behind")

func dialWire(ctx context.Context, addr string, scripts ...string) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(conn, 1<<16)
	if deadline, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	for _, s := range scripts {
		if err := load(conn, in, s); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	_ = conn.SetDeadline(time.Time{})
	w := &wire{conn: conn, gone: make(chan struct{})}
	if w.raw, err = conn.(syscall.Conn).SyscallConn(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w.put = func(fd uintptr) bool {
		w.wrote, w.bad = syscall.Write(int(fd), w.out)
		return true
	}
	go w.read(in) // ends with the connection
	return w, nil
}

func load(conn net.Conn, in *bufio.Reader, script string) error {
	if _, err := conn.Write(command("SCRIPT", "LOAD", script)); err != nil {
		return err
	}
	r, err := readReply(in)
	if err == nil && r.kind == '-' {
		err = fmt.Errorf("a script is refused: %s", r.text)
	}
	return err
}

func (w *wire) Close() { _ = w.conn.Close() }

// send queues a request. limited requests are refused when the member is too far behind, and by a dead
// connection all are: then nobody will hear of it.
func (w *wire) send(request []byte, b booking, limited bool) error {
	return w.sendMany(request, 1, b, limited)
}

// sendMany queues n requests in one piece; one booking hears all their answers.
func (w *wire) sendMany(request []byte, n int, b booking, limited bool) error {
	w.mu.Lock()
	if w.dead != nil {
		w.mu.Unlock()
		return w.dead
	}
	pending := w.answered + len(w.asked)
	if limited && pending >= backlog {
		w.mu.Unlock()
		return errBehind
	}
	for range n {
		w.asked = append(w.asked, b)
	}
	w.queued = append(w.queued, request...)
	if w.writing {
		w.mu.Unlock()
		return nil
	}
	w.writing = true
	if pending >= busy {
		w.mu.Unlock()
		runtime.Gosched()
		w.mu.Lock()
	}
	for w.dead == nil && len(w.queued) > 0 {
		w.out = w.queued
		w.queued = w.spare[:0]
		w.mu.Unlock()
		err := w.write()
		w.mu.Lock()
		w.spare = w.out[:0]
		if err != nil {
			w.end(err)
		}
	}
	w.writing = false
	w.mu.Unlock()
	return nil
}

// write writes what is in out: directly, and what the socket does not take at once through the runtime.
func (w *wire) write() error {
	err := w.raw.Write(w.put)
	if err != nil {
		return err
	}
	if w.bad != nil {
		if !errors.Is(w.bad, syscall.EAGAIN) && !errors.Is(w.bad, syscall.EINTR) {
			return w.bad
		}
		w.wrote = 0
	}
	if w.wrote < len(w.out) {
		_, err = w.conn.Write(w.out[w.wrote:])
	}
	return err
}

// end ends the connection; mu is held. Its reader answers what is left.
func (w *wire) end(err error) {
	if w.dead == nil {
		w.dead = err
		_ = w.conn.Close()
	}
}

// read answers requests in their order. It takes all that were asked at once.
func (w *wire) read(in *bufio.Reader) {
	defer close(w.gone)
	var taken []booking
	at := 0
	for {
		r, err := readReply(in)
		if err == nil && at == len(taken) {
			w.mu.Lock()
			taken, w.asked = w.asked, taken[:0]
			w.answered, at = len(taken), 0
			w.mu.Unlock()
			if len(taken) == 0 {
				err = errors.New("an answer to no request")
			}
		}
		if err != nil {
			w.mu.Lock()
			w.end(err)
			left := append(taken[at:], w.asked...)
			w.asked, w.answered = nil, 0
			w.mu.Unlock()
			for _, b := range left {
				b.answer(reply{}, false)
			}
			return
		}
		b := taken[at]
		taken[at].to = nil
		at++
		b.answer(r, r.kind != '-')
	}
}

// reply is what a request was answered with.
type reply struct {
	kind byte   // '+' ':' '$' '-'; 0 for nil
	n    int64  // ':'
	text []byte // '$' and '-', valid until the next reply is read; '+' has none, it is always OK here
}

// readReply reads what the requests of the floors are answered with. Of an array the first item is
// the reply, without its text.
func readReply(in *bufio.Reader) (r reply, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return r, err
	}
	if len(line) < 3 {
		return r, fmt.Errorf("bad reply %q", line)
	}
	kind, line := line[0], line[1:len(line)-2]
	switch kind {
	case '+':
		return reply{kind: '+'}, nil
	case '-':
		return reply{kind: '-', text: line}, nil
	case ':':
		return reply{kind: ':', n: parseInt(line)}, nil
	case '$':
		n := int(parseInt(line))
		if n < 0 {
			return r, nil
		}
		text, err := in.Peek(n + 2) // all of them fit into the reader
		if err != nil {
			return r, err
		}
		_, err = in.Discard(n + 2)
		return reply{kind: '$', text: text[:n]}, err
	case '*':
		items := parseInt(line)
		for i := range items {
			item, err := readReply(in)
			if err != nil {
				return r, err
			}
			if i == 0 {
				r = reply{kind: item.kind, n: item.n}
			}
		}
		return r, nil
	}
	return r, fmt.Errorf("bad reply %q", line)
}

func parseInt(b []byte) (n int64) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	for _, c := range b {
		n = n*10 + int64(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

// fan collects the answers to one request at all members, and wakes its caller once, when it is
// decided. A vote is one addition.
type fan struct {
	yes      func(reply) bool
	need     int64 // votes for a yes
	deny     int64 // answers against that decide for a no
	expected int64
	// votes for in the lowest 24 bits, against in the 24 above; above them whether the caller has gone
	votes atomic.Int64
	woken chan bool
}

const (
	against  = 1 << 24
	callerGo = 1 << 48
	votes24  = against - 1
)

var fans = sync.Pool{New: func() any { return &fan{woken: make(chan bool, 1)} }}

func newFan(members int, yes func(reply) bool) *fan {
	f := fans.Get().(*fan)
	f.yes, f.need, f.deny, f.expected = yes, int64(members/2+1), int64(members-members/2), int64(members)
	f.votes.Store(0)
	return f
}

func (f *fan) answer(_ int, _ uint64, r reply, ok bool) {
	var v int64
	need, deny, expected := f.need, f.deny, f.expected // behind its addition the fan may be another request's
	// Only one of these can decide: need and deny together are more than there are answers.
	if ok && f.yes(r) {
		if v = f.votes.Add(1); v&votes24 == need {
			f.woken <- true // has room: one decision per use
		}
	} else if v = f.votes.Add(against); v/against&votes24 == deny {
		f.woken <- false
	}
	f.leave(v, expected)
}

// leave gives the fan back if this was the last that uses it.
func (f *fan) leave(v, expected int64) {
	if v >= callerGo && v&votes24+v/against&votes24 == expected {
		fans.Put(f)
	}
}

// wait returns the decision. The fan goes back to the pool when all members have answered.
func (f *fan) wait(ctx context.Context) (won bool, err error) {
	expected := f.expected
	select {
	case won = <-f.woken:
		f.leave(f.votes.Add(callerGo), expected)
		return won, nil
	case <-ctx.Done():
		return false, ctx.Err() // the fan is left to the collector: a decision may still be in woken
	}
}

// decided returns the decision as wait does, whatever ends meanwhile: to look at a context costs more
// than the rest of it.
func (f *fan) decided() bool {
	won, expected := <-f.woken, f.expected
	f.leave(f.votes.Add(callerGo), expected)
	return won
}

// wires are the connections of one client to all members. Those that are down are dialled again.
type wires struct {
	addrs   []string
	scripts []string
	at      []atomic.Pointer[wire]
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup
}

func dialWires(ctx context.Context, addrs []string, scripts ...string) (*wires, error) {
	ws := &wires{addrs: addrs, scripts: scripts, at: make([]atomic.Pointer[wire], len(addrs))}
	ws.ctx, ws.cancel = context.WithCancel(context.Background())
	up := make(chan error, len(addrs))
	for i := range addrs {
		ws.wg.Go(func() { ws.keep(i, up) })
	}
	good, bad := 0, 0
	var errs []error
	for good <= len(addrs)/2 && bad < len(addrs)-len(addrs)/2 {
		select {
		case err := <-up:
			if err != nil {
				bad++
				errs = append(errs, err)
			} else {
				good++
			}
		case <-ctx.Done():
			ws.Close()
			return nil, ctx.Err()
		}
	}
	if good <= len(addrs)/2 {
		ws.Close()
		return nil, errors.Join(errs...)
	}
	// Members that answer are waited for, briefly: all of them should be there when it begins.
	grace := time.After(100 * time.Millisecond)
	for good+bad < len(addrs) {
		select {
		case err := <-up:
			if err != nil {
				bad++
			} else {
				good++
			}
		case <-grace:
			return ws, nil
		}
	}
	return ws, nil
}

// keep has one member connected until Close, and tells once how the first dial went.
func (ws *wires) keep(i int, up chan<- error) {
	for first := true; ws.ctx.Err() == nil; first = false {
		ctx, cancel := context.WithTimeout(ws.ctx, time.Second)
		w, err := dialWire(ctx, ws.addrs[i], ws.scripts...)
		cancel()
		if err == nil {
			ws.at[i].Store(w)
		}
		if first {
			up <- err
		}
		if err == nil {
			select {
			case <-ws.ctx.Done():
				w.Close()
				<-w.gone
				return
			case <-w.gone:
			}
		}
		select {
		case <-ws.ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ask sends a request to the members of the mask and returns to which it went. Who answers for the
// others is to; nil: nobody hears of any.
func (ws *wires) ask(request []byte, to answerer, op uint64, mask uint32, limited bool) (sent uint32) {
	for i := range ws.at {
		b := booking{to: to, op: op, member: i}
		if mask>>i&1 == 1 {
			if w := ws.at[i].Load(); w != nil && w.send(request, b, limited) == nil {
				sent |= 1 << i
				continue
			}
		}
		b.answer(reply{}, false)
	}
	return sent
}

func (ws *wires) everybody() uint32 { return 1<<len(ws.addrs) - 1 }

func (ws *wires) Close() {
	ws.cancel()
	ws.wg.Wait()
}

func command(args ...string) []byte { return appendCommand(nil, args...) }

func appendCommand(b []byte, args ...string) []byte {
	b = appendHead(b, len(args))
	for _, a := range args {
		b = appendBulk(b, a)
	}
	return b
}

// appendHead begins a request of n arguments.
func appendHead(b []byte, n int) []byte { return appendCount(b, '*', n) }

func appendCount(b []byte, kind byte, n int) []byte {
	return append(strconv.AppendInt(append(b, kind), int64(n), 10), '\r', '\n')
}

func appendBulk[T string | []byte](b []byte, arg T) []byte {
	return append(append(appendCount(b, '$', len(arg)), arg...), '\r', '\n')
}

func appendIntBulk(b []byte, n int64) []byte {
	var digits [20]byte
	return appendBulk(b, strconv.AppendInt(digits[:0], n, 10))
}

func sha1hex(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}
