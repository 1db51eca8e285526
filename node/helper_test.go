package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ---- a real server

type redisServer struct {
	*redistest.Real
	t testing.TB
}

// startRedis starts a redis-server of its own for this test on a free port.
func startRedis(t testing.TB, args ...string) *redisServer {
	t.Helper()
	return &redisServer{rt.RealWith(t, 1, redistest.RealConfig{Persist: redistest.Volatile, Args: args}).Real(0), t}
}

// cli runs one command on a connection of its own and returns the reply as text.
func (s *redisServer) cli(args ...string) string {
	s.t.Helper()
	c := rt.Must(net.Dial("tcp", s.Addr()))(s.t)
	defer c.Close()
	require.NoError(s.t, rt.Err(c.Write(resp.Command(args...))))
	var r member.Reply
	require.NoError(s.t, readReply(bufio.NewReader(c), &r, 0))
	return show(r)
}

func show(r member.Reply) string {
	switch r.Kind {
	case ':':
		return strconv.FormatInt(r.Int, 10)
	case '_':
		return "nil"
	case '>':
		r.Kind = '*'
		return ">" + show(r)
	case '*':
		var parts []string
		for _, e := range r.Elems {
			parts = append(parts, show(e))
		}
		return "[" + strings.Join(parts, " ") + "]"
	case '-':
		return "-" + string(r.Str)
	}
	return string(r.Str)
}

// ---- a server of a few lines, for what a real one cannot be made to do, and for fake time

// fake answers commands on in-memory connections.
type fake struct {
	mu     sync.Mutex
	handle func(id int64, args []string) string // RESP, or "" for silence
	refuse error                                // of dial
	runID  string
	nextID int64
	conns  map[int64]net.Conn
	dials  []time.Time
	log    []string // commands other than the handshake's
	killed []int64
	loaded string // the SHA1s of the scripts, one behind the other

	subscribed []int64 // connections
	lags       bool    // it does not know yet that a connection is closed

	silent bool                     // it answers nothing
	held   map[string]chan struct{} // commands that are answered when the channel is closed
	sent   []string                 // all that came since take, but PING and HELLO
}

func newFake(handle func(id int64, args []string) string) *fake {
	return &fake{handle: handle, runID: "run-1", conns: map[int64]net.Conn{}}
}

func (f *fake) DialContext(ctx context.Context, _, _ string) (net.Conn, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dials = append(f.dials, time.Now())
	if f.refuse != nil {
		return nil, f.refuse
	}
	client, server := pipe()
	f.nextID++
	f.conns[f.nextID] = server
	go f.serve(f.nextID, server)
	return client, nil
}

func (f *fake) serve(id int64, c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	var r member.Reply
	for readReply(br, &r, 0) == nil {
		var args []string
		for _, e := range r.Elems {
			args = append(args, string(e.Str))
		}
		if answer := f.answer(id, args); answer != "" {
			if _, err := c.Write([]byte(answer)); err != nil {
				return
			}
		}
	}
}

func (f *fake) answer(id int64, args []string) string {
	f.mu.Lock()
	handle, runID, silent, held := f.handle, f.runID, f.silent, f.held[args[0]]
	if args[0] != "PING" && args[0] != "HELLO" {
		f.sent = append(f.sent, strings.Join(args, " "))
	}
	f.mu.Unlock()
	if held != nil {
		<-held
	}
	if silent {
		return ""
	}
	if handle != nil {
		if a := handle(id, args); a != "default" {
			return a
		}
	}
	switch line := strings.Join(args, " "); {
	case line == "CLIENT ID":
		return fmt.Sprintf(":%d\r\n", id)
	case line == "INFO server":
		return bulk("# Server\r\nrun_id:" + runID + "\r\n")
	case strings.HasPrefix(line, "CLIENT LIST ID "):
		old, _ := strconv.ParseInt(args[3], 10, 64)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.conns[old] == nil && !f.lags {
			return bulk("")
		}
		return bulk("id=" + args[3] + "\n")
	case strings.HasPrefix(line, "CLIENT KILL ID "):
		old, _ := strconv.ParseInt(args[3], 10, 64)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.killed = append(f.killed, old)
		if c := f.conns[old]; c != nil {
			delete(f.conns, old)
			_ = c.Close()
			return ":1\r\n"
		}
		return ":0\r\n"
	case args[0] == "SCRIPT" && args[1] == "EXISTS":
		f.mu.Lock()
		defer f.mu.Unlock()
		told := fmt.Sprintf("*%d\r\n", len(args)-2)
		for _, sha := range args[2:] {
			told += fmt.Sprintf(":%d\r\n", strings.Count(f.loaded, sha))
		}
		return told
	case args[0] == "SCRIPT":
		f.mu.Lock()
		defer f.mu.Unlock()
		f.loaded += scriptSHA(args[2])
		return bulk(scriptSHA(args[2]))
	case strings.HasSuffix(args[0], "SUBSCRIBE"):
		f.set(func() { f.subscribed = append(f.subscribed, id) })
		out := ""
		for _, c := range args[1:] {
			out += pushOf(strings.ToLower(args[0]), c, "1")
		}
		return out
	case args[0] == "QUIT":
		f.set(func() { _ = f.conns[id].Close() })
		return ""
	case args[0] == "PING":
		return "+PONG\r\n"
	case args[0] == "AUTH":
		return "+OK\r\n"
	case args[0] == "ECHO":
		return bulk(args[1])
	case args[0] == "HELLO":
		return "%1\r\n$5\r\nproto\r\n:3\r\n"
	}
	rt.Locked(&f.mu, func() { f.log = append(f.log, strings.Join(args, " ")) })
	return ":1\r\n"
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }

