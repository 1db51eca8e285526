package node

import (
	"context"
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"
)

// Under TLS 1.3 a server looks at our certificate when the handshake is over for us.
func TestWriteThatFailsGivesTheReasonThatTheServerGave(t *testing.T) {
	certFile, keyFile, pool := testCertificate(t, t.TempDir())
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	refused := make(chan struct{})
	go func() {
		defer close(refused)
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = tls.Server(c, &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequireAnyClientCert, MinVersion: tls.VersionTLS13}).Handshake()
	}()
	socket, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	secure := tls.Client(socket, &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := secure.HandshakeContext(ctx); err != nil {
		t.Fatal(err)
	}
	<-refused
	s := &secured{secure}
	until(t, "the write fails", func() bool { _, err = s.Write(ping); return err != nil })
	if !strings.Contains(err.Error(), "certificate required") {
		t.Error(err)
	}
}
