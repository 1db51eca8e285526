// Package nodes runs a local set of redis-server processes, without containers, for development and
// to break them on purpose. It keeps what it knows in a directory, so that each call of a program
// finds the set as the last one left it.
package nodes

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Set is a directory with a set of servers.
type Set struct {
	dir   string
	ports []int
}

// State is the state of one server.
type State string

// These are the states of a server.
const (
	Running State = "running"
	Paused  State = "paused"
	Dead    State = "dead"
)

// Node is one server, numbered from 1.
type Node struct {
	N     int    `json:"n"`
	Addr  string `json:"addr"`
	Pid   int    `json:"pid,omitempty"`
	State State  `json:"state"`
}

// ErrNone: the directory has no set.
var ErrNone = errors.New("no set of members here: start one with \"redlock nodes up\"")

type record struct {
	Ports []int `json:"ports"`
}

// Open finds the set in dir. If there is none, it returns ErrNone.
func Open(dir string) (*Set, error) {
	raw, err := os.ReadFile(filepath.Join(dir, "nodes.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(raw, &r); err != nil || len(r.Ports) == 0 {
		return nil, fmt.Errorf("%s is damaged: delete %s", filepath.Join(dir, "nodes.json"), dir)
	}
	return &Set{dir, r.Ports}, nil
}

// Create plans a set of n servers at port, port+1, … in dir. It starts nothing.
func Create(dir string, n, port int) (*Set, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	s := &Set{dir: dir}
	for i := range n {
		s.ports = append(s.ports, port+i)
	}
	raw, err := json.Marshal(record{s.ports})
	if err != nil {
		return nil, err
	}
	return s, os.WriteFile(filepath.Join(dir, "nodes.json"), raw, 0o600)
}

// Len returns the number of servers.
func (s *Set) Len() int { return len(s.ports) }

// Port returns the port of the first server.
func (s *Set) Port() int { return s.ports[0] }

// URLs returns the servers' URLs as members.
func (s *Set) URLs() []string {
	var out []string
	for _, p := range s.ports {
		out = append(out, "redis://"+addr(p))
	}
	return out
}

func addr(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

func (s *Set) home(n int) string { return filepath.Join(s.dir, strconv.Itoa(n)) }

// Up starts the servers that are not running. The binary is a redis-server or valkey-server.
func (s *Set) Up(ctx context.Context, binary string) (started int, err error) {
	for i := range s.ports {
		if s.node(i).State != Dead {
			continue
		}
		if err := s.start(ctx, binary, i); err != nil {
			return started, err
		}
		started++
	}
	return started, nil
}

func (s *Set) start(ctx context.Context, binary string, i int) error {
	for end := time.Now().Add(time.Second); taken(ctx, s.ports[i]); time.Sleep(5 * time.Millisecond) { // ours that died gives it back
		if time.Now().After(end) {
			return fmt.Errorf("member %d: another program has port %d: end it, or take other ports with --port", i+1, s.ports[i])
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	home := s.home(i + 1)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	pidfile := filepath.Join(home, "pid")
	_ = os.Remove(pidfile)
	cmd := exec.CommandContext(ctx, binary,
		"--port", strconv.Itoa(s.ports[i]), "--bind", "127.0.0.1", "--dir", home, "--pidfile", pidfile, "--logfile", filepath.Join(home, "log"),
		"--daemonize", "yes", "--save", "", "--appendonly", "yes", "--appendfsync", "always", "--maxmemory-policy", "noeviction")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("member %d: %s: %w: %s", i+1, binary, err, bytes.TrimSpace(out))
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		if n := s.node(i); n.Pid != 0 && answers(n) {
			return nil
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			log, _ := os.ReadFile(filepath.Join(home, "log"))
			return fmt.Errorf("member %d does not answer on port %d; the end of its log:\n%s", i+1, s.ports[i], log[max(0, len(log)-500):])
		}
	}
}

// taken reports whether some program listens on the port. If ctx has ended, it is not asked.
func taken(ctx context.Context, port int) bool {
	dialer := net.Dialer{Timeout: time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", addr(port))
	if err == nil {
		_ = conn.Close()
	}
	return err == nil
}

// answers reports whether the node answers, and not another server that has its port.
func answers(n Node) bool {
	conn, err := net.DialTimeout("tcp", n.Addr, time.Second)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := conn.Write([]byte("INFO server\r\n")); err != nil {
		return false
	}
	var got []byte
	buf := make([]byte, 4096)
	for {
		k, err := conn.Read(buf)
		got = append(got, buf[:k]...)
		if bytes.Contains(got, []byte(fmt.Sprintf("process_id:%d\r\n", n.Pid))) {
			return true
		}
		if err != nil {
			return false
		}
	}
}

// Nodes returns all servers as they are now.
func (s *Set) Nodes() []Node {
	var out []Node
	for i := range s.ports {
		out = append(out, s.node(i))
	}
	return out
}

// node looks at one. A process that has its pid and is not a server on its port is a stranger.
func (s *Set) node(i int) Node {
	n := Node{N: i + 1, Addr: addr(s.ports[i]), State: Dead}
	raw, err := os.ReadFile(filepath.Join(s.home(i+1), "pid"))
	pid, convErr := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil || convErr != nil || pid <= 1 {
		return n
	}
	if n.State = stateOf(pid, s.ports[i]); n.State != Dead {
		n.Pid = pid
	}
	return n
}

// stateOf is that of the process pid as the server on port: Dead when another process has the pid.
func stateOf(pid, port int) State {
	title, state := look(pid)
	switch {
	case !strings.Contains(title, ":"+strconv.Itoa(port)), strings.HasPrefix(state, "Z"):
		return Dead
	case strings.HasPrefix(state, "T"):
		return Paused
	}
	return Running
}

// look returns a process' title and state.
func look(pid int) (title, state string) {
	if runtime.GOOS == "linux" {
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return "", ""
		}
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
		return strings.ReplaceAll(string(cmdline), "\x00", " "), rest
	}
	out, err := exec.Command("ps", "-o", "state=,command=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return "", ""
	}
	state, title, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	return title, state
}

// Kill ends one server at once, Pause stops it, and Resume continues it. n counts from 1. All three
// may be repeated.
func (s *Set) Kill(n int) error   { return s.send(n, kill, Dead) }
func (s *Set) Pause(n int) error  { return s.send(n, stop, Paused) }
func (s *Set) Resume(n int) error { return s.send(n, cont, Running) }

// send signals a node and waits until it shows.
func (s *Set) send(n int, sig syscall.Signal, want State) error {
	if n < 1 || n > len(s.ports) {
		return fmt.Errorf("there is no member %d: members are 1 to %d", n, len(s.ports))
	}
	node := s.node(n - 1)
	if node.State == want {
		return nil
	}
	if node.State == Dead {
		return fmt.Errorf("member %d is dead: start it with \"redlock nodes up\"", n)
	}
	p, err := os.FindProcess(node.Pid)
	if err == nil {
		err = p.Signal(sig)
	}
	if err != nil {
		return fmt.Errorf("member %d: %w", n, err)
	}
	return s.await(node, want, 5*time.Second)
}

// await waits until the process of node is as wanted. It asks for the process and not for the pid file,
// because a server that ends deletes the file first and writes to its log afterwards.
func (s *Set) await(node Node, want State, patience time.Duration) error {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		if stateOf(node.Pid, s.ports[node.N-1]) == want {
			return nil
		}
	}
	return fmt.Errorf("member %d is still %s", node.N, stateOf(node.Pid, s.ports[node.N-1]))
}

// Down ends all servers, and deletes the set unless keep is true.
func (s *Set) Down(keep bool) error {
	var errs []error
	for i := range s.ports {
		node := s.node(i)
		if node.State == Dead {
			continue
		}
		p, err := os.FindProcess(node.Pid)
		if err != nil {
			continue
		}
		_ = p.Signal(syscall.SIGTERM)
		_ = p.Signal(cont) // one that is stopped cannot end in order
		if s.await(node, Dead, 5*time.Second) != nil {
			_ = p.Signal(kill)
			errs = append(errs, s.await(node, Dead, 5*time.Second))
		}
	}
	if err := errors.Join(errs...); err != nil || keep {
		return err
	}
	for i := range s.ports {
		errs = append(errs, os.RemoveAll(s.home(i+1)))
	}
	return errors.Join(append(errs, os.Remove(filepath.Join(s.dir, "nodes.json")))...)
}
