//go:build linux || darwin

package redlock_test

import (
	"bufio"
	"bytes"
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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Locks between processes. A child is this test binary again, running TestChildProcess with its orders
// in the environment; it has a client of its own and reports in JSON, one object a line.

const ordersEnv = "REDQUORUM_TEST_ORDERS"

// orders are what a child is to do.
type orders struct {
	Who     int
	URLs    []string
	Key     string
	TTL     time.Duration // of auto-renewed leases; 0: the default
	Hold    bool          // take the lock, say so, and keep it until killed
	Look    bool          // take the lock, and look at its lease until it ends, over and over until killed
	Fixed   bool          // with Look: the lease is not renewed
	Run     time.Duration // otherwise: lock, work and unlock for so long
	Pause   time.Duration // between an unlock and the next lock, at most
	Storage string        // file that the lock protects
	Faults  bool          // errors of the client are counted and not fatal
}

// report is what a child says.
type report struct {
	Ready    bool     `json:",omitempty"`
	Holds    []tenure `json:",omitempty"`
	Errors   []string
	Rejected int   // writes that the storage refused, from holders whose lease had ended
	Wait     int64 // longest Lock, ns
	Looks    *looks
}

// machineNow is a clock that all processes of this machine share. machine converts an instant of this process to it.
var machineNow, machine = judge.Now, judge.At

// TestChildProcess is no test of its own: it is what the processes below run.
func TestChildProcess(t *testing.T) {
	text := os.Getenv(ordersEnv)
	if text == "" {
		return
	}
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		t.Fatal(err)
	}
	// The parent holds the other end of stdin: one line starts the work, and the end of the parent is
	// the end of this process.
	begin := make(chan struct{})
	go func() {
		in := bufio.NewReader(os.Stdin)
		if _, err := in.ReadString('\n'); err == nil {
			close(begin)
			_, _ = in.ReadString('\n')
		}
		os.Exit(3)
	}()
	out := json.NewEncoder(os.Stdout)
	config := redlock.Config{TTL: o.TTL, FreshMembers: true, RestartGuard: redlock.GuardOff}
	if !o.Faults {
		patient(&config)
	}
	c, err := redlock.Open(context.Background(), o.URLs, redlock.WithConfig(config))
	if err != nil {
		t.Fatal(err)
	}
	_ = out.Encode(report{Ready: true})
	<-begin
	for o.Look {
		if err := o.look(c, out); err != nil {
			t.Fatal(err)
		}
	}
	if o.Hold {
		lease, err := c.Mutex(o.Key).Lock(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		_ = out.Encode(report{Holds: []tenure{{Client: o.Who, Key: o.Key, Token: lease.Token(), From: machineNow(), To: machine(lease.ValidUntil())}}})
		select {} // until killed
	}
	_ = out.Encode(o.contend(c))
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// contend takes the lock again and again, and writes to the storage while it has it.
func (o *orders) contend(c *redlock.Client) (r report) {
	rng := rand.New(rand.NewPCG(uint64(o.Who), 1))
	failed := func(err error) { r.Errors = append(r.Errors, err.Error()) }
	end := time.Now().Add(o.Run)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	for {
		asked := time.Now()
		lease, err := c.Mutex(o.Key).Lock(ctx)
		got := time.Now()
		if ctx.Err() != nil {
			if err == nil {
				_ = lease.Unlock(context.Background())
			}
			return r
		}
		r.Wait = max(r.Wait, int64(got.Sub(asked)))
		if err != nil {
			failed(err)
			time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
			continue
		}
		from := machineNow()
		accepted, err := write(o.Storage, lease.Token())
		to := min(machineNow(), machine(lease.ValidUntil()))
		switch {
		case err != nil:
			failed(err)
		case !accepted && lease.Err() == nil:
			failed(fmt.Errorf("the storage knows a greater token than %d, of a lease that is held", lease.Token()))
		case !accepted:
			r.Rejected++
		}
		r.Holds = append(r.Holds, tenure{Client: o.Who, Key: o.Key, Token: lease.Token(), From: from, To: to})
		if err := lease.Unlock(context.Background()); err != nil {
			failed(err)
		}
		if o.Pause > 0 {
			time.Sleep(time.Duration(rng.Int64N(int64(o.Pause))))
		}
	}
}

// write is a storage that guards itself: under a lock of the file system it refuses a token that is not
// greater than the last one. The file holds the token and the number of writes.
func write(path string, token uint64) (accepted bool, _ error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // and with it the lock
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return false, err
	}
	last, n, err := parseStorage(f)
	if err != nil || token <= last {
		return false, err
	}
	_, err = f.WriteAt(fmt.Appendf(nil, "%020d %010d\n", token, n+1), 0)
	return err == nil, err
}

func parseStorage(f io.Reader) (token, n uint64, _ error) {
	b, err := io.ReadAll(f)
	if err != nil || len(b) == 0 {
		return 0, 0, err
	}
	_, err = fmt.Sscanf(string(b), "%d %d", &token, &n)
	return token, n, err
}

// child is a process that contends.
type child struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports chan report
	stderr  bytes.Buffer
	done    chan struct{} // it has ended and was waited for
	err     error
}

