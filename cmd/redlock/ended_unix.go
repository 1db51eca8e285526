//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// ended reports whether nothing keeps f open: it is a file, /dev/null, or a pipe that nobody can write to. What it has is read.
func ended(f *os.File) bool {
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
		return true
	}
	text := make([]byte, 1<<16)
	for range 64 {
		is := []unix.PollFd{{Fd: int32(f.Fd()), Events: unix.POLLIN}}
		if n, err := unix.Poll(is, 0); err != nil || n == 0 {
			return false
		}
		if n, _ := f.Read(text); n == 0 {
			return true
		}
	}
	return false
}
