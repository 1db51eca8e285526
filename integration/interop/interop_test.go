package interop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
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

// line is what a process says: Said of the worker.
type line struct {
	Ready, Done          bool
	Error, Lease, Secret string
	Owner                string
	Slot                 int
	Shared               bool
	Token                uint64
	Asked, From, To      int64
}

// belief is what one of four processes said: the even ones are of one side, the odd ones of the other.
type belief struct {
	by int
	line
}

func (b belief) way(next belief, sides [2]string) string {
	return sides[b.by%2] + " to " + sides[next.by%2]
}

// contender is a process. It begins at its first order, and ends with its standard input.
type contender struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when all that it said was heard, or the test is over
}

func start(t *testing.T, i int, to chan<- belief, cmd *exec.Cmd) *contender {
	t.Helper()
	p := &contender{cmd: cmd, done: make(chan struct{})}
	p.cmd.Stderr = os.Stderr
	p.in = rt.Must(p.cmd.StdinPipe())(t)
	out := rt.Must(p.cmd.StdoutPipe())(t)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	go func() {
		defer close(p.done)
		for in := json.NewDecoder(bufio.NewReader(out)); ; {
			var s line
			if err := in.Decode(&s); err != nil {
				return
			}
			select {
			case to <- belief{i, s}:
			case <-t.Context().Done():
				return
			}
		}
	}()
	return p
}

func (p *contender) order(t *testing.T, order map[string]any) {
	t.Helper()
	require.NoError(t, json.NewEncoder(p.in).Encode(order))
}

// contest has four processes contend for some kinds of locks, and returns what they believed, in the order of its beginnings. A
// lease that is handed over goes to a process of the other side.
func contest(t *testing.T, span time.Duration, order map[string]any, program func(i int) *exec.Cmd) (all []belief) {
	t.Helper()
	heard := make(chan belief, 1024) // more than is said behind the last belief
	var processes []*contender
	for i := range 4 {
		processes = append(processes, start(t, i, heard, program(i)))
	}
	limit := time.After(span + 4*time.Minute)
	listen := func() belief {
		select {
		case b := <-heard:
			require.Empty(t, b.Error, "process %d", b.by)
			return b
		case <-limit:
			t.Fatal("the processes do not end")
		}
		panic("not reached")
	}
	for range processes {
		require.True(t, listen().Ready)
	}
	order["For"] = span
	for _, p := range processes {
		p.order(t, order)
	}
	for contending, underway := len(processes), 0; contending > 0 || underway > 0; {
		b := listen()
		if b.Done {
			contending--
			continue
		}
		if all = append(all, b); b.Asked == 0 {
			underway--
		}
		if b.Secret != "" {
			processes[(b.by+1+2*(underway%2))%len(processes)].order(t, map[string]any{"Lease": b.Lease, "Give": b.Secret})
			underway++
		}
	}
	for i, p := range processes { // each closes its client, which must succeed
		require.NoError(t, p.in.Close())
		<-p.done
		require.NoError(t, p.cmd.Wait(), "process %d", i)
	}
	require.Empty(t, heard, "said behind the end")
	slices.SortFunc(all, func(x, y belief) int { return cmp.Compare(x.From, y.From) })
	return all
}

// exclude requires that no two believed at once, and that tokens rose, each slot by itself.
func exclude(t *testing.T, all []belief) {
	t.Helper()
	var holds []judge.Hold
	for _, b := range all {
		holds = append(holds, judge.Hold{
			Client: b.by, Key: fmt.Sprint("k#", b.Slot), Owner: b.Lease, Who: fmt.Sprint("process ", b.by),
			Token: b.Token, From: b.From, To: b.To, Shared: b.Shared, Asked: b.Asked,
		})
	}
	v := judge.Check(holds)
	if !v.Clean() {
		t.Log(judge.Leave(judge.Timeline(t.Name(), holds, v)))
	}
	require.True(t, v.Clean(), "%s", v)
}

