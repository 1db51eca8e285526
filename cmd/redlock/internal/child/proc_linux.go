package child

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// proc is a command, and this process the one that inherits its orphans.
type proc struct {
	pid    int
	group  bool
	code   int
	exited chan struct{}
	gone   chan struct{}
}

// Start runs a command. From then on this process waits for every child that it has, so it must
// have no others. It is for a program that runs one command at a time: the next one starts when the
// last one is Gone.
func Start(c Command) (Process, error) {
	// Orphans of the command become children of this process, so that none escapes.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	p := &proc{group: c.OwnGroup, exited: make(chan struct{}), gone: make(chan struct{})}
	started := make(chan error)
	go func() { // ends when no child is left
		// The kernel sends the parent-death signal when the thread that forked ends, not the process: so
		// this goroutine keeps its thread for as long as the command may run.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		attr := &os.ProcAttr{
			Env: c.Env, Files: []*os.File{c.Stdin, c.Stdout, c.Stderr},
			Sys: &syscall.SysProcAttr{Setpgid: c.OwnGroup, Pdeathsig: syscall.SIGKILL},
		}
		running, err := os.StartProcess(c.Path, c.Args, attr)
		if err != nil {
			started <- classify(err)
			return
		}
		p.pid = running.Pid
		_ = running.Release()
		started <- nil
		p.reap()
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

// reap waits for the command and for every orphan.
func (p *proc) reap() {
	ended := false
	for {
		var status unix.WaitStatus
		options := 0
		if ended && !isClosed(p.exited) {
			options = unix.WNOHANG // first see whether it left anything behind
		}
		pid, err := unix.Wait4(-1, &status, options, nil)
		switch {
		case err == unix.EINTR:
		case err != nil: // ECHILD: nobody is left
			close(p.gone)
			if !isClosed(p.exited) {
				close(p.exited)
			}
			return
		case pid == 0:
			close(p.exited)
		case pid == p.pid:
			ended = true
			if p.code = status.ExitStatus(); status.Signaled() {
				p.code = 128 + int(status.Signal())
			}
		}
	}
}

func isClosed(ch chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (p *proc) Exited() <-chan struct{} { return p.exited }
func (p *proc) Gone() <-chan struct{}   { return p.gone }
func (p *proc) Code() int               { return p.code }

// Forward implements Process. Ctrl-C and the like have reached the command already if it shares the
// terminal's foreground group with us.
func (p *proc) Forward(sig syscall.Signal) {
	switch {
	case p.group && Ends(sig):
		p.all(sig, syscall.SIGCONT)
		return
	case p.group:
		p.all(sig)
		return
	case sig == syscall.SIGINT || sig == syscall.SIGQUIT || sig == syscall.SIGCONT || sig == syscall.SIGWINCH:
	case !isClosed(p.exited):
		_ = unix.Kill(p.pid, sig)
	}
	if Ends(sig) {
		p.Continue()
	}
}

// Continue implements Process. What the terminal stops is in our group; what has another one, such as the
// jobs of a shell that the command is, was stopped by somebody else.
func (p *proc) Continue() {
	if p.group || isClosed(p.gone) {
		return
	}
	for _, pid := range descendants(os.Getpid()) {
		if group, err := unix.Getpgid(pid); err == nil && group == unix.Getpgrp() {
			_ = unix.Kill(pid, syscall.SIGCONT)
		}
	}
}

// Terminate implements Process. One that is stopped cannot handle SIGTERM.
func (p *proc) Terminate() { p.all(syscall.SIGTERM, syscall.SIGCONT) }

func (p *proc) Kill() { p.all(syscall.SIGKILL) }

// all signals the group at once, and then whoever descends from this process and is not in it. Once the
// command itself has been waited for, the group's number may become another's: then one by one.
func (p *proc) all(signals ...syscall.Signal) {
	if isClosed(p.gone) {
		return
	}
	whole := p.group && !isClosed(p.exited)
	if whole {
		for _, sig := range signals {
			_ = unix.Kill(-p.pid, sig)
		}
	}
	for _, pid := range descendants(os.Getpid()) {
		if group, err := unix.Getpgid(pid); whole && err == nil && group == p.pid {
			continue
		}
		for _, sig := range signals {
			_ = unix.Kill(pid, sig)
		}
	}
}

// descendants lists the processes below root. One that is made or orphaned at this moment may be missing:
// who must end all asks again.
func descendants(root int) (out []int) {
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return scanned(root) // a kernel without CONFIG_PROC_CHILDREN
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		tasks := "/proc/" + strconv.Itoa(next[0]) + "/task"
		threads, _ := os.ReadDir(tasks) // an error: it has ended
		for _, t := range threads {
			children, _ := os.ReadFile(tasks + "/" + t.Name() + "/children")
			for _, field := range bytes.Fields(children) {
				if pid, err := strconv.Atoi(string(field)); err == nil {
					out, next = append(out, pid), append(next, pid)
				}
			}
		}
	}
	return out
}

// scanned is descendants by a look at every process of the machine.
func scanned(root int) (out []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	below := make(map[int][]int)
	for _, name := range names {
		stat, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended meanwhile
		}
		// pid (name) state parent …, and the name may hold anything
		fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		pid, err := strconv.Atoi(string(bytes.Fields(stat)[0]))
		if err != nil || len(fields) < 2 {
			continue
		}
		parent, _ := strconv.Atoi(string(fields[1]))
		below[parent] = append(below[parent], pid)
	}
	for next := []int{root}; len(next) > 0; next = next[1:] {
		out = append(out, below[next[0]]...)
		next = append(next, below[next[0]]...)
	}
	return out
}
