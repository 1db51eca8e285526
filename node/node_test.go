package node

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

func TestRepliesOfEveryShape(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), ClientName: "shape", DB: 3})
	for _, tc := range []struct {
		want string
		args []string
	}{
		{"OK", []string{"SET", "k", "v"}},
		{"v", []string{"GET", "k"}},
		{"nil", []string{"GET", "nothing"}},
		{"1", []string{"DEL", "k"}},
		{"[1 x [nil [2]] -ERR inside]", []string{"EVAL", "return {1,'x',{false,{2}},redis.error_reply('ERR inside')}", "0"}},
		{"[]", []string{"LRANGE", "l", "0", "-1"}},
		{"shape", []string{"CLIENT", "GETNAME"}},
	} {
		require.Equal(t, tc.want, do(t, n, tc.args...), tc.args)
	}
	do(t, n, "SET", "there", "1")
	require.Equal(t, "0", s.cli("DBSIZE"), "SELECT 3 was not sent")
	st := n.State()
	require.True(t, st.Gen == 1 && st.Epoch == 1 && st.Votes && st.Err == nil && len(st.RunID) == 40, "state %+v", st)
}

// killing cuts all clients of a server off every 5 ms, until stop returns.
func killing(s *redisServer) (stop func()) {
	end := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(5 * time.Millisecond):
				s.cli("CLIENT", "KILL", "TYPE", "normal")
			}
		}
	})
	return func() { close(end); killer.Wait() }
}

func TestMemberTellsThatReplicasMustAcknowledge(t *testing.T) {
	answer := func(int64, []string) string { return "default" }
	for acks := range 2 {
		n, _ := joining(t, answer, func(c *Config) { c.MinReplicasAck = acks })
		require.True(t, n.State().Up && n.State().Acks == (acks > 0), "%d replicas: %+v", acks, n.State())
	}
}

// signal is a Sink for one call at a time.
type signal chan struct{}

func (s signal) Done(*member.Call) { s <- struct{}{} }

func TestAnsweredCallAllocatesNothing(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.Addr(), Scripts: []string{setScript, delScript}})
	eval := resp.Command("EVALSHA", scriptSHA(setScript), "1", "k", "v", "tag")
	for name, c := range map[string]*member.Call{
		"integer":       {Command: member.Command{Cmd: resp.Command("INCR", "n")}},
		"string":        {Command: member.Command{Cmd: resp.Command("ECHO", "hello")}},
		"array":         {Command: member.Command{Cmd: resp.Command("TIME")}},
		"tagged script": {Command: member.Command{Cmd: eval[:len(eval)-len("$3\r\ntag\r\n")], Tagged: true}},
		"late":          {Command: member.Command{Cmd: resp.Command("INCR", "n")}, Delivery: member.Delivery{Late: true}},
	} {
		done := make(signal, 1)
		c.Sink = done
		one := func() {
			n.Submit(c)
			<-done
		}
		one()
		allocs := testing.AllocsPerRun(2000, one)
		require.True(t, allocs == 0 && c.Outcome == member.Answered, "%s: %v allocations, %v, %v", name, allocs, c.Outcome, c.Err)
	}
}

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
