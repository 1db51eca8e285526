package node

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/mediocregopher/radix/v4"
	"github.com/mediocregopher/radix/v4/resp"
	"github.com/mediocregopher/radix/v4/resp/resp3"

	"github.com/redquorum/redquorum/member"
)

const socketBuffer = 256 << 10 // asked of the kernel for sending; see inlineBytes

// dial opens a link to addr: connect, TLS, AUTH and SELECT. ctx bounds all of it.
func (d *dialer) dial(ctx context.Context, addr string) (*link, error) {
	l := &link{addr: addr}
	ask, cancel := context.WithTimeout(ctx, d.cfg.DialTimeout)
	user, password, err := d.cfg.credentials(ask, d.name)
	cancel()
	if err != nil {
		return nil, err
	}
	r := radix.Dialer{
		AuthUser: user,
		AuthPass: password,
		NetDialer: dialFunc(func(ctx context.Context) (net.Conn, error) {
			wire, err := d.open(ctx, l)
			if err != nil {
				return nil, err
			}
			l.source = &ours{Conn: wire}
			return l.source, nil
		}),
		NewRespOpts: func() *resp.Opts {
			o := resp.NewOpts()
			o.GetBufferedReader = func(r io.Reader) resp.BufferedReader {
				l.br = newBuffer(r)
				return l.br
			}
			o.GetBufferedWriter = func(w io.Writer) resp.BufferedWriter { return &writer{w: w} }
			return o
		},
	}
	if d.cfg.DB != 0 {
		r.SelectDB = strconv.Itoa(d.cfg.DB)
	}
	conn, err := r.Dial(ctx, d.cfg.Network, l.addr)
	if err != nil {
		if l.socket != nil {
			_ = l.socket.Close()
		}
		err = withoutSecrets(err, password, context.Cause(ctx))
		if d.cfg.DB != 0 { // SELECT is what other servers do not know
			err = Expect(ctx, d.one(l.addr), d.expected(), err)
		}
		return nil, d.unlessTLS(ctx, l.addr, err)
	}
	l.source.kept.Store(true)
	_ = conn.Close() // ends radix's goroutines, and nothing else
	return l, nil
}

// one is how to reach one server by itself.
func (d *dialer) one(addr string) Config {
	c := d.cfg
	c.Addr, c.Guard, c.Shard, c.Sentinels, c.Scripts = addr, nil, nil, nil, nil
	return c
}

type dialFunc func(ctx context.Context) (net.Conn, error)

func (f dialFunc) DialContext(ctx context.Context, _, _ string) (net.Conn, error) { return f(ctx) }

// open makes the connection that radix gets.
func (d *dialer) open(ctx context.Context, l *link) (net.Conn, error) {
	began := time.Now()
	dial, cancel := context.WithTimeout(ctx, d.cfg.DialTimeout)
	socket, err := d.socket(dial, l.addr)
	cancel()
	if err == context.DeadlineExceeded { // a Dialer of the user's may say no more than that
		err = fmt.Errorf("no connection to %s within %v: %w", l.addr, time.Since(began).Round(time.Millisecond), err)
	}
	if err != nil {
		return nil, &dialError{"", err}
	}
	if tcp, ok := socket.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(socketBuffer) // a hint
	}
	l.socket, l.wire = socket, socket
	if d.tls == nil {
		return socket, nil
	}
	lacking := false // a certificate of ours
	secure := tls.Client(socket, d.tlsFor(l.addr, &lacking))
	if err := d.handshake(ctx, secure, l.addr); err != nil {
		_ = socket.Close()
		step := "TLS: "
		if other := (*SchemeError)(nil); errors.As(err, &other) || strings.Contains(err.Error(), "tls: ") {
			step = ""
		}
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			step = "no answer to the TLS handshake (is this the port for TLS?): "
		case lacking:
			err = fmt.Errorf("%w: the server asks for a client certificate and the URL has none (tls_cert, tls_key)", err)
		}
		return nil, &dialError{step, err}
	}
	l.wire = &secured{secure}
	return l.wire, nil
}

// withoutSecrets keeps of an error of radix's Dial what can be relied on to hold no secret. The
// server may repeat what it was sent with AUTH, in an error or as anything else. late is why there was no more time.
func withoutSecrets(err error, password string, late error) error {
	var simple resp3.SimpleError
	var blob resp3.BlobError
	var ours *dialError
	var network net.Error
	switch {
	case errors.As(err, &ours):
		return ours
	case errors.As(err, &simple):
		return withhold(classify(simple.S), password)
	case errors.As(err, &blob):
		return withhold(classify(string(blob.B)), password)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("the server accepts connections, and did not answer AUTH or SELECT in time (DialTimeout): %w", cmp.Or(late, context.DeadlineExceeded))
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("AUTH or SELECT: %w", context.Canceled)
	case errors.As(err, &network):
		return fmt.Errorf("AUTH or SELECT: %w", network)
	case err.Error() == "closed": // radix's own, of a type that it does not export
		return fmt.Errorf("AUTH or SELECT: connection closed by the server: %w", io.ErrUnexpectedEOF)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return fmt.Errorf("AUTH or SELECT: connection closed by the server: %w", io.ErrUnexpectedEOF)
	}
	return protocolError("answer to AUTH or SELECT")
}

// withhold drops the text of an error that repeats the password, or by chance looks as if it did.
func withhold(e *member.ReplyError, password string) *member.ReplyError {
	if password == "" || !strings.Contains(e.Text, password) {
		return e
	}
	const why = "refused by the server (text withheld: the password occurs in it)"
	return &member.ReplyError{Kind: e.Kind, Text: why}
}

// writer is radix's side of writing: AUTH and SELECT, nothing after that.
type writer struct {
	w   io.Writer
	buf []byte
}

func (w *writer) Write(p []byte) (int, error) {
	w.buf = append(w.buf, p...)
	return len(p), nil
}

func (w *writer) Flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	_, err := w.w.Write(w.buf)
	clear(w.buf) // held the password
	w.buf = w.buf[:0]
	return err
}

// vigil begins a watch over l. The first look is due in wait.
func (d *dialer) vigil(l *link, wait time.Duration) *vigil {
	v := &vigil{limit: d.cfg.StallTimeout, unread: func() bool { return d.cfg.unread(l.socket) }}
	v.plan(time.Now(), wait)
	return v
}