// spawn starts a child and waits until it has connected. It ends with the test at the latest.
func spawn(t testing.TB, o orders) *child {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	p := &child{t: t, reports: make(chan report, 4), done: make(chan struct{})}
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestChildProcess$", "-test.v=false")
	p.cmd.Env = append(os.Environ(), ordersEnv+"="+string(text))
	p.cmd.Stderr = &p.stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	var noise strings.Builder
	go func() { // ends with the process
		defer close(p.done)
		lines := bufio.NewReaderSize(out, 1<<20)
		for {
			line, err := lines.ReadString('\n')
			var r report
			if strings.HasPrefix(line, "{") && json.Unmarshal([]byte(line), &r) == nil {
				p.reports <- r
			} else {
				noise.WriteString(line)
			}
			if err != nil {
				break
			}
		}
		if p.err = p.cmd.Wait(); p.err != nil {
			p.err = fmt.Errorf("child %d: %w\n%s%s", o.Who, p.err, noise.String(), p.stderr.String())
		}
	}()
	t.Cleanup(func() { p.kill() })
	return p
}

// next is the child's next report.
func (p *child) next(within time.Duration) report {
	p.t.Helper()
	select {
	case r := <-p.reports:
		return r
	default:
	}
	limit := time.NewTimer(within)
	defer limit.Stop()
	select {
	case r := <-p.reports:
		return r
	case <-p.done:
		select {
		case r := <-p.reports:
			return r
		default:
		}
		require.NoError(p.t, p.err)
		p.t.Fatal("a child ended without its report")
	case <-limit.C:
		p.t.Fatal("no report from a child")
	}
	panic("not reached")
}

func (p *child) begin() {
	p.t.Helper()
	_, err := io.WriteString(p.in, "go\n")
	require.NoError(p.t, err)
}

