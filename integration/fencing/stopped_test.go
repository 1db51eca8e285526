//go:build linux || darwin

package fencing

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// holders is how many processes contend, and stoppedTTL how long a lease is.
const (
	holders    = 8
	stoppedTTL = 300 * time.Millisecond
)

// process is a holder as its parent sees it. Its fields are guarded by troop.mu.
type process struct {
	cmd  *exec.Cmd
	in   io.WriteCloser
	done chan struct{} // closed when it has ended

	noise  strings.Builder
	idle   int               // the latest order that it answered by idling
	locked uint64            // the latest token
	held   uint64            // 0: it does not stay
	result map[uint64]string // by token: isAccepted, isRefused, isDoubtful
}

type troop struct {
	t   testing.TB
	all []*process

	task   order // the latest run
	orders int   // given so far

	mu       sync.Mutex
	changed  chan struct{} // guarded by mu: closed with the next report
	accepted []uint64      // guarded by mu
	refused  int           // guarded by mu
	doubts   []string      // guarded by mu
	unlucky  []string      // guarded by mu
	broken   error         // guarded by mu
}

// muster starts the holders. They are killed when the test ends.
func muster(t testing.TB, o terms) *troop {
	t.Helper()
	tr := &troop{t: t, changed: make(chan struct{})}
	text := rt.Must(json.Marshal(o))(t)
	for range holders {
		p := &process{idle: -1, done: make(chan struct{}), result: map[uint64]string{}}
		p.cmd = exec.Command(os.Args[0], "-test.run=^TestHolder$", "-test.timeout=0")
		p.cmd.Env = append(os.Environ(), holderEnv+"="+string(text))
		p.cmd.Stderr = &p.noise
		p.in = rt.Must(p.cmd.StdinPipe())(t)
		out := rt.Must(p.cmd.StdoutPipe())(t)
		require.NoError(t, p.cmd.Start())
		go tr.listen(p, out)
		t.Cleanup(func() {
			_ = p.cmd.Process.Kill()
			<-p.done
		})
		tr.all = append(tr.all, p)
	}
	tr.awaitIdle()
	return tr
}

func (tr *troop) listen(p *process, out io.Reader) {
	defer close(p.done)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r report
		if err := json.Unmarshal(lines.Bytes(), &r); err == nil {
			tr.hear(p, r)
		} else {
			p.noise.WriteString(lines.Text() + "\n") // of the test framework, when it fails
		}
	}
	err := p.cmd.Wait()
	tr.hear(p, report{What: isBroken, Error: fmt.Sprintf("a holder has ended: %v: %s", err, &p.noise)})
}

func (tr *troop) hear(p *process, r report) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch r.What {
	case isIdle:
		p.idle = r.N
	case isLocked:
		p.locked = r.Token
	case isHeld:
		p.held = r.Token
	case isUnlucky:
		tr.unlucky = append(tr.unlucky, r.Error)
	case isBroken:
		if tr.broken == nil {
			tr.broken = fmt.Errorf("token %d: %s", r.Token, r.Error)
		}
	case isAccepted, isRefused, isDoubtful:
		p.held = 0
		p.result[r.Token] = r.What
		switch r.What {
		case isAccepted:
			tr.accepted = append(tr.accepted, r.Token)
		case isRefused:
			tr.refused++
		default:
			tr.doubts = append(tr.doubts, r.Error)
		}
	}
	close(tr.changed)
	tr.changed = make(chan struct{})
}

// await waits for reports that make a condition true. It calls the condition with mu held.
func (tr *troop) await(what string, condition func() bool) {
	tr.t.Helper()
	late := time.NewTimer(2 * time.Minute)
	defer late.Stop()
	for {
		tr.mu.Lock()
		met, changed, broken := condition(), tr.changed, tr.broken
		tr.mu.Unlock()
		require.NoError(tr.t, broken)
		if met {
			return
		}
		select {
		case <-changed:
		case <-late.C:
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.t.Fatalf("waited in vain for %s; %d accepted, no lock %d times: %.400q", what, len(tr.accepted), len(tr.unlucky), tr.unlucky)
		}
	}
}

