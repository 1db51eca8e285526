package redistest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
)

// Embedded is a Redis server inside this process. It is miniredis, with one goroutine that executes
// all commands in order of arrival, as Redis' main thread does. emulate.go adds what miniredis
// lacks and a lock client needs.
//
// If it is made inside a synctest bubble, it works in fake time. It refuses blocking commands.
type Embedded struct {
	name  string
	redis *miniredis.Miniredis
	srv   *server.Server
	admin *server.Peer
	link  *Link
	wg    sync.WaitGroup // the executing goroutine

	// exec is held while a command is executed, and guards the state that commands change: redis,
	// the peers of sessions, clock, subscriptions. Taken before mu.
	exec      sync.Mutex
	clock     skewedClock
	listeners [subKinds]map[string]map[*session]struct{}
	snap      []Key             // nil before the first Snapshot
	scripts   map[string]string // by SHA1

	mu       sync.Mutex // guards the fields below; never held over a call to a Link
	wake     *sync.Cond
	queue    []request
	sessions map[int64]*session
	paths    []*Link
	alive    bool
	paused   bool
	closed   bool
	runID    string
	replID   string    // master_replid
	older    string    // master_replid2
	started  time.Time // on the server's clock
	nextID   int64

	tcp sync.Mutex // guards front and its address; taken before everything else
	// front is open while the server is alive and tcpAddr is set.
	front   *Front
	tcpAddr string
	held    io.Closer // its port, if the server has chosen it
}

// request is a command that has arrived; without arguments it is garbage. Or the end of a session.
type request struct {
	from *session
	args []string
	end  bool
}

// sink takes what a server sends on one connection.
type sink interface {
	fromServer(p []byte)
	serverGone(err error)
}

// session is the server's side of a connection.
type session struct {
	server  *Embedded
	id      int64
	since   time.Time
	sink    sink
	cmd     *server.Peer                  // what miniredis knows of it
	out     []byte                        // replies of cmd; guarded by exec, as is subs
	subs    [subKinds]map[string]struct{} // subscriptions
	inMulti bool                          // between MULTI and EXEC; guarded by exec
	gone    atomic.Bool                   // executes nothing more; set under server.mu
	ending  bool                          // its end is in the queue; guarded by server.mu
}

var serial atomic.Int64

// NewEmbedded starts an embedded server. Its goroutine ends with Close.
func NewEmbedded() *Embedded {
	e := newEmbedded()
	e.wg.Go(e.run)
	return e
}

// newEmbedded makes a server that nobody executes commands at.
func newEmbedded() *Embedded {
	e := &Embedded{
		name:     fmt.Sprintf("embedded-%d.invalid:6379", serial.Add(1)),
		redis:    miniredis.NewMiniRedis(),
		sessions: map[int64]*session{},
		scripts:  map[string]string{},
	}
	// Dial starts miniredis without a listener. The connection itself is of no use.
	if c, err := e.redis.Dial(); err == nil {
		_ = c.Close()
	}
	e.srv = e.redis.Server()
	e.srv.SetPreHook(e.hook)
	for kind := range subKinds {
		e.listeners[kind] = map[string]map[*session]struct{}{}
	}
	e.admin = server.NewPeer(bufio.NewWriter(io.Discard))
	e.wake = sync.NewCond(&e.mu)
	e.link = newLink(e)
	e.paths = []*Link{e.link}
	e.clock = newClock()
	e.redis.SetTime(e.clock.now())
	e.redis.ClockTTL(true)
	e.bootLocked()
	return e
}

func randomID() string {
	var id [20]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}

// bootLocked begins the life of a server process.
func (e *Embedded) bootLocked() {
	e.runID, e.replID, e.older = randomID(), randomID(), strings.Repeat("0", 40)
	e.started = e.clock.now()
	e.nextID = 2 // as on a server that has loaded its data
	e.alive, e.paused = true, false
}

// Addr returns the address at which ServeTCP listens, or else a name that only the Dialer can
// reach.
func (e *Embedded) Addr() string {
	e.tcp.Lock()
	defer e.tcp.Unlock()
	if e.tcpAddr != "" {
		return e.tcpAddr
	}
	return e.name
}

