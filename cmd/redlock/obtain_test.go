package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

func queued(t *testing.T, c *redlock.Client, key string) {
	t.Helper()
	eventually(t, "it waits at every member", func() bool {
		in := rt.Must(c.Inspect(t.Context(), key))(t)
		for _, v := range in.Members {
			if len(v.Queue) == 0 {
				return false
			}
		}
		return true
	})
}

func holding(t *testing.T, urls []string, key string) (*redlock.Client, *redlock.Lease) {
	t.Helper()
	client := rt.Must(redlock.Open(t.Context(), urls, redlock.Config{MemberTimeout: patience, DialTimeout: patience, MaxTTL: 5 * time.Minute}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client, rt.Must(client.Mutex(key).Lock(t.Context()))(t)
}

// What members grant to a waiter is short (3 s), in case it has died. What a script gets is not.
func TestWhatIsObtainedAfterAWaitIsGoodForAllOfItsTTL(t *testing.T) {
	t.Parallel()
	_, urls := embedded(t, 3)
	client, lease := holding(t, urls, "k")
	type ended struct {
		code           int
		stdout, stderr string
	}
	done := make(chan ended, 1)
	go func() {
		code, stdout, stderr := command(t, "acquire", "k", "--ttl", "4m", "--max-ttl", "5m", "--format", "json", "--member-timeout", patience.String(), "--members", strings.Join(urls, ","))
		done <- ended{code, stdout, stderr}
	}()
	queued(t, client, "k")
	require.NoError(t, lease.Unlock(t.Context()))
	end := <-done
	var got detachedLease
	if err := json.Unmarshal([]byte(end.stdout), &got); err != nil || end.code != 0 {
		t.Fatalf("exit code %d, %v\n%s", end.code, err, end.stderr)
	}
	if left := time.Until(got.Until); left < time.Minute {
		t.Errorf("good for %v of 4m", left)
	}
}

// A grant that cannot be lengthened after the wait is given back, and the command does not start.
func TestCommandDoesNotStartUnderALeaseThatCannotBeExtended(t *testing.T) {
	t.Parallel()
	cluster, urls := embedded(t, 3)
	client, lease := holding(t, urls, "k")
	ran := filepath.Join(t.TempDir(), "started")
	cmd, output := started(t, urls, "run", "k", "--ttl", "4m", "--max-ttl", "5m", "--", "touch", ran)
	queued(t, client, "k")
	extend := func(cmd []string) bool { return len(cmd) > 2 && cmd[0] == "EVALSHA" && cmd[2] == "1" } // no other script has one key
	refused := []*redistest.Rule{
		cluster.Faults(0).Fail(extend, -1, "OOM command not allowed"), cluster.Faults(1).Fail(extend, -1, "OOM command not allowed"),
	}
	require.NoError(t, lease.Unlock(t.Context()))
	_ = cmd.Wait()
	assert.NotContains(t, output.String(), "the command was stopped", "it was started")
	if cmd.ProcessState.ExitCode() != exitLost { // on a busy machine the short grant may have ended before
		assert.Equal(t, exitUnavailable, cmd.ProcessState.ExitCode(), "%s", output)
		for i, r := range refused {
			assert.True(t, r.Hits() != 0, "member %d was not asked to extend", i)
		}
	}
	if _, err := os.Stat(ran); !os.IsNotExist(err) {
		t.Errorf("the command ran: %v\n%s", err, output)
	}
	in, err := client.Inspect(t.Context(), "k")
	assert.False(t, err != nil || len(in.Holders) > 0, "not given back: %+v, %v", in, err)
}
