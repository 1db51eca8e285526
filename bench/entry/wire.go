package entry

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// wire is one raw connection shared by all callers. Whoever finds it idle writes everything that is
// queued; one goroutine reads and books the answers, in the order of the requests.
type wire struct {
	conn net.Conn

	mu      sync.Mutex // guards the fields below; not held over a write
	queued  []byte
	spare   []byte
	writing bool
	dead    error
	asked   []booking // requests without an answer, from head on
	head    int
}

// booking is who hears the answer to one request.
type booking struct{ fan *fan }

// backlog bounds the requests that a member has not answered. Whoever returns at the majority can get
// that far ahead of a slow member.
const backlog = 4096

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
		if _, err = conn.Write(command("SCRIPT", "LOAD", s)); err == nil {
			_, err = readReply(in)
		}
		if err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	_ = conn.SetDeadline(time.Time{})
	w := &wire{conn: conn}
	go w.read(in) // ends with the connection
	return w, nil
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
	if limited && len(w.asked)-w.head >= backlog {
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
	for w.dead == nil && len(w.queued) > 0 {
		out := w.queued
		w.queued = w.spare[:0]
		w.mu.Unlock()
		_, err := w.conn.Write(out)
		w.mu.Lock()
		w.spare = out[:0]
		if err != nil {
			w.mu.Unlock()
			w.fail(err)
			w.mu.Lock()
		}
	}
	w.writing = false
	w.mu.Unlock()
	return nil
}

func (w *wire) next() (b booking, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.head == len(w.asked) {
		return b, false
	}
	b = w.asked[w.head]
	w.asked[w.head].fan = nil
	w.head++
	if w.head == len(w.asked) {
		w.asked, w.head = w.asked[:0], 0
	} else if w.head >= 1024 && w.head*2 >= len(w.asked) {
		w.asked, w.head = w.asked[:copy(w.asked, w.asked[w.head:])], 0
	}
	return b, true
}

func (w *wire) read(in *bufio.Reader) {
	for {
		r, err := readReply(in)
		var refused replyError
		if err != nil && !errors.As(err, &refused) {
			w.fail(err)
			return
		}
		b, ok := w.next()
		if !ok {
			w.fail(errors.New("an answer to no request"))
			return
		}
		b.fan.answer(r, err == nil)
	}
}

func (w *wire) fail(err error) {
	w.mu.Lock()
	if w.dead == nil {
		w.dead = err
	}
	w.mu.Unlock()
	_ = w.conn.Close()
	for {
		b, ok := w.next()
		if !ok {
			return
		}
		b.fan.answer(reply{}, false)
	}
}

// reply is what a request was answered with.
type reply struct {
	kind byte   // '+' ':' '$'; 0 for nil
	n    int64  // ':'
	text string // '$'; '+' has none, it is always OK here
}

type replyError string

func (e replyError) Error() string { return string(e) }

// readReply reads what the requests of the floors are answered with. Of an array the first integer is
// the reply.
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
		return r, replyError(line)
	case ':':
		return reply{kind: ':', n: parseInt(line)}, nil
	case '$':
		n := parseInt(line)
		if n < 0 {
			return r, nil
		}
		text := make([]byte, n+2)
		for got := 0; got < len(text); {
			m, err := in.Read(text[got:])
			if err != nil {
				return r, err
			}
			got += m
		}
		return reply{kind: '$', text: string(text[:n])}, nil
	case '*':
		items := parseInt(line)
		for i := range items {
			item, err := readReply(in)
			if err != nil {
				return r, err
			}
			if i == 0 {
				r = item
			}
		}
		return r, nil
	}
	return r, fmt.Errorf("bad reply %q", line)
}

