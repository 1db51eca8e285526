package node

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

// Commands that do not differ from server to server.
var (
	ping       = resp.Command("PING")
	quit       = resp.Command("QUIT")
	asking     = resp.Command("ASKING")
	infoServer = resp.Command("INFO", "server")
)

// dialer makes connections to one server, and says what is wrong with one that is not what its Config says.
type dialer struct {
	cfg    Config // with its defaults
	name   string // in errors
	tls    *tls.Config
	worked atomic.Bool // a connection has been up
}

// to makes a dialer for a Config with its defaults.
func (d *dialer) to(c Config, name string) {
	d.cfg, d.name = c, name
	if c.TLS != nil {
		d.tls = tlsConfig(c)
	}
}

// socket opens a connection to addr with the Dialer.
func (d *dialer) socket(ctx context.Context, addr string) (net.Conn, error) {
	use := d.cfg.Dialer
	if _, ours := use.(*net.Dialer); ours {
		return use.DialContext(ctx, d.cfg.Network, addr)
	}
	type dialled struct {
		conn net.Conn
		err  error
	}
	got, returned := within(ctx, d.cfg.grace(), func() (r dialled) {
		r.conn, r.err = use.DialContext(ctx, d.cfg.Network, addr)
		return r
	}, func(late dialled) {
		if late.conn != nil {
			_ = late.conn.Close()
		}
	})
	switch {
	case !returned:
		return nil, &DialerError{addr, stuck(ctx)}
	case got.err != nil:
		return nil, got.err
	case got.conn == nil:
		return nil, &DialerError{addr, errors.New("it returned neither a connection nor an error")}
	}
	return got.conn, nil
}

// expected is what the server behind this node must be. A master that Sentinels name is a single
// server.
func (d *dialer) expected() TargetKind {
	if d.cfg.Shard != nil || d.cfg.kind == RedisCluster {
		return RedisCluster
	}
	return OneServer
}

// ofKind checks that against INFO.
func (d *dialer) ofKind(info []byte) error {
	mode := modeOf(info)
	if d.expected() == RedisCluster && mode == "standalone" {
		return nil // CLUSTER MYID said it, where it matters
	}
	return found(mode, d.expected(), d.cfg.TLS != nil, nil)
}

// unlessCluster names a refusal that only servers of a cluster make: where INFO does not name its kind.
func (d *dialer) unlessCluster(err error) error {
	var refused *member.ReplyError
	if d.expected() == OneServer && errors.As(err, &refused) && refused.Kind == member.KindCluster {
		return found("cluster", OneServer, d.cfg.TLS != nil, refused)
	}
	return err
}

// lifetime is how long the next connection, or one that was authenticated anew, keeps its
// credentials. 0: for ever. The connections of many clients do not ask in the same moment.
func (d *dialer) lifetime() time.Duration {
	every := d.cfg.CredentialsEvery
	if !d.cfg.rotates() || every <= 0 {
		return 0
	}
	return max(every-d.cfg.jitter(every/10), 1)
}

// logFailure warns of the first failure in a row and keeps the others for debugging.
func (d *dialer) logFailure(what string, failures int, err error, wait time.Duration) {
	level := slog.LevelDebug
	if failures == 0 {
		level = slog.LevelWarn
	}
	d.cfg.Logger.Log(context.Background(), level, what, "member", d.name, "err", err, "retry_in", wait)
}

// pause is the time to wait after the k-th failure in a row, which was cause.
func (d *dialer) pause(k int, cause error) time.Duration {
	var refused *member.ReplyError
	var missing *CredentialsError
	switch auth := errors.As(cause, &refused) && refused.Kind == member.KindAuth; {
	case d.cfg.rotates() && (auth || errors.As(cause, &missing)):
		// They may be others next time, and soon: but a provider that fails is not asked in a storm.
		return d.cfg.jitter(ceiling(k, d.cfg.backoffMin, authBackoff))
	case auth:
		return authBackoff
	}
	return d.cfg.jitter(ceiling(k, d.cfg.backoffMin, d.cfg.backoffMax))
}

func tlsConfig(c Config) *tls.Config {
	t := c.TLS.Clone()
	if t.MinVersion == 0 {
		t.MinVersion = tls.VersionTLS12
	}
	if t.ServerName == "" && c.Network == "tcp" && c.Addr != "" {
		t.ServerName, _, _ = net.SplitHostPort(c.Addr)
	}
	return t
}
