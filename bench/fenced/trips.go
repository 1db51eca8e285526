//go:build unix

package fenced

import (
	"context"
	"net"
	"sync/atomic"
)

// trips counts round trips of all connections that it opens: answers that were waited for after
// something had been sent.
type trips struct{ n atomic.Int64 }

func (t *trips) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: c, all: t}, nil
}

type counted struct {
	net.Conn
	all  *trips
	sent atomic.Bool // nothing has been read since
}

func (c *counted) Write(b []byte) (int, error) {
	c.sent.Store(true)
	return c.Conn.Write(b)
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.sent.CompareAndSwap(true, false) {
		c.all.n.Add(1)
	}
	return n, err
}
