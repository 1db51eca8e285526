package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
)

// When the quorum is lost while a command runs, the command and what it started are dead before another
// can have the lock: by the last sign of life that they gave themselves, against the first grant to a
// client that asks all the time. It is about seconds of real time: TestSuperviseStopsACommandBeforeItsLeaseEnds
// shows the same in fake time.
func TestLongRunEndsTheCommandBeforeAnotherCanHold(t *testing.T) {
	long(t)
	const rounds = 50
	cluster, urls := real(t, 3, 0)
	for i, u := range urls { // members that hang are given up as users have it
		urls[i] = strings.TrimSuffix(u, unhurried)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	least, counted := time.Hour, 0
	for round := range rounds {
		key, dir := fmt.Sprintf("loss-%d", round), t.TempDir()
		beats := []string{filepath.Join(dir, "one"), filepath.Join(dir, "two")}
		cmd := exec.Command("redlock", "run", key, "--ttl", "2s", "--", "heartbeat", beats[0], beats[1])
		cmd.Env = append(os.Environ(), "REDLOCK_MEMBERS="+strings.Join(urls, ","))
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		require.NoError(t, cmd.Start())
		eventually(t, "both give signs of life", func() bool { return !lastBeat(beats[0]).IsZero() && !lastBeat(beats[1]).IsZero() })
		next, acquired := contender(t, urls, key)
		time.Sleep(time.Duration(random.Int64N(int64(1400 * time.Millisecond)))) // anywhere between two renewals
		paused := random.Perm(3)[:2]
		cluster.Pause(paused...)
		time.Sleep(1900*time.Millisecond + time.Duration(random.Int64N(int64(300*time.Millisecond)))) // about to the end of the lease
		cluster.Resume(paused...)

		first := <-acquired
		var exit *exec.ExitError
		if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != exitLost {
			t.Errorf("round %d: redlock ended with %v, want %d", round, err, exitLost)
		}
		next()
		if late.MatchString(output.String()) {
			t.Logf("round %d does not count: redlock itself got no processor time until its lease had ended\n%s", round, &output)
			continue
		}
		counted++
		for _, path := range beats {
			slack := first.Sub(lastBeat(path))
			least = min(least, slack)
			assert.True(t, slack > 0,
				"round %d: %s was alive %v after another had the lock\n%s", round, filepath.Base(path), -slack, &output)
		}
	}
	assert.True(t, counted > rounds/2,
		"only %d of %d rounds count: the machine is too busy for this test, or commands are killed too late", counted, rounds)
	t.Logf("%d rounds: the least time between the last sign of life and the next grant was %v", counted, least)
}

// late is what redlock logs when it comes to kill the command only after the end of the validity.
var late = regexp.MustCompile(`killing the command" left=-`)

// contender asks for a lock all the time, and tells when it was granted.
func contender(t *testing.T, urls []string, key string) (end func(), acquired <-chan time.Time) {
	t.Helper()
	var client *redlock.Client
	eventually(t, "a client that is this impatient gets through", func() (ok bool) {
		var err error
		client, err = redlock.Open(t.Context(), urls, redlock.Config{
			StallTimeout: 100 * time.Millisecond, PingInterval: 50 * time.Millisecond, MemberTimeout: 20 * time.Millisecond,
		})
		return err == nil
	})
	granted := make(chan time.Time, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(granted)
		for ctx.Err() == nil {
			if lease, err := client.Mutex(key).TryLock(ctx); err == nil {
				granted <- time.Now()
				_ = lease.Unlock(context.WithoutCancel(ctx))
				return
			}
		}
	}()
	return func() { cancel(); <-done; _ = client.Close() }, granted
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}