// Dialer opens connections through Faults.
func (e *Embedded) Dialer() Dialer { return e.link }

// Faults is the network path that Dialer and ServeTCP use.
func (e *Embedded) Faults() *Link { return e.link }

// Path makes another network path to the server.
func (e *Embedded) Path() *Link {
	l := newLink(e)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paths = append(e.paths, l)
	return l
}

// Require makes the server ask for the password of the default user, on connections that come from now on.
func (e *Embedded) Require(password string) {
	e.exec.Lock()
	defer e.exec.Unlock()
	e.redis.RequireAuth(password)
}

// ServeTCP makes the server reachable at a TCP address, through Faults. Port 0 chooses one. Kill
// closes it and Restart opens it again.
func (e *Embedded) ServeTCP(addr string) error {
	e.tcp.Lock()
	defer e.tcp.Unlock()
	if e.front != nil {
		return errors.New("redistest: already serving " + e.tcpAddr)
	}
	var f *Front
	var err error
	if host, port, bad := net.SplitHostPort(addr); bad == nil && host == "127.0.0.1" && port == "0" {
		f, err = e.listenAnywhere()
	} else {
		f, err = e.link.Listen(addr)
	}
	if err != nil {
		return err
	}
	e.front, e.tcpAddr = f, f.Addr()
	return nil
}

// listenAnywhere listens on a port that stays the server's, or somebody may have it when the server starts again. Whoever looks
// whether a port is free may have it for a moment: then it is another one.
func (e *Embedded) listenAnywhere() (f *Front, err error) {
	for range 10 {
		first, held, taken := TakePorts(1)
		if taken != nil {
			return nil, taken
		}
		if f, err = e.link.Listen(onLoopback(first)); err == nil {
			e.held = held
			return f, nil
		}
		_ = held.Close()
	}
	return nil, err
}

// run executes commands. Owned by the Embedded; ended and awaited by Close.
func (e *Embedded) run() {
	for e.await() {
		e.exec.Lock()
		if req, ok := e.next(); ok {
			e.execute(req)
		}
		e.exec.Unlock()
	}
}

// await waits until there is something to execute, and reports false once the server is closed.
func (e *Embedded) await() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.closed && (e.paused || len(e.queue) == 0) {
		e.wake.Wait()
	}
	return !e.closed
}

func (e *Embedded) next() (request, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.paused || len(e.queue) == 0 {
		return request{}, false
	}
	req := e.queue[0]
	e.queue[0] = request{}
	if e.queue = e.queue[1:]; len(e.queue) == 0 {
		e.queue = nil
	}
	return req, true
}

// execute runs with exec held.
func (e *Embedded) execute(req request) {
	s := req.from
	if req.end {
		e.remove(s)
		s.unlistenAll()
		return
	}
	if s.gone.Load() {
		return
	}
	e.redis.SetTime(e.clock.now())
	quit := true
	if len(req.args) > 0 {
		quit = s.perform(req.args)
	} else {
		s.cmd.WriteError("ERR Protocol error: expected '$', got something else")
	}
	s.cmd.Flush()
	if out := s.out; len(out) > 0 {
		s.out = nil
		s.sink.fromServer(out)
	}
	if quit || s.cmd.Closed() {
		e.drop(s)
	}
}

// drop ends a session from the server's side: its commands that were not executed never will be.
func (e *Embedded) drop(s *session) {
	e.mu.Lock()
	e.forgetLocked(s)
	e.mu.Unlock()
	e.remove(s)
	s.unlistenAll()
	s.sink.serverGone(io.EOF)
}

// forgetLocked takes the commands of a session out of the queue, and lets no more in.
func (e *Embedded) forgetLocked(s *session) {
	s.gone.Store(true)
	e.queue = slices.DeleteFunc(e.queue, func(r request) bool { return r.from == s && !r.end })
}

func (e *Embedded) remove(s *session) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.sessions[s.id] == s {
		delete(e.sessions, s.id)
	}
}

// connect makes a session, if the server is alive.
func (e *Embedded) connect(out sink) (*session, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.alive {
		return nil, os.NewSyscallError("connect", syscall.ECONNREFUSED)
	}
	e.nextID++
	s := &session{server: e, id: e.nextID, since: time.Now(), sink: out}
	s.cmd = server.NewPeer(bufio.NewWriter(replyWriter{s}))
	e.sessions[s.id] = s
	return s, nil
}

