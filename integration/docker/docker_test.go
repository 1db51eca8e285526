package docker

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

var members = []string{"redis://127.0.0.1:7001", "redis://127.0.0.1:7002", "redis://127.0.0.1:7003"}

const (
	project = "redquorum"
	maxTTL  = 3 * time.Second // so that a quarantine is short
)

func docker(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("docker", args...).CombinedOutput()
	require.NoError(t, err, "docker %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

func container(t *testing.T, service string) string {
	t.Helper()
	id := docker(t, "ps", "-aq", "--filter", "label=com.docker.compose.project="+project, "--filter", "label=com.docker.compose.service="+service)
	require.NotEmpty(t, id, "no container of %s: docker/set up masters3", service)
	return id
}

func open(t *testing.T) *redlock.Client {
	t.Helper()
	client := rt.Must(redlock.Open(t.Context(), members, redlock.Config{
		TTL: 2 * time.Second, MaxTTL: maxTTL, MemberTimeout: maxTTL, NoQuorumAfter: -1, FreshMembers: true,
	}))(t)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// A member that is stopped, paused or cut off stops nobody. Two of three end a lease in its time, and
// nobody gets the lock; when they are back, locks and tokens go on.
func TestContainersThatAreBroken(t *testing.T) {
	if os.Getenv("REDQUORUM_DOCKER") == "" {
		t.Skip("needs docker and the set masters3: make test-docker")
	}
	network := docker(t, "network", "ls", "-q", "--filter", "label=com.docker.compose.project="+project, "--filter", "label=com.docker.compose.network=members")
	client := open(t)
	ctx := rt.Within(t, 10*time.Minute)
	last := uint64(0)
	lock := func(t *testing.T) *redlock.Lease {
		t.Helper()
		lease := rt.Must(client.Mutex("containers").Lock(ctx))(t)
		require.Greater(t, lease.Token(), last)
		last = lease.Token()
		return lease
	}
	// freed has as many locks released, and heard of it. A machine that is busy with other things may lose a lease of 2 s.
	freed := func(t *testing.T, locks int) {
		t.Helper()
		for locks > 0 {
			err := lock(t).Unlock(ctx)
			if err == nil {
				locks--
			} else if !errors.Is(err, redlock.ErrLost) {
				require.ErrorIs(t, err, redlock.ErrInDoubt)
			}
		}
	}
	for _, tc := range []struct {
		name         string
		break_, heal func(t *testing.T, id string)
	}{
		{"stop", func(t *testing.T, id string) { docker(t, "stop", "-t", "1", id) }, func(t *testing.T, id string) { docker(t, "start", id) }},
		{"kill", func(t *testing.T, id string) { docker(t, "kill", id) }, func(t *testing.T, id string) { docker(t, "start", id) }},
		{"pause", func(t *testing.T, id string) { docker(t, "pause", id) }, func(t *testing.T, id string) { docker(t, "unpause", id) }},
		{"disconnect", func(t *testing.T, id string) { docker(t, "network", "disconnect", network, id) }, func(t *testing.T, id string) { docker(t, "network", "connect", network, id) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			allVote(t, ctx, client)
			m2, m3 := container(t, "m2"), container(t, "m3")
			tc.break_(t, m3)
			healed := false
			defer func() {
				if !healed {
					tc.heal(t, m3)
				}
			}()
			freed(t, 20)
			lease := lock(t)
			tc.break_(t, m2)
			broken := time.Now()
			select {
			case <-lease.Done():
			case <-ctx.Done():
				t.Fatal("the lease outlives its majority")
			}
			assert.ErrorIs(t, lease.Err(), redlock.ErrLost)
			assert.False(t, lease.ValidUntil().After(broken.Add(2*time.Second)), "renewed by a minority")
			if l, err := client.Mutex("containers").TryLock(ctx); err == nil {
				t.Errorf("granted by a minority, token %d", l.Token())
			}
			tc.heal(t, m2)
			tc.heal(t, m3)
			healed = true
			freed(t, 1)
		})
	}
}

func allVote(t *testing.T, ctx context.Context, client *redlock.Client) {
	t.Helper()
	for {
		not := 0
		for _, m := range client.Members() {
			if m.State != redlock.MemberVoting {
				not++
			}
		}
		if not == 0 {
			return
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			t.Fatalf("members do not vote: %+v", client.Members())
		}
	}
}
