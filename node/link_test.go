package node

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Under TLS 1.3 a server looks at our certificate when the handshake is over for us.
func TestWriteThatFailsGivesTheReasonThatTheServerGave(t *testing.T) {
	ours, pool := pair(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{ours}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}).Handshake()
	}()
	socket, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer socket.Close()
	secure := tls.Client(socket, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, secure.HandshakeContext(ctx))
	<-refused
	s := &secured{secure}
	until(t, "the write fails", func() bool { _, err = s.Write(ping); return err != nil })
	require.Contains(t, err.Error(), "certificate required", err)
}

// Up to TLS 1.2 a server that wants a certificate of ours says no more than that the handshake failed. What it asked
// for is said only where that is what is missing.
func TestClientCertificateThatIsMissingIsNamed(t *testing.T) {
	ours, pool := pair(t)
	other, _ := pair(t)
	const says = "the server asks for a client certificate and the URL has none (tls_cert, tls_key)"
	for name, tc := range map[string]struct {
		auth  tls.ClientAuthType
		ours  []tls.Certificate
		pool  bool // the server's certificate is known to us
		fails bool
		named bool
	}{
		"none":                 {tls.RequireAnyClientCert, nil, true, true, true},
		"unknown to it":        {tls.RequireAndVerifyClientCert, []tls.Certificate{other}, true, true, false},
		"it is unknown":        {tls.RequireAnyClientCert, nil, false, true, false},
		"none, and not needed": {tls.RequestClientCert, nil, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			addr := listening(t, func(c net.Conn) {
				secure := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{ours}, ClientAuth: tc.auth, ClientCAs: pool, MaxVersion: tls.VersionTLS12})
				if _, err := secure.Read(make([]byte, 100)); err == nil {
					_, _ = secure.Write([]byte("+PONG\r\n"))
					_, _ = secure.Read(make([]byte, 1)) // until the other side has read it
				}
			})
			c := Config{Addr: addr, TLS: &tls.Config{Certificates: tc.ours}, DialTimeout: 20 * time.Second}
			if tc.pool {
				c.TLS.RootCAs = pool
			}
			_, err := Query(t.Context(), c, ping)
			if !tc.fails {
				require.NoError(t, err)
				return
			}
			require.True(t, err != nil && strings.Contains(err.Error(), says) == tc.named && strings.Count(err.Error(), "tls: ") == 1 &&
				!strings.Contains(err.Error(), "TLS: "),
				"%v", err)
			var alert *net.OpError
			var untrusted *tls.CertificateVerificationError
			require.True(t, (errors.As(err, &alert) && alert.Op == "remote error") || errors.As(err, &untrusted),
				"it is not known any more for an error of TLS: %v", err)
		})
	}
}
