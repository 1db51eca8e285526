//go:build unix

package redistest

import "syscall"

func supported() error { return nil }

// The process has not been waited for while its pid is used, so the pid is its own.

func signalKill(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }

func signalCont(pid int) { _ = syscall.Kill(pid, syscall.SIGCONT) }

func signalStop(pid int) {
	if syscall.Kill(pid, syscall.SIGSTOP) == nil {
		awaitStopped(pid)
	}
}
