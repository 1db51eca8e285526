package node

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
)

// Whatever replaces the data of a server that goes on running changes its replication id, and leaves the former one beside
// it. A first replica changes it, too, and leaves none. docs/protocol.md, "Replaced memory".
func TestSignsOfAServerThatWasAReplica(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 2)
	do := func(i int, words ...string) any {
		t.Helper()
		v, err := cluster.Servers[i].Do(t.Context(), words...)
		require.NoError(t, err, words)
		return v
	}
	section := func(i int, name string) []byte { t.Helper(); return []byte(do(i, "INFO", name).(string)) }
	replication := func(i int, field string) string { t.Helper(); return resp.Field(section(i, "replication"), field+":") }
	follow := func(i, master int) {
		t.Helper()
		do(master, "CONFIG", "SET", "repl-diskless-sync-delay", "0")
		host, port, err := net.SplitHostPort(cluster.Servers[master].Addr())
		require.NoError(t, err)
		do(i, "REPLICAOF", host, port)
		require.Eventually(t, func() bool { return replication(i, "master_link_status") == "up" }, time.Minute, time.Millisecond)
	}
	const none = "0000000000000000000000000000000000000000"
	const a, b = 0, 1
	process, born := resp.Field(section(a, "server"), "run_id:"), replication(a, "master_replid")
	require.Equal(t, none, replication(a, "master_replid2"))

	follow(b, a)
	first := replication(a, "master_replid")
	require.NotEqual(t, born, first, "a first replica has come")
	require.Equal(t, none, replication(a, "master_replid2"))

	do(b, "REPLICAOF", "NO", "ONE")
	do(a, "SET", "k", "v")
	follow(a, b)
	require.Equal(t, "slave", replication(a, "role"))
	require.EqualValues(t, 0, do(a, "EXISTS", "k"), "its data are replaced")
	require.NotEqual(t, first, replication(a, "master_replid"))
	require.ErrorContains(t, rt.Err(cluster.Servers[a].Do(t.Context(), "SET", "k", "v")), "READONLY")

	do(a, "REPLICAOF", "NO", "ONE")
	require.Equal(t, "master", replication(a, "role"))
	require.NotContains(t, []string{born, first, replication(b, "master_replid")}, replication(a, "master_replid"))
	require.Equal(t, replication(b, "master_replid"), replication(a, "master_replid2"))
	require.Equal(t, process, resp.Field(section(a, "server"), "run_id:"))

	before := replication(a, "master_replid")
	do(a, "REPLICAOF", "127.0.0.1", "1") // nobody is there: its data stay
	require.Equal(t, before, replication(a, "master_replid"))
	do(a, "REPLICAOF", "NO", "ONE")
	require.NotEqual(t, before, replication(a, "master_replid"), "it has been a replica")
	require.Equal(t, before, replication(a, "master_replid2"))
}
