//go:build linux || darwin

package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/judge"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// Processes that hold a lock, and are stopped or killed. A worker is this test binary again, running
// TestWorker with its orders in the environment. It does something for each line that it reads, and
// reports in JSON, one object a line.

const workerEnv = "REDQUORUM_WORKER"

// orders are what a worker is to do.
type orders struct {
	Job   string // a name in jobs
	URLs  []string
	Store string // URL of the storage
	Key   string
	TTL   time.Duration
	Renew bool
}

// report is what a worker says.
type report struct {
	Error string `json:",omitempty"`
	Token uint64 `json:",omitempty"`
	From  int64  `json:",omitempty"` // on judge.Now
	Until int64  `json:",omitempty"`

	Guarded, Plain string `json:",omitempty"` // what became of the writes
	Lost           bool   `json:",omitempty"` // the lease says so

	Dead  map[string]int `json:",omitempty"` // how often each way of looking found the lease ended
	Alive []string       `json:",omitempty"` // looks that found it alive past its validity
}

var jobs = map[string]func(*worker) error{"write late": (*worker).writeLate, "look": (*worker).look, "hold": (*worker).hold}

// worker is the process itself.
type worker struct {
	orders
	c   *redlock.Client
	in  *bufio.Reader
	out *json.Encoder
}

// TestWorker is no test of its own: it is what the processes below run.
func TestWorker(t *testing.T) {
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	w := &worker{in: bufio.NewReader(os.Stdin), out: json.NewEncoder(os.Stdout)}
	require.NoError(t, json.Unmarshal([]byte(text), &w.orders))
	config := redlock.Config{TTL: w.TTL, MaxTTL: time.Second, FreshMembers: true}
	quick(&config)
	var err error
	w.c, err = redlock.Open(context.Background(), w.URLs, redlock.WithConfig(config))
	require.NoError(t, err)
	w.say(report{})
	for w.awaitLine() {
		if err := jobs[w.Job](w); err != nil {
			w.say(report{Error: err.Error()})
		}
	}
	_ = w.c.Close()
}

func (w *worker) say(r report) { _ = w.out.Encode(r) }

// awaitLine waits for the next order; false: the parent has ended, or has closed the pipe.
func (w *worker) awaitLine() bool {
	_, err := w.in.ReadString('\n')
	return err == nil
}

func (w *worker) mutex() *redlock.Mutex {
	if w.Renew {
		return w.c.Mutex(w.Key, redlock.AutoRenew(w.TTL))
	}
	return w.c.Mutex(w.Key, redlock.TTL(w.TTL))
}

// writeLate takes the lock, reads, and writes when it is told to, without another look at its lease: as a
// program does that was stopped between the two.
func (w *worker) writeLate() error {
	lease, err := w.mutex().Lock(context.Background())
	if err != nil {
		return err
	}
	store := remote(w.Store)
	guarded, err := store.read(w.Key, true, lease.Token())
	if err != nil {
		return err
	}
	plain, err := store.read(w.Key, false, lease.Token())
	if err != nil {
		return err
	}
	w.say(report{Token: lease.Token(), From: judge.Now(), Until: judge.At(lease.ValidUntil())})
	w.awaitLine()
	r := report{Guarded: "accepted", Plain: "accepted"}
	if err := store.add(guarded, lease.Token()); err != nil {
		r.Guarded = err.Error()
	}
	if err := store.add(plain, lease.Token()); err != nil {
		r.Plain = err.Error()
	}
	r.Lost = errors.Is(lease.Err(), redlock.ErrLost)
	w.say(r)
	return nil
}

// look takes the lock, and looks at the lease from several goroutines, in every way there is, until each
// has seen its end.
func (w *worker) look() error {
	err := w.mutex().Do(context.Background(), w.lookAt)
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
	r := report{Token: lease.Token(), Dead: map[string]int{}}
	w.say(report{Token: lease.Token(), From: judge.Now()})
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

// hold takes the lock, and keeps it until the process is killed.
func (w *worker) hold() error {
	lease, err := w.mutex().Lock(context.Background())
	if err != nil {
		return err
	}
	w.say(report{Token: lease.Token(), From: judge.Now(), Until: judge.At(lease.ValidUntil())})
	select {}
}

// storage serves a judge.Store to other processes.
type storage struct {
	judge.Store
	mu   sync.Mutex
	seen []judge.Seen
}

// message is a request to the storage, and its answer.
type message struct {
	Key     string
	Guarded bool
	Token   uint64
	Seen    int // number of what was read
}

func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	err := json.NewDecoder(r.Body).Decode(&m)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
	case r.URL.Path == "/read":
		var seen judge.Seen
		seen, err = s.Read(m.Key, m.Guarded, m.Token)
		m.Seen, s.seen = len(s.seen), append(s.seen, seen)
	default:
		err = s.Add(s.seen[m.Seen], m.Token)
	}
	switch {
	case errors.Is(err, fence.ErrStale):
		http.Error(w, "stale", http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	default:
		_ = json.NewEncoder(w).Encode(m)
	}
}

// remote is the URL of a storage.
type remote string

func (r remote) read(key string, guarded bool, token uint64) (message, error) {
	return r.post("/read", message{Key: key, Guarded: guarded, Token: token})
}

func (r remote) add(seen message, token uint64) error {
	seen.Token = token
	_, err := r.post("/add", seen)
	return err
}

