package main

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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
