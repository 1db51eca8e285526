package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func command(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, &out, &err)
	return code, out.String(), err.String()
}

// jsonKeys are a promise to scripts: exactly these.
var jsonKeys = []string{
	"acquisitions", "beside_permit", "beside_writer", "handoff_p50_us", "handoff_p99_us", "members", "overlaps", "permit_grants", "permits",
	"permits_at_once", "read_tokens_between", "readers_at_once", "reads", "rewrites", "slot_tokens_rise", "stale_writes_refused",
	"tokens_monotonic",
}

func checkJSON(t *testing.T, stdout string, of float64) {
	t.Helper()
	require.False(t, strings.Count(stdout, "\n") != 1 || !strings.HasSuffix(stdout, "\n"), "not one line: %q", stdout)
	var fields map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &fields))
	var keys []string
	for k := range fields {
		keys = append(keys, k)
	}
	if slices.Sort(keys); !slices.Equal(keys, jsonKeys) {
		t.Errorf("keys %v, want %v", keys, jsonKeys)
	}
	assert.False(t, fields["overlaps"] != 0.0 || fields["tokens_monotonic"] != true || fields["members"] != of, "got %s", stdout)
	assert.False(t, fields["beside_writer"] != 0.0 || fields["read_tokens_between"] != true || fields["beside_permit"] != 0.0 || fields["slot_tokens_rise"] != true, "got %s", stdout)
	p50, _ := fields["handoff_p50_us"].(float64)
	p99, _ := fields["handoff_p99_us"].(float64)
	assert.False(t, p50 <= 0 || p99 < p50, "hand-off p50 %v, p99 %v", p50, p99)
}

// demonstrate runs a demo until it has shown all that there is, each time for longer: a busy machine does little in a second.
// Nothing that it has shown may be wrong.
func demonstrate(t *testing.T, members float64, args ...string) (stdout, stderr string) {
	t.Helper()
	for _, duration := range []string{"1s", "10s", "1m", "10m"} {
		code, stdout, stderr := command(t, append([]string{"demo", "--json", "--duration", duration}, args...)...)
		if code == 0 {
			checkJSON(t, stdout, members)
			return stdout, stderr
		}
		early := code == exitUnavailable && stdout == "" // nobody has answered in time
		require.True(t, early || code == exitFailed && strings.Contains(stdout, `"overlaps":0,`), "exit code %d\n%s%s", code, stdout, stderr)
		t.Logf("after %s:\n%s%s", duration, stdout, stderr)
	}
	t.Fatal("never shown")
	return "", ""
}

func TestDemoOnEmbeddedMembers(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.html")
	stdout, stderr := demonstrate(t, 5, "--html", file)
	for _, want := range []string{"member 3 is killed", "comes back, and has forgotten", "stalls while it holds", "the store refuses", file} {
		assert.Contains(t, stderr, want, "progress lacks %q:\n%s", want, stderr)
	}
	var told demo.Result
	require.NoError(t, json.Unmarshal([]byte(stdout), &told))
	page := strings.ReplaceAll(string(rt.Must(os.ReadFile(file))(t)), ",", "")
	figures := fmt.Sprintf("%d leases of the lock %d of the page %d of the room no two at once", told.Acquisitions, told.Reads+told.Rewrites, told.PermitGrants)
	for _, want := range []string{figures, "member 3 was dead from", "1 stale write refused"} {
		assert.Contains(t, page, want)
	}
}

func TestLongDemoOnRedisProcesses(t *testing.T) {
	long(t)
	if err := redistest.Available(); err != nil {
		t.Skip(err) // REDIS MISSING: ...
	}
	demonstrate(t, 5, "--redis")
}

