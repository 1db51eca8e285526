//go:build !unix

package child

import (
	"os"
	"os/signal"
	"syscall"
)

// Signals are the signals that are passed on to a command.
var Signals = []os.Signal{os.Interrupt, syscall.SIGTERM}

// Stops reports whether sig is the signal with which a terminal stops programs. This system has
// none.
func Stops(os.Signal) bool { return false }

// OfTerminal reports whether sig is what a terminal sends to who uses it from the background.
func OfTerminal(os.Signal) bool { return false }

// Ends reports whether sig ends a wait for a lock.
func Ends(os.Signal) bool { return true }

// Notify is that of package signal, because no signal is inherited as ignored on this system.
func Notify(c chan<- os.Signal, signals ...os.Signal) { signal.Notify(c, signals...) }

// Holding does nothing on this system, as BrokenPipesAreErrors does: a pipe that nobody reads is an error anyway.
func Holding() {}

// BrokenPipesAreErrors does nothing on this system.
func BrokenPipesAreErrors() {}
