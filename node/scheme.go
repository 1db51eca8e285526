package node

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// SchemeError says that a server is of another kind than its URL says: a server of a Redis Cluster, one that is in
// none, a Sentinel; or that it speaks TLS where the URL does not, or the other way round.
type SchemeError struct {
	Found  string // what is there, such as "a Sentinel"
	Scheme string // that would fit, such as "redis-sentinel://"
	Err    error  // by what it was seen, where that was an error
}

func (e *SchemeError) Error() string {
	text := "wrong scheme in the URL: this is " + e.Found + ", for which it is " + e.Scheme
	if e.Err != nil {
		text += " (" + e.Err.Error() + ")"
	}
	return text
}

func (e *SchemeError) Unwrap() error { return e.Err }

// scheme is that of the URLs of a kind of member.
func (k TargetKind) scheme(secure bool) string {
	s := "redis"
	if secure {
		s = "rediss"
	}
	return s + [...]string{"", "-cluster", "-sentinel"}[k] + "://"
}

// modeOf is what INFO says of the kind of a server. Valkey calls it another name from 8.0 on.
func modeOf(info []byte) string {
	if mode := resp.Field(info, "redis_mode:"); mode != "" {
		return mode
	}
	return resp.Field(info, "server_mode:")
}

// found makes a SchemeError of what redis_mode in INFO says; nil if that is what was expected, or is not known.
func found(mode string, want TargetKind, secure bool, err error) error {
	kind, what := want, ""
	switch mode {
	case "sentinel":
		kind, what = BySentinel, "a Sentinel"
	case "cluster":
		kind, what = RedisCluster, "a server of a Redis Cluster"
	case "standalone":
		kind, what = OneServer, "a single server"
	}
	if kind == want {
		return nil
	}
	return &SchemeError{what, kind.scheme(secure), err}
}

// Expect makes the error that a server showed, which was asked something that only a server of one kind knows, one
// that says of which kind it is instead, if it tells. Any other error is returned as it is.
func Expect(ctx context.Context, c Config, want TargetKind, err error) error {
	var refused *member.ReplyError
	if !errors.As(err, &refused) {
		return err
	}
	switch text := refused.Text; {
	case strings.Contains(text, "cluster support disabled"):
		return found("standalone", want, c.TLS != nil, refused)
	case strings.Contains(text, "not allowed in cluster mode"):
		return found("cluster", want, c.TLS != nil, refused)
	case !strings.HasPrefix(text, "ERR unknown command") && !strings.Contains(text, "DB index is out of range"):
		return err // (From Valkey 9.0 on, a server of a cluster knows SELECT, and has one database.)
	}
	c.DB = 0
	replies, failed := Query(ctx, c, infoServer)
	if failed != nil {
		return err
	}
	if other := found(modeOf(replies[0].Str), want, c.TLS != nil, refused); other != nil {
		return other
	}
	return err
}

// expected is what the server behind this node must be. A master that Sentinels name is a single server.
func (n *Node) expected() TargetKind {
	if n.cfg.Shard != nil || n.cfg.kind == RedisCluster {
		return RedisCluster
	}
	return OneServer
}

// ofKind checks that against INFO.
func (n *Node) ofKind(info []byte) error {
	mode := modeOf(info)
	if n.expected() == RedisCluster && mode == "standalone" {
		return nil // CLUSTER MYID said it, where it matters
	}
	return found(mode, n.expected(), n.cfg.TLS != nil, nil)
}

// unlessCluster names a refusal that only servers of a cluster make: where INFO is not permitted.
func (n *Node) unlessCluster(err error) error {
	var refused *member.ReplyError
	if n.expected() == OneServer && errors.As(err, &refused) && refused.Kind == member.KindCluster {
		return found("cluster", OneServer, n.cfg.TLS != nil, refused)
	}
	return err
}

// unlessTLS names a server that speaks TLS, where it closed a connection without TLS before it answered anything:
// err is how that ended. It asks the server itself, on another connection, on which nothing secret is sent; not once
// a connection has worked.
func (n *Node) unlessTLS(ctx context.Context, addr string, err error) error {
	var ours *dialError
	var refused *member.ReplyError
	var other *SchemeError
	if p := n.published.Load(); p != nil && p.state.Epoch > 0 {
		return err
	}
	if n.tls != nil || n.cfg.Network != "tcp" || errors.As(err, &ours) || errors.As(err, &refused) ||
		errors.As(err, &other) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) || ctx.Err() != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, n.cfg.DialTimeout)
	defer cancel()
	socket, failed := n.cfg.Dialer.DialContext(ctx, n.cfg.Network, addr)
	if failed != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	// Whose certificate it is does not matter here.
	failed = tls.Client(socket, &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: true}).HandshakeContext(ctx)
	var alert *net.OpError // it may want a certificate from us
	if failed == nil || errors.As(failed, &alert) && alert.Op == "remote error" {
		return &SchemeError{"a server that speaks TLS", n.cfg.kind.scheme(true), nil}
	}
	return err
}

// plainly asks a server without TLS whether it is a Redis.
func (n *Node) plainly(ctx context.Context, addr string) bool {
	socket, err := n.cfg.Dialer.DialContext(ctx, n.cfg.Network, addr)
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

// handshake is that of TLS. A server without it may say nothing to what it takes for the beginning of a long command:
// so when half of the time has passed, it is asked without.
func (n *Node) handshake(ctx context.Context, secure *tls.Conn, addr string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var asking sync.WaitGroup
	plain := false // by the goroutine, which is waited for
	wait := n.cfg.DialTimeout / 2
	if end, ok := ctx.Deadline(); ok {
		wait = time.Until(end) / 2
	}
	asking.Add(1)
	ask := time.AfterFunc(wait, func() {
		defer asking.Done()
		if plain = n.plainly(ctx, addr); plain {
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
			plain = n.plainly(ctx, addr)
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
	return &SchemeError{"a server that speaks without TLS", n.cfg.kind.scheme(false), err}
}
