package child

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// proc is a command, and this process the one that inherits its orphans.
type proc struct {
	pid    int
	group  bool
	code   int
	before family // what this process had started, or inherited by exec, before the command
	exited chan struct{}
	gone   chan struct{}
	halted chan syscall.Signal
}

// Start runs a command. From then on this process waits for every child that it has. It is for a program that runs one
// command at a time: the next one starts when the last one is Gone. Processes that were below this one before are left
// alone.
//
// The command shares our process group if there is a controlling terminal. The terminal stops another group that reads
// from it, and sends Ctrl-C to all of the foreground group itself. Without one it has a group of its own.
func Start(c Command) (Process, error) {
	// Orphans of the command become children of this process, so that none escapes.
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return nil, os.NewSyscallError("prctl", err)
	}
	p := &proc{
		group: !HasTerminal(), before: familyOf(descendants(os.Getpid(), nil)),
		exited: make(chan struct{}), gone: make(chan struct{}), halted: make(chan syscall.Signal, 1),
	}
	started := make(chan error)
	go func() { // ends when no child is left
		// The kernel sends the parent-death signal when the thread that forked ends, not the process: so
		// this goroutine keeps its thread for as long as the command may run.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		attr := &os.ProcAttr{
			Env: c.Env, Files: []*os.File{c.Stdin, c.Stdout, c.Stderr},
			Sys: &syscall.SysProcAttr{Setpgid: p.group, Pdeathsig: syscall.SIGKILL},
		}
		forCommand()
		running, err := os.StartProcess(c.Path, c.Args, attr)
		aloof()
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
		options := unix.WUNTRACED
		if ended && !isClosed(p.exited) {
			options |= unix.WNOHANG // first see whether it left anything behind
		}
		pid, err := unix.Wait4(-1, &status, options, nil)
		alone := pid >= 0 && ended && len(p.before) > 0 && len(scanned(os.Getpid(), p.before)) == 0
		switch {
		case err == unix.EINTR:
		case pid == p.pid && status.Stopped():
			select {
			case p.halted <- status.StopSignal():
			default: // the one before has not been told yet
			}
		case err != nil, alone: // ECHILD: nobody is left
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

func (p *proc) Exited() <-chan struct{}       { return p.exited }
func (p *proc) Gone() <-chan struct{}         { return p.gone }
func (p *proc) Code() int                     { return p.code }
func (p *proc) Halted() <-chan syscall.Signal { return p.halted }
func (p *proc) InForeground() bool            { return InForeground() }

// Forward implements Process. Ctrl-C and the like have reached the command already if it shares the terminal's
// foreground group with us. One that does not handle them gets them all the same, because they may have been sent to
// this process alone, and twice is as once then.
func (p *proc) Forward(sig syscall.Signal) {
	switch {
	case p.group && Ends(sig):
		p.all(sig, syscall.SIGCONT)
		return
	case p.group:
		p.all(sig)
		return
	case ofKeys(sig) && InForeground() && handles(p.pid, sig):
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
	for _, pid := range descendants(os.Getpid(), p.before) {
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
	for _, pid := range descendants(os.Getpid(), p.before) {
		if group, err := unix.Getpgid(pid); whole && err == nil && group == p.pid {
			continue
		}
		for _, sig := range signals {
			_ = unix.Kill(pid, sig)
		}
	}
}

// family is processes and when they began, so that another one with the same number is not taken for one of them.
type family map[int]string

func familyOf(pids []int) family {
	f := make(family, len(pids))
	for _, pid := range pids {
		f[pid] = began(pid)
	}
	return f
}

func (f family) has(pid int) bool {
	at, ok := f[pid]
	return ok && at == began(pid)
}

// descendants lists the processes below root, without those of except and what is below them. One that is made or
// orphaned at this moment may be missing: who must end all asks again.
func descendants(root int, except family) (out []int) {
	if _, err := os.Stat("/proc/thread-self/children"); err != nil {
		return scanned(root, except) // a kernel without CONFIG_PROC_CHILDREN
	}
	return walk(root, except, func(parent int) (pids []int) {
		tasks := "/proc/" + strconv.Itoa(parent) + "/task"
		threads, _ := os.ReadDir(tasks) // an error: it has ended
		for _, t := range threads {
			children, _ := os.ReadFile(tasks + "/" + t.Name() + "/children")
			for _, field := range bytes.Fields(children) {
				if pid, err := strconv.Atoi(string(field)); err == nil {
					pids = append(pids, pid)
				}
			}
		}
		return pids
	})
}

// scanned is descendants by a look at every process of the machine. It misses no child of ours.
func scanned(root int, except family) []int {
	names, _ := filepath.Glob("/proc/[0-9]*/stat")
	below := make(map[int][]int)
	for _, name := range names {
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			if fields := stat(pid); fields != nil {
				parent, _ := strconv.Atoi(fields[1])
				below[parent] = append(below[parent], pid)
			}
		}
	}
	return walk(root, except, func(parent int) []int { return below[parent] })
}

func walk(root int, except family, children func(parent int) []int) (out []int) {
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, pid := range children(next[0]) {
			if !except.has(pid) {
				out, next = append(out, pid), append(next, pid)
			}
		}
	}
	return out
}

// began is when a process began, "" if it has ended.
func began(pid int) string {
	fields := stat(pid)
	if len(fields) < 20 {
		return ""
	}
	return fields[19]
}

// stat has what the system tells of a process from its state on: state, parent, …; nil if it has ended.
func stat(pid int) []string {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	// pid (name) state parent …, and the name may hold anything
	at := bytes.LastIndexByte(text, ')')
	if fields := strings.Fields(string(text[at+1:])); err == nil && at >= 0 && len(fields) > 1 {
		return fields
	}
	return nil
}

// ignores and handles report what a process does when it gets a signal.
func ignores(pid int, sig syscall.Signal) bool { return listed(pid, "SigIgn:", sig) }
func handles(pid int, sig syscall.Signal) bool { return listed(pid, "SigCgt:", sig) }

func listed(pid int, list string, sig syscall.Signal) bool {
	text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	_, rest, _ := strings.Cut(string(text), list)
	line, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(strings.TrimSpace(line), 16, 64)
	return err == nil && set&(1<<(sig-1)) != 0
}