// cut ends every connection from the server's side.
func (f *fake) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, c := range f.conns {
		_ = c.Close()
		delete(f.conns, id)
	}
}

func (f *fake) set(edit func()) { rt.Locked(&f.mu, edit) }

func (f *fake) commands() []string {
	return rt.Under(&f.mu, func() []string { return append([]string(nil), f.log...) })
}

// silence has the server answer nothing from now on, or everything again.
func (f *fake) silence(on bool) { f.set(func() { f.silent = on }) }

// hold has the commands of a name wait for their answers until let is called.
func (f *fake) hold(name string) (let func()) {
	open := make(chan struct{})
	f.set(func() { f.held = map[string]chan struct{}{name: open} })
	return func() { close(open) }
}

// take returns what the server was sent since the last take, handshakes included.
func (f *fake) take() (lines []string) {
	f.set(func() { lines, f.sent = f.sent, nil })
	return lines
}

func (f *fake) expect(t *testing.T, what string, want ...string) {
	t.Helper()
	require.Equal(t, want, f.take(), what)
}

// dialled is when the server was dialled.
func (f *fake) dialled() []time.Time {
	return rt.Under(&f.mu, func() []time.Time { return slices.Clone(f.dials) })
}

// subscribers are the connections that have subscribed.
func (f *fake) subscribers() []int64 {
	return rt.Under(&f.mu, func() []int64 { return slices.Clone(f.subscribed) })
}

// says answers each command of a name, or of two words, with a text, and all others as usual.
func says(name, text string) func(int64, []string) string {
	return func(_ int64, args []string) string {
		if args[0] == name || len(args) > 1 && args[0]+" "+args[1] == name {
			return text
		}
		return "default"
	}
}

// slow has each command that begins so take a while.
func slow(name string, d time.Duration) func(int64, []string) string {
	return func(_ int64, args []string) string {
		if strings.HasPrefix(strings.Join(args, " "), name) {
			time.Sleep(d)
		}
		return "default"
	}
}

// faked plays something in fake time with a node that is up, where the server does not keep it from that.
func faked(t *testing.T, handle func(int64, []string) string, c Config, play func(t *testing.T, f *fake, n *Node)) {
	t.Helper()
	playing(handle, c, play)(t)
}

// playing is faked for t.Run.
func playing(handle func(int64, []string) string, c Config, play func(t *testing.T, f *fake, n *Node)) func(t *testing.T) {
	return faketime.In(func(t *testing.T) {
		f := newFake(handle)
		c.Dialer = f
		n := start(t, c)
		synctest.Wait()
		play(t, f, n)
	})
}

// ---- an in-memory connection with a buffer in each direction, as a socket has

const pipeBuffer = 512 << 10

type half struct {
	mu       sync.Mutex
	cond     *sync.Cond
	buf      []byte
	closed   bool
	deadline [2]time.Time // read, write
}

type pipeConn struct{ in, out *half }

func pipe() (a, b net.Conn) {
	x, y := &half{}, &half{}
	x.cond, y.cond = sync.NewCond(&x.mu), sync.NewCond(&y.mu)
	return &pipeConn{x, y}, &pipeConn{y, x}
}

func (h *half) late(side int) bool {
	return !h.deadline[side].IsZero() && !time.Now().Before(h.deadline[side])
}

func (h *half) setDeadline(side int, t time.Time) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.deadline[side] = t; !t.IsZero() {
		time.AfterFunc(time.Until(t), h.cond.Broadcast)
	}
	h.cond.Broadcast()
	return nil
}