func (r remote) post(path string, m message) (answer message, _ error) {
	body, err := json.Marshal(m)
	if err != nil {
		return answer, err
	}
	resp, err := http.Post(string(r)+path, "application/json", bytes.NewReader(body))
	if err != nil {
		return answer, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(resp.Body)
		return answer, errors.New(strings.TrimSpace(string(text)))
	}
	return answer, json.NewDecoder(resp.Body).Decode(&answer)
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

func addresses(cluster *redistest.Cluster) (urls []string) {
	for _, s := range cluster.Servers {
		urls = append(urls, "redis://"+s.Addr())
	}
	return urls
}

// times is n in make test, and four times that in make test-faults.
func times(n int) int {
	if long() {
		return 4 * n
	}
	return n
}

// A holder that is stopped between reading and writing writes when its lease has long been another's: its
// guarded write is refused, and the unguarded one goes through and undoes the other's.
func TestHolderStoppedPastItsLease(t *testing.T) {
	t.Parallel() // most of the time is spent stopped
	cluster := rt.Real(t, 5)
	store := &storage{}
	server := httptest.NewServer(store)
	t.Cleanup(server.Close)
	other, _ := dial(t, cluster, func(c *redlock.Config) {
		quick(c)
		c.TTL, c.MaxTTL, c.FreshMembers = time.Second, time.Second, true
	})
	voting(t, other, 5)
	p := spawn(t, orders{Job: "write late", URLs: addresses(cluster), Store: server.URL, Key: "k", TTL: 400 * time.Millisecond})
	for round := 1; round <= times(4); round++ {
		p.order()
		first := p.next()
		p.pause()
		lease, err := other.Mutex("k").Lock(t.Context())
		require.NoError(t, err)
		require.GreaterOrEqual(t, judge.Now(), first.Until, "the stopped one's lease was given away before its end")
		require.Greater(t, lease.Token(), first.Token)
		for _, guarded := range []bool{true, false} {
			seen, err := store.Read("k", guarded, lease.Token())
			require.NoError(t, err)
			require.NoError(t, store.Add(seen, lease.Token()))
		}
		require.NoError(t, lease.Unlock(t.Context()))
		p.order()
		p.resume()
		late := p.next()
		require.Equal(t, "stale", late.Guarded)
		require.Equal(t, "accepted", late.Plain, "the control")
		require.True(t, late.Lost)
		guarded, unguarded := store.Lost()
		require.Zero(t, guarded)
		require.Equal(t, round, unguarded, "the control")
	}
	t.Log(&store.Store)
	nothingLeft(t, cluster)
}

// A process that was stopped for longer than its lease finds it ended at the first look, however it looks.
func TestLeaseOfAStoppedProcessIsDeadWhenItWakes(t *testing.T) {
	t.Parallel() // most of the time is spent stopped
	const ttl = 120 * time.Millisecond
	cluster := rt.Real(t, 5)
	rng := seeded(t)
	within, looks := 0, 0
	for _, renew := range []bool{false, true} {
		p := spawn(t, orders{Job: "look", URLs: addresses(cluster), Key: "k", TTL: ttl, Renew: renew})
		for range times(10) {
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
	t.Logf("%d of %d leases ended while their process was stopped; %d looks", within, 2*times(10), looks)
	require.GreaterOrEqual(t, within, times(10), "too few leases ended while their process was stopped")
	nothingLeft(t, cluster)
}

// The lock of a process that was killed is free when its lease ends, and not before.
func TestHolderKilled(t *testing.T) {
	t.Parallel() // most of the time is spent stopped
	const ttl = 500 * time.Millisecond
	cluster := rt.Real(t, 5)
	other, _ := dial(t, cluster, func(c *redlock.Config) {
		quick(c)
		c.TTL, c.MaxTTL, c.FreshMembers = time.Second, time.Second, true
	})
	voting(t, other, 5)
	var waits []time.Duration
	for range times(3) {
		p := spawn(t, orders{Job: "hold", URLs: addresses(cluster), Key: "k", TTL: ttl, Renew: true})
		p.order()
		first := p.next()
		require.Eventually(t, func() bool { // or the next could have votes of the members that are left over
			seen, err := other.Inspect(t.Context(), "k")
			return err == nil && len(seen.Holders) == 1 && seen.Holders[0].Votes == 5
		}, 20*time.Second, time.Millisecond)
		type grant struct {
			lease *redlock.Lease
			err   error
			at    int64
		}
		got := make(chan grant, 1)
		go func() {
			lease, err := other.Mutex("k").Lock(t.Context())
			got <- grant{lease, err, judge.Now()}
		}()
		require.Eventually(t, func() bool {
			seen, err := other.Inspect(t.Context(), "k")
			return err == nil && !slices.ContainsFunc(seen.Members, func(m redlock.MemberView) bool { return len(m.Queue) == 0 })
		}, 20*time.Second, time.Millisecond)
		p.kill()
		// The third of five votes to end frees the lock.
		var ends []int64
		for _, s := range cluster.Servers {
			asked := judge.Now()
			left, _ := admin(t, s, "PTTL", "k").(int64)
			ends = append(ends, asked+left*int64(time.Millisecond))
		}
		slices.Sort(ends)
		told := len(got) == 0 // no answer may be about the next holder
		next := <-got
		require.NoError(t, next.err)
		if !told {
			require.NoError(t, next.lease.Unlock(t.Context()))
			continue
		}
		require.Greater(t, next.lease.Token(), first.Token)
		require.GreaterOrEqual(t, next.at, ends[2], "before the lease of the dead had ended at a majority")
		require.Less(t, next.at, ends[2]+int64(2*time.Second), "long after it")
		waits = append(waits, time.Duration(next.at-ends[2]))
		require.NoError(t, next.lease.Unlock(t.Context()))
	}
	require.NotEmpty(t, waits, "the next had the lock each time before the members could be asked: much too early")
	t.Logf("the next had the lock %v after the end of the lease of the dead", waits)
	nothingLeft(t, cluster)
}
