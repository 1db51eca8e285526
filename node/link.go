package node

import (
	"bufio"
	"net"
	"sync/atomic"
)

// link is one authenticated connection.
type link struct {
	br     *bufio.Reader // the reader's
	source *ours         // of br: wire, as the connection was made
	wire   net.Conn      // what we write to: TLS where configured
	socket net.Conn      // below TLS
	addr   string        // that was dialled
}

// write writes all of buf, which is no call, or returns an error.
func (l *link) write(buf []byte) error {
	_, err := l.wire.Write(buf)
	return err
}

// cut ends the connection at once and from any goroutine: no farewell of TLS, which could wait for
// a stalled peer, and what the kernel has not sent yet is not sent any more.
func (l *link) cut() {
	if tcp, ok := l.socket.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = l.socket.Close()
}

// read runs f, which must not return before the connection ends, as the link's reader. Called once.
func (l *link) read(f func(br *bufio.Reader)) {
	f(l.br)
	_ = l.socket.Close()
}

// ours is the connection as radix has it: radix ends it, unless we keep it after AUTH and SELECT.
type ours struct {
	net.Conn
	kept atomic.Bool
}

func (o *ours) Close() error {
	if o.kept.Load() {
		return nil
	}
	return o.Conn.Close()
}
