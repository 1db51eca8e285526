//go:build unix && !linux

package dbtest

import "syscall"

func dying() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
