//go:build !unix

package child

import (
	"os"
	"syscall"
)

// Signals are those that are passed on to a command.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// Stops reports whether sig is what a terminal stops programs with: here there is none.
func Stops(os.Signal) bool { return false }

// Ends reports whether sig ends who waits for a lock.
func Ends(os.Signal) bool { return true }
