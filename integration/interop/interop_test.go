package interop

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
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
	"github.com/redquorum/redquorum/redlock"
)

const (
	key   = "shared:{invoice}:42"
	run   = 10 * time.Second
	hold  = time.Millisecond
	pause = 2 * time.Millisecond // at most, between an unlock and the next lock
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
	lib := javaClient(t)
	urls := cluster.URLs()
	var all []*child
	for client := range 4 {
		if isOurs(client) {
			o := rt.Must(json.Marshal(orders{Client: client, URLs: urls}))(t)
			cmd := exec.Command(os.Args[0], "-test.run=^TestInteropChildProcess$", "-test.v=false")
			cmd.Env = append(os.Environ(), ordersEnv+"="+string(o))
			all = append(all, spawn(t, client, cmd))
			continue
		}
		args := []string{"-Xmx256m", "-cp", lib, "contend.Contend", kind, strconv.Itoa(client), key,
			strconv.FormatInt(run.Milliseconds(), 10), strconv.FormatInt(hold.Microseconds(), 10), strconv.FormatInt(pause.Microseconds(), 10)}
		all = append(all, spawn(t, client, exec.Command("java", append(args, urls...)...)))
	}
	for _, p := range all {
		require.True(t, p.next(2*time.Minute).Ready)
	}
	for _, p := range all {
		require.NoError(t, rt.Err(io.WriteString(p.in, "go\n")))
	}
	var tenures []judge.Hold
	for _, p := range all {
		r := p.next(run + 2*time.Minute)
		require.Empty(t, r.Errors)
		tenures = append(tenures, r.Tenures...)
	}
	for _, p := range all {
		p.ended(time.Minute)
	}
	slices.SortFunc(tenures, func(x, y judge.Hold) int { return cmp.Compare(x.From, y.From) })
	report(t, tenures)

	for i := range tenures {
		tenures[i].Key = key
	}
	if kind == "fenced" { // one sequence for both sides
		v := judge.Check(tenures)
		require.True(t, v.Clean(), "%s", v)
	} else { // theirs have none, so ours are judged by themselves, and all of them as numbered in order
		ours := slices.DeleteFunc(slices.Clone(tenures), func(x judge.Hold) bool { return !isOurs(x.Client) })
		v := judge.Check(ours)
		require.True(t, v.Clean(), "%s", v)
		for i := range tenures {
			tenures[i].Token = uint64(i + 1)
		}
		v = judge.Check(tenures)
		require.True(t, v.Clean(), "%s", v)
	}
	for client, n := range grants(tenures) {
		require.GreaterOrEqual(t, n, least, "grants of process %d", client)
	}

	// Redisson's latches live for some 20 s, unless their deletion arrives.
	var left []string
	require.Eventually(t, func() bool {
		var err error
		left, err = cluster.Leftovers(context.Background(), "redquorum:tokens", "redquorum:boot", "redisson_lock_token:*")
		return err == nil && len(left) == 0
	}, time.Minute, 100*time.Millisecond, "left behind: %v", &left)
}

func isOurs(client int) bool { return client >= 2 }

func side(client int) string {
	if isOurs(client) {
		return "ours"
	}
	return "Java"
}

func grants(tenures []judge.Hold) []int {
	n := make([]int, 4)
	for _, x := range tenures {
		n[x.Client]++
	}
	return n
}

// report prints grants by process, and by direction how long it took from the call of unlock to the
// return of the lock that was waited for.
func report(t *testing.T, tenures []judge.Hold) {
	n := grants(tenures)
	t.Logf("%d grants in %v: Java %d and %d, ours %d and %d", len(tenures), run, n[0], n[1], n[2], n[3])
	gaps := map[string][]time.Duration{}
	for i, x := range tenures[min(1, len(tenures)):] {
		if last := tenures[i]; x.Asked < last.To && x.Client != last.Client {
			way := side(last.Client) + " to " + side(x.Client)
			gaps[way] = append(gaps[way], time.Duration(x.From-last.To))
		}
	}
	for _, way := range []string{"Java to ours", "ours to Java", "ours to ours", "Java to Java"} {
		g := gaps[way]
		if len(g) == 0 {
			t.Logf("hand-off %s: none", way)
			continue
		}
		slices.Sort(g)
		t.Logf("hand-off %s: %5d, p50 %v, p99 %v", way, len(g), at(g, 0.50), at(g, 0.99))
	}
}

