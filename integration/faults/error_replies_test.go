//go:build unix

package faults

import (
	"context"
	"crypto/rand"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock"
)

// A refusal is a state of a server in which it answers with an error.
type refusal struct {
	code  string // of the error
	kind  member.Kind
	mute  bool // INFO is refused meanwhile, too
	keeps bool // what is held can be extended and released all the same
	begin func(t testing.TB, s *redistest.Real) (end func())
}

func config(t testing.TB, s redistest.Server, option, value string) {
	t.Helper()
	admin(t, s, "CONFIG", "SET", option, value)
}

var refusals = []refusal{
	{code: "OOM", kind: member.KindOverloaded, keeps: true, begin: func(t testing.TB, s *redistest.Real) func() {
		config(t, s, "maxmemory", "1")
		return func() { config(t, s, "maxmemory", "0") }
	}},
	{code: "READONLY", kind: member.KindReadOnly, begin: func(t testing.TB, s *redistest.Real) func() {
		admin(t, s, "REPLICAOF", "127.0.0.1", "1") // a master that is not there
		return func() { admin(t, s, "REPLICAOF", "NO", "ONE") }
	}},
	{code: "MISCONF", kind: member.KindReadOnly, begin: misconf},
	{code: "BUSY", kind: member.KindBusy, mute: true, begin: busy},
	{code: "max number of clients", kind: member.KindOverloaded, mute: true, begin: crowded},
}

// misconf makes a server fail to save itself: in the place of its file is a directory. It refuses all
// writes then, the deleting ones too.
func misconf(t testing.TB, s *redistest.Real) func() {
	t.Helper()
	file := filepath.Join(s.Dir(), "dump.rdb")
	require.NoError(t, os.RemoveAll(file))
	require.NoError(t, os.MkdirAll(filepath.Join(file, "in the way"), 0o700))
	config(t, s, "save", "3600 1000000000") // a server that is not to save anything does not care
	saved := func(status string) {
		t.Helper()
		admin(t, s, "BGSAVE")
		require.Eventually(t, func() bool {
			info, _ := admin(t, s, "INFO", "persistence").(string)
			return strings.Contains(info, "rdb_bgsave_in_progress:0") && strings.Contains(info, "rdb_last_bgsave_status:"+status)
		}, 20*time.Second, 2*time.Millisecond)
	}
	saved("err")
	return func() {
		require.NoError(t, os.RemoveAll(file))
		saved("ok")
		config(t, s, "save", "")
	}
}

// busy lets a server run an endless script, until the script is killed. With the least priority: the fault is
// what it answers, and not that cores are missing.
func busy(t testing.TB, s *redistest.Real) func() {
	t.Helper()
	config(t, s, "lua-time-limit", "20") // busy-reply-threshold since Redis 7
	c := rt.Must(redistest.DialClient(t.Context(), s.Dialer(), s.Addr()))(t)
	require.NoError(t, unix.Setpriority(unix.PRIO_PROCESS, s.Pid(), 19))
	require.NoError(t, c.Send([]string{"EVAL", "while true do end", "0"}))
	return func() {
		_ = unix.Setpriority(unix.PRIO_PROCESS, s.Pid(), 0) // only root may
		admin(t, s, "SCRIPT", "KILL")
		require.NoError(t, c.Close())
	}
}

// crowded throws our connections out of a server, and lets nobody in.
func crowded(t testing.TB, s *redistest.Real) func() {
	t.Helper()
	c := rt.Must(redistest.DialClient(t.Context(), s.Dialer(), s.Addr()))(t)
	ask := func(args ...string) any {
		t.Helper()
		return rt.Must(c.Do(context.Background(), args...))(t)
	}
	ask("CONFIG", "SET", "maxclients", "1")
	throwOut(context.Background(), c)
	return func() {
		ask("CONFIG", "SET", "maxclients", "10000")
		require.NoError(t, c.Close())
	}
}

// throwOut kills the connections of our clients, by their name, and counts them.
func throwOut(ctx context.Context, c *redistest.Client) (n int) {
	list, _ := c.Do(ctx, "CLIENT", "LIST")
	text, _ := list.(string)
	for line := range strings.Lines(text) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		if !strings.Contains(rest, " name=redquorum ") {
			continue
		}
		if v, err := c.Do(ctx, "CLIENT", "KILL", "ID", id); err == nil && v == int64(1) {
			n++
		}
	}
	return n
}

