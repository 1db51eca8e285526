//go:build !unix

package child

import (
	"os"
	"syscall"
)

// Signals are the signals that are passed on to a command.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// Stops reports whether sig is the signal with which a terminal stops programs. This system has
// none.
func Stops(os.Signal) bool { return false }

// Ends reports whether sig ends a wait for a lock.
func Ends(os.Signal) bool { return true }
