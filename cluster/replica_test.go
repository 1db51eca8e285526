package cluster_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// startPair starts a master and its replica.
func startPair(t *testing.T) (master, replica *redistest.Real) {
	t.Helper()
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	run := func(args ...string) *redistest.Real {
		r, err := redistest.StartReal(t.Context(), redistest.RealConfig{Args: append(args, "--repl-diskless-sync-delay", "0")})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		return r
	}
	master = run()
	host, port, _ := net.SplitHostPort(master.Addr())
	replica = run("--replicaof", host, port)
	require.Eventually(t, func() bool {
		info, _ := replica.Do(t.Context(), "INFO", "replication")
		text, _ := info.(string)
		return strings.Contains(text, "master_link_status:up")
	}, 20*time.Second, time.Millisecond)
	return master, replica
}

func waits(t *testing.T, r *redistest.Real) bool {
	t.Helper()
	info, err := r.Do(t.Context(), "INFO", "commandstats")
	require.NoError(t, err)
	return strings.Contains(info.(string), "cmdstat_wait:")
}

func handOver(t *testing.T, a, b *redlock.Client) {
	t.Helper()
	for range 5 {
		l, err := a.Mutex("k").Lock(ending(t))
		require.NoError(t, err)
		got := make(chan error, 1)
		go func() {
			next, err := b.Mutex("k").Lock(ending(t))
			if err == nil {
				err = next.Unlock(context.WithoutCancel(t.Context()))
			}
			got <- err
		}()
		require.Eventually(t, func() bool {
			seen, err := a.Inspect(t.Context(), "k")
			return err == nil && len(seen.Members[0].Queue) == 1
		}, 20*time.Second, time.Millisecond)
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, <-got)
	}
}

func TestNoWaitIsSentUnlessItIsAskedFor(t *testing.T) {
	t.Parallel()
	master, _ := startPair(t)
	for i, options := range []string{"", "?min_replicas_ack=0", "?min_replicas_ack=1"} {
		url := []string{"redis://" + master.Addr() + options}
		handOver(t, openAll(t, url), openAll(t, url))
		require.Equal(t, i == 2, waits(t, master), options)
	}
}

// A vote that no replica has acknowledged is none, and is taken back: neither one that was asked for nor one
// that was handed over.
func TestVoteThatNoReplicaHasAcknowledgedDoesNotCount(t *testing.T) {
	t.Parallel()
	master, replica := startPair(t)
	url := []string{"redis://" + master.Addr() + "?min_replicas_ack=1"}
	a, b := openAll(t, url), openAll(t, url)
	lease, err := a.Mutex("k").Lock(ending(t))
	require.NoError(t, err)
	waiting, give := context.WithTimeout(t.Context(), 2*time.Second)
	defer give()
	got := make(chan error, 1)
	go func() {
		_, err := b.Mutex("k").Lock(waiting)
		got <- err
	}()
	require.Eventually(t, func() bool {
		seen, err := a.Inspect(t.Context(), "k")
		return err == nil && len(seen.Members[0].Queue) == 1
	}, 20*time.Second, time.Millisecond)
	replica.Pause()
	_ = lease.Unlock(t.Context()) // handed over at the master
	require.Error(t, <-got, "the replica does not have it")
	for i := range 3 {
		_, err = a.Mutex(fmt.Sprint("k", i)).TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrNoQuorum)
	}
	replica.Resume()
	var next *redlock.Lease
	require.Eventually(t, func() bool {
		next, err = b.Mutex("k").TryLock(t.Context())
		return err == nil
	}, 20*time.Second, 10*time.Millisecond, "nothing was left behind")
	require.Greater(t, next.Token(), lease.Token())
	require.NoError(t, next.Unlock(t.Context()))
}
