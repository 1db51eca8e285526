package cluster_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cluster"
	"github.com/redquorum/redquorum/node"
)

// timepieces are the masters of a cluster in this process whose clocks are set as a test wants them: those of
// real servers on one machine are one clock.
type timepieces struct {
	lns   []net.Listener
	ahead []atomic.Int64 // ns, of our clock
	mute  []atomic.Bool  // the marker, and the time with it, is not told
}

func startTimepieces(t *testing.T, n int) *timepieces {
	t.Helper()
	s := &timepieces{ahead: make([]atomic.Int64, n), mute: make([]atomic.Bool, n)}
	var serving sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	for i := range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		s.lns = append(s.lns, ln)
		serving.Go(func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				mu.Lock()
				conns = append(conns, c)
				mu.Unlock()
				serving.Go(func() { s.serve(i, c) })
			}
		})
	}
	t.Cleanup(func() {
		for _, ln := range s.lns {
			_ = ln.Close()
		}
		mu.Lock()
		for _, c := range conns {
			_ = c.Close()
		}
		mu.Unlock()
		serving.Wait()
	})
	return s
}

func (s *timepieces) serve(i int, c net.Conn) {
	defer c.Close()
	in := bufio.NewReader(c)
	word := func(prefix byte) (int, error) {
		line, err := in.ReadString('\n')
		if err != nil || line[0] != prefix {
			return 0, io.ErrUnexpectedEOF
		}
		return strconv.Atoi(strings.TrimSpace(line[1:]))
	}
	for {
		n, err := word('*')
		var args []string
		for range n {
			var size int
			if size, err = word('$'); err != nil {
				return
			}
			text := make([]byte, size+2)
			if _, err = io.ReadFull(in, text); err != nil {
				return
			}
			args = append(args, string(text[:size]))
		}
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, s.answer(i, args)); err != nil {
			return
		}
	}
}

func (s *timepieces) answer(i int, args []string) string {
	text := func(all ...string) (out string) {
		for _, v := range all {
			out += fmt.Sprintf("$%d\r\n%s\r\n", len(v), v)
		}
		return out
	}
	id := fmt.Sprint("master", i)
	switch command := strings.ToUpper(args[0]); {
	case command == "CLIENT" && args[1] == "ID":
		return fmt.Sprintf(":%d\r\n", i+1)
	case command == "PING":
		return "+PONG\r\n"
	case command == "INFO":
		return text("run_id:" + id + "\r\nuptime_in_seconds:1000\r\nredis_mode:cluster\r\n")
	case command == "EVAL" && s.mute[i].Load():
		return "-LOADING\r\n"
	case command == "EVAL": // a look at the marker
		now := time.Now().Add(time.Duration(s.ahead[i].Load()))
		return "*11\r\n" + text(id+" 1", "n", "30000") + ":-2\r\n" + text("") + fmt.Sprintf(":%d\r\n", now.UnixMicro()) +
			text("", "", "repl", "role:master\r\nmaster_replid:repl\r\nmaster_replid2:0\r\n", id+" 1")
	case command == "CLUSTER" && args[1] == "MYID":
		return text(id)
	case command == "CLUSTER" && args[1] == "SHARDS":
		out := fmt.Sprintf("*%d\r\n", len(s.lns))
		for k, ln := range s.lns {
			host, port, _ := net.SplitHostPort(ln.Addr().String())
			out += "*4\r\n" + text("slots") + fmt.Sprintf("*2\r\n:%d\r\n:%d\r\n", k*16384/len(s.lns), (k+1)*16384/len(s.lns)-1) +
				text("nodes") + "*1\r\n*12\r\n" + text("id", fmt.Sprint("master", k), "port") + ":" + port + "\r\n" +
				text("ip", host, "endpoint", host, "role", "master", "health", "online")
		}
		return out
	}
	return "+OK\r\n"
}

// The clock of a cluster is that of its master which is farthest from ours, in either direction, of those that
// tell it.
func TestClockOfAClusterIsTheFarthestOfItsMasters(t *testing.T) {
	t.Parallel()
	s := startTimepieces(t, 3)
	set := func(ahead ...time.Duration) {
		for i, d := range ahead {
			s.ahead[i].Store(int64(d))
		}
	}
	set(2*time.Hour, -5*time.Hour, time.Minute)
	s.mute[1].Store(true)
	var seeds []string
	for _, ln := range s.lns {
		seeds = append(seeds, ln.Addr().String())
	}
	cl, err := cluster.New(cluster.Config{Seeds: seeds, Node: node.Config{
		Guard:        node.NewGuard(node.GuardConfig{Members: 1, MaxTTL: time.Second}),
		PingInterval: 10 * time.Millisecond, DialTimeout: 10 * time.Second, StallTimeout: 30 * time.Second, BackoffMax: 50 * time.Millisecond,
	}})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = cl.Close(ctx)
	})
	// A server reads its clock at some moment of the round trip, half of which is what the answer may be wrong by.
	tells := func(want time.Duration, why string) {
		t.Helper()
		require.Eventually(t, func() bool {
			ahead, within, ok := cl.ClockOffset()
			return ok && within > 0 && (ahead-want).Abs() <= within+2*time.Microsecond
		}, 20*time.Second, time.Millisecond, why)
	}
	tells(2*time.Hour, "the farthest of those that tell it")
	s.mute[1].Store(false)
	tells(-5*time.Hour, "one that is behind is as far off as one that is ahead")
	set(time.Minute, -time.Second, -2*time.Minute)
	tells(-2*time.Minute, "of another master, after clocks were set")
	set(time.Hour, time.Hour+time.Minute, -time.Hour)
	tells(time.Hour+time.Minute, "none is farther")
}
