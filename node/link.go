package node

import (
	"bufio"
	"net"
	"sync/atomic"
	"time"
)

// chunk is the most that is written under one write deadline.
const chunk = 256 << 10

// link is one authenticated connection.
type link struct {
	br     *bufio.Reader // the reader's
	source *ours         // of br: wire, as the connection was made
	wire   net.Conn      // what we write to: TLS where configured
	direct *direct       // to wire; nil: there is no such way
	socket net.Conn      // below TLS
	addr   string        // that was dialled
	limit  time.Duration // of one write of a chunk at most
}

// write writes all of buf, or returns an error.
func (l *link) write(buf []byte) error {
	for len(buf) > 0 {
		part := buf[:min(len(buf), chunk)]
		n, err := l.direct.write(part)
		if err != nil {
			return err
		}
		if n < len(part) {
			if err := l.writeWithin(part[n:]); err != nil {
				return err
			}
		}
		buf = buf[len(part):]
	}
	return nil
}

// writeWithin writes what the peer may have to make room for first.
func (l *link) writeWithin(part []byte) error {
	if err := l.wire.SetWriteDeadline(time.Now().Add(l.limit)); err != nil {
		return err
	}
	if _, err := l.wire.Write(part); err != nil {
		return err
	}
	if l.direct == nil {
		return nil
	}
	return l.wire.SetWriteDeadline(time.Time{}) // it would end a later direct write
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
