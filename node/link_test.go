package node

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
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
	require.NoError(t, secure.HandshakeContext(rt.Within(t, 20*time.Second)))
	<-refused
	s := &secured{secure}
	rt.Until(t, "the write fails", func() bool { _, err = s.Write(ping); return err != nil })
	require.Contains(t, err.Error(), "certificate required", err)
}

type dials chan net.Conn // the servers' ends of connections

func (d dials) DialContext(context.Context, string, string) (net.Conn, error) {
	ours, theirs := net.Pipe()
	d <- theirs
	return ours, nil
}

// A server with too many clients says so to whatever comes, and closes.
func TestServerThatSaysWhyItClosesIsQuoted(t *testing.T) {
	ends := make(dials, 100)
	n := start(t, Config{Dialer: ends})
	for range 3 {
		c := <-ends
		_, _ = c.Read(make([]byte, 1)) // the handshake has begun
		go func() { _, _ = io.Copy(io.Discard, c) }()
		_, _ = c.Write([]byte("-ERR max number of clients reached\r\n"))
		_ = c.Close()
	}
	rt.Until(t, "the reason", func() bool {
		var refused *member.ReplyError
		return errors.As(n.State().Err, &refused) && refused.Kind == member.KindOverloaded
	})
	go func() { // whoever still dials gets an end
		for c := range ends {
			_ = c.Close()
		}
	}()
	_ = n.Close(t.Context())
	close(ends)
}

// users is a Dialer as a user writes one.
type users func(ctx context.Context, network, addr string) (net.Conn, error)

func (u users) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return u(ctx, network, addr)
}

func TestConnectionThatCameTooLateIsClosed(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		f, server := net.Pipe()
		dials := 0
		n := start(t, Config{backoffMin: time.Hour, backoffMax: time.Hour, jitter: longest, Dialer: users(func(context.Context, string, string) (net.Conn, error) {
			dials++
			time.Sleep(2 * time.Second)
			return f, nil
		})})
		time.Sleep(3 * time.Second)
		synctest.Wait()
		_ = server.SetReadDeadline(time.Now())
		got, err := server.Read(make([]byte, 1))
		require.True(t, (errors.Is(err, net.ErrClosed) || err.Error() == "EOF") && dials == 1, "%d, %v after %d dials", got, err, dials)
		require.False(t, n.State().Up, "%+v", n.State())
	})
}

func TestDialerThatReturnsNothingIsNamed(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		nothing := users(func(context.Context, string, string) (net.Conn, error) { return nil, nil })
		for _, secure := range []string{"redis", "rediss"} {
			c := rt.Must(parseURL(secure + "://h:1"))(t)
			c.Dialer = nothing
			n := start(t, c)
			synctest.Wait()
			var broken *DialerError
			require.ErrorAs(t, n.State().Err, &broken, secure)
			require.Equal(t, "h:1", broken.addr)
			require.ErrorContains(t, n.State().Err, "Config.Dialer, of h:1: it returned neither")
			require.ErrorAs(t, rt.Err(Query(t.Context(), c, ping)), &broken, secure)
		}
	})
}

// An error that a Dialer returns is its own, also when it returns it because its context ended.
func TestErrorOfADialerIsPassedOn(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		down := errors.New("the mesh is down")
		for _, d := range []users{
			func(context.Context, string, string) (net.Conn, error) { return nil, down },
			func(ctx context.Context, _, _ string) (net.Conn, error) { <-ctx.Done(); return nil, down },
			func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				time.Sleep(90 * time.Millisecond)
				return nil, down
			},
		} {
			n := start(t, Config{Dialer: d, backoffMin: time.Hour, backoffMax: time.Hour, jitter: longest})
			time.Sleep(2 * time.Second)
			var broken *DialerError
			err := n.State().Err
			require.True(t, errors.Is(err, down) && !errors.As(err, &broken), "%v", err)
		}
	})
}