// kill ends the process as SIGKILL does, and waits for it.
func (p *child) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// family runs n processes that contend, and gathers what they report. meanwhile, if not nil, is called
// while they run, and has to return when its context ends.
func family(t testing.TB, n int, o orders, meanwhile func(context.Context)) (*history, report) {
	t.Helper()
	o.Storage = filepath.Join(t.TempDir(), "storage")
	children := make([]*child, n)
	for i := range children {
		o.Who = i
		children[i] = spawn(t, o)
	}
	for _, p := range children {
		require.True(t, p.next(time.Minute).Ready)
	}
	for _, p := range children {
		p.begin()
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	if meanwhile != nil {
		wg.Go(func() { meanwhile(ctx) })
	}
	h, sum := newHistory(), report{}
	defer func() { cancel(); wg.Wait() }()
	for _, p := range children {
		r := p.next(o.Run + time.Minute)
		h.add(r.Holds...)
		sum.Errors = append(sum.Errors, r.Errors...)
		sum.Rejected += r.Rejected
		sum.Wait = max(sum.Wait, r.Wait)
	}
	cancel()
	wg.Wait()
	for _, p := range children {
		select {
		case <-p.done:
			require.NoError(t, p.err)
		case <-time.After(time.Minute):
			t.Fatal("a child does not end")
		}
	}
	f, err := os.Open(o.Storage)
	require.NoError(t, err)
	defer func() { _ = f.Close() }()
	_, writes, err := parseStorage(f)
	require.NoError(t, err)
	assert.EqualValues(t, h.len()-sum.Rejected, writes, "the storage lost writes")
	return h, sum
}

// tell logs what a run was like.
func tell(t testing.TB, h *history, n int, run time.Duration, sum report) {
	t.Helper()
	gaps := h.handOvers()
	t.Logf("%d tenures, %.0f/s, Jain %.3f, hand-over p50 %v p99 %v, longest wait %v, %d errors, %d writes refused",
		h.len(), float64(h.len())/run.Seconds(), jain(h.counts(n)), quantile(gaps, 0.5), quantile(gaps, 0.99),
		time.Duration(sum.Wait), len(sum.Errors), sum.Rejected)
}

func TestEightProcessesShareALockFairlyAndOneAtATime(t *testing.T) {
	t.Parallel()
	const n, run = 8, 5 * time.Second
	cluster := rt.Real(t, 5)
	h, sum := family(t, n, orders{URLs: urls(cluster), Key: "k", Run: run, Pause: 2 * time.Millisecond}, nil)
	tell(t, h, n, run, sum)
	require.Empty(t, sum.Errors)
	require.Zero(t, sum.Rejected)
	h.verify(t)
	require.Greater(t, h.len(), 20*n)
	require.GreaterOrEqual(t, jain(h.counts(n)), 0.95, "%v", h.counts(n))
	clean(t, cluster)
}

func TestLockOfAKilledProcessIsFreeWhenItsLeaseEndsAndNotBefore(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	cluster := rt.Real(t, 5)
	b := join(t, cluster, patient)
	p := spawn(t, orders{URLs: urls(cluster), Key: "k", TTL: ttl, Hold: true})
	require.True(t, p.next(time.Minute).Ready)
	p.begin()
	first := p.next(time.Minute).Holds[0]
	w := b.LockLater(ending(t), "k")
	require.NoError(t, inLine(t.Context(), cluster.Servers, "k", 1))
	p.kill()
	require.ErrorContains(t, p.err, "killed")
	killed := machineNow()
	// A majority of its votes can be had when the third of them has ended, not before.
	ends := make([]int64, cluster.Len())
	require.NoError(t, joined(cluster.Len(), func(i int) error {
		asked := machineNow()
		left, err := cluster.Servers[i].Do(t.Context(), "PTTL", "k")
		if err == nil {
			ends[i] = asked + max(left.(int64), 0)*int64(time.Millisecond)
		}
		return err
	}))
	slices.Sort(ends)
	third := ends[2]
	require.True(t, w.Pending(), "before its lease ended")
	next := w.Get(t)
	at := machine(w.At)
	require.GreaterOrEqual(t, at, third, "before the lease of the dead had ended at a majority")
	require.GreaterOrEqual(t, at, first.To, "while the dead could believe in its lease")
	t.Logf("killed %v before its lease ended, the next had it %v after",
		time.Duration(third-killed), time.Duration(at-third))
	require.Less(t, time.Duration(at-killed), ttl+10*time.Second)
	require.Greater(t, next.Token(), first.Token)
	require.NoError(t, next.Unlock(t.Context()))
	clean(t, cluster)
}

// storm stops and resumes minorities and kills connections of all kinds, until ctx ends. It leaves
// everything running.
func storm(ctx context.Context, cluster *redistest.Cluster, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 2))
	n := cluster.Len()
	pause := func(limit time.Duration) bool {
		timer := time.NewTimer(time.Duration(rng.Int64N(int64(limit))))
		defer timer.Stop()
		select {
		case <-timer.C:
			return true
		case <-ctx.Done():
			return false
		}
	}
	for ctx.Err() == nil {
		minority := rng.Perm(n)[:1+rng.IntN((n-1)/2)]
		switch rng.IntN(4) {
		case 0, 1:
			cluster.Pause(minority...)
			pause(1500 * time.Millisecond)
			cluster.Resume(minority...)
		case 2:
			killConnections(ctx, cluster, minority, "normal")
		case 3:
			killConnections(ctx, cluster, minority, "pubsub")
		}
		if !pause(300 * time.Millisecond) {
			return
		}
	}
}

func TestLongEightProcessesBearStopsAndKilledConnections(t *testing.T) {
	const n, run = 8, 60 * time.Second
	long(t)
	cluster := rt.Real(t, 5)
	seed := rand.Uint64()
	t.Log("seed " + strconv.FormatUint(seed, 10))
	o := orders{URLs: urls(cluster), Key: "k", TTL: 5 * time.Second, Run: run, Pause: 2 * time.Millisecond, Faults: true}
	h, sum := family(t, n, o, func(ctx context.Context) { storm(ctx, cluster, seed) })
	tell(t, h, n, run, sum)
	for _, e := range sum.Errors {
		// A majority is always well, but its connections may have been killed a moment ago.
		if !strings.Contains(e, redlock.ErrNoQuorum.Error()) && !strings.Contains(e, redlock.ErrInDoubt.Error()) &&
			!strings.Contains(e, redlock.ErrLost.Error()) && !strings.Contains(e, redlock.ErrTooSlow.Error()) {
			t.Error(e)
		}
	}
	h.verify(t)
	for who, count := range h.counts(n) {
		require.NotZero(t, count, "process %d had nothing", who)
	}
	clean(t, cluster)
}

func TestLongSixtyFourProcessesArriveAtOnce(t *testing.T) {
	const n, run = 64, 30 * time.Second
	long(t)
	cluster := rt.Real(t, 5)
	h, sum := family(t, n, orders{URLs: urls(cluster), Key: "k", Run: run, Pause: 2 * time.Millisecond}, nil)
	tell(t, h, n, run, sum)
	require.Empty(t, sum.Errors)
	h.verify(t)
	require.GreaterOrEqual(t, jain(h.counts(n)), 0.95, "%v", h.counts(n))
	clean(t, cluster)
}
