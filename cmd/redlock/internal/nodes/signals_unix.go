//go:build unix

package nodes

import "syscall"

const kill, stop, cont = syscall.SIGKILL, syscall.SIGSTOP, syscall.SIGCONT
