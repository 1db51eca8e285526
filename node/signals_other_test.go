//go:build !unix

package node

import "syscall"

// There are no stop signals here: a test that sends one fails.
const stopSignal, contSignal = syscall.Signal(-1), syscall.Signal(-1)
