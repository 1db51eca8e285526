//go:build unix

package node

import "syscall"

const stopSignal, contSignal = syscall.SIGSTOP, syscall.SIGCONT
