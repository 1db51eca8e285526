package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// queued waits until somebody waits for key at every member.
func queued(t *testing.T, c *redlock.Client, key string) {
	t.Helper()
	eventually(t, "it waits at every member", func() bool {
		in, err := c.Inspect(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
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
	client, err := redlock.Open(t.Context(), urls, redlock.WithConfig(redlock.Config{MemberTimeout: 5 * time.Second, DialTimeout: 5 * time.Second}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease, err := client.Mutex(key).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return client, lease
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
		code, stdout, stderr := command(t, "acquire", "k", "--ttl", "25s", "--format", "json", "--member-timeout", "5s", "--members", strings.Join(urls, ","))
		done <- ended{code, stdout, stderr}
	}()
	queued(t, client, "k")
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	end := <-done
	var got detachedLease
	if err := json.Unmarshal([]byte(end.stdout), &got); err != nil || end.code != 0 {
		t.Fatalf("exit code %d, %v\n%s", end.code, err, end.stderr)
	}
	if left := time.Until(got.Until); left < 10*time.Second {
		t.Errorf("good for %v of 25s", left)
	}
}

// A grant that cannot be lengthened after the wait is given back, and the command does not start.
func TestCommandDoesNotStartUnderALeaseThatCannotBeExtended(t *testing.T) {
	t.Parallel()
	cluster, urls := embedded(t, 3)
	client, lease := holding(t, urls, "k")
	started := filepath.Join(t.TempDir(), "started")
	cmd := exec.Command("redlock", "run", "k", "--ttl", "25s", "--", "touch", started)
	cmd.Env = append(os.Environ(), "REDLOCK_MEMBERS="+strings.Join(urls, ","), "REDLOCK_MEMBER_TIMEOUT=5s")
	var output strings.Builder
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	queued(t, client, "k")
	extend := func(cmd []string) bool { return len(cmd) > 2 && cmd[0] == "EVALSHA" && cmd[2] == "1" } // no other script has one key
	refused := []*redistest.Rule{
		cluster.Faults(0).Fail(extend, -1, "OOM command not allowed"), cluster.Faults(1).Fail(extend, -1, "OOM command not allowed"),
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitUnavailable {
		t.Errorf("ended with %v, want %d\n%s", err, exitUnavailable, &output)
	}
	for i, r := range refused {
		if r.Hits() == 0 {
			t.Errorf("member %d was not asked to extend", i)
		}
	}
	if _, err := os.Stat(started); !os.IsNotExist(err) {
		t.Errorf("the command ran: %v\n%s", err, &output)
	}
	in, err := client.Inspect(t.Context(), "k")
	if err != nil || len(in.Holders) > 0 {
		t.Errorf("not given back: %+v, %v", in, err)
	}
}