func (h *half) close() { rt.Locked(&h.mu, func() { h.closed = true; h.cond.Broadcast() }) }

func (c *pipeConn) Read(b []byte) (int, error) {
	h := c.in
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(h.buf) == 0 && !h.closed && !h.late(0) {
		h.cond.Wait()
	}
	if len(h.buf) > 0 {
		n := copy(b, h.buf)
		h.buf = h.buf[n:]
		h.cond.Broadcast()
		return n, nil
	}
	if h.closed {
		return 0, io.EOF
	}
	return 0, os.ErrDeadlineExceeded
}

func (c *pipeConn) Write(b []byte) (done int, _ error) {
	h := c.out
	h.mu.Lock()
	defer h.mu.Unlock()
	for len(b) > 0 {
		for len(h.buf) >= pipeBuffer && !h.closed && !h.late(1) {
			h.cond.Wait()
		}
		switch {
		case h.closed:
			return done, io.ErrClosedPipe
		case h.late(1):
			return done, os.ErrDeadlineExceeded
		}
		n := min(len(b), pipeBuffer-len(h.buf))
		h.buf = append(h.buf, b[:n]...)
		b, done = b[n:], done+n
		h.cond.Broadcast()
	}
	return done, nil
}

func (c *pipeConn) Close() error {
	c.in.close()
	c.out.close()
	return nil
}
func (c *pipeConn) LocalAddr() net.Addr                { return &net.UnixAddr{} }
func (c *pipeConn) RemoteAddr() net.Addr               { return &net.UnixAddr{} }
func (c *pipeConn) SetReadDeadline(t time.Time) error  { return c.in.setDeadline(0, t) }
func (c *pipeConn) SetWriteDeadline(t time.Time) error { return c.out.setDeadline(1, t) }
func (c *pipeConn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// ---- nodes and calls

func start(t testing.TB, c Config) *Node {
	t.Helper()
	if c.Addr == "" {
		c.Addr = "member:6379"
	}
	n := rt.Must(New(c))(t)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = n.Close(ctx)
	})
	return n
}

// up starts a node and waits until it is Up.
func up(t testing.TB, c Config) *Node {
	t.Helper()
	n := start(t, c)
	rt.Until(t, "up", func() bool { return n.State().Up })
	return n
}

// patient is the context of what a busy machine, too, has done by its end.
func patient(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// result is a Sink that can be waited for.
type result struct {
	member.Call
	done  chan struct{}
	count int
}

func newCall(args ...string) *result {
	r := &result{done: make(chan struct{})}
	r.Cmd, r.Sink = resp.Command(args...), r
	return r
}

func (r *result) Done(c *member.Call) {
	r.count++
	close(r.done) // panics on a second Done
}

// refused reports whether Submit itself completed the call. Before that its fields are not ours.
func (r *result) refused() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *result) wait(t testing.TB) *result {
	t.Helper()
	select {
	case <-r.done:
	case <-time.After(30 * time.Second):
		t.Fatal("call was never done")
	}
	return r
}

// is waits for the call, and makes sure what became of it, and what its error is.
func (r *result) is(t testing.TB, want member.Outcome, causes ...error) {
	t.Helper()
	r.wait(t)
	require.Equal(t, want, r.Outcome, "%v", r.Err)
	for _, cause := range causes {
		require.ErrorIs(t, r.Err, cause)
	}
}

// isRefused waits for a call that the server refuses, and returns why.
func (r *result) isRefused(t testing.TB, want member.Kind) *member.ReplyError {
	t.Helper()
	r.is(t, member.Refused)
	refused := rt.As[*member.ReplyError](t, r.Err)
	require.Equal(t, want, refused.Kind, "%v", r.Err)
	return refused
}

// isAtOnce is is for a call that Submit itself completes.
func (r *result) isAtOnce(t testing.TB, want member.Outcome, causes ...error) {
	t.Helper()
	require.True(t, r.refused())
	r.is(t, want, causes...)
}

// all is is for each of several calls.
func all(t testing.TB, calls []*result, want member.Outcome, causes ...error) {
	t.Helper()
	for _, c := range calls {
		c.is(t, want, causes...)
	}
}

func submitAll(n member.Member, calls ...*result) {
	for _, c := range calls {
		n.Submit(&c.Call)
	}
}

func submit(n member.Member, args ...string) *result {
	r := newCall(args...)
	n.Submit(&r.Call)
	return r
}

func do(t testing.TB, n member.Member, args ...string) string {
	t.Helper()
	r, err := member.Ask(patient(t), n, member.Command{Cmd: resp.Command(args...)})
	require.NoError(t, err, "%s: %v", args[0], err)
	return show(r)
}