// awaitIdle waits until all holders have answered the latest order to idle.
func (tr *troop) awaitIdle() {
	tr.t.Helper()
	tr.await("every holder to end", func() bool {
		return !slices.ContainsFunc(tr.all, func(p *process) bool { return p.idle != tr.orders })
	})
}

func (tr *troop) order(o order, to ...*process) {
	tr.t.Helper()
	tr.orders++
	o.N = tr.orders
	line := rt.Must(json.Marshal(o))(tr.t)
	for _, p := range to {
		require.NoError(tr.t, rt.Err(p.in.Write(append(line, '\n'))))
	}
}

// calm lets all holders end what they have begun. Nobody stays.
func (tr *troop) calm() {
	tr.t.Helper()
	tr.order(order{Do: doFree}, tr.all...)
	tr.order(order{Do: doIdle}, tr.all...)
	tr.awaitIdle()
}

// run lets all holders, which are idle, add to a set. What they did with another set is forgotten: each set has a lock
// of its own, and the tokens of two locks may be the same numbers.
func (tr *troop) run(set string, use fencetest.Use) {
	tr.mu.Lock()
	tr.accepted, tr.refused, tr.doubts, tr.unlucky = nil, 0, nil, nil
	for _, p := range tr.all {
		p.locked, p.held, p.result = 0, 0, map[uint64]string{}
	}
	tr.mu.Unlock()
	tr.task = order{Do: doRun, Set: set, Use: use}
	tr.order(tr.task, tr.all...)
}

func (tr *troop) rest(f fencetest.Fixture) fencetest.SetResult {
	tr.t.Helper()
	tr.calm()
	value := rt.Must(f.Storage.Get(tr.t.Context(), tr.task.Set))(tr.t)
	there := strings.Fields(value)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	r := fencetest.SetResult{Accepted: len(tr.accepted), Refused: tr.refused}
	for _, token := range tr.accepted {
		if !slices.Contains(there, element(token)) {
			r.Lost++
		}
	}
	return r
}

// stop stops a process, and waits until it has stopped. The function that it returns lets it go on.
func (tr *troop) stop(p *process) (resume func()) {
	tr.t.Helper()
	require.NoError(tr.t, unix.Kill(p.cmd.Process.Pid, unix.SIGSTOP))
	require.Eventually(tr.t, func() bool {
		out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(p.cmd.Process.Pid)).Output()
		return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
	}, time.Minute, time.Millisecond)
	return func() { require.NoError(tr.t, unix.Kill(p.cmd.Process.Pid, unix.SIGCONT)) }
}

func (tr *troop) result(p *process, token uint64) (what string) {
	tr.t.Helper()
	tr.await(fmt.Sprintf("the result of token %d", token), func() bool {
		what = p.result[token]
		return what != ""
	})
	return what
}

// amidAnother stops a holder between reading and writing, until another has read. Then it writes, and then the other.
// Nobody else writes meanwhile, or a storage that is only shown tokens on writing would refuse it.
func (tr *troop) amidAnother() (result string) {
	tr.t.Helper()
	// The one that stays with the least token above one.
	first := func(above uint64) (p *process) {
		for _, q := range tr.all {
			if q.held > above && (p == nil || q.held < p.held) {
				p = q
			}
		}
		return p
	}
	var p, q *process
	var token, next uint64
	tr.calm()
	tr.order(order{Do: doHold}, tr.all...)
	tr.order(tr.task, tr.all...)
	tr.await("a holder to stay", func() bool {
		if p = first(0); p != nil {
			token = p.held
		}
		return p != nil
	})
	resume := tr.stop(p)
	tr.await("another to read", func() bool {
		if q = first(token); q != nil {
			next = q.held
		}
		return q != nil
	})
	tr.order(order{Do: doGo}, p)
	resume()
	result = tr.result(p, token)
	tr.order(order{Do: doGo}, q)
	tr.result(q, next)
	tr.calm()
	tr.order(tr.task, tr.all...)
	return result
}

// anywhere stops the process that has just got the lock, wherever it is by then, until another has the lock.
func (tr *troop) anywhere() {
	tr.t.Helper()
	latest := func() (p *process) {
		for _, q := range tr.all {
			if p == nil || q.locked > p.locked {
				p = q
			}
		}
		return p
	}
	var p *process
	var token uint64
	tr.mu.Lock()
	before := latest().locked
	tr.mu.Unlock()
	tr.await("a holder", func() bool {
		p = latest()
		token = p.locked
		return token > before
	})
	resume := tr.stop(p)
	tr.await("another holder", func() bool { return latest() != p })
	resume()
}

