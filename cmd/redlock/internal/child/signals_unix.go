//go:build unix

package child

import (
	"os"
	"os/signal"
	"sync"
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

// ofKeys reports whether a terminal sends sig to all of its foreground group by itself.
func ofKeys(sig syscall.Signal) bool {
	return sig == syscall.SIGINT || sig == syscall.SIGQUIT || sig == syscall.SIGWINCH
}

// inherited are the signals that were ignored when this process began. The runtime takes over all but SIGHUP, SIGINT and
// those that stop or continue. A shell that ignores SIGINT for a job in the background ignores SIGQUIT too.
var inherited = sync.OnceValue(func() map[os.Signal]bool {
	all := make(map[os.Signal]bool)
	for sig := syscall.Signal(1); sig < 32; sig++ {
		all[sig] = signal.Ignored(sig) || ignores(os.Getpid(), sig)
	}
	if all[syscall.SIGINT] {
		signal.Ignore(syscall.SIGQUIT) // so that a command inherits that
		all[syscall.SIGQUIT] = true
	}
	return all
})

// Notify has signals sent to c, except those that were ignored when this process began: whoever started it wants them
// ignored, by this process and by its command, as nohup and a shell's & do.
func Notify(c chan<- os.Signal, signals ...os.Signal) {
	for _, sig := range signals {
		if !inherited()[sig] {
			signal.Notify(c, sig)
		}
	}
}

// sink gets what must be handled, so that it has no effect, and is told to nobody.
var sink = make(chan os.Signal, 1)

// Holding readies this process to hold something for others. A pipe that nobody reads is an error then, and not the end of
// the process. A terminal that it uses from the background does not stop it.
func Holding() {
	BrokenPipesAreErrors()
	aloof()
}

// BrokenPipesAreErrors has a write to a pipe that nobody reads fail. To ignore SIGPIPE would do so too, but a command
// inherits what is ignored, and not what is handled.
func BrokenPipesAreErrors() { signal.Notify(sink, syscall.SIGPIPE) }

// OfTerminal reports whether sig is what a terminal sends to who uses it from the background.
func OfTerminal(sig os.Signal) bool { return sig == syscall.SIGTTIN || sig == syscall.SIGTTOU }

// stopsBackground are those that were not ignored when this process began.
func stopsBackground() (all []os.Signal) {
	for _, sig := range []os.Signal{syscall.SIGTTIN, syscall.SIGTTOU} {
		if !inherited()[sig] {
			all = append(all, sig)
		}
	}
	return all
}

// aloof ignores the signals of a terminal to the background. They cannot be handled: the system would repeat the call
// for ever that leads to them.
func aloof() {
	if all := stopsBackground(); len(all) > 0 {
		signal.Ignore(all...)
	}
}

// forCommand has a command that starts now stopped by a terminal, as any other program, until aloof.
func forCommand() {
	if all := stopsBackground(); len(all) > 0 {
		signal.Notify(sink, all...)
	}
}