// readItems reads an array of strings and integers, such as a published message.
func readItems(in *bufio.Reader) (items []reply, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	if len(line) < 4 || line[0] != '*' {
		return nil, fmt.Errorf("bad push %q", line)
	}
	for range parseInt(line[1 : len(line)-2]) {
		r, err := readReply(in)
		if err != nil {
			return nil, err
		}
		items = append(items, r)
	}
	return items, nil
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
// decided.
type fan struct {
	yes      func(reply) bool
	need     int // votes for a yes
	deny     int // answers against that decide for a no
	woken    chan bool
	mu       sync.Mutex // guards the fields below
	got      int
	against  int
	expected int
	answered int
	decided  bool
	left     bool // the caller has gone
}

// fans are kept by hand: a sync.Pool loses those that one processor takes and another returns.
var fans struct {
	mu   sync.Mutex
	free []*fan
}

func (f *fan) put() {
	fans.mu.Lock()
	fans.free = append(fans.free, f)
	fans.mu.Unlock()
}

func getFan() (f *fan) {
	fans.mu.Lock()
	if last := len(fans.free) - 1; last >= 0 {
		f, fans.free = fans.free[last], fans.free[:last]
	}
	fans.mu.Unlock()
	if f == nil {
		f = &fan{woken: make(chan bool, 1)}
	}
	return f
}

func newFan(members int, yes func(reply) bool) *fan {
	f := getFan()
	f.yes, f.need, f.deny = yes, members/2+1, members-members/2
	f.expected, f.answered, f.got, f.against, f.decided, f.left = members, 0, 0, 0, false, false
	return f
}

func (f *fan) answer(r reply, ok bool) {
	f.mu.Lock()
	f.answered++
	if ok && f.yes(r) {
		f.got++
	} else {
		f.against++
	}
	wake := !f.decided && (f.got >= f.need || f.against >= f.deny)
	if wake {
		f.decided = true
		f.woken <- f.got >= f.need // has room: one decision per use
	}
	done := f.left && f.answered == f.expected
	f.mu.Unlock()
	if done {
		f.put()
	}
}

// wait returns the decision. The fan goes back to the pool when all members have answered.
func (f *fan) wait(ctx context.Context) (won bool, err error) {
	select {
	case won = <-f.woken:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return false, err // and leave the fan to the collector: a decision may still be in woken
	}
	f.mu.Lock()
	f.left = true
	done := f.answered == f.expected
	f.mu.Unlock()
	if done {
		f.put()
	}
	return won, nil
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
		for err == nil {
			select {
			case <-ws.ctx.Done():
				w.Close()
				return
			case <-time.After(50 * time.Millisecond):
			}
			w.mu.Lock()
			err = w.dead
			w.mu.Unlock()
		}
		select {
		case <-ws.ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// ask sends a request to the members of the mask and returns to which it went.
func (ws *wires) ask(request []byte, f *fan, mask uint32, limited bool) (sent uint32) {
	for i := range ws.at {
		if mask>>i&1 == 1 {
			if w := ws.at[i].Load(); w != nil && w.send(request, booking{fan: f}, limited) == nil {
				sent |= 1 << i
				continue
			}
		}
		f.answer(reply{}, false)
	}
	return sent
}

func (ws *wires) everybody() uint32 { return 1<<len(ws.addrs) - 1 }

func (ws *wires) Close() {
	ws.cancel()
	ws.wg.Wait()
	for i := range ws.at {
		if w := ws.at[i].Load(); w != nil {
			w.Close()
		}
	}
}

func command(args ...string) []byte { return appendCommand(nil, args...) }

func appendCommand(b []byte, args ...string) []byte {
	b = append(b, '*')
	b = strconv.AppendInt(b, int64(len(args)), 10)
	b = append(b, '\r', '\n')
	for _, a := range args {
		b = append(b, '$')
		b = strconv.AppendInt(b, int64(len(a)), 10)
		b = append(b, '\r', '\n')
		b = append(b, a...)
		b = append(b, '\r', '\n')
	}
	return b
}

func sha1hex(s string) string {
	sum := sha1.Sum([]byte(s))
	return hex.EncodeToString(sum[:])
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 0, 512); return &b }}
