package node

import (
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/redquorum/redquorum/member"
)

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
	until(t, "the reason", func() bool {
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
