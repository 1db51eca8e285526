package node

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
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
