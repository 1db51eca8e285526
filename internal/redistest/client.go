package redistest

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
)

// Client is a plain RESP client for tests and administration. It does what it is told and nothing
// by itself. It is not safe for concurrent use, except that one goroutine may send while another
// receives.
type Client struct {
	conn net.Conn
	in   framer
	buf  [4096]byte
}

// NewClient makes a client over a connection, and then owns the connection.
func NewClient(c net.Conn) *Client { return &Client{conn: c} }

// DialClient connects through a Dialer.
func DialClient(ctx context.Context, d Dialer, addr string) (*Client, error) {
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return NewClient(c), nil
}

// Conn is the connection, for deadlines.
func (c *Client) Conn() net.Conn { return c.conn }

// Close closes the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Send writes commands, all in one piece.
func (c *Client) Send(cmds ...[]string) error {
	var b []byte
	for _, cmd := range cmds {
		b = append(b, resp.Command(cmd...)...)
	}
	_, err := c.conn.Write(b)
	return err
}

// Receive reads one reply or push: int64, string, nil, bool, float64, []any, map[string]any, or an
// Error as a value. The error that it returns is the connection's.
func (c *Client) Receive() (any, error) {
	for {
		frame, ok, err := c.in.reply()
		if err != nil {
			return nil, err
		}
		if ok {
			return parseReply(frame)
		}
		n, err := c.conn.Read(c.buf[:])
		if c.in.feed(c.buf[:n]); n == 0 && err != nil {
			return nil, err
		}
	}
}

// ReceiveFor is Receive with a limit of time.
func (c *Client) ReceiveFor(d time.Duration) (any, error) {
	if err := c.conn.SetReadDeadline(time.Now().Add(d)); err != nil {
		return nil, err
	}
	v, err := c.Receive()
	if e := c.conn.SetReadDeadline(time.Time{}); err == nil {
		err = e
	}
	return v, err
}

// Do sends one command and returns its reply. It returns an error reply as the error. If ctx ends
// first, Do closes the connection, because the reply could be taken for that of the next command.
func (c *Client) Do(ctx context.Context, args ...string) (any, error) {
	stop := context.AfterFunc(ctx, func() { _ = c.conn.Close() })
	defer stop()
	if err := c.Send(args); err != nil {
		return nil, explain(ctx, err)
	}
	v, err := c.Receive()
	if err != nil {
		return nil, explain(ctx, err)
	}
	return asResult(v)
}

func explain(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), err)
	}
	return err
}

func asResult(v any) (any, error) {
	if e, ok := v.(Error); ok {
		return nil, e
	}
	return v, nil
}
