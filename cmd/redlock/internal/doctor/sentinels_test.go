package doctor

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/node"
)

// sentinelThatSays answers every command with what SENTINEL MASTER would tell.
func sentinelThatSays(t *testing.T, port, epoch string) string {
	t.Helper()
	ln := rt.Must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = ln.Close() })
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer func() { _ = c.Close() }()
		_, _ = c.Read(make([]byte, 1000))
		_, _ = c.Write(resp.Command("ip", "10.0.0.1", "port", port, "config-epoch", epoch, "quorum", "2", "num-other-sentinels", "4",
			"num-slaves", "1", "flags", "master"))
		_, _ = c.Read(make([]byte, 1)) // until the other side has read it
	}()
	return ln.Addr().String()
}

func TestNewestConfigurationOfASentinelIsBelieved(t *testing.T) {
	t.Parallel()
	s := &node.Sentinels{Master: "m", Addrs: []string{sentinelThatSays(t, "1", "7"), sentinelThatSays(t, "2", "9"), sentinelThatSays(t, "3", "8"), "127.0.0.1:1"},
		Config: node.Config{DialTimeout: time.Minute}, Dial: map[string]string{"10.0.0.1:2": "h:2"}}
	all, master := AskSentinels(t.Context(), s)
	require.Equal(t, "h:2", master, "%s: %+v", master, all)
	require.Equal(t,
		Sighting{Sentinel: s.Addrs[2], Master: "10.0.0.1:3", Epoch: 8, Flags: "master", Quorum: 2, Others: 4, Replicas: 1}, all[2],
		"%+v", all[2])
	require.True(t, all[3].Err != nil && all[3].Master == "", "%+v", all[3])
}