// Members that are given are not killed, and keep nothing of the run but the token counters.
func TestDemoLeavesNothingAtGivenMembers(t *testing.T) {
	cluster, urls := served(t, 3)
	_, stderr := demonstrate(t, 3, "--fresh", "--members", strings.Join(urls, ","))
	assert.False(t, !strings.Contains(stderr, "none of them is killed") || strings.Contains(stderr, "is killed:"),
		"not said that nobody is killed:\n%s", stderr)
	if left, err := cluster.Leftovers(t.Context(), "redquorum:tokens", "redquorum:boot"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Members of every kind that the command takes, in one list: the commas in a URL do not end it.
func TestLongDemoOnMembersOfEveryKind(t *testing.T) {
	long(t)
	if err := redistest.Available(); err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s := rt.Must(redistest.StartSharded(ctx, redistest.ShardedConfig{Masters: 2, NodeTimeout: 20 * time.Second}))(t)
	t.Cleanup(func() { _ = s.Close() })
	group := rt.Must(redistest.StartGroup(ctx, redistest.GroupConfig{Sentinels: 2, DownAfter: 20 * time.Second}))(t)
	t.Cleanup(func() { _ = group.Close() })
	plain := redistest.NewEmbedded()
	t.Cleanup(func() { _ = plain.Close() })
	require.NoError(t, plain.ServeTCP("127.0.0.1:0"))
	members := "redis-cluster://" + strings.Join(s.Addrs(), ",") + ",redis-sentinel://" + strings.Join(group.Addrs(), ",") + "/mymaster,redis://" + plain.Addr()
	demonstrate(t, 3, "--fresh", "--members", members)
	for _, r := range append(s.Servers, group.Servers[0]) {
		keys, err := r.Do(ctx, "KEYS", "*")
		all, _ := keys.([]any)
		for _, k := range all {
			// A quarantine ends by itself. There is one where the demo met a busy server too late for its first look.
			name, _ := k.(string)
			assert.False(t, !strings.HasPrefix(name, "redquorum:tokens") && !strings.HasPrefix(name, "redquorum:boot") && !strings.HasPrefix(name, "redquorum:quarantine"), "left behind at %s: %v", r.Addr(), k)
		}
		assert.False(t, err != nil || len(all) == 0, "%s took no part: %v, %v", r.Addr(), all, err)
	}
}

func TestDemoInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout rt.Text
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"demo", "--duration", "1h"}, &stdout, io.Discard) }()
	eventually(t, "it has begun", func() bool { return strings.Contains(stdout.String(), "members") })
	cancel()
	assert.Equal(t, exitInterrupted, <-ended)
	assert.Contains(t, stdout.String(), "overlapping holders", "no summary:\n%s", stdout.String())
}

// A run in which something did not hold must not end with 0, whatever else went well.
func TestExitCodeFollowsTheResult(t *testing.T) {
	t.Parallel()
	good := demo.Result{
		Acquisitions: 100, Monotonic: true, StaleRefused: 1, Members: 5, Reads: 50, Rewrites: 5, TokensBetween: true,
		Permits: 2, PermitGrants: 40, PermitsAtOnce: 2, SlotTokens: true,
	}
	for name, tc := range map[string]struct {
		change func(r *demo.Result)
		err    error
		code   int
		says   string
	}{
		"all held":               {func(*demo.Result) {}, nil, 0, ""},
		"overlap":                {func(r *demo.Result) { r.Overlaps = 1 }, nil, exitFailed, "believed"},
		"falling token":          {func(r *demo.Result) { r.Monotonic = false }, nil, exitFailed, "tokens"},
		"beside a writer":        {func(r *demo.Result) { r.BesideWriter = 1 }, nil, exitFailed, "page"},
		"read token":             {func(r *demo.Result) { r.TokensBetween = false }, nil, exitFailed, "readers"},
		"no reads":               {func(r *demo.Result) { r.Reads = 0 }, nil, exitFailed, "nobody read"},
		"no rewrites":            {func(r *demo.Result) { r.Rewrites = 0 }, nil, exitFailed, "nobody rewrote"},
		"no desks":               {func(r *demo.Result) { r.PermitGrants = 0 }, nil, exitFailed, "desk"},
		"two at a desk":          {func(r *demo.Result) { r.BesidePermit = 1 }, nil, exitFailed, "still believed to sit"},
		"desk's token":           {func(r *demo.Result) { r.SlotTokens = false }, nil, exitFailed, "tokens of a desk"},
		"lost update":            {func(r *demo.Result) { r.LostUpdates = 2 }, nil, exitFailed, "missing"},
		"no acquisition":         {func(r *demo.Result) { r.Acquisitions = 0 }, nil, exitFailed, "nobody"},
		"no stale write":         {func(r *demo.Result) { r.StaleRefused = 0 }, nil, exitFailed, "stale"},
		"member gone":            {func(r *demo.Result) { r.RestartErr = io.EOF }, nil, exitFailed, "restarted"},
		"interrupted":            {func(r *demo.Result) { r.Interrupted, r.StaleRefused = true, 0 }, nil, exitInterrupted, "interrupted"},
		"interrupted, but wrong": {func(r *demo.Result) { r.Interrupted, r.Overlaps = true, 1 }, nil, exitFailed, "believed"},
		"not begun":              {func(*demo.Result) {}, errors.New("no members"), exitUnavailable, "no members"},
	} {
		for _, flags := range [][]string{{"demo"}, {"demo", "--json"}} {
			r := good
			tc.change(&r)
			root := newRoot(func(context.Context, demo.Options) (demo.Result, error) { return r, tc.err })
			var stdout, stderr bytes.Buffer
			code := execute(t.Context(), root, flags, &stdout, &stderr)
			assert.False(t, code != tc.code || !strings.Contains(stderr.String(), tc.says),
				"%s, %v: code %d, want %d; stderr %q", name, flags, code, tc.code, stderr.String())
			assert.False(t, tc.err == nil && stdout.Len() == 0, "%s, %v: the result was not printed", name, flags)
		}
	}
}

