package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"
)

var dialer = &net.Dialer{}

// process is a server that dies with this process, at the latest.
type process struct {
	cmd  *exec.Cmd
	done chan struct{}
	out  *bytes.Buffer
}

func start(name string, args []string, dir string, credential *syscall.Credential, env ...string) (*process, error) {
	p := &process{cmd: exec.Command(name, args...), done: make(chan struct{}), out: &bytes.Buffer{}}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.SysProcAttr = dieWithParent(credential)
	began := make(chan error)
	go func() { // ends with the process
		// The kernel takes the end of the starting thread for the end of the parent.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := p.cmd.Start()
		began <- err
		if err == nil {
			_ = p.cmd.Wait()
			close(p.done)
		}
	}()
	return p, <-began
}

func (p *process) stop() {
	if p == nil || p.cmd.Process == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(3 * time.Second):
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

// await asks until the server is ready.
func (p *process) await(ctx context.Context, limit time.Duration, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	again := time.NewTicker(50 * time.Millisecond)
	defer again.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", p.cmd.Path, tail(p.out.Bytes()))
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s is not ready", p.cmd.Path), err)
		case <-again.C:
		}
	}
}

func tail(b []byte) []byte { return b[max(0, len(b)-500):] }

func freePorts(n int) (ports []int, _ error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// credentialOf is who a server should run as that refuses to run as root; nil: as we are.
func credentialOf(name string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err1 := strconv.Atoi(u.Uid)
	gid, err2 := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, errors.Join(err1, err2)
}

// binary finds a program in PATH or at one of the patterns, the newest last.
func binary(name string, patterns ...string) (string, error) {
	if p, err := exec.LookPath(name); err == nil {
		return p, nil
	}
	for _, pattern := range patterns {
		if found, _ := filepath.Glob(pattern); len(found) > 0 {
			return found[len(found)-1], nil
		}
	}
	return "", fmt.Errorf("no %s", name)
}
