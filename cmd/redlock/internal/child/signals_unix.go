//go:build unix

package child

import (
	"os"
	"syscall"
)

// Signals are those that are passed on to a command, but the one that Stops.
var Signals = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH,
}

// Stops reports whether sig is what a terminal stops programs with.
func Stops(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// Ends reports whether sig ends who waits for a lock.
func Ends(sig os.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}
