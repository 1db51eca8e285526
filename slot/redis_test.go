package slot_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mediocregopher/radix/v4"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/slot"
)

// startClusterNode runs a redis-server in cluster mode for the duration of the test and returns a
// connection to it. A node that is in no cluster serves no slots, but it answers CLUSTER KEYSLOT.
func startClusterNode(t *testing.T) radix.Conn {
	t.Helper()
	rt.Needs(t)
	var conn radix.Conn
	var err error
	for attempt := range 5 { // another process may take the port between the choice and the start
		if conn, err = tryClusterNode(t); err == nil {
			return conn
		}
		t.Logf("attempt %d: %v", attempt, err)
	}
	require.NoError(t, err, "no redis-server could be started")
	return nil
}

func tryClusterNode(t *testing.T) (radix.Conn, error) {
	// The cluster bus takes port+10000, and only since Redis 7 can it be told otherwise: so not one of
	// the system's free ports, which go up to 65535.
	port := 20_000 + rand.IntN(20_000)
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, err
	}
	_ = listener.Close()
	cmd := exec.Command("redis-server", "--port", fmt.Sprint(port), "--bind", "127.0.0.1", "--dir", t.TempDir(), "--save", "",
		"--appendonly", "no", "--cluster-enabled", "yes", "--daemonize", "no")
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})

	// The log says when the server listens, so nothing has to be polled; it ends when the process does.
	var log strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&log, lines.Text())
		if strings.Contains(strings.ToLower(lines.Text()), "ready to accept connections") {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			return (radix.Dialer{}).Dial(ctx, "tcp", fmt.Sprintf("127.0.0.1:%d", port))
		}
	}
	return nil, fmt.Errorf("redis-server on port %d ended:\n%s", port, log.String())
}

func TestSlotAgreesWithARealRedisServer(t *testing.T) {
	conn := startClusterNode(t)
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()

	rng := rand.New(rand.NewPCG(7, 8))
	keys := oddKeys
	for range 5_000 {
		keys = append(keys, randomKey(rng))
	}
	for _, key := range oddKeys {
		keys = append(keys, slot.Sibling("redquorum:q", key))
	}
	for s := uint16(0); s < slot.Count; s += 97 {
		keys = append(keys, slot.TagOf(s))
	}
	slots := make([]int, len(keys))
	pipeline := radix.NewPipeline()
	for i, key := range keys {
		pipeline.Append(radix.FlatCmd(&slots[i], "CLUSTER", "KEYSLOT", key))
	}
	require.NoError(t, conn.Do(ctx, pipeline))
	for i, key := range keys {
		require.Equal(t, slots[i], int(slot.Of(key)), "slot of %q", key)
	}
}
