//go:build !linux

package server

import "syscall"

func dieWithParent(c *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: c}
}