// handOffs is how long it took from each release to the lock that was waited for, by direction.
func handOffs(all []belief, sides [2]string) map[string][]time.Duration {
	gaps, lasts := map[string][]time.Duration{}, map[int]belief{} // of each slot
	for _, b := range all {
		last, had := lasts[b.Slot]
		lasts[b.Slot] = b
		if had && b.Asked != 0 && b.Asked < last.To && last.Secret == "" && !last.Shared {
			way := last.way(b, sides)
			gaps[way] = append(gaps[way], time.Duration(b.From-last.To))
		}
	}
	return gaps
}

// quick requires that there were so many hand-offs each way, and that half of them were no heartbeat's.
func quick(t *testing.T, gaps map[string][]time.Duration, sides [2]string, least int) {
	t.Helper()
	at := func(g []time.Duration, q float64) time.Duration {
		return g[int(q*float64(len(g)-1))].Round(time.Microsecond)
	}
	for i := range 4 {
		way := sides[i/2] + " to " + sides[(i+i/2+1)%2]
		g := gaps[way]
		slices.Sort(g)
		require.GreaterOrEqual(t, len(g), least, "hand-offs from %s", way)
		if len(g) == 0 {
			continue
		}
		t.Logf("hand-off %-18s %5d, p50 %v, p99 %v", way+":", len(g), at(g, 0.50), at(g, 0.99))
		require.Less(t, at(g, 0.50), time.Second, "hand-offs from %s", way)
	}
}

// nothingLeft waits until members have no more than what lasts, and some keys besides.
func nothingLeft(t *testing.T, cluster *redistest.Cluster, allowed ...string) {
	t.Helper()
	var left []string
	require.Eventually(t, func() bool {
		var err error
		left, err = cluster.Leftovers(context.Background(), append(allowed, "redquorum:tokens", "redquorum:boot")...)
		return err == nil && len(left) == 0
	}, time.Minute, 100*time.Millisecond, "left behind: %v", &left)
}

func worker(t *testing.T, program string, i int, key string, urls []string, more ...string) *exec.Cmd {
	return exec.CommandContext(t.Context(), program, append([]string{fmt.Sprint("p", i), key, strings.Join(urls, ",")}, more...)...)
}

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
		t.Run(fmt.Sprint(members, " members, callers pass on"), func(t *testing.T) { passOn(t, programs, members, 100*time.Millisecond) })
		t.Run(fmt.Sprint(members, " members, a client keeps"), func(t *testing.T) { passOn(t, programs, members, 4*time.Second) })
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

// passOn has a process of this version contend that has eight callers. They pass on what they have, but not for long
// while another process waits. If the others pause for long, it keeps what its callers have unlocked, too.
func passOn(t *testing.T, programs [2]string, members int, pause time.Duration) {
	cluster, rare := rt.Real(t, members), pause > time.Second
	all := contest(t, max(5*time.Second, 3*pause), map[string]any{"Kinds": []string{"mutex"}, "Keep": true, "Crowd": "p1", "Pause": pause}, func(i int) *exec.Cmd {
		return worker(t, programs[i%2], i, "shared:{passing}", cluster.URLs())
	})
	exclude(t, all)
	passed, kept, last := 0, 0, belief{}
	var acquired [4]int
	waits := [2][]time.Duration{}
	for _, b := range all {
		if b.Owner != "" && b.Owner == last.Owner {
			passed++
			if b.Asked > last.To {
				kept++
			}
		}
		last = b
		acquired[b.by]++
		waits[b.by%2] = append(waits[b.by%2], time.Duration(b.From-b.Asked))
	}
	for i, all := range waits {
		slices.Sort(all)
		t.Logf("%s waits for p50 %v, p99 %v, %v at most", versions[i], all[len(all)/2], all[len(all)*99/100], all[len(all)-1])
	}
	t.Logf("acquired %v, passed on %d, kept %d (even processes are of the earlier version)", acquired, passed, kept)
	require.GreaterOrEqual(t, passed, 100)
	require.True(t, !rare || kept > 0, "nothing was kept")
	require.GreaterOrEqual(t, min(acquired[0], acquired[2]), map[bool]int{false: 20, true: 2}[rare])
	require.Less(t, waits[0][len(waits[0])/2], time.Second, "a third of Entry, where pushes are lost")
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