type volume struct {
	accepted int // additions of the guarded set, at least
	stops    int // of each kind
}

// stopped plays the guarded set and its controls on one storage, under a quorum of five.
func stopped(t *testing.T, kind string, v volume) {
	at := places[kind](t)
	cluster := rt.Real(t, 5)
	urls := cluster.URLs()
	watcher := rt.Must(redlock.Open(t.Context(), urls, quick(stoppedTTL)))(t)
	t.Cleanup(func() { _ = watcher.Close() })
	voting(t, watcher)
	tr := muster(t, terms{URLs: urls, TTL: stoppedTTL, Kind: kind, At: at})
	f := stores[kind](t, at)

	begun := time.Now()
	tr.run("guarded", fencetest.Guarded)
	kills := 0
	for round := range v.stops {
		// One of five, or two that are neighbours: with what they had, or empty.
		var dead []redistest.Server
		for i := range 1 + round%2 {
			dead = append(dead, cluster.Servers[(round+i)%5])
		}
		for _, s := range dead {
			s.Kill()
			kills++
		}
		require.Equal(t, isRefused, tr.amidAnother(), "of a holder that was stopped until another had read")
		tr.anywhere()
		for _, s := range dead {
			require.NoError(t, s.Restart(round%3 != 2))
		}
		voting(t, watcher)
	}
	tr.await("enough additions", func() bool { return len(tr.accepted) >= v.accepted })
	guarded := tr.rest(f)
	took := time.Since(begun)
	tr.mu.Lock()
	doubts, unlucky := tr.doubts, tr.unlucky
	tr.mu.Unlock()

	lost := map[fencetest.Use]fencetest.SetResult{}
	for _, use := range []fencetest.Use{fencetest.WriteOnly, fencetest.Unguarded} {
		tr.run(string(use), use)
		for range min(v.stops, 4) {
			require.Equal(t, isAccepted, tr.amidAnother(), "of a holder that was stopped until another had read: %s", use)
		}
		lost[use] = tr.rest(f)
		require.NotZero(t, lost[use].Lost, "the %s control lost nothing, so the guarded set shows nothing: %v", use, lost[use])
	}
	t.Logf("| %s | %d | %d | **%d** | %d | %d stops, %d kills | %d of %d | %d of %d | %.0f s |", kind, guarded.Accepted, guarded.Refused, guarded.Lost, len(doubts),
		2*v.stops, kills, lost[fencetest.WriteOnly].Lost, lost[fencetest.WriteOnly].Accepted,
		lost[fencetest.Unguarded].Lost, lost[fencetest.Unguarded].Accepted, took.Seconds())
	if len(doubts)+len(unlucky) > 0 {
		t.Logf("in doubt %d: %.300q; no lock %d times: %.300q", len(doubts), doubts, len(unlucky), unlucky)
	}
	require.Zero(t, guarded.Lost, "acknowledged additions of the guarded set: %v", guarded)
	require.GreaterOrEqual(t, guarded.Refused, v.stops, "stale writes")
}

func voting(t testing.TB, c *redlock.Client) {
	t.Helper()
	require.Eventually(t, func() bool {
		return !slices.ContainsFunc(c.Members(), func(m redlock.MemberInfo) bool { return m.State != redlock.MemberVoting })
	}, time.Minute, 2*time.Millisecond)
}

// Holders in processes of their own are stopped past their leases, and members die: a storage loses nothing.
func TestFaultsStoppedHolders(t *testing.T) {
	v := volume{accepted: 100, stops: 2}
	switch os.Getenv("REDQUORUM_FAULTS") {
	case "":
		t.Skip("FAULTS: make test-faults stops the holders of several storages")
	case "all":
		v = volume{accepted: 500, stops: 8}
	}
	for _, kind := range []string{"file", "SQLite", "PostgreSQL", "MariaDB"} {
		t.Run(kind, func(t *testing.T) { stopped(t, kind, v) })
	}
}
