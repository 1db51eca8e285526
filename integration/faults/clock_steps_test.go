//go:build linux

package faults

import (
	"debug/elf"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// wallClock is the wall clock of one server, to be set and to be driven at another rate.
type wallClock struct {
	mu      sync.Mutex
	control []byte // shared with the server: see testdata/clockshim.c
	offset  time.Duration
}

// set moves the clock to so much after the real one, from where it goes on faster than that by ppm.
func (c *wallClock) set(offset time.Duration, ppm int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(offset, ppm)
}

// step sets the clock by d.
func (c *wallClock) step(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setLocked(c.offset+d, 0)
}

func (c *wallClock) setLocked(offset time.Duration, ppm int64) {
	c.offset = offset
	word := func(i int) *atomic.Int64 { return (*atomic.Int64)(unsafe.Pointer(&c.control[8*i])) }
	word(0).Add(1)
	word(1).Store(time.Now().UnixNano())
	word(2).Store(int64(offset))
	word(3).Store(ppm)
	word(0).Add(1)
}

// static reports whether the redis-server in PATH is a program that loads no libraries.
func static(t testing.TB) bool {
	t.Helper()
	path, err := exec.LookPath("redis-server")
	require.NoError(t, err)
	program, err := elf.Open(path)
	if err != nil {
		return false // a script that starts one
	}
	defer program.Close()
	return !slices.ContainsFunc(program.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// clocked starts servers whose clocks are ours.
func clocked(t testing.TB, n int) (*redistest.Cluster, []*wallClock) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("C COMPILER MISSING: cc is not in PATH; install it (Debian: apt-get install gcc libc6-dev)")
	}
	if static(t) {
		t.Skip("the redis-server in PATH is linked statically: nothing can be put between it and its clock")
	}
	dir := t.TempDir()
	shim := filepath.Join(dir, "clockshim.so")
	out, err := exec.Command(compiler, "-shared", "-fPIC", "-O2", "-Wall", "-o", shim, filepath.Join("testdata", "clockshim.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	var configs []redistest.RealConfig
	var clocks []*wallClock
	for i := range n {
		path := filepath.Join(dir, "clock"+strconv.Itoa(i))
		require.NoError(t, os.WriteFile(path, make([]byte, 32), 0o600))
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		control, err := unix.Mmap(int(f.Fd()), 0, 32, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		clocks = append(clocks, &wallClock{control: control})
		configs = append(configs, redistest.RealConfig{Env: []string{"LD_PRELOAD=" + shim, "REDQUORUM_CLOCK=" + path}})
	}
	cluster := servers(t, configs...)
	for i, c := range clocks { // nothing below would mean anything otherwise
		c.set(time.Hour, 0)
		require.Eventually(t, func() bool {
			now, _ := admin(t, cluster.Servers[i], "TIME").([]any)
			require.Len(t, now, 2)
			seconds, err := strconv.ParseInt(now[0].(string), 10, 64)
			require.NoError(t, err)
			return time.Until(time.Unix(seconds, 0)) > 59*time.Minute
		}, 5*time.Second, time.Millisecond, "the server does not read our clock") // Valkey 9.1 does a few milliseconds later
		c.set(0, 0)
	}
	return cluster, clocks
}

// stepping makes each holder that has all five votes set the clocks of some members, and stay for long
// enough that who waits can take what they free. It counts the holders who did.
func stepping(rng *rand.Rand, clocks []*wallClock, members int, size func(c *wallClock) time.Duration) (terms, *atomic.Int64) {
	steps := new(atomic.Int64)
	x := rows()
	x.clients, x.keys, x.hold = 4, 1, 120*time.Millisecond // one key: one holder at a time, and rng is his
	var mu sync.Mutex                                      // unless two believe to be
	x.inside = func(l *redlock.Lease) {
		for end := time.Now().Add(50 * time.Millisecond); l.Votes() < len(clocks); {
			if time.Now().After(end) {
				return // votes that others have: its margin is smaller
			}
			time.Sleep(time.Millisecond)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, i := range rng.Perm(len(clocks))[:members] {
			clocks[i].step(size(clocks[i]))
		}
		steps.Add(1)
	}
	return x, steps
}

// Clocks that are set are forgetful members: a lease with five votes survives two.
func TestFaultsClockStepsWithinTheMargin(t *testing.T) {
	faulty(t)
	cluster, clocks := clocked(t, 5)
	rng := seeded(t)
	x, steps := stepping(rng, clocks, 2, func(c *wallClock) time.Duration { // forth and back, never far
		switch {
		case c.offset > 0:
			return -time.Second
		case c.offset < 0:
			return time.Second
		}
		return time.Duration(1-2*rng.IntN(2)) * time.Second
	})
	w := start(t, cluster, x)
	<-time.After(span)
	require.Eventually(t, func() bool { return steps.Load() >= 5 }, 60*time.Second, 5*time.Millisecond)
	w.progress(t, 15)
	r := w.end()
	t.Logf("two of five clocks set by one second, %d times", steps.Load())
	r.safe(t, 15)
	nothingLeft(t, cluster)
}

// The same with three clocks is beyond the bound, and breaks exclusion. Tokens do not come from clocks: the
// guarded set loses nothing.
func TestFaultsClockStepsBeyondTheMargin(t *testing.T) {
	faulty(t)
	cluster, clocks := clocked(t, 5)
	x, steps := stepping(seeded(t), clocks, 3, func(*wallClock) time.Duration { return time.Second })
	w := start(t, cluster, x)
	require.Eventually(t, func() bool { return steps.Load() >= 3 && w.store.Refused() > 0 }, 30*time.Second, 5*time.Millisecond)
	r := w.end()
	t.Logf("three of five clocks set forward by one second, %d times: %v", steps.Load(), r)
	require.NotEmpty(t, r.verdict.Overlaps, "the control breaks nothing")
	require.Positive(t, r.unguarded, "the control loses nothing")
	require.Empty(t, r.verdict.Regressions)
	require.Zero(t, r.guarded, "lost updates of the guarded set")
}

// enough tenures to say anything of.
const enough = 12

// drifting lets leases run to their end, with clocks that are fast by ppm, until enough of them have.
func drifting(t *testing.T, drift float64, ppm ...int64) (*redistest.Cluster, result) {
	const ttl = time.Second
	cluster, clocks := clocked(t, len(ppm))
	for i, c := range clocks {
		c.set(0, ppm[i])
	}
	x := rows()
	x.clients, x.keys, x.ttl, x.maxTTL, x.hold = 8, 4, ttl, ttl, time.Hour
	x.config = func(c *redlock.Config) {
		quick(c)
		c.Drift = drift
		c.Entry = ttl // what is granted to waiters is for the whole TTL, too
	}
	w := start(t, cluster, x)
	<-time.After(span)
	w.progress(t, enough)
	return cluster, w.end()
}

// By default the errors of a client's clock and a server's may be 0.5 % each. Of a second, 0.4 % is little more
// than it takes to notice that a lock is free; so the same is done with ten times of both.
func TestFaultsClockRatesWithinTheDrift(t *testing.T) {
	faulty(t)
	for _, c := range []struct {
		drift float64
		rates []int64
	}{
		{0.01, []int64{4000, -4000, 4000, -4000, 4000}},
		{0.01, []int64{4000, 4000, 4000, 4000, 4000}},
		{0.1, []int64{45_000, 45_000, 45_000, 45_000, 45_000}},
	} {
		cluster, r := drifting(t, c.drift, c.rates...)
		r.safe(t, enough)
		nothingLeft(t, cluster)
	}
}

// Clocks that are fast by 30 % end leases while their holders still believe in them.
func TestFaultsClockRatesBeyondTheDrift(t *testing.T) {
	faulty(t)
	_, r := drifting(t, 0.01, 300_000, 300_000, 300_000, 300_000, 300_000)
	t.Logf("all clocks fast by 30 %%: %v", r)
	require.NotEmpty(t, r.verdict.Overlaps, "the control breaks nothing")
	require.Positive(t, r.unguarded, "the control loses nothing")
	require.Positive(t, r.refused)
	require.Empty(t, r.verdict.Regressions)
	require.Zero(t, r.guarded, "lost updates of the guarded set")
}
