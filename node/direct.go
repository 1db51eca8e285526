package node

import (
	"net"
	"syscall"
)

// direct writes to a socket without the runtime's deadlines, which cost as much as the rest of a small write: a write
// that does not wait needs none. One goroutine at a time may use it.
type direct struct {
	raw   syscall.RawConn
	bytes []byte
	n     int
	err   error
	put   func(fd uintptr) bool // made once, so that a write costs no memory
}

// newDirect returns nil if the connection is not a socket and nothing else. A Dialer may return a type of its own that has
// a socket in it and writes in another way, encrypted for instance: that has the methods of the socket too.
func newDirect(conn net.Conn) *direct {
	var socket syscall.Conn
	switch c := conn.(type) {
	case *net.TCPConn:
		socket = c
	case *net.UnixConn:
		socket = c
	default:
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	d := &direct{raw: raw}
	d.put = func(fd uintptr) bool {
		d.n, d.err = put(fd, d.bytes)
		return true
	}
	return d
}

// write returns how much of b the socket took at once, which may be nothing.
func (d *direct) write(b []byte) (int, error) {
	if d == nil {
		return 0, nil
	}
	d.bytes = b
	err := d.raw.Write(d.put)
	d.bytes = nil
	if err != nil {
		return 0, err
	}
	return d.n, d.err
}
