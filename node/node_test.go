package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/internal/resp"
	"github.com/redquorum/redquorum/member"
)

func TestRepliesOfEveryShape(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), ClientName: "shape", DB: 3})
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
		if got := do(t, n, tc.args...); got != tc.want {
			t.Errorf("%v = %s, want %s", tc.args, got, tc.want)
		}
	}
	do(t, n, "SET", "there", "1")
	if got := s.cli("DBSIZE"); got != "0" {
		t.Errorf("database 0 has %s keys: SELECT 3 was not sent", got)
	}
	if st := n.State(); st.Gen != 1 || st.Epoch != 1 || !st.Votes || st.Err != nil || len(st.RunID) != 40 {
		t.Errorf("state %+v", st)
	}
}

func TestDoEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(func(_ int64, args []string) string {
			if args[0] == "SILENCE" {
				return ""
			}
			return "default"
		})
		n := start(t, Config{Dialer: f})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := member.Ask(ctx, n, member.Command{Cmd: resp.Command("SILENCE")}); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 20*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if _, err := member.Ask(ctx, n, member.Command{Cmd: resp.Command("ECHO", "x")}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("context that has ended: %v", err)
		}
	})
}

func TestEveryAnswerReachesItsCallUnderKills(t *testing.T) {
	s := startRedis(t)
	n := up(t, Config{Addr: s.addr(), BackoffMin: time.Millisecond, BackoffMax: 5 * time.Millisecond})
	stop := killing(s)
	var wg sync.WaitGroup
	var mu sync.Mutex
	outcomes := map[member.Outcome]int{}
	for g := range 200 {
		wg.Go(func() {
			for i := range 200 {
				want := fmt.Sprintf("%d-%d", g, i)
				c := submit(n, "ECHO", want).wait(t)
				if c.Outcome == member.Answered && string(c.Reply.Str) != want {
					t.Errorf("got %q, want %q", c.Reply.Str, want)
				}
				if c.Outcome != member.Answered {
					time.Sleep(time.Millisecond)
				}
				mu.Lock()
				outcomes[c.Outcome]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	stop()
	t.Log(outcomes)
	if outcomes[member.Answered] == 0 || outcomes[member.Unanswered]+outcomes[member.Refused] > 0 {
		t.Errorf("outcomes %v", outcomes)
	}
}

// killing cuts all clients of a server off every 10 ms, until stop returns.
func killing(s *redisServer) (stop func()) {
	end := make(chan struct{})
	var killer sync.WaitGroup
	killer.Go(func() {
		for {
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
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
		if st := n.State(); !st.Up || st.Acks != (acks > 0) {
			t.Errorf("%d replicas: %+v", acks, st)
		}
	}
}
