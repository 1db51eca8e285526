package node

import (
	"bytes"
	"io"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// limited notes the write deadlines that a connection is given.
type limited struct {
	net.Conn
	last  time.Time
	once  sync.Once
	waits chan struct{} // closed by the first
}

func (l *limited) SetWriteDeadline(t time.Time) error {
	l.last = t
	l.once.Do(func() { close(l.waits) })
	return l.Conn.SetWriteDeadline(t)
}

// wired is a session that writes to a peer over a socket, and the peer's end.
func wired(t *testing.T, patience time.Duration) (*session, *limited, net.Conn) {
	t.Helper()
	l := rt.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	defer func() { _ = l.Close() }()
	socket := rt.Must(net.Dial("tcp", l.Addr().String()))(t)
	peer := rt.Must(l.Accept())(t)
	t.Cleanup(func() { _, _ = socket.Close(), peer.Close() })
	ours := &limited{Conn: socket, waits: make(chan struct{})}
	n := &Node{cfg: Config{WriteTimeout: patience}}
	return &session{node: n, link: &link{wire: ours, socket: socket, direct: newDirect(socket)}}, ours, peer
}

// full is more than the buffers of two sockets take.
const full = 64 << 20

func TestWritesArriveWholeAndInOrderWhateverTheSocketTakes(t *testing.T) {
	s, ours, peer := wired(t, time.Minute)
	large := make([]byte, full)
	for i := range large {
		large[i] = byte(i>>16 ^ i>>8 ^ i)
	}
	want := bytes.Join([][]byte{[]byte("before"), large, []byte("after")}, nil)
	got := make(chan []byte, 1)
	go func() {
		<-ours.waits // the socket is full
		b := make([]byte, len(want))
		_, _ = io.ReadFull(peer, b)
		got <- b
	}()
	require.NoError(t, s.write([]byte("before")))
	require.True(t, ours.last.IsZero(), "a write that does not wait needs no deadline")
	require.NoError(t, s.write(large))
	require.True(t, ours.last.IsZero(), "the deadline of a write that waited would end a later direct one")
	require.NoError(t, s.write([]byte("after")))
	require.True(t, bytes.Equal(want, <-got))
}

func TestWriteToAPeerThatDoesNotReadEnds(t *testing.T) {
	s, _, _ := wired(t, 20*time.Millisecond)
	require.ErrorIs(t, s.write(make([]byte, full)), os.ErrDeadlineExceeded)
}

// secret is a connection of a Dialer that has a socket in it, and writes in a way of its own.
type secret struct {
	*net.TCPConn
	said []byte
}

func (c *secret) Write(b []byte) (int, error) {
	c.said = append(c.said, b...)
	return len(b), nil
}

func TestConnectionWithASocketInItIsNotWrittenToPastItsOwnWrite(t *testing.T) {
	s, _, _ := wired(t, time.Minute)
	socket, ok := s.link.socket.(*net.TCPConn)
	require.True(t, ok)
	c := &secret{TCPConn: socket}
	s.link = &link{wire: c, socket: c, direct: newDirect(c)}
	require.NoError(t, s.write([]byte("nobody else reads this")))
	require.Equal(t, "nobody else reads this", string(c.said))
}
