package redistest_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func told(t *testing.T, r interface {
	Do(ctx context.Context, args ...string) (any, error)
}, args ...string) any {
	t.Helper()
	return rt.Must(r.Do(t.Context(), args...))(t)
}

func TestRealPersistence(t *testing.T) {
	for _, tc := range []struct {
		name    string
		persist redistest.Persistence
		want    any // what Restart(true) brings back of a value that was saved as 1 and then set to 2
	}{
		{"append only", redistest.AppendOnly, "2"},
		{"append only, always synced", redistest.AppendAlways, "2"},
		{"saved only", redistest.SavedOnly, "1"},
		{"volatile", redistest.Volatile, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := rt.RealWith(t, 1, redistest.RealConfig{Persist: tc.persist}).Real(0)
			for _, cmd := range [][]string{{"SET", "k", "1"}, {"SAVE"}, {"SET", "k", "2"}} {
				told(t, r, cmd...)
			}
			if tc.persist == redistest.Volatile {
				require.Error(t, r.Restart(true))
				require.Error(t, r.Snapshot())
			} else {
				require.NoError(t, r.Restart(true))
			}
			v := rt.Must(r.Do(t.Context(), "GET", "k"))(t)
			if tc.want == nil {
				require.Equal(t, "2", v, "a refused Restart leaves the server alone")
			} else {
				require.Equal(t, tc.want, v)
			}
			require.NoError(t, r.Restart(false))
			v = rt.Must(r.Do(t.Context(), "GET", "k"))(t)
			require.Nil(t, v)
		})
	}
}

func TestRealKeepChoosesWhatTheNextStartFinds(t *testing.T) {
	r := rt.Real(t, 1).Real(0)
	for _, cmd := range [][]string{{"SET", "k", "1"}, {"SAVE"}, {"SET", "k", "2"}} {
		told(t, r, cmd...)
	}
	for _, next := range []struct {
		persist redistest.Persistence
		want    string
	}{{redistest.SavedOnly, "1"}, {redistest.AppendOnly, "2"}} {
		r.Keep(next.persist)
		require.NoError(t, r.Restart(true))
		require.Equal(t, next.want, told(t, r, "GET", "k"))
	}
}

// A server that is full says so and closes. Its kernel may answer the client's first request with a reset;
// the client reads what came before that all the same.
func TestLinkPassesOnWhatAServerSaysBeforeItHangsUp(t *testing.T) {
	r := rt.Real(t, 1).Real(0)
	c := rt.Must(redistest.DialClient(t.Context(), r.Dialer(), r.Addr()))(t)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	told(t, c, "CONFIG", "SET", "maxclients", "1")
	for range 300 {
		conn := rt.Must(r.Dialer().DialContext(t.Context(), "tcp", r.Addr()))(t)
		for range 3 { // the server's side may be closed before the last
			_, _ = conn.Write([]byte("PING\r\n"))
			runtime.Gosched()
		}
		require.Equal(t, "-ERR max number of clients reached\r\n", rt.Must(bufio.NewReader(conn).ReadString('\n'))(t))
		require.NoError(t, conn.Close())
	}
}

func TestRealRemovesItsDirectory(t *testing.T) {
	rt.Needs(t)
	r := rt.Must(redistest.StartReal(t.Context(), redistest.RealConfig{}))(t)
	require.DirExists(t, r.Dir())
	require.NoError(t, r.Close())
	require.NoDirExists(t, r.Dir())
	require.NoError(t, r.Close(), "it finds nothing to do")
	require.Zero(t, r.Pid())
	require.Error(t, r.Restart(true))
}

