//go:build unix

package child

import "golang.org/x/sys/unix"

// foreground is the process group in the foreground of our controlling terminal. ok is false if there is no terminal.
func foreground() (group int, ok bool) {
	for fd := range 3 { // where /dev has no tty
		if group, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil {
			return group, true
		}
	}
	fd, err := unix.Open("/dev/tty", unix.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer func() { _ = unix.Close(fd) }()
	group, err = unix.IoctlGetInt(fd, unix.TIOCGPGRP)
	return group, err == nil
}

// HasTerminal reports whether this process has a controlling terminal.
func HasTerminal() bool {
	_, ok := foreground()
	return ok
}

// InForeground reports whether the keys of the controlling terminal reach this process.
func InForeground() bool {
	group, ok := foreground()
	ours, err := unix.Getpgid(0)
	return ok && err == nil && group == ours
}