// replyWriter collects the replies of one command.
type replyWriter struct{ *session }

func (w replyWriter) Write(p []byte) (int, error) {
	w.out = append(w.out, p...)
	return len(p), nil
}

func (e *Embedded) open(_ context.Context, r *relay) (backend, error) { return e.connect(r) }

func (s *session) start() {}

func (s *session) send(cmds []command) error {
	e := s.server
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.gone.Load() {
		return reset("write")
	}
	for _, c := range cmds {
		if len(c.args) > 0 {
			e.queue = append(e.queue, request{from: s, args: c.args})
		}
	}
	e.wake.Signal()
	return nil
}

// sendRaw queues what is not RESP, which ends the session when its turn comes.
func (s *session) sendRaw([]byte) error {
	e := s.server
	e.mu.Lock()
	defer e.mu.Unlock()
	if s.gone.Load() {
		return reset("write")
	}
	e.queue = append(e.queue, request{from: s})
	e.wake.Signal()
	return nil
}

// close ends the session behind the commands it has sent.
func (s *session) close() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.endLocked()
}

func (s *session) abort() {
	s.server.mu.Lock()
	defer s.server.mu.Unlock()
	s.server.forgetLocked(s)
	s.endLocked()
}

// endLocked queues the end of a session; it stays registered until then, so that Kill finds it.
func (s *session) endLocked() {
	e := s.server
	if !s.ending && e.sessions[s.id] == s {
		s.ending = true
		e.queue = append(e.queue, request{from: s, end: true})
		e.wake.Signal()
	}
}

// Kill ends the server at once. A command that is being executed is executed whole.
func (e *Embedded) Kill() {
	e.tcp.Lock()
	defer e.tcp.Unlock()
	e.kill()
}

func (e *Embedded) kill() {
	e.exec.Lock()
	e.mu.Lock()
	e.alive, e.paused = false, false
	e.queue = nil
	var ended []*session // in order, so that they hear of it in order
	for _, s := range e.sessions {
		s.gone.Store(true)
		ended = append(ended, s)
	}
	slices.SortFunc(ended, func(a, b *session) int { return int(a.id - b.id) })
	e.sessions = map[int64]*session{}
	e.mu.Unlock()
	for _, s := range ended {
		s.unlistenAll()
	}
	e.exec.Unlock()
	for _, s := range ended {
		s.sink.serverGone(io.EOF)
	}
	if e.front != nil {
		_ = e.front.Close()
		e.front = nil
	}
}

// Restart kills the server and starts it again. Time goes on while it is down, so what has expired
// by then is gone.
func (e *Embedded) Restart(keepMemory bool) error {
	return e.restart(func() error {
		if !keepMemory {
			e.redis.FlushAll()
		}
		return nil
	})
}

// restart kills the server, lets prepare change its data with exec held, and starts it again.
func (e *Embedded) restart(prepare func() error) error {
	e.tcp.Lock()
	defer e.tcp.Unlock()
	e.kill()
	if err := e.boot(prepare); err != nil || e.tcpAddr == "" {
		return err
	}
	f, err := e.link.Listen(e.tcpAddr)
	if err != nil {
		return err
	}
	e.front = f
	return nil
}

func (e *Embedded) boot(prepare func() error) error {
	e.exec.Lock()
	defer e.exec.Unlock()
	if err := prepare(); err != nil {
		return err
	}
	e.srv.Dispatch(e.admin, []string{"SCRIPT", "FLUSH"})
	clear(e.scripts)
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return net.ErrClosed
	}
	e.bootLocked()
	return nil
}

// Pause stops the server. It still accepts connections.
func (e *Embedded) Pause() { e.setPaused(true) }

// Resume ends Pause.
func (e *Embedded) Resume() { e.setPaused(false) }

func (e *Embedded) setPaused(on bool) {
	e.exec.Lock() // not in the middle of a command
	defer e.exec.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.paused = on && e.alive
	e.wake.Signal()
}