// The process must not outlive a test binary that was killed. The test runs itself as the parent.
func TestRealDiesWithItsParent(t *testing.T) {
	if os.Getenv("REDISTEST_PARENT") != "" {
		r := rt.Must(redistest.StartReal(context.Background(), redistest.RealConfig{Persist: redistest.Volatile}))(t)
		fmt.Println("server", r.Pid(), r.Dir())
		select {}
	}
	rt.Needs(t)
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("only Linux ends processes with their parent")
	}
	parent := exec.Command(os.Args[0], "-test.run=^TestRealDiesWithItsParent$", "-test.v")
	parent.Env = append(os.Environ(), "REDISTEST_PARENT=1")
	out := rt.Must(parent.StdoutPipe())(t)
	require.NoError(t, parent.Start())
	defer func() { _ = parent.Wait() }()
	defer func() { _ = parent.Process.Kill() }()

	pid, dir := 0, ""
	for lines := bufio.NewScanner(out); pid == 0 && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "server %d %s", &pid, &dir)
	}
	require.NotZero(t, pid)
	defer func() { _ = os.RemoveAll(dir) }()
	require.DirExists(t, "/proc/"+strconv.Itoa(pid))
	require.NoError(t, parent.Process.Kill())
	gone := func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		return err != nil || strings.Contains(string(stat), ") Z") // whoever adopted it has not looked yet
	}
	require.Eventually(t, gone, time.Minute, 5*time.Millisecond)
}

// A server that is down keeps its port: nobody else gets it, so the server can come back.
func TestPortIsTakenUntilItIsGivenBack(t *testing.T) {
	all := map[int]bool{}
	for range 500 {
		port, held, err := redistest.TakePorts(1)
		require.NoError(t, err)
		t.Cleanup(func() { _ = held.Close() })
		require.NotContains(t, all, port)
		all[port] = true
	}
	for range 3 {
		first, held, err := redistest.TakePorts(6)
		require.NoError(t, err)
		for port := first; port < first+6; port++ {
			require.NotContains(t, all, port)
		}
		require.NoError(t, held.Close())
	}
}

// program writes a redis-server that tells a version, and ends where it is to speak TLS.
func program(t *testing.T, version, tls string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "redis-server")
	text := "#!/bin/sh\ncase $1 in --version) echo '" + version + "';; *) echo '" + tls + "'; exit 1;; esac\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o755))
	return file
}

func TestBuildIsToldByWhatTheProgramSays(t *testing.T) {
	old := []string{
		"redis 6.2 has no sharded channels", "redis 6.2 has no option for DEBUG", "redis 6.2 has no flags of scripts",
		"redis 6.2 has no ACL DRYRUN", "redis 6.2 has no CLIENT NO-EVICT", "redis 6.2 has scripts in its append-only file",
	}
	for _, c := range []struct {
		version, tls string
		want         redistest.Build
		lacks        []string
		rules        string
	}{
		{"Redis server v=6.2.11 sha=00000000:0 malloc=jemalloc-5.1.0 bits=64 build=f5b1f28871c566b4", "# Failed to configure TLS. Check logs for more info.",
			redistest.Build{Name: "redis", Major: 6, Minor: 2, TLS: true},
			old, "members-6.2.acl"},
		{"Redis server v=6.2.14 sha=00000000:0 malloc=libc bits=64 build=0", "*** FATAL CONFIG FILE ERROR (Redis 6.2.14) ***",
			redistest.Build{Name: "redis", Major: 6, Minor: 2},
			append([]string{"redis 6.2 is built without TLS here"}, old...), "members-6.2.acl"},
		{"Redis server v=7.0.15 sha=00000000:0 malloc=jemalloc-5.3.0 bits=64 build=ae4d7c971a948f0", "# Failed to configure TLS. Check logs for more info.",
			redistest.Build{Name: "redis", Major: 7, Minor: 0, TLS: true}, nil, "members.acl"},
		{"Valkey server v=9.1.2 sha=00000000:1 malloc=libc bits=64 build=1536df31c0395150", "# Failed finding TLS support.",
			redistest.Build{Name: "valkey", Major: 9, Minor: 1}, []string{"valkey 9.1 is built without TLS here"}, "members.acl"},
	} {
		got := rt.Must(redistest.BuildOf(program(t, c.version, c.tls)))(t)
		require.Equal(t, c.want, got)
		var lacks []string
		for _, f := range []redistest.Feature{redistest.TLS, redistest.ShardedChannels, redistest.DebugOption, redistest.ScriptFlags, redistest.DryRun, redistest.NoEvict, redistest.ForgetsScripts} {
			if why := got.Why(f); why != "" {
				lacks = append(lacks, why)
			}
			require.Equal(t, got.Why(f) == "", got.Has(f))
		}
		require.Equal(t, c.lacks, lacks)
		require.Equal(t, c.rules, got.Rules())
	}
	require.ErrorContains(t, rt.Err(redistest.BuildOf(program(t, "KeyDB server v=6.3.4 sha=0", ""))), "no version")
}
