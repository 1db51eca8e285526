//go:build unix

package child

import (
	"os"
	"syscall"
)

// Signals are the signals that are passed on to a command, except the one that Stops.
var Signals = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
	syscall.SIGTSTP, syscall.SIGCONT, syscall.SIGWINCH,
}

// Stops reports whether sig is the signal with which a terminal stops programs.
func Stops(sig os.Signal) bool { return sig == syscall.SIGTSTP }

// Ends reports whether sig ends a wait for a lock.
func Ends(sig os.Signal) bool {
	switch sig {
	case syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT:
		return true
	}
	return false
}
