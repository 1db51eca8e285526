package interop

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
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
	const key, span = "shared:{versions}", 5 * time.Second
	cluster := rt.Real(t, members)
	urls := cluster.URLs()
	heard := make(chan heardOf, 1024) // more than is said behind the last belief
	var all []*contender
	for i := range 4 {
		all = append(all, start(t, i, heard, programs[i%2], key, strings.Join(urls, ",")))
	}
	limit := time.After(span + 2*time.Minute)
	listen := func() heardOf {
		select {
		case h := <-heard:
			require.Empty(t, h.said.Error, "%s process %d", versions[h.from%2], h.from)
			return h
		case <-limit:
			t.Fatal("the processes do not end")
		}
		panic("not reached")
	}
	for range all {
		require.True(t, listen().said.Ready)
	}
	for _, p := range all {
		p.order(t, map[string]any{"For": span, "Kinds": kinds})
	}

	heardAll := judge.Stream{Keep: time.Minute}
	var acquired, adopted [4]int
	var beliefs []heardOf
	var wrong []string
	latch := kinds[0] == "latch"
	for contending, underway := len(all), 0; contending > 0 || underway > 0; {
		h := listen()
		s := h.said
		if s.Done {
			contending--
			continue
		}
		if beliefs = append(beliefs, h); latch {
			continue
		}
		overlaps, regressions := heardAll.End(s.Lease, judge.Hold{
			Key: fmt.Sprint(key, "#", s.Slot), Owner: s.Lease, Who: fmt.Sprintf("%s process %d", versions[h.from%2], h.from),
			Token: s.Token, From: s.From, To: s.To, Shared: s.Shared,
		})
		wrong = append(append(wrong, overlaps...), regressions...)
		if s.Asked == 0 {
			adopted[h.from]++
			underway--
		} else {
			acquired[h.from]++
		}
		if s.Secret != "" {
			to := (h.from + 1 + 2*(underway%2)) % len(all) // of the other version
			all[to].order(t, map[string]any{"Lease": s.Lease, "Give": s.Secret})
			underway++
		}
	}
	for _, p := range all {
		p.end(t)
	}
	for close(heard); ; {
		h, more := <-heard
		if !more {
			break
		}
		require.Fail(t, "said behind the end", "%s process %d: %s", versions[h.from%2], h.from, h.said.Error)
	}
	require.Empty(t, wrong)
	if latch {
		openAtOnce(t, beliefs)
		return
	}
	t.Logf("acquired %v, adopted %v (even processes are of the earlier version)", acquired, adopted)
	for i := range all {
		require.GreaterOrEqual(t, acquired[i], 20, "%s process %d", versions[i%2], i)
		require.GreaterOrEqual(t, adopted[i], 2, "%s process %d", versions[i%2], i)
	}
	awaken(t, beliefs)

	var left []string
	require.Eventually(t, func() bool {
		var err error
		left, err = cluster.Leftovers(context.Background(), "redquorum:tokens", "redquorum:boot")
		return err == nil && len(left) == 0
	}, time.Minute, 100*time.Millisecond, "left behind: %v", &left)
}

// awaken requires that who waits is woken by a release of the other version, and does not find out by its
// heartbeat.
func awaken(t *testing.T, beliefs []heardOf) {
	t.Helper()
	slices.SortFunc(beliefs, func(x, y heardOf) int { return cmp.Compare(x.said.From, y.said.From) })
	gaps, lasts := map[string][]time.Duration{}, map[int]heardOf{} // of each slot
	for _, b := range beliefs {
		last, had := lasts[b.said.Slot]
		lasts[b.said.Slot] = b
		if !had || b.said.Asked == 0 || b.said.Asked >= last.said.To || last.said.Secret != "" || last.said.Shared {
			continue
		}
		way := versions[last.from%2] + " to " + versions[b.from%2]
		gaps[way] = append(gaps[way], time.Duration(b.said.From-last.said.To))
	}
	quick(t, gaps)
}

// openAtOnce requires that no latch opens before all have begun to arrive, and that the last arrival wakes the others.
func openAtOnce(t *testing.T, waits []heardOf) {
	t.Helper()
	rounds := map[string][]heardOf{}
	for _, w := range waits {
		rounds[w.said.Lease] = append(rounds[w.said.Lease], w)
	}
	gaps := map[string][]time.Duration{}
	for n, all := range rounds {
		require.Len(t, all, 4, "of round %s", n)
		last := slices.MaxFunc(all, func(x, y heardOf) int { return cmp.Compare(x.said.Asked, y.said.Asked) })
		for _, w := range all {
			require.GreaterOrEqual(t, w.said.From, last.said.Asked, "round %s opened early for process %d", n, w.from)
			if w.from != last.from {
				way := versions[last.from%2] + " to " + versions[w.from%2]
				gaps[way] = append(gaps[way], max(0, time.Duration(w.said.From-last.said.To)))
			}
		}
	}
	quick(t, gaps)
}

// quick requires that there were hand-offs each way, and that half of them came by a push.
func quick(t *testing.T, gaps map[string][]time.Duration) {
	t.Helper()
	for _, way := range []string{"earlier to this", "this to earlier", "earlier to earlier", "this to this"} {
		g := gaps[way]
		slices.Sort(g)
		require.GreaterOrEqual(t, len(g), 10, "hand-offs from %s", way)
		t.Logf("hand-off %-18s %5d, p50 %v, p99 %v", way+":", len(g), at(g, 0.50), at(g, 0.99))
		require.Less(t, at(g, 0.50), time.Second, "hand-offs from %s", way)
	}
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
		source := rt.Must(os.ReadFile("worker/main.go"))(t)
		require.NoError(t, os.MkdirAll(filepath.Join(tree, "cmd", "worker"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(tree, "cmd", "worker", "main.go"), source, 0o600))
		build = exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/worker")
		build.Dir = tree
		build.Env = append(os.Environ(), "GOWORK=off")
	}
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// line is what a worker says: Said there.
type line struct {
	Ready, Done          bool
	Error, Lease, Secret string
	Slot                 int
	Shared               bool
	Token                uint64
	Asked, From, To      int64
}

// heardOf is what a process said.
type heardOf struct {
	from int
	said line
}

// contender is a process of either version.
type contender struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when all that it said was heard, or the test is over
}

func start(t *testing.T, i int, to chan<- heardOf, program string, args ...string) *contender {
	t.Helper()
	p := &contender{cmd: exec.CommandContext(t.Context(), program, append([]string{fmt.Sprint("p", i)}, args...)...), done: make(chan struct{})}
	p.cmd.Stderr = os.Stderr
	p.in = rt.Must(p.cmd.StdinPipe())(t)
	out := rt.Must(p.cmd.StdoutPipe())(t)
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		for in := json.NewDecoder(bufio.NewReader(out)); ; {
			var s line
			if err := in.Decode(&s); err != nil {
				return
			}
			select {
			case to <- heardOf{i, s}:
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

// end has the process close its client, which must succeed.
func (p *contender) end(t *testing.T) {
	t.Helper()
	require.NoError(t, p.in.Close())
	<-p.done
	require.NoError(t, p.cmd.Wait())
}
