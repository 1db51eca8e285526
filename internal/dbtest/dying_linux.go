package dbtest

import "syscall"

// dying lets a process end with this one.
func dying() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
