//go:build !unix

package nodes

import "syscall"

// There are no stop signals here: Pause and Resume report an error.
const kill, stop, cont = syscall.SIGKILL, syscall.Signal(-1), syscall.Signal(-1)