// felt counts the refusals of some members.
func (r refusal) felt(cluster *redistest.Cluster, members ...int) int {
	if strings.Contains(r.code, " ") { // refused before there is anybody to answer
		return counted(cluster, "stats", "rejected_connections:", members...)
	}
	n := counted(cluster, "errorstats", "errorstat_"+r.code+":count=", members...)
	if b, err := redistest.Installed(); err == nil && !b.Has(redistest.ScriptErrorCodes) {
		n += counted(cluster, "errorstats", "errorstat_ERR:count=", members...)
	}
	return n
}

// at begins a refusal at some members.
func (r refusal) at(t testing.TB, cluster *redistest.Cluster, members ...int) (end func()) {
	t.Helper()
	var ends []func()
	for _, i := range members {
		ends = append(ends, r.begin(t, cluster.Real(i)))
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// Two members answer with errors: work goes on with the others. Three do: callers are told that there is
// no quorum, and why, and all is well again afterwards.
func TestFaultsErrorReplies(t *testing.T) {
	faulty(t)
	// The last one takes a second to load its data, and answers after every 2 MB of them, which is all 50 ms.
	slow := redistest.RealConfig{
		Persist: redistest.SavedOnly,
		Args:    []string{"--key-load-delay", "5000"},
	}
	cluster := servers(t, redistest.RealConfig{}, redistest.RealConfig{}, redistest.RealConfig{}, redistest.RealConfig{}, slow)
	pad := make([]byte, 200<<10)
	for i := range 200 {
		_, _ = rand.Read(pad)
		admin(t, cluster.Servers[4], "SET", "pad:"+string(rune('a'+i%26))+string(rune('a'+i/26)), string(pad))
	}
	x := rows()
	x.maxTTL = 3 * time.Second // what is held outlives a fault that is not long
	w := start(t, cluster, x)
	probe := open(t, cluster, func(c *redlock.Config) {
		quick(c)
		c.TTL, c.MaxTTL, c.FreshMembers = x.maxTTL, x.maxTTL, true
	})
	voting(t, probe, 5)

	for n, r := range refusals {
		two := []int{n % 4, (n + 1) % 4}
		w.play(t, episode{
			name: r.code + " at two", goes: true, mute: r.mute,
			felt:   func() int { return r.felt(cluster, two...) },
			inject: func() func() { return r.at(t, cluster, two...) },
		})
	}
	for _, r := range refusals {
		held := rt.Must(probe.Mutex("held").Lock(t.Context()))(t)
		w.play(t, episode{
			name: r.code + " at three", mute: r.mute,
			felt: func() int { return r.felt(cluster, 0, 1, 2) },
			inject: func() func() {
				end := r.at(t, cluster, 0, 1, 2)
				told(t, probe, r.kind, 0, 1, 2)
				if r.keeps {
					require.NoError(t, held.Extend(t.Context(), x.maxTTL))
					require.NoError(t, held.Unlock(t.Context()))
				} else {
					// Lost, where it took that long to get there.
					oneOf(t, held.Extend(t.Context(), x.maxTTL), redlock.ErrNoQuorum, redlock.ErrLost)
					oneOf(t, held.Unlock(t.Context()), redlock.ErrInDoubt, redlock.ErrLost)
				}
				return end
			},
		})
	}
	w.play(t, episode{
		name: "LOADING at one", goes: true,
		felt: func() int { return refusal{code: "LOADING"}.felt(cluster, 4) },
		inject: func() func() {
			admin(t, cluster.Servers[4], "SAVE")
			restarted := make(chan error, 1)
			go func() { restarted <- cluster.Servers[4].Restart(true) }()
			return func() { require.NoError(t, <-restarted) }
		},
	})
	w.end().safe(t, 100)
	nothingLeft(t, cluster, "pad:*")
}

func oneOf(t testing.TB, err error, expected ...error) {
	t.Helper()
	require.True(t, slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }), "unexpected: %v", err)
}

// told waits until a client is told that there is no quorum because these members answer with this kind
// of error.
func told(t testing.TB, c *redlock.Client, kind member.Kind, members ...int) {
	t.Helper()
	var err error
	defer func() {
		if t.Failed() {
			t.Logf("told at last: %v", err)
		}
	}()
	require.Eventually(t, func() bool {
		var lease *redlock.Lease
		if lease, err = c.Mutex("probe").TryLock(t.Context()); err == nil {
			_ = lease.Unlock(t.Context())
			return false
		}
		var q *redlock.QuorumError
		if !errors.Is(err, redlock.ErrNoQuorum) || !errors.As(err, &q) {
			return false
		}
		for _, i := range members {
			var reply *member.ReplyError
			if !errors.As(q.Votes[i].Err, &reply) || reply.Kind != kind {
				return false
			}
		}
		return true
	}, 20*time.Second, time.Millisecond)
}
