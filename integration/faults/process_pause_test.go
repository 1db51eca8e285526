//go:build linux || darwin

package faults

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Processes that hold a lock, and are stopped. A worker is this test binary again, running TestWorker with its
// orders in the environment. It looks at a lease for each line that it reads, and reports in JSON, one object a line.

const workerEnv = "REDQUORUM_WORKER"

// orders are what a worker is to do.
type orders struct {
	URLs  []string
	Key   string
	TTL   time.Duration
	Renew bool
}

// report is what a worker says.
type report struct {
	Error string         `json:",omitempty"`
	Until int64          `json:",omitempty"` // on judge.Now
	Lost  bool           `json:",omitempty"` // the lease says so
	Dead  map[string]int `json:",omitempty"` // how often each way of looking found the lease ended
	Alive []string       `json:",omitempty"` // looks that found it alive past its validity
}

// worker is the process itself.
type worker struct {
	orders
	c   *redlock.Client
	out *json.Encoder
}

// TestWorker is no test of its own: it is what the processes below run.
func TestWorker(t *testing.T) {
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	w := &worker{out: json.NewEncoder(os.Stdout)}
	require.NoError(t, json.Unmarshal([]byte(text), &w.orders))
	config := redlock.Config{TTL: w.TTL, MaxTTL: time.Second, FreshMembers: true}
	quick(&config)
	var err error
	w.c, err = redlock.Open(context.Background(), w.URLs, redlock.WithConfig(config))
	require.NoError(t, err)
	w.say(report{})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); { // until the parent has ended, or has closed the pipe
		if err := w.look(); err != nil {
			w.say(report{Error: err.Error()})
		}
	}
	_ = w.c.Close()
}

func (w *worker) say(r report) { _ = w.out.Encode(r) }

// look takes the lock, and looks at the lease from several goroutines, in every way there is, until each
// has seen its end.
func (w *worker) look() error {
	opt := redlock.TTL(w.TTL)
	if w.Renew {
		opt = redlock.AutoRenew(w.TTL)
	}
	err := w.c.Mutex(w.Key, opt).Do(context.Background(), w.lookAt)
	if errors.Is(err, redlock.ErrLost) {
		return nil
	}
	return err
}

func (w *worker) lookAt(inner context.Context, lease *redlock.Lease) error {
	ctx := lease.Context()
	ways := map[string]func() bool{ // alive?
		"Lease.Err":        func() bool { return lease.Err() == nil },
		"Context.Err":      func() bool { return ctx.Err() == nil },
		"Lease.ValidUntil": func() bool { return time.Until(lease.ValidUntil()) > 0 },
		"Lease.Done":       func() bool { return going(lease.Done()) },
		"Context.Done":     func() bool { return going(ctx.Done()) },
		"Do, Err":          func() bool { return inner.Err() == nil },
		"Do, Done":         func() bool { return going(inner.Done()) },
	}
	r := report{Dead: map[string]int{}}
	w.say(report{})
	var mu sync.Mutex
	var all sync.WaitGroup
	for name, alive := range ways {
		all.Go(func() {
			dead := 0
			for dead < 100 {
				before := time.Now()
				if !alive() {
					dead++
					continue
				}
				// Read later, so it can only be later: a renewal may have moved it meanwhile.
				if until := lease.ValidUntil(); before.After(until) {
					mu.Lock()
					r.Alive = append(r.Alive, fmt.Sprintf("%s: alive %v after its end", name, before.Sub(until)))
					mu.Unlock()
				}
			}
			mu.Lock()
			defer mu.Unlock()
			r.Dead[name] = dead
		})
	}
	all.Wait()
	r.Lost = errors.Is(lease.Err(), redlock.ErrLost)
	r.Until = judge.At(lease.ValidUntil())
	w.say(r)
	return nil
}

func going(done <-chan struct{}) bool {
	select {
	case <-done:
		return false
	default:
		return true
	}
}

// child is a worker as its parent sees it.
type child struct {
	t       testing.TB
	cmd     *exec.Cmd
	in      io.WriteCloser
	reports chan report // closed when the process has ended
	noise   strings.Builder
}

// spawn starts a worker, and waits until it has connected. It is killed when the test ends.
func spawn(t testing.TB, o orders) *child {
	t.Helper()
	text, err := json.Marshal(o)
	require.NoError(t, err)
	p := &child{t: t, reports: make(chan report, 8)}
	p.cmd = exec.Command(os.Args[0], "-test.run=^TestWorker$")
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text))
	p.cmd.Stderr = &p.noise
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, p.cmd.Start())
	go func() { // ends with the process
		defer close(p.reports)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var r report
			if json.Unmarshal(lines.Bytes(), &r) == nil {
				p.reports <- r
			}
		}
		_ = p.cmd.Wait()
	}()
	t.Cleanup(p.kill)
	p.next()
	return p
}

// next is the worker's next report.
func (p *child) next() report {
	p.t.Helper()
	select {
	case r, ok := <-p.reports:
		require.True(p.t, ok, "a worker has ended: %s", &p.noise)
		require.Empty(p.t, r.Error)
		return r
	case <-time.After(time.Minute):
		p.t.Fatal("no report from a worker")
		panic("not reached")
	}
}

// order lets the worker go on by a line.
func (p *child) order() {
	p.t.Helper()
	_, err := io.WriteString(p.in, "go\n")
	require.NoError(p.t, err)
}

// pause stops the process, and waits until it has stopped.
func (p *child) pause() {
	p.t.Helper()
	require.NoError(p.t, unix.Kill(p.cmd.Process.Pid, unix.SIGSTOP))
	require.Eventually(p.t, func() bool {
		out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(p.cmd.Process.Pid)).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
	}, 20*time.Second, time.Millisecond)
}

func (p *child) resume() {
	p.t.Helper()
	require.NoError(p.t, unix.Kill(p.cmd.Process.Pid, unix.SIGCONT))
}

// kill ends the process as SIGKILL does, and waits for it.
func (p *child) kill() {
	_ = p.cmd.Process.Kill()
	for range p.reports {
	}
}

// A process that was stopped for longer than its lease finds it ended at the first look, however it looks.
func TestFaultsLeaseOfAStoppedProcessIsDeadWhenItWakes(t *testing.T) {
	faulty(t)
	t.Parallel() // most of the time is spent stopped
	const ttl, rounds = 120 * time.Millisecond, 40
	cluster := rt.Real(t, 5)
	rng := seeded(t)
	within, looks := 0, 0
	for _, renew := range []bool{false, true} {
		p := spawn(t, orders{URLs: addresses(cluster), Key: "k", TTL: ttl, Renew: renew})
		for range rounds {
			p.order()
			p.next()
			if renew { // at any moment of a renewal
				<-time.After(time.Duration(rng.Int64N(int64(ttl))))
			}
			asked := judge.Now()
			p.pause()
			<-time.After(2 * ttl)
			woken := judge.Now()
			p.resume()
			r := p.next()
			require.Empty(t, r.Alive, "seen alive after its end, renewed: %v", renew)
			require.True(t, r.Lost)
			require.Less(t, r.Until, woken, "a lease that was renewed after its end")
			for way, n := range r.Dead {
				require.Equal(t, 100, n, way)
				looks += n
			}
			if asked < r.Until && r.Until < woken {
				within++ // its validity ended while it was stopped
			}
		}
		p.kill()
	}
	t.Logf("%d of %d leases ended while their process was stopped; %d looks", within, 2*rounds, looks)
	require.GreaterOrEqual(t, within, rounds, "too few leases ended while their process was stopped")
	nothingLeft(t, cluster)
}
