//go:build unix

package node

import (
	"errors"
	"os"
	"syscall"
)

// put writes to a socket what it takes at once. A signal, or a socket that is full, is no error.
func put(fd uintptr, b []byte) (int, error) {
	n, err := syscall.Write(int(fd), b)
	switch {
	case err == nil:
		return n, nil
	case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		return 0, nil
	}
	return 0, os.NewSyscallError("write", err)
}
