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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

// line is what a process says: Said of the worker.
type line struct {
	Ready, Done          bool
	Error, Lease, Secret string
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