func at(sorted []time.Duration, q float64) time.Duration {
	return sorted[int(q*float64(len(sorted)-1))].Round(time.Microsecond)
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

// said is what a child says, one JSON object a line.
type said struct {
	Ready   bool         `json:"ready"`
	Tenures []judge.Hold `json:"tenures"`
	Errors  []string     `json:"errors"`
}

// child is a process that contends. It begins at a line on its standard input, and ends with it.
type child struct {
	t      testing.TB
	client int
	cmd    *exec.Cmd
	in     io.WriteCloser
	says   chan said
	noise  bytes.Buffer // what else it printed; read after done
	done   chan struct{}
	err    error // before done is closed
}

// spawn starts a child, which ends with the test at the latest.
func spawn(t testing.TB, client int, cmd *exec.Cmd) *child {
	t.Helper()
	p := &child{t: t, client: client, cmd: cmd, says: make(chan said, 2), done: make(chan struct{})}
	p.in = rt.Must(cmd.StdinPipe())(t)
	out := rt.Must(cmd.StdoutPipe())(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	require.NoError(t, cmd.Start())
	go func() { // ends with the process
		defer close(p.done)
		for lines := bufio.NewReader(out); ; {
			line, err := lines.ReadBytes('\n')
			var s said
			if bytes.HasPrefix(line, []byte("{")) && json.Unmarshal(line, &s) == nil {
				p.says <- s
			} else {
				p.noise.Write(line)
			}
			if err != nil {
				break
			}
		}
		p.err = cmd.Wait()
		p.noise.Write(stderr.Bytes())
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.done
	})
	return p
}

func (p *child) next(within time.Duration) said {
	p.t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case s := <-p.says:
		return s
	case <-limit.C:
		p.t.Fatalf("%s process %d says nothing", side(p.client), p.client)
	case <-p.done:
		select {
		case s := <-p.says:
			return s
		default:
			p.t.Fatalf("%s process %d: %v\n%s", side(p.client), p.client, p.err, p.noise.String())
		}
	}
	panic("not reached")
}

func (p *child) ended(within time.Duration) {
	p.t.Helper()
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case <-p.done:
		require.NoError(p.t, p.err, "%s", &p.noise)
	case <-limit.C:
		p.t.Fatalf("%s process %d does not end", side(p.client), p.client)
	}
}

const ordersEnv = "REDQUORUM_INTEROP_ORDERS"

// orders are what a child of ours is to do.
type orders struct {
	Client int
	URLs   []string
}

// patient waits for members longer than a busy machine is busy.
func patient(c *redlock.Config) { c.MemberTimeout, c.StallTimeout = 10*time.Second, 20*time.Second }

// TestInteropChildProcess is no test of its own: it is what our processes run.
func TestInteropChildProcess(t *testing.T) {
	text := os.Getenv(ordersEnv)
	if text == "" {
		return
	}
	var o orders
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	begin := make(chan struct{})
	go func() { // the end of the parent is the end of this process
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err == nil {
			close(begin)
			_, _ = in.ReadString('\n')
		}
		os.Exit(3)
	}()
	c := rt.Must(redlock.Open(t.Context(), o.URLs, redlock.WithInterop(), redlock.WithFreshMembers(), patient))(t)
	for range 200 { // as theirs
		lease := rt.Must(c.Mutex(fmt.Sprint(key, ":warm:", o.Client)).Lock(t.Context()))(t)
		require.NoError(t, lease.Unlock(t.Context()))
	}
	out := json.NewEncoder(os.Stdout)
	require.NoError(t, out.Encode(said{Ready: true}))
	<-begin
	s := said{Tenures: []judge.Hold{}}
	for end := time.Now().Add(run); time.Now().Before(end); {
		x := judge.Hold{Client: o.Client, Asked: judge.Now()}
		lease, err := c.Mutex(key).Lock(context.Background())
		if err != nil {
			s.Errors = append(s.Errors, err.Error())
			break
		}
		x.Token, x.From = lease.Token(), judge.Now()
		time.Sleep(hold)
		x.To = min(judge.Now(), judge.At(lease.ValidUntil()))
		if err := lease.Unlock(context.Background()); err != nil {
			s.Errors = append(s.Errors, err.Error())
		}
		s.Tenures = append(s.Tenures, x)
		time.Sleep(rand.N(pause))
	}
	require.NoError(t, out.Encode(s))
	require.NoError(t, c.Close())
}