// Answers reports whether the server runs, and is not paused.
func (e *Embedded) Answers() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.alive && !e.paused
}

// SetRate makes the server's clock, and with it the expiry of its keys, run at another rate from
// now on. A rate of 1.01 gains a hundredth, and 0 stands still. A rate below 0 counts as 0.
func (e *Embedded) SetRate(rate float64) {
	e.exec.Lock()
	defer e.exec.Unlock()
	e.clock.setRate(max(rate, 0))
}

// Step sets the server's clock forward, or back. Keys then expire that much sooner, or later. A
// real server does the same, because it keeps moments of expiry and not remaining times.
func (e *Embedded) Step(d time.Duration) {
	e.exec.Lock()
	defer e.exec.Unlock()
	e.tick()
	e.clock.step(d)
	if d < 0 {
		e.redis.SetTime(e.clock.now())
		e.redis.FastForward(d) // lengthens what remains
		return
	}
	e.tick()
}

// Now is the time on the server's clock.
func (e *Embedded) Now() time.Time {
	e.exec.Lock()
	defer e.exec.Unlock()
	return e.clock.now()
}

// tick lets miniredis expire what is due.
func (e *Embedded) tick() {
	e.redis.SetTime(e.clock.now())
	e.redis.DB(0) // any access does it
}

// Flush deletes all keys.
func (e *Embedded) Flush() error { return flush(e) }

func flush(s Server) error {
	ctx, cancel := patience()
	defer cancel()
	_, err := s.Do(ctx, "FLUSHALL")
	return err
}

// patience bounds administration that has no context of its own.
func patience() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 10*time.Second)
}

// oneReply is the sink of Do.
type oneReply struct {
	mu   sync.Mutex
	in   framer
	done chan struct{} // closed when value or err is set
	set  bool
	v    any
	err  error
}

func (o *oneReply) fromServer(p []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.in.feed(p)
	if frame, ok, err := o.in.reply(); ok || err != nil {
		v, e := parseReply(frame)
		o.finishLocked(v, errors.Join(err, e))
	}
}

func (o *oneReply) serverGone(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.finishLocked(nil, err)
}

func (o *oneReply) finishLocked(v any, err error) {
	if !o.set {
		o.set, o.v, o.err = true, v, err
		close(o.done)
	}
}

// Do executes one command on a connection of its own.
func (e *Embedded) Do(ctx context.Context, args ...string) (any, error) {
	if len(args) == 0 || strings.HasSuffix(strings.ToUpper(args[0]), "SUBSCRIBE") {
		return nil, fmt.Errorf("redistest: Do %q", args)
	}
	reply := &oneReply{done: make(chan struct{})}
	s, err := e.connect(reply)
	if err != nil {
		return nil, err
	}
	if err := s.send([]command{{args: args}}); err != nil {
		return nil, err
	}
	select {
	case <-reply.done:
		s.close()
	case <-ctx.Done():
		s.abort()
		return nil, context.Cause(ctx)
	}
	if reply.err != nil {
		return nil, reply.err
	}
	return asResult(reply.v)
}

// Close ends the server and its paths.
func (e *Embedded) Close() error {
	e.Kill()
	e.tcp.Lock()
	if e.held != nil {
		_ = e.held.Close()
		e.held = nil
	}
	e.tcp.Unlock()
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return nil
	}
	e.closed = true
	paths := e.paths
	e.wake.Broadcast()
	e.mu.Unlock()
	for _, l := range paths {
		_ = l.Close()
	}
	e.wg.Wait()
	e.redis.Close()
	return nil
}

// skewedClock runs at a rate of its own.
type skewedClock struct {
	base, server time.Time
	rate         float64
}

func newClock() skewedClock {
	now := time.Now()
	return skewedClock{base: now, server: now.Round(0), rate: 1}
}

func (c *skewedClock) now() time.Time {
	d := time.Since(c.base)
	if c.rate != 1 {
		d = time.Duration(float64(d) * c.rate)
	}
	return c.server.Add(d)
}

func (c *skewedClock) setRate(rate float64) {
	c.server, c.base, c.rate = c.now(), time.Now(), rate
}

func (c *skewedClock) step(d time.Duration) { c.server = c.server.Add(d) }
