package redistest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Persistence is how a real server keeps its data over Restart(true).
type Persistence uint8

const (
	// AppendOnly writes each command to a file before the server answers it, so nothing is missing
	// after Kill. (No fsync: that would matter only if the machine itself crashed.)
	AppendOnly Persistence = iota
	// AppendAlways is AppendOnly with appendfsync always, for measurements.
	AppendAlways
	// SavedOnly keeps what the last SAVE or BGSAVE wrote, and nothing later.
	SavedOnly
	// Volatile keeps nothing; Restart(true) is an error.
	Volatile
)

// RealConfig describes a real server. The zero value works.
type RealConfig struct {
	Binary  string        // default "redis-server"
	Persist Persistence   // default AppendOnly
	Args    []string      // further redis-server arguments, such as "--maxmemory", "2mb"
	Env     []string      // added to the process' environment, such as LD_PRELOAD=…
	Ready   time.Duration // how long a start may take; default 30 s

	cluster  bool     // in cluster mode: see StartSharded
	sentinel []string // not nil: a Sentinel, with these lines of configuration; see StartGroup
}

// Available says why StartReal cannot work here, and what to install.
func Available() error {
	if err := supported(); err != nil {
		return err
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		return errors.New("REDIS MISSING: redis-server is not in PATH; install it (Debian: apt-get install redis-server, macOS: brew install redis)")
	}
	return nil
}

// Real is a redis-server process on 127.0.0.1 with a directory of its own. The process dies with
// Close. If the system offers it (Linux), it also dies with this process.
type Real struct {
	config RealConfig
	dir    string
	port   int
	link   *Link

	mu     sync.Mutex // guards the fields below, held over start and kill
	held   closers    // ports
	proc   *process   // nil while killed
	paths  []*Link
	closed bool
}

// Where redis-server keeps its data: in appendOnlyDir since version 7, before that in the file.
const (
	appendOnlyDir  = "appendonlydir"
	appendOnlyFile = "appendonly.aof"
	dumpFile       = "dump.rdb"
)

// process is one run of redis-server. The goroutine that started it waits for it.
type process struct {
	pid  int
	done chan struct{} // closed when it has ended and err is set
	err  error
}

// StartReal starts a server on a free port and waits until it answers.
func StartReal(ctx context.Context, config RealConfig) (*Real, error) {
	if err := supported(); err != nil {
		return nil, err
	}
	if config.Binary == "" {
		config.Binary = "redis-server"
		if err := Available(); err != nil {
			return nil, err
		}
	}
	if config.Ready <= 0 {
		config.Ready = 30 * time.Second
	}
	dir, err := os.MkdirTemp("", "redistest-")
	if err != nil {
		return nil, err
	}
	r := &Real{config: config, dir: dir}
	r.link = newLink(r)
	r.paths = []*Link{r.link}
	// A process that does not ask TakePorts can take it before the server binds it.
	for range 5 {
		var held io.Closer
		if r.port, held, err = TakePorts(1); err != nil {
			break
		}
		if err = r.start(ctx); err == nil || ctx.Err() != nil {
			r.held = append(r.held, held)
			break
		}
		_ = held.Close()
	}
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// busOffset is how far above its port a server of a cluster has its bus.
const busOffset = 10_000

// TakePorts finds n ports of TCP in a row that nobody uses, and returns the first. No other caller, in this process or
// another, gets one of them until held is closed, also while no server listens there: a caller has a port who has bound
// that of UDP with the same number. The ports lie below the ephemeral ones, and so do those of a bus: no connection to
// somewhere gets one for its own end.
func TakePorts(n int) (first int, held io.Closer, err error) {
	for range 100 {
		var ports closers
		first, err = 12_000+rand.IntN(busOffset-n+1), nil
		for port := first; port < first+n && err == nil; port++ {
			err = ports.take(port)
		}
		if err == nil {
			return first, ports, nil
		}
		_ = ports.Close()
	}
	return 0, nil, fmt.Errorf("redistest: no free port: %w", err)
}

type closers []io.Closer

func (c *closers) take(port int) error {
	held, err := net.ListenPacket("udp", onLoopback(port))
	if err != nil {
		return err
	}
	*c = append(*c, held)
	return errors.Join(isFree(port), isFree(port+busOffset))
}

func (c closers) Close() error {
	var errs []error
	for _, one := range c {
		errs = append(errs, one.Close())
	}
	return errors.Join(errs...)
}

func isFree(port int) error {
	ln, err := net.Listen("tcp", onLoopback(port))
	if err != nil {
		return err
	}
	return ln.Close()
}

func onLoopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (r *Real) args() []string {
	a := []string{
		"--port", strconv.Itoa(r.port), "--bind", "127.0.0.1", "--dir", r.dir,
		"--logfile", "redis.log", "--daemonize", "no", "--save", "", "--protected-mode", "no",
		// Restarts are quick, and the kernel's close is not waited for.
		"--tcp-keepalive", "0",
	}
	switch r.config.Persist {
	case AppendOnly:
		a = append(a, "--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")
	case AppendAlways:
		a = append(a, "--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0")
	}
	return append(a, r.config.Args...)
}

// start runs the process and waits until it answers.
func (r *Real) start(ctx context.Context) error {
	args := r.args()
	if r.config.sentinel != nil {
		file := filepath.Join(r.dir, "sentinel.conf") // it rewrites the file
		lines := append([]string{
			"port " + strconv.Itoa(r.port), "bind 127.0.0.1", "dir " + r.dir, "logfile redis.log", "protected-mode no",
		}, r.config.sentinel...)
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
			return err
		}
		args = []string{file, "--sentinel"}
	}
	cmd := exec.Command(r.config.Binary, args...)
	cmd.Dir = r.dir
	cmd.Env = append(os.Environ(), r.config.Env...)
	var output bytes.Buffer // what it says before it has a log file
	cmd.Stdout, cmd.Stderr = &output, &output
	p := &process{done: make(chan struct{})}
	started := make(chan error)
	dieWithParent(cmd)
	go func() { // ends with the process
		// The kernel takes the end of the starting thread for the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err == nil {
			p.pid = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return err
	}
	if err := r.awaitReady(ctx, p); err != nil {
		p.kill()
		log, _ := os.ReadFile(filepath.Join(r.dir, "redis.log"))
		return fmt.Errorf("redistest: redis-server on port %d: %w\n%s%s", r.port, err, output.Bytes(), tail(log, 2000))
	}
	r.proc = p
	return nil
}

