//go:build !unix

package child

// HasTerminal reports whether this process has a controlling terminal, which this system does not know.
func HasTerminal() bool { return false }

// InForeground reports whether the keys of the controlling terminal reach this process.
func InForeground() bool { return true }
