package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

func lastBeat(path string) time.Time {
	text, _ := os.ReadFile(path)
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(0, n)
}

func served(t *testing.T, n int) (*redistest.Cluster, []string) {
	t.Helper()
	cluster := redistest.NewEmbeddedCluster(n)
	t.Cleanup(func() { _ = cluster.Close() })
	var urls []string
	for i := range n {
		require.NoError(t, cluster.Embedded(i).ServeTCP("127.0.0.1:0"))
		urls = append(urls, "redis://"+cluster.Servers[i].Addr()+unhurried)
	}
	return cluster, urls
}

// embedded starts them, too, known as members that never held anything.
func embedded(t *testing.T, n int) (*redistest.Cluster, []string) {
	t.Helper()
	cluster, urls := served(t, n)
	markFresh(t, urls, 5*time.Minute)
	return cluster, urls
}

func real(t *testing.T, n int, maxTTL time.Duration) (*redistest.Cluster, []string) {
	t.Helper()
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	cluster := rt.Must(redistest.StartRealCluster(t.Context(), n, redistest.RealConfig{}))(t)
	t.Cleanup(func() { _ = cluster.Close() })
	var urls []string
	for i := range n {
		urls = append(urls, "redis://"+cluster.Real(i).Addr()+unhurried)
	}
	markFresh(t, urls, maxTTL)
	return cluster, urls
}

// markFresh has new members vote at once. Leases of maxTTL, or of less, are no news to them; 0 is the default.
func markFresh(t *testing.T, urls []string, maxTTL time.Duration) {
	t.Helper()
	ctx := t.Context()
	c, err := redlock.Open(ctx, urls, redlock.Config{
		MemberTimeout: patience, DialTimeout: patience, StallTimeout: patience, MaxTTL: maxTTL, FreshMembers: true,
	})
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, rt.Must(c.Mutex("markFresh").Lock(ctx))(t).Unlock(ctx))
}

// patience is for what succeeds on a busy machine, too, however long that takes. Members that are not there refuse at once.
const patience = time.Minute

// unhurried is the same for a member that has not answered yet.
const unhurried = "?stall_timeout=1m"

// Cost: 21 s, of a process for each command of all scripts.
func TestScripts(t *testing.T) {
	t.Parallel()
	unraced(t)
	start := embedded
	if redistest.Available() == nil { // which costs less than members in this process, where the race detector looks at each script
		start = func(t *testing.T, n int) (*redistest.Cluster, []string) { return real(t, n, 5*time.Minute) }
	}
	_, urls := start(t, 3)
	runScripts(t, "testdata/script", strings.Join(urls, ","), "5m") // what a script holds outlives it
}

// Cost: 3 s, of real servers and of a process for each command.
func TestScriptsOnRedis(t *testing.T) {
	t.Parallel()
	unraced(t)
	_, urls := real(t, 3, 0)
	runScripts(t, "testdata/redis", strings.Join(urls, ","), "30s") // the default: members are in quarantine as long
}

// With the race detector in the program that they run: it takes four times the processor.
func TestLongScripts(t *testing.T) {
	long(t)
	_, urls := embedded(t, 3)
	runScripts(t, "testdata/script", strings.Join(urls, ","), "5m")
	_, urls = real(t, 3, 0)
	runScripts(t, "testdata/redis", strings.Join(urls, ","), "30s")
}

func long(t *testing.T) {
	t.Helper()
	rt.Long(t, "takes minutes")
}

func runScripts(t *testing.T, dir, members, maxTTL string) {
	testscript.Run(t, testscript.Params{
		Dir: dir,
		Setup: func(env *testscript.Env) error {
			env.Setenv("REDLOCK_MEMBERS", members)
			env.Setenv("REDLOCK_MEMBER_TIMEOUT", patience.String())
			env.Setenv("REDLOCK_DIAL_TIMEOUT", patience.String())
			env.Setenv("REDLOCK_NO_QUORUM_AFTER", patience.String())
			env.Setenv("REDLOCK_MAX_TTL", maxTTL)
			env.Setenv("XDG_STATE_HOME", env.WorkDir+"/state")
			port, held, err := redistest.TakePorts(6)
			if err != nil {
				return err
			}
			env.Defer(func() { _ = held.Close() })
			env.Setenv("PORT", strconv.Itoa(port))
			for i := range 3 {
				env.Setenv("PORT"+strconv.Itoa(2+i), strconv.Itoa(port+3+i))
			}
			// What a script has started and left, because it failed.
			env.Defer(func() { endServers(env.WorkDir) })
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"code":       scriptCode,
			"eventually": scriptEventually,
			"stopped":    scriptStopped,
		},
		Condition: func(cond string) (bool, error) {
			switch is := inPath(t); cond {
			case "tested":
				return is.Tested(), nil
			case "redis6":
				return is.Brand == "Redis" && strings.HasPrefix(is.Version, "6."), nil
			}
			return false, fmt.Errorf("no condition is called %q", cond)
		},
		RequireExplicitExec: true,
	})
}

func endServers(dir string) {
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasPrefix(d.Name(), "pid") {
			return nil
		}
		raw, _ := os.ReadFile(path)
		pid, err := strconv.Atoi(strings.TrimSpace(string(raw)))
		cmdline, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err == nil && strings.Contains(string(cmdline), "redis-server") {
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
		}
		return nil
	})
}

// code N COMMAND...: the command ends with the exit code N.
func scriptCode(ts *testscript.TestScript, neg bool, args []string) {
	want, err := strconv.Atoi(args[0])
	if neg || err != nil || len(args) < 2 {
		ts.Fatalf("usage: code N COMMAND...")
	}
	got := 0
	if err := ts.Exec(args[1], args[2:]...); err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = exit.ExitCode()
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d\n%s", got, want, ts.ReadFile("stderr"))
	}
}

// [!] eventually COMMAND...: the command succeeds (fails) in the end, tried again and again.
func scriptEventually(ts *testscript.TestScript, neg bool, args []string) {
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		if err = ts.Exec(args[0], args[1:]...); (err == nil) != neg {
			return
		}
	}
	ts.Fatalf("never: %v", err)
}

// stopped FILE: the heartbeat that writes FILE writes no more.
func scriptStopped(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: stopped FILE")
	}
	path := ts.MkAbs(args[0])
	before := lastBeat(path)
	if before.IsZero() {
		ts.Fatalf("%s has no heartbeat", filepath.Base(path))
	}
	// On a busy machine a living one may be silent for a while, too.
	for since, end := time.Now(), time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now := lastBeat(path); !now.Equal(before) {
			before, since = now, time.Now()
		}
		if time.Since(since) > time.Second {
			return
		}
	}
	ts.Fatalf("%s: still alive", filepath.Base(path))
}
