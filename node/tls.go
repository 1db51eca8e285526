package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/redquorum/redquorum/member"
)

// unlessTLS names a server that speaks TLS, where it closed a connection without TLS before it
// answered anything: err is how that ended. It asks the server itself, on another connection, on
// which nothing secret is sent; not once a connection has worked.
func (d *dialer) unlessTLS(ctx context.Context, addr string, err error) error {
	var ours *dialError
	var refused *member.ReplyError
	var other *SchemeError
	if d.worked.Load() {
		return err
	}
	if d.tls != nil || d.cfg.Network != "tcp" || errors.As(err, &ours) || errors.As(err, &refused) ||
		errors.As(err, &other) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, d.cfg.DialTimeout)
	defer cancel()
	socket, failed := d.socket(ctx, addr)
	if failed != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	// Whose certificate it is does not matter here.
	failed = tls.Client(socket, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}).HandshakeContext(ctx)
	var alert *net.OpError // it may want a certificate from us
	if failed == nil || errors.As(failed, &alert) && alert.Op == "remote error" {
		return &SchemeError{"a server that speaks TLS", d.cfg.kind.scheme(true), nil}
	}
	return err
}

// plainly asks a server without TLS whether it is a Redis.
func (d *dialer) plainly(ctx context.Context, addr string) bool {
	socket, err := d.socket(ctx, addr)
	if err != nil {
		return false
	}
	defer func() { _ = socket.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	answer := make([]byte, 5)
	if _, err := socket.Write(ping); err != nil {
		return false
	}
	_, err = io.ReadFull(socket, answer)
	return err == nil && spokenPlainly(answer)
}

// spokenPlainly recognizes the beginning of what a Redis answers, which may be any error.
func spokenPlainly(answer []byte) bool {
	for _, begin := range []string{"+PONG", "-ERR ", "-NOAU", "-NOPE", "-DENI", "-LOAD", "-BUSY", "-MAST", "-MISC"} {
		if bytes.HasPrefix(answer, []byte(begin)) {
			return true
		}
	}
	return false
}

// handshake is that of TLS. A server without it may say nothing to what it takes for the beginning
// of a long command: so when half of the time has passed, it is asked without.
func (d *dialer) handshake(ctx context.Context, secure *tls.Conn, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asking sync.WaitGroup
	plain := false // by the goroutine, which is waited for
	wait := d.cfg.DialTimeout / 2
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end) / 2
	}
	asking.Add(1)
	ask := time.AfterFunc(wait, func() {
		defer asking.Done()
		if plain = d.plainly(ctx, addr); plain {
			cancel()
		}
	})
	err := secure.HandshakeContext(ctx)
	if err == nil {
		cancel()
	}
	var record tls.RecordHeaderError
	switch early := ask.Stop(); {
	case early:
		asking.Done()
		if err == nil {
			return nil
		}
		var untrusted *tls.CertificateVerificationError
		var alert *net.OpError
		switch {
		case errors.As(err, &record):
			plain = spokenPlainly(record.RecordHeader[:])
		case errors.As(err, &untrusted), errors.As(err, &alert) && alert.Op == "remote error": // that is TLS
		default: // it closed
			plain = d.plainly(ctx, addr)
		}
	default:
		asking.Wait()
	}
	switch {
	case err == nil || !plain:
		return err
	case errors.Is(err, context.Canceled): // by us, before its time
		err = fmt.Errorf("no answer to the TLS handshake: %w", context.DeadlineExceeded)
	}
	return &SchemeError{"a server that speaks without TLS", d.cfg.kind.scheme(false), err}
}

// secured is a TLS connection whose Write gives the reason that the server gave. Under TLS 1.3 the
// handshake is over for us before the server has looked at our certificate: if it refuses it, it
// says so and closes, and the first write may fail before anybody has read why.
type secured struct{ *tls.Conn }

func (s *secured) Write(p []byte) (int, error) {
	n, err := s.Conn.Write(p)
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return n, err
	}
	_ = s.SetReadDeadline(time.Now().Add(alertWait))
	var said *net.OpError
	for scratch := make([]byte, 512); ; {
		if _, readErr := s.Read(scratch); readErr == nil {
			continue // the connection is lost, and so are the answers on it
		} else if errors.As(readErr, &said) && said.Op == "remote error" {
			return n, readErr
		}
		return n, err
	}
}

// alertWait is how long a write that failed looks for the reason, which is there already or never
// comes.
const alertWait = 20 * time.Millisecond

// tlsFor is the configuration for an address: that of a master which Sentinels name is known now.
// It notes in lacking that the server asked for a certificate of ours where there is none: under
// TLS 1.2 it then refuses the handshake without a word about certificates. It may also only have
// asked, and be content.
func (d *dialer) tlsFor(addr string, lacking *bool) *tls.Config {
	c := d.tls.Clone()
	if d.cfg.Sentinels != nil && c.ServerName == "" {
		c.ServerName, _, _ = net.SplitHostPort(addr)
	}
	if len(c.Certificates) == 0 && c.GetClientCertificate == nil {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { // by the handshake, which is waited for
			*lacking = true
			return &tls.Certificate{}, nil
		}
	}
	return c
}
