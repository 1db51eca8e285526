package redistest

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
)

// tcpBackend is the server's side of a connection to a server with an address.
type tcpBackend struct {
	relay *relay
	conn  net.Conn
	once  sync.Once
}

func openTCP(ctx context.Context, r *relay, addr string) (backend, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &tcpBackend{relay: r, conn: c}, nil
}

// start launches the goroutine that reads replies. It belongs to the Link and ends with the socket.
func (b *tcpBackend) start() { b.relay.link.wg.Go(b.read) }

func (b *tcpBackend) read() {
	buf := make([]byte, 16<<10)
	for {
		n, err := b.conn.Read(buf)
		if n > 0 {
			b.relay.fromServer(buf[:n])
		}
		if err != nil {
			if errors.Is(err, net.ErrClosed) { // by close
				err = io.EOF
			}
			b.relay.serverGone(err)
			b.close()
			return
		}
	}
}

func (b *tcpBackend) send(cmds []command) error {
	if len(cmds) == 1 {
		return b.sendRaw(cmds[0].raw)
	}
	var all []byte
	for _, c := range cmds {
		all = append(all, c.raw...)
	}
	return b.sendRaw(all)
}

func (b *tcpBackend) sendRaw(p []byte) error {
	_, err := b.conn.Write(p)
	return err
}

func (b *tcpBackend) close() { b.once.Do(func() { _ = b.conn.Close() }) }

func (b *tcpBackend) abort() {
	b.once.Do(func() { abortTCP(b.conn) })
}

// abortTCP closes with a reset: what was not sent is lost, and the peer sees an error.
func abortTCP(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}
