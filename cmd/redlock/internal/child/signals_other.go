//go:build !unix

package child

import (
	"os"
	"syscall"
)

// Signals are those that are passed on to a command.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// Ends reports whether sig ends who waits for a lock.
func Ends(os.Signal) bool { return true }
