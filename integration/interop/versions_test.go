package interop

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// earlier is the version before, which TestInteropClientsOfTwoVersions contends with. REDQUORUM_EARLIER names another.
// It is the last one whose counters begin with a base, and whose waiters for one name are drawn together.
const earlier = "d371cccc885c167b8f197de6b8973eb03754faae"

// Processes of this version and of the one before want the same locks at the same members. They wake each other up, and
// one in eight leases is handed over to a process of the other version. Locks of all kinds exclude each other under one name.
func TestInteropClientsOfTwoVersions(t *testing.T) {
	programs := [2]string{workerOf(t, cmp.Or(os.Getenv("REDQUORUM_EARLIER"), earlier)), workerOf(t, "")}
	for _, members := range []int{1, 3} {
		for _, kinds := range [][]string{{"mutex"}, {"mutex", "fair", "write", "read", "leader"}, {"permit"}, {"latch"}} {
			t.Run(fmt.Sprint(members, " members, ", kinds), func(t *testing.T) { shareLocks(t, programs, members, kinds) })
		}
	}
}

var versions = [2]string{"earlier", "this"}

func shareLocks(t *testing.T, programs [2]string, members int, kinds []string) {
	cluster := rt.Real(t, members)
	all := contest(t, 5*time.Second, map[string]any{"Kinds": kinds}, func(i int) *exec.Cmd {
		return worker(t, programs[i%2], i, "shared:{versions}", cluster.URLs())
	})
	if kinds[0] == "latch" {
		openAtOnce(t, all)
		return
	}
	exclude(t, all)
	var acquired, adopted [4]int
	for _, b := range all {
		if b.Asked == 0 {
			adopted[b.by]++
		} else {
			acquired[b.by]++
		}
	}
	t.Logf("acquired %v, adopted %v (even processes are of the earlier version)", acquired, adopted)
	for i := range acquired {
		require.GreaterOrEqual(t, acquired[i], 20, "%s process %d", versions[i%2], i)
		require.GreaterOrEqual(t, adopted[i], 2, "%s process %d", versions[i%2], i)
	}
	quick(t, handOffs(all, versions), versions, 10)
	nothingLeft(t, cluster)
}

// openAtOnce requires that no latch opens before all have begun to arrive, and that the last arrival wakes the others.
func openAtOnce(t *testing.T, waits []belief) {
	t.Helper()
	rounds := map[string][]belief{}
	for _, w := range waits {
		rounds[w.Lease] = append(rounds[w.Lease], w)
	}
	gaps := map[string][]time.Duration{}
	for n, all := range rounds {
		require.Len(t, all, 4, "of round %s", n)
		last := slices.MaxFunc(all, func(x, y belief) int { return cmp.Compare(x.Asked, y.Asked) })
		for _, w := range all {
			require.GreaterOrEqual(t, w.From, last.Asked, "round %s opened early for process %d", n, w.by)
			if w.by != last.by {
				way := last.way(w, versions)
				gaps[way] = append(gaps[way], max(0, time.Duration(w.From-last.To)))
			}
		}
	}
	quick(t, gaps, versions, 10)
}

// workerOf builds the worker with the library as it was at a commit, or as it is now.
func workerOf(t *testing.T, commit string) string {
	t.Helper()
	ctx := t.Context()
	program := filepath.Join(t.TempDir(), "worker")
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./worker")
	if commit != "" {
		tree := t.TempDir()
		if err := exec.CommandContext(ctx, "git", "cat-file", "-e", commit+"^{commit}").Run(); err != nil {
			out, err := exec.CommandContext(ctx, "git", "fetch", "--depth=1", "origin", commit).CombinedOutput()
			require.NoError(t, err, "this copy of the repository lacks the version before, %s, and cannot fetch it: git fetch --unshallow brings it\n%s", commit, out)
		}
		tar := filepath.Join(tree, "tree.tar")
		top := rt.Must(exec.CommandContext(ctx, "git", "rev-parse", "--show-toplevel").Output())(t)
		for _, cmd := range []*exec.Cmd{
			exec.CommandContext(ctx, "git", "-C", strings.TrimSpace(string(top)), "archive", "-o", tar, commit),
			exec.CommandContext(ctx, "tar", "-xf", tar, "-C", tree),
		} {
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
		require.NoError(t, os.MkdirAll(filepath.Join(tree, "cmd", "worker"), 0o700))
		sources := map[string]string{"main.go": "main.go", "open.go": "open.go"}
		if config := rt.Must(os.ReadFile(filepath.Join(tree, "redlock", "config.go")))(t); !bytes.Contains(config, []byte("func LAN(")) {
			sources["open.go"] = "open_earlier.txt"
		}
		for to, from := range sources {
			source := rt.Must(os.ReadFile(filepath.Join("worker", from)))(t)
			require.NoError(t, os.WriteFile(filepath.Join(tree, "cmd", "worker", to), source, 0o600))
		}
		build = exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/worker")
		build.Dir = tree
		build.Env = append(os.Environ(), "GOWORK=off")
	}
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}