// programs are what scripts find by these names: this program, and helpers.
var programs = map[string]func(){"redlock": main}

func TestMain(m *testing.M) { testscript.Main(leakless{m}, programs) }

// leakless fails when something of a run goes on after it: a client, a member, a display.
type leakless struct{ m *testing.M }

func (l leakless) Run() int {
	// Scripts wait for other processes most of the time: more of them at once than there are processors.
	// A -parallel on the command line comes after this, and wins.
	if err := flag.Set("test.parallel", "12"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	// Whoever starts the tests may ignore some signals, as nohup does, or a script for what it starts with &. What is tested
	// starts without that: a signal that is caught here is not ignored there.
	for _, s := range []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT} {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	code := l.m.Run()
	if fast != "" {
		_ = os.RemoveAll(fast)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return code
}

var (
	fast     string // the folder of the program without the race detector
	building sync.Once
)

// unraced has tests run a program without the race detector, if they have it themselves: scripts start the program 500
// times, which takes a quarter of the processor then. TestLongScripts runs them with it.
func unraced(t *testing.T) {
	t.Helper()
	info, ok := debug.ReadBuildInfo()
	if !ok || !slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) || os.Getenv("REDQUORUM_LONG") != "" {
		return
	}
	building.Do(func() {
		var err error
		if fast, err = os.MkdirTemp("", "redlock"); err != nil {
			return
		}
		if out, err := exec.Command("go", "build", "-o", filepath.Join(fast, "redlock"), ".").CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		_ = os.Setenv("PATH", fast+string(filepath.ListSeparator)+os.Getenv("PATH"))
	})
}

// Three cells of the table "When only short-lived programs come" in docs/restarts.md, by real processes: redlock run -n from
// cron, and nobody else. redlock/redlocktest plays all cells in fake time.
func TestLongJobsFromCronAloneHealADeployment(t *testing.T) {
	long(t)
	const maxTTL = 3 * time.Second
	for name, cell := range map[string]struct {
		data    bool
		members []int
	}{
		"a majority, with data": {true, []int{0, 2}},
		"all, with data":        {true, []int{0, 1, 2}},
		"all, without data":     {false, []int{0, 1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster, urls := real(t, 3, maxTTL)
			cluster.Kill(cell.members...)
			require.NoError(t, cluster.Restart(cell.data, cell.members...))
			restarted := time.Now()
			for n := 0; ; n++ {
				cmd := exec.Command("redlock", "run", "-n", "nightly", "--ttl", "2s", "--", "true")
				cmd.Env = append(os.Environ(), "REDLOCK_MAX_TTL="+maxTTL.String(), "REDLOCK_MEMBERS="+strings.Join(urls, ","))
				output, err := cmd.CombinedOutput()
				if err == nil {
					require.GreaterOrEqual(t, time.Since(restarted), maxTTL, "until then somebody may still hold it\n%s", output)
					require.Positive(t, n)
					return
				}
				require.Equal(t, exitUnavailable, cmd.ProcessState.ExitCode(), "%s", output)
				require.Less(t, time.Since(restarted), 20*maxTTL, "no job gets the lock\n%s", output)
				time.Sleep(500 * time.Millisecond)
			}
		})
	}
}