func tail(b []byte, n int) []byte { return b[max(0, len(b)-n):] }

// awaitReady asks until the process answers PING.
func (r *Real) awaitReady(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeout(ctx, r.config.Ready)
	defer cancel()
	again := time.NewTicker(3 * time.Millisecond)
	defer again.Stop()
	for {
		_, err := r.ask(ctx, "PING")
		if code := Error(""); err == nil || errors.As(err, &code) && !isLoading(code) {
			return r.isOurs(ctx, p)
		}
		select {
		case <-p.done:
			return fmt.Errorf("ended at once: %w", p.err)
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-again.C:
		}
	}
}

// isOurs makes sure that not another server has taken the port and answered in our place.
func (r *Real) isOurs(ctx context.Context, p *process) error {
	v, err := r.ask(ctx, "INFO", "server")
	if code := Error(""); errors.As(err, &code) { // it wants a password; then ours must at least run
		select {
		case <-p.done:
			return fmt.Errorf("ended at once: %w", p.err)
		default:
			return nil
		}
	}
	if err != nil {
		return err
	}
	if info, _ := v.(string); !strings.Contains(info, fmt.Sprintf("process_id:%d\r\n", p.pid)) {
		return errors.New("another server has this port")
	}
	return nil
}

func isLoading(e Error) bool { return strings.HasPrefix(string(e), "LOADING") }

func (p *process) kill() {
	signalKill(p.pid)
	<-p.done
}

// Addr returns the address at which the process listens. A connection to it passes no Link.
func (r *Real) Addr() string { return onLoopback(r.port) }

// Dialer opens connections through Faults.
func (r *Real) Dialer() Dialer { return r.link }

// Faults is the network path that Dialer uses.
func (r *Real) Faults() *Link { return r.link }

// Path makes another network path to the server.
func (r *Real) Path() *Link {
	l := newLink(r)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.paths = append(r.paths, l)
	return l
}

// Pid is the process' id, 0 while it is killed.
func (r *Real) Pid() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc == nil {
		return 0
	}
	return r.proc.pid
}

// Dir is the server's directory, with redis.log. Close removes it.
func (r *Real) Dir() string { return r.dir }

func (r *Real) open(ctx context.Context, c *relay) (backend, error) { return openTCP(ctx, c, r.Addr()) }

// Kill sends SIGKILL and waits until the process is gone.
func (r *Real) Kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.killLocked()
}

func (r *Real) killLocked() {
	if r.proc != nil {
		r.proc.kill()
		r.proc = nil
	}
}

// Keep makes the next start use another Persistence. The running process goes on as it is. What
// either way has written is left for that way to find.
func (r *Real) Keep(p Persistence) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.config.Persist = p
}

func (r *Real) persistence() Persistence {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.config.Persist
}

// Restart kills the process if it runs, and starts another on the same port. Persist decides what
// is kept.
func (r *Real) Restart(keepMemory bool) error {
	if keepMemory && r.persistence() == Volatile {
		return errors.New("redistest: a volatile server has no memory to keep")
	}
	return r.restart(func() error {
		if keepMemory {
			return nil
		}
		var errs []error
		for _, name := range []string{appendOnlyDir, appendOnlyFile, dumpFile} {
			errs = append(errs, os.RemoveAll(filepath.Join(r.dir, name)))
		}
		return errors.Join(errs...)
	})
}

// restart kills the process, lets prepare change its files, and starts another.
func (r *Real) restart(prepare func() error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return net.ErrClosed
	}
	r.killLocked()
	if err := prepare(); err != nil {
		return err
	}
	return r.start(context.Background())
}

// Pause sends SIGSTOP and waits until the process has stopped.
func (r *Real) Pause() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc != nil {
		signalStop(r.proc.pid)
	}
}

// Resume sends SIGCONT.
func (r *Real) Resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.proc != nil {
		signalCont(r.proc.pid)
	}
}

// Flush deletes all keys.
func (r *Real) Flush() error { return flush(r) }

// Do executes one command on a connection of its own.
func (r *Real) Do(ctx context.Context, args ...string) (any, error) { return r.ask(ctx, args...) }

func (r *Real) ask(ctx context.Context, args ...string) (any, error) {
	c, err := DialClient(ctx, &net.Dialer{}, r.Addr())
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.Do(ctx, args...)
}

// Close kills the process, closes the paths and removes the directory.
func (r *Real) Close() error {
	r.mu.Lock()
	r.closed = true
	r.killLocked()
	paths, held := slices.Clone(r.paths), r.held
	r.held = nil
	r.mu.Unlock()
	for _, l := range paths {
		_ = l.Close()
	}
	return errors.Join(held.Close(), os.RemoveAll(r.dir))
}
