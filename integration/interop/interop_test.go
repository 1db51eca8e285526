package interop

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// TestInteropOneServer: two processes of Redisson and two of ours want one lock.
func TestInteropOneServer(t *testing.T) {
	for _, kind := range []string{"lock", "fenced"} {
		t.Run(kind, func(t *testing.T) { contend(t, kind, rt.Real(t, 1), 20) })
	}
}

// TestInteropThreeServers: Redisson's RedLock, which takes one server after the other.
func TestInteropThreeServers(t *testing.T) { contend(t, "red", rt.Real(t, 3), 10) }

// contend runs two processes of each side, judges what they report, and prints what it was like. Each
// must have had the lock at least so often: a side that starves, or a dead system, does not pass.
func contend(t *testing.T, kind string, cluster *redistest.Cluster, least int) {
	const key, span = "shared:{invoice}:42", 10 * time.Second
	sides := [2]string{"Java", "ours"}
	lib, ours, urls := javaClient(t), workerOf(t, ""), cluster.URLs()
	order := map[string]any{"Kinds": []string{"mutex"}, "Keep": true}
	all := contest(t, span, order, func(i int) *exec.Cmd {
		if i%2 == 1 {
			return worker(t, ours, i, key, urls, "interop")
		}
		return exec.CommandContext(t.Context(), "java", append([]string{"-Xmx256m", "-cp", lib, "contend.Contend", kind, fmt.Sprint("p", i), key,
			strconv.FormatInt(span.Milliseconds(), 10)}, urls...)...)
	})
	var granted [4]int
	for _, b := range all {
		granted[b.by]++
	}
	t.Logf("%d grants in %v, Java and ours in turn: %v", len(all), span, granted)
	for i, n := range granted {
		require.GreaterOrEqual(t, n, least, "grants of process %d", i)
	}
	if kind != "fenced" { // theirs have no tokens: ours are judged by themselves, and all of them as numbered in order
		exclude(t, slices.DeleteFunc(slices.Clone(all), func(b belief) bool { return b.by%2 == 0 }))
		for i := range all {
			all[i].Token = uint64(i + 1)
		}
	}
	exclude(t, all)
	quick(t, handOffs(all, sides), sides, 0)
	nothingLeft(t, cluster, "redisson_lock_token:*") // Redisson's latches live for some 20 s, unless their deletion arrives
}

// javaClient builds the program in java/ and returns its class path. It installs nothing; Maven fetches
// what pom.xml names into its own repository.
func javaClient(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is not in PATH; Java 17 and Maven are needed (Debian: apt-get install openjdk-17-jdk-headless maven)", tool)
		}
	}
	return rt.Must(build())(t)
}

var build = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	target, err := filepath.Abs("java/target")
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-B", "-q", "-f", "java/pom.xml", "compile",
		"dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory="+filepath.Join(target, "lib"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return filepath.Join(target, "classes") + string(filepath.ListSeparator) + filepath.Join(target, "lib", "*"), nil
})
