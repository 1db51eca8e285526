package node

import (
	"cmp"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

// A server that is not what the URL says names itself by INFO, or where that is not permitted by what it refuses.
func TestServerOfAnotherKindIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		says   string // before it, else redis_mode:
		mode   string // in INFO; "": not told
		db     string // the answer to SELECT
		eval   string // the answer to the guard's scripts
		sentry bool   // without a guard
		want   string // scheme, "" for an error of another kind
	}{
		"cluster":                {mode: "cluster", want: "redis-cluster://"},
		"cluster, without guard": {mode: "cluster", sentry: true, want: "redis-cluster://"},
		"cluster of Valkey 8":    {mode: "cluster", says: "server_mode:", want: "redis-cluster://"},
		"cluster of Valkey 9":    {mode: "cluster", says: "server_mode:", db: "-ERR DB index is out of range\r\n", want: "redis-cluster://"},
		"no such database":       {mode: "standalone", db: "-ERR DB index is out of range\r\n"},
		"Sentinel":               {mode: "sentinel", want: "redis-sentinel://"},
		"CROSSSLOT":              {eval: "-CROSSSLOT Keys in request don't hash to the same slot\r\n", want: "redis-cluster://"},
		"MOVED":                  {eval: "-MOVED 12182 127.0.0.1:7001\r\n", want: "redis-cluster://"},
		"single server":          {mode: "standalone", eval: "-OOM command not allowed\r\n"},
		"says nothing":           {eval: "-NOPERM no\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(func(_ int64, args []string) string {
				switch {
				case args[0] == "INFO":
					return bulk("run_id:x\r\n" + cmp.Or(tc.says, "redis_mode:") + tc.mode + "\r\nuptime_in_seconds:1000\r\n")
				case args[0] == "SELECT":
					return tc.db
				case args[0] == "EVAL":
					return tc.eval
				}
				return "default"
			})
			c := Config{Dialer: f}
			if tc.db != "" {
				c.DB = 1
			}
			if !tc.sentry {
				c.Guard = NewGuard(GuardConfig{Members: 1, MaxTTL: time.Second})
			}
			n := start(t, c)
			rt.Until(t, "refused", func() bool { err := n.State().Err; return err != nil && !errors.Is(err, member.ErrConnecting) })
			var other *SchemeError
			got := ""
			if errors.As(n.State().Err, &other) {
				got = other.Scheme
			}
			require.Equal(t, tc.want, got, "%q, want %q: %v", got, tc.want, n.State().Err)
		})
	}
	f := newFake(says("INFO", bulk("run_id:x\r\nredis_mode:standalone\r\n")))
	up(t, Config{Dialer: f})
	target := rt.Must(ParseTarget("redis-cluster://a,b"))(t)
	f = newFake(says("INFO", bulk("run_id:x\r\nredis_mode:cluster\r\n")))
	target.Config.Dialer, target.Config.Addr = f, "a:1"
	up(t, target.Config) // for a tool, which looks at one of its servers
}

// TLS on one side alone ends in ways that say little: the other side closes, or waits for more. So it is tried
// the other way.
func TestTLSOnOneSideAloneIsNamed(t *testing.T) {
	certificate, _ := pair(t)
	secure := func(c *tls.Config) func(net.Conn) {
		c.Certificates = []tls.Certificate{certificate}
		return func(conn net.Conn) { _ = tls.Server(conn, c).Handshake() }
	}
	// An answer to what is sent without TLS, and another one to the beginning of TLS.
	plainly := func(answer, toTLS string) func(net.Conn) {
		return func(c net.Conn) {
			first := make([]byte, 1)
			if _, err := c.Read(first); err != nil {
				return
			}
			say := answer
			if first[0] != '*' {
				say = toTLS
			}
			if _, err := c.Write([]byte(say)); err == nil {
				_, _ = io.Copy(io.Discard, c) // until the other side closes
			}
		}
	}
	resets := func(c net.Conn) {
		first := make([]byte, 1)
		if _, _ = c.Read(first); first[0] == '*' {
			_, _ = c.Write([]byte("+PONG\r\n"))
			_, _ = io.Copy(io.Discard, c)
		}
	}
	for name, tc := range map[string]struct {
		url, want string // with ADDR
		serve     func(net.Conn)
	}{
		"TLS":                              {"redis://ADDR", "rediss://", secure(&tls.Config{})},
		"TLS, with a password":             {"redis://:secret@ADDR", "rediss://", secure(&tls.Config{})},
		"TLS that wants our certificate":   {"redis://ADDR", "rediss://", secure(&tls.Config{ClientAuth: tls.RequireAnyClientCert, MaxVersion: tls.VersionTLS12})},
		"TLS in a cluster":                 {"redis-cluster://ADDR", "rediss-cluster://", secure(&tls.Config{})},
		"TLS of Sentinels":                 {"redis-sentinel://ADDR/m", "rediss-sentinel://", secure(&tls.Config{})},
		"no TLS, silent":                   {"rediss://ADDR", "redis://", plainly("+PONG\r\n", "")},
		"no TLS, an error":                 {"rediss://ADDR", "redis://", plainly("-NOAUTH Authentication required.\r\n", "-ERR unknown command\r\n")},
		"no TLS, silent, password":         {"rediss://ADDR", "redis://", plainly("-NOAUTH Authentication required.\r\n", "")},
		"no TLS, closes":                   {"rediss://ADDR", "redis://", resets},
		"no TLS in a cluster":              {"rediss-cluster://ADDR", "redis-cluster://", plainly("+PONG\r\n", "")},
		"no TLS of Sentinels":              {"rediss-sentinel://ADDR/m", "redis-sentinel://", plainly("+PONG\r\n", "")},
		"closes whatever is said":          {"redis://ADDR", "", func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }},
		"closes whatever is said, TLS":     {"rediss://ADDR", "", func(c net.Conn) { _, _ = c.Read(make([]byte, 1)) }},
		"another protocol":                 {"rediss://ADDR", "", plainly("220 mail.example.com\r\n", "220 mail.example.com\r\n")},
		"TLS whose certificate is unknown": {"rediss://ADDR", "", secure(&tls.Config{})},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := rt.Listening(t, tc.serve)
			target, err := ParseTarget(strings.ReplaceAll(tc.url, "ADDR", addr))
			require.NoError(t, err)
			c := target.Config
			c.DialTimeout = 5 * time.Second
			switch target.Kind {
			case OneServer:
				n := start(t, c)
				rt.Until(t, "refused", func() bool { e := n.State().Err; return e != nil && !errors.Is(e, member.ErrConnecting) })
				err = n.State().Err
			case RedisCluster:
				c.Addr = addr
				_, err = Query(t.Context(), c, ping)
			case BySentinel:
				ctx := rt.Within(t, 10*time.Second) // of which half is for the Sentinels
				_, err = c.withDefaults().Sentinels.find(ctx)
			}
			var other *SchemeError
			got := ""
			if errors.As(err, &other) {
				got = other.Scheme
			}
			require.True(t, got == tc.want && err != nil && !strings.Contains(err.Error(), "secret"), "%q, want %q: %v", got, tc.want, err)
		})
	}
}
