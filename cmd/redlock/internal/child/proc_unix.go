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
	halted chan syscall.Signal
}

// Start runs a command. It shares our process group if there is a controlling terminal: see proc_linux.go.
func Start(c Command) (Process, error) {
	p := &proc{group: !HasTerminal(), exited: make(chan struct{}), gone: make(chan struct{}), halted: make(chan syscall.Signal, 1)}
	forCommand()
	running, err := os.StartProcess(c.Path, c.Args, &os.ProcAttr{
		Env: c.Env, Files: []*os.File{c.Stdin, c.Stdout, c.Stderr}, Sys: &syscall.SysProcAttr{Setpgid: p.group},
	})
	aloof()
	if err != nil {
		return nil, classify(err)
	}
	p.pid = running.Pid
	_ = running.Release()
	go func() { // ends with the group
		p.wait()
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

const wuntraced = 2 // the same on all of these systems, and not in package unix for each

// wait returns when the command has ended.
func (p *proc) wait() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.pid, &status, wuntraced, nil)
		switch {
		case err == syscall.EINTR:
		case err == nil && status.Stopped():
			select {
			case p.halted <- status.StopSignal():
			default: // the one before has not been told yet
			}
		default:
			if p.code = status.ExitStatus(); status.Signaled() {
				p.code = 128 + int(status.Signal())
			}
			return
		}
	}
}

func (p *proc) empty() bool { return !p.group || syscall.Kill(-p.pid, 0) == syscall.ESRCH }

func (p *proc) Exited() <-chan struct{}       { return p.exited }
func (p *proc) Gone() <-chan struct{}         { return p.gone }
func (p *proc) Code() int                     { return p.code }
func (p *proc) Halted() <-chan syscall.Signal { return p.halted }
func (p *proc) InForeground() bool            { return InForeground() }

// Forward implements Process.
func (p *proc) Forward(sig syscall.Signal) {
	switch {
	case !p.group && ofKeys(sig) && InForeground(): // the terminal has sent it to the command as well
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

// ignores is not known beyond what package signal tells.
func ignores(int, syscall.Signal) bool { return false }
