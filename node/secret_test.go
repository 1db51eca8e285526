package node

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
)

// testCertificate writes a certificate for 127.0.0.1 and returns a pool that trusts it.
func testCertificate(t testing.TB) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	ca := rt.Must(redistest.NewAuthority(t.TempDir(), "test"))(t)
	c := rt.Must(ca.Issue("test", "", time.Now().Add(time.Hour)))(t)
	trusted := rt.Must(os.ReadFile(ca.File))(t)
	pool = x509.NewCertPool()
	require.True(t, pool.AppendCertsFromPEM(trusted))
	return c.Cert, c.Key, pool
}

// pair is a certificate, and the pool that trusts it.
func pair(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	certFile, keyFile, pool := testCertificate(t)
	return rt.Must(tls.LoadX509KeyPair(certFile, keyFile))(t), pool
}

// startTLS starts a server with a plain and a TLS port, and the user "u" with password "pw".
func startTLS(t testing.TB) (s *redisServer, tlsAddr string, pool *x509.CertPool) {
	rt.Needs(t, redistest.TLS)
	certFile, keyFile, pool := testCertificate(t)
	port, held, err := redistest.TakePorts(1)
	require.NoError(t, err)
	t.Cleanup(func() { _ = held.Close() })
	s = startRedis(t, "--tls-port", strconv.Itoa(port), "--tls-cert-file", certFile, "--tls-key-file", keyFile,
		"--tls-auth-clients", "no")
	s.cli("ACL", "SETUSER", "u", "on", ">pw", "~*", "&*", "+@all")
	return s, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), pool
}

func TestTLSWithACLUser(t *testing.T) {
	_, addr, pool := startTLS(t)
	n := up(t, Config{Addr: addr, Username: "u", Password: "pw", TLS: &tls.Config{RootCAs: pool}, Scripts: []string{delScript}})
	var l pushLog
	n.Listen("ch", &l)
	require.Equal(t, "u", do(t, n, "ACL", "WHOAMI"), "user")
	rt.Until(t, "subscribed", func() bool { return n.State().Inbox })
	do(t, n, "PUBLISH", "ch", "x")
	rt.Until(t, "delivered", func() bool { return len(l.messages()) == 1 })
	for i := range 2000 {
		want := strconv.Itoa(i)
		require.Equal(t, want, do(t, n, "ECHO", want), "for %s", want)
	}
}

func TestNoErrorOrLogHoldsTheSecret(t *testing.T) {
	const canary, token = "c4n4ry", "t0k3n"
	s, tlsAddr, pool := startTLS(t)
	repeat := rt.Listening(t, func(c net.Conn) { _, _ = io.CopyN(c, c, 200) })
	unknown := func(format string) string {
		return rt.Listening(t, func(c net.Conn) {
			br := bufio.NewReader(c)
			var r member.Reply
			for readReply(br, &r, 0) == nil {
				fmt.Fprintf(c, format, r.Elems[0].Str, r.Elems[len(r.Elems)-1].Str) // of AUTH, or of a PING that looks who is there
			}
		})
	}
	var refused *member.ReplyError
	var dial *net.OpError
	for name, tc := range map[string]struct {
		config Config
		is     error
		as     any
	}{
		"wrong password":       {Config{Addr: s.Addr(), Username: "u", Password: canary}, nil, &refused},
		"unexpected password":  {Config{Addr: s.Addr(), Password: canary}, nil, &refused},
		"no such user":         {Config{Addr: s.Addr(), Username: "who", Password: canary}, nil, &refused},
		"no such database":     {Config{Addr: s.Addr(), Username: "u", Password: "pw", DB: 99}, nil, &refused},
		"TLS to a plain port":  {Config{Addr: s.Addr(), Password: canary, TLS: &tls.Config{RootCAs: pool}}, nil, nil},
		"plain to a TLS port":  {Config{Addr: tlsAddr, Password: canary}, nil, nil},
		"unknown authority":    {Config{Addr: tlsAddr, Password: canary, TLS: &tls.Config{}}, nil, new(*tls.CertificateVerificationError)},
		"connection refused":   {Config{Addr: "127.0.0.1:1", Password: canary}, syscall.ECONNREFUSED, &dial},
		"TLS to a plain peer":  {Config{Addr: unknown("HTTP/1.1 400 %s %s\r\n\r\n"), Password: canary, TLS: &tls.Config{}}, nil, nil},
		"repeats what is sent": {Config{Addr: repeat, Password: canary, Username: "u"}, nil, nil},
		"AUTH unknown":         {Config{Addr: unknown("-ERR unknown command '%s', with args beginning with: '%s'\r\n"), Password: canary}, nil, &refused},
		"AUTH as garbage":      {Config{Addr: unknown("?%s %s\r\n"), Password: canary}, nil, nil},
		"AUTH as an error":     {Config{Addr: unknown("-%s %s\r\n"), Password: canary}, nil, &refused},
		"AUTH as a bulk error": {Config{Addr: unknown("!11\r\n%s %s\r\n"), Password: canary}, nil, &refused},
	} {
		t.Run(name, func(t *testing.T) {
			var log logBuffer
			tc.config.Logger = log.logger()
			tc.config.DialTimeout = 10 * time.Second
			if name == "TLS to a plain port" { // Redis waits for a line's end
				tc.config.DialTimeout = 300 * time.Millisecond
			}
			n := start(t, tc.config)
			n.Listen("ch", &pushLog{})
			rt.Until(t, "tried", func() bool { return !errors.Is(n.State().Err, errConnecting) })
			c := submit(n, "SET", "k", token)
			t.Log(c.Err)
			for _, err := range []error{n.State().Err, c.Err} {
				require.Error(t, err, "no error")
				require.True(t, strings.HasPrefix(err.Error(), tc.config.Addr+": "), "does not begin with the name: %v", err)
				require.True(t, (tc.is == nil || errors.Is(err, tc.is)) && (tc.as == nil || errors.As(err, tc.as)), "cause is not wrapped: %v", err)
				for e := err; e != nil; e = unwrapLast(e) {
					for _, text := range []string{e.Error(), fmt.Sprintf("%+v", e), fmt.Sprintf("%#v", e)} {
						require.True(t, !strings.Contains(text, canary) && !strings.Contains(text, token), "holds a secret: %s", text)
					}
				}
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = n.Close(ctx)
			text := log.String()
			require.True(t, !strings.Contains(text, canary) && !strings.Contains(text, token), "log holds a secret:\n%s", text)
		})
	}
}

func unwrapLast(err error) error {
	switch e := err.(type) {
	case interface{ Unwrap() []error }:
		all := e.Unwrap()
		return all[len(all)-1]
	case interface{ Unwrap() error }:
		return e.Unwrap()
	}
	return nil
}
