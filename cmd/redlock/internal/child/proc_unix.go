//go:build unix && !linux

package child

import (
	"os"
	"syscall"
	"time"
)

// proc is a command and its process group: processes that leave the group are not known of.
type proc struct {
	pid    int
	group  bool
	code   int
	exited chan struct{}
	gone   chan struct{}
}

// Start runs a command.
func Start(c Command) (Process, error) {
	running, err := os.StartProcess(c.Path, c.Args, &os.ProcAttr{
		Env: c.Env, Files: []*os.File{c.Stdin, c.Stdout, c.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: c.OwnGroup},
	})
	if err != nil {
		return nil, classify(err)
	}
	p := &proc{pid: running.Pid, group: c.OwnGroup, exited: make(chan struct{}), gone: make(chan struct{})}
	go func() { // ends with the group
		if state, err := running.Wait(); err == nil {
			status := state.Sys().(syscall.WaitStatus)
			if p.code = status.ExitStatus(); status.Signaled() {
				p.code = 128 + int(status.Signal())
			}
		}
		if p.empty() {
			close(p.gone)
			close(p.exited)
			return
		}
		close(p.exited)
		again := time.NewTicker(10 * time.Millisecond)
		defer again.Stop()
		for !p.empty() {
			<-again.C
		}
		close(p.gone)
	}()
	return p, nil
}

func (p *proc) empty() bool { return !p.group || syscall.Kill(-p.pid, 0) == syscall.ESRCH }

func (p *proc) Exited() <-chan struct{} { return p.exited }
func (p *proc) Gone() <-chan struct{}   { return p.gone }
func (p *proc) Code() int               { return p.code }

// Forward implements Process.
func (p *proc) Forward(sig syscall.Signal) {
	switch {
	case !p.group && (sig == syscall.SIGINT || sig == syscall.SIGQUIT || sig == syscall.SIGCONT || sig == syscall.SIGWINCH):
		// the terminal has sent it to the command as well
	default:
		p.all(sig)
	}
	if Ends(sig) {
		p.all(syscall.SIGCONT)
		p.Continue()
	}
}

// Continue implements Process: for all of our group, where who descends from the command is not known.
func (p *proc) Continue() {
	if !p.group {
		_ = syscall.Kill(0, syscall.SIGCONT)
	}
}

func (p *proc) Terminate() {
	p.all(syscall.SIGTERM)
	p.all(syscall.SIGCONT)
}

func (p *proc) Kill() { p.all(syscall.SIGKILL) }

func (p *proc) all(sig syscall.Signal) {
	select {
	case <-p.gone:
		return
	default:
	}
	if p.group {
		_ = syscall.Kill(-p.pid, sig)
		return
	}
	select {
	case <-p.exited:
	default:
		_ = syscall.Kill(p.pid, sig)
	}
}
