package cluster_test

import (
	"context"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/cluster"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/node"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

func startPair(t *testing.T) (master, replica *redistest.Real) {
	t.Helper()
	rt.Needs(t)
	run := func(args ...string) *redistest.Real {
		r := rt.Must(redistest.StartReal(t.Context(), redistest.RealConfig{Args: append(args, "--repl-diskless-sync-delay", "0")}))(t)
		t.Cleanup(func() { require.NoError(t, r.Close()) })
		return r
	}
	master = run()
	host, port, _ := net.SplitHostPort(master.Addr())
	replica = run("--replicaof", host, port)
	becomes(t, "it replicates", func() bool {
		info, _ := replica.Do(t.Context(), "INFO", "replication")
		text, _ := info.(string)
		return strings.Contains(text, "master_link_status:up")
	})
	return master, replica
}

func waits(t *testing.T, r *redistest.Real) bool {
	t.Helper()
	return strings.Contains(asked(t, r, "INFO", "commandstats").(string), "cmdstat_wait:")
}

func handOver(t *testing.T, a, b *redlock.Client) {
	t.Helper()
	for range 5 {
		l := lock(t, a, "k")
		got := waiting(t, a, b, "k")
		require.NoError(t, l.Unlock(t.Context()))
		require.NoError(t, got.Get(t).Unlock(t.Context()))
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

// lengthen has the only waiter for a name ask for ten minutes more, in the entry that a hand-over reads.
func lengthen(t *testing.T, master *redistest.Real) {
	t.Helper()
	keys := asked(t, master, "KEYS", "redquorum:w*")
	require.Len(t, keys, 1)
	key := keys.([]any)[0].(string)
	entry := asked(t, master, "HGETALL", key)
	require.Len(t, entry, 2, "an owner, and its entry")
	var until, ttl int64
	require.NoError(t, rt.Err(fmt.Sscan(entry.([]any)[1].(string), &until, &ttl)))
	more := (10 * time.Minute).Milliseconds()
	asked(t, master, "HSET", key, entry.([]any)[0].(string), fmt.Sprint(until+more, " ", ttl+more))
}

// A vote that no replica has acknowledged is none, and is taken back: neither one that was asked for nor one
// that was handed over. From Redis 7.2 on, WAIT waits for what its own connection has written. A waiter that is told of
// its vote must so have written, also if the vote already lives longer than the waiter asks for.
func TestVoteThatNoReplicaHasAcknowledgedDoesNotCount(t *testing.T) {
	t.Parallel()
	for _, longer := range []bool{false, true} {
		t.Run(fmt.Sprint("handed over for longer than asked: ", longer), func(t *testing.T) {
			t.Parallel()
			unacknowledged(t, longer)
		})
	}
}

func unacknowledged(t *testing.T, longer bool) {
	master, replica := startPair(t)
	url := []string{"redis://" + master.Addr() + "?min_replicas_ack=1"}
	soon := func(c *redlock.Config) { c.MemberTimeout = 2 * time.Second } // is how long a vote that does not come is waited for
	a, b := openAll(t, url, soon), openAll(t, url, soon)
	lease := lock(t, a, "k")
	waits, give := context.WithCancel(ending(t))
	defer give()
	got := rt.Go(func() error { return rt.Err(b.Mutex("k").Lock(waits)) })
	inLine(t, a, "k")
	if longer {
		lengthen(t, master)
	}
	becomes(t, "that the waiter has entered is known to the replica, and its WAIT is answered", func() bool {
		info, _ := master.Do(t.Context(), "INFO", "replication")
		offset := regexp.MustCompile(`,offset=(\d+),[^$]*master_repl_offset:(\d+)\r`).FindStringSubmatch(fmt.Sprint(info))
		return offset != nil && offset[1] == offset[2]
	})
	replica.Pause()
	_ = lease.Unlock(t.Context()) // handed over at the master
	defer time.AfterFunc(2*time.Second, give).Stop()
	require.Error(t, <-got, "the replica does not have it")
	for i := range 3 {
		require.ErrorIs(t, rt.Err(a.Mutex(fmt.Sprint("k", i)).TryLock(t.Context())), redlock.ErrNoQuorum)
	}
	replica.Resume()
	var next *redlock.Lease
	becomes(t, "nothing was left behind", func() bool {
		var err error
		next, err = b.Mutex("k").TryLock(t.Context())
		return err == nil
	})
	require.Greater(t, next.Token(), lease.Token())
	require.NoError(t, next.Unlock(t.Context()))
}

// A tool sees what a client sees, through any of the servers, and is told why where none answers.
func TestTopologyIsToldWithoutBeingAClient(t *testing.T) {
	t.Parallel()
	s := shared(t)
	const dead = "127.0.0.1:1"
	for i, addr := range s.Addrs() {
		if i == 1 { // which is dialled elsewhere
			continue
		}
		masters, err := cluster.Topology(t.Context(), cluster.Config{
			Seeds: []string{dead, addr}, Node: node.Config{DialTimeout: time.Minute}, Dial: map[string]string{s.Addrs()[1]: "10.0.0.1:1"},
		})
		require.NoError(t, err)
		require.Len(t, masters, 3)
		var taken [slot.Count]bool
		for _, m := range masters {
			at := slices.Index(s.Addrs(), m.Addr)
			require.Equal(t, s.IDs[at], m.ID)
			if at == 1 {
				require.Equal(t, "10.0.0.1:1", m.Dial)
			} else {
				require.Equal(t, m.Addr, m.Dial)
			}
			for _, n := range m.Slots {
				require.False(t, taken[n])
				taken[n] = true
			}
		}
		require.NotContains(t, taken[:], false)
	}
	_, err := cluster.Topology(t.Context(), cluster.Config{Seeds: []string{dead, "127.0.0.1:2"}})
	require.ErrorContains(t, err, dead)
	require.ErrorContains(t, err, "127.0.0.1:2")
	require.ErrorContains(t, rt.Err(cluster.Topology(t.Context(), cluster.Config{})), "Seeds is empty")
}
