package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Who is told to wait waits for the members too, and takes the lock when a majority is back.
func TestWaitingBeginsBeforeAMajorityIsThere(t *testing.T) {
	t.Parallel()
	for name, args := range map[string]string{
		"run":     "run k --no-quorum-after -1s -- true",
		"wait":    "run k --wait 1h --no-quorum-after -1s -- true",
		"acquire": "acquire k --no-quorum-after -1s",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, urls := embedded(t, 3)
			cluster.Kill(1, 2)
			cmd, output := started(t, urls, strings.Fields(args)...)
			eventually(t, "it says that it tries again", func() bool { return strings.Contains(output.String(), "asking again") })
			require.NoError(t, cluster.Restart(true, 1, 2))
			if err := cmd.Wait(); err != nil {
				t.Errorf("%v\n%s", err, output)
			}
		})
	}
}

func TestWaitingForAMajorityIsEndedByASignal(t *testing.T) {
	t.Parallel()
	for _, args := range []string{"run k --no-quorum-after -1s -- true", "hold k --no-quorum-after -1s", "acquire k --no-quorum-after -1s"} {
		cluster, urls := embedded(t, 3)
		cluster.Kill(1, 2)
		cmd, output := started(t, urls, strings.Fields(args)...)
		eventually(t, "it says that it tries again", func() bool { return strings.Contains(output.String(), "asking again") })
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		if _ = cmd.Wait(); cmd.ProcessState.ExitCode() != 143 {
			t.Errorf("%s: %v, want 143\n%s", args, cmd.ProcessState, output)
		}
		lines := strings.Split(strings.TrimSpace(output.String()), "\n")
		if last := lines[len(lines)-1]; !strings.HasPrefix(last, "redlock: ended by terminated: ") || strings.Count(last, "redlock: ") > 1 {
			t.Errorf("%s: the last line is %q", args, last)
		}
	}
}

func process(t *testing.T, urls []string, args ...string) (*exec.Cmd, *rt.Text) {
	t.Helper()
	unraced(t)
	cmd, output := exec.Command("redlock", args...), &rt.Text{}
	cmd.Env = append(os.Environ(), "REDLOCK_MEMBERS="+strings.Join(urls, ","), "REDLOCK_MEMBER_TIMEOUT="+patience.String(),
		"REDLOCK_DIAL_TIMEOUT="+patience.String())
	cmd.Stdout, cmd.Stderr = output, output
	return cmd, output
}

// started is one that runs. Members come back with what they knew.
func started(t *testing.T, urls []string, args ...string) (*exec.Cmd, *rt.Text) {
	t.Helper()
	cmd, output := process(t, urls, args...)
	cmd.Env = append(cmd.Env, "REDLOCK_RESTART_GUARD=off")
	_, err := cmd.StdinPipe() // so that hold is not told that its own is at its end
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd, output
}

// One try alone is one try, and what another does not mend is told at once, however much patience there is.
func TestStartIsNotTriedAgainInVain(t *testing.T) {
	t.Parallel()
	gone := "redis://127.0.0.1:1,redis://127.0.0.1:2,redis://127.0.0.1:3"
	for _, tc := range []struct {
		args string
		code int
	}{
		{"run k -n --no-quorum-after -1s --members " + gone + " -- true", exitUnavailable},
		{"acquire k --wait 0 --no-quorum-after -1s --members " + gone, exitUnavailable},
		{"inspect k --no-quorum-after -1s --members " + gone, exitUnavailable},
		{"run k --no-quorum-after -1s --members redis://127.0.0.1:1,redis://127.0.0.1:1 -- true", exitConfig},
		{"run k --no-quorum-after -1s --members redis://h?nonsense=1 -- true", exitUsage},
	} {
		code, _, stderr := command(t, strings.Fields(tc.args)...)
		assert.False(t, code != tc.code || strings.Contains(stderr, "asking again"),
			"%s: exit code %d, want %d\n%s", tc.args, code, tc.code, stderr)
	}
	for _, limit := range []string{"--wait 200ms --no-quorum-after -1s", "--wait forever --no-quorum-after 200ms", "--wait 200ms --no-quorum-after 1h", "--wait 1h --no-quorum-after 200ms"} {
		code, _, stderr := command(t, strings.Fields("acquire k "+limit+" --members "+gone)...)
		assert.False(t, code != exitUnavailable || strings.Count(stderr, "asking again") > 1 || strings.Contains(stderr, "deadline"),
			"%s: exit code %d, want %d\n%s", limit, code, exitUnavailable, stderr)
	}
}

// In fake time: tries go on for as long as both patiences last, with pauses that grow to 1 s.
func TestRetryLastsAsLongAsBothPatiences(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ wait, noQuorum, want time.Duration }{
		{0, -1, 0},
		{0, time.Minute, 0},
		{time.Minute, -1, time.Minute},
		{time.Minute, time.Hour, time.Minute},
		{-1, time.Minute, time.Minute},
		{time.Hour, time.Minute, time.Minute},
		{-1, 0, 2 * time.Second}, // the default
		{-1, -1, -1},
	} {
		faketime.Test(t, func(t *testing.T) {
			began, r := time.Now(), newRetry(tc.wait, tc.noQuorum)
			for r.again() && r.n < 1000 {
				require.False(t, r.pause <= 0 || r.pause > time.Second, "%+v: pause %v", tc, r.pause)
				time.Sleep(r.pause)
			}
			if took := time.Since(began); took != tc.want && (tc.want >= 0 || r.n < 1000) {
				t.Errorf("%+v: ended after %v and %d tries", tc, took, r.n)
			}
		})
	}
	assert.False(t, rest(-1, time.Now()) != -1 || rest(0, time.Now()) != 0 || rest(time.Second, time.Now().Add(-time.Minute)) != 0 || rest(time.Hour, time.Now()) <= 59*time.Minute, "rest")
}

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
