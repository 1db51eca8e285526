//go:build linux || darwin

package redlock_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
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

// A child is this test binary again, running TestChildProcess with its orders in the environment. It has a client of its
// own, and reports in JSON, one object a line.
const ordersEnv = "REDQUORUM_TEST_ORDERS"

// orders are what a child is to do: take the lock, look at its lease until it ends, and again, until it is killed.
type orders struct {
	URLs  []string
	TTL   time.Duration
	Fixed bool // the lease is not renewed
}

// report is what a child says: that it has the lock, and then what it saw.
type report struct{ Looks *looks }

// TestChildProcess is no test of its own: it is what the processes below run.
func TestChildProcess(t *testing.T) {
	text := os.Getenv(ordersEnv)
	if text == "" {
		return
	}
	go func() { // the end of the parent is the end of this process
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(3)
	}()
	var o orders
	require.NoError(t, json.Unmarshal([]byte(text), &o))
	c := rt.Must(redlock.OpenWith(t.Context(), o.URLs, redlock.WithConfig(redlock.Config{FreshMembers: true, RestartGuard: redlock.GuardOff})))(t)
	for out := json.NewEncoder(os.Stdout); ; {
		require.NoError(t, o.look(c, out))
	}
}

// spawn starts a child, whose reports reports reads. It ends with the test at the latest.
func spawn(t *testing.T, o orders) (process *os.Process, reports *json.Decoder) {
	t.Helper()
	text := rt.Must(json.Marshal(o))(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildProcess$")
	cmd.Env = append(os.Environ(), ordersEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	require.NoError(t, rt.Err(cmd.StdinPipe()))
	out := rt.Must(cmd.StdoutPipe())(t)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	return cmd.Process, json.NewDecoder(out)
}

// looks are what a process saw that looked at a lease in every way there is.
type looks struct {
	Until int64          // end of its validity
	Lost  bool           // the lease says so
	Dead  map[string]int // how often each way of looking found the lease ended
	Alive []string       // looks that found it alive past its validity
}

// look takes the lock, and looks at the lease from several goroutines until each has seen its end. It reports when it has
// the lock, and what it saw.
func (o *orders) look(c *redlock.Client, out *json.Encoder) error {
	opt := redlock.AutoRenew(o.TTL)
	if o.Fixed {
		opt = redlock.TTL(o.TTL)
	}
	err := c.Mutex("k", opt).Do(context.Background(), func(inner context.Context, lease *redlock.Lease) error {
		ctx := lease.Context()
		ways := map[string]func() bool{ // alive?
			"Lease.Err":        func() bool { return lease.Err() == nil },
			"Context.Err":      func() bool { return ctx.Err() == nil },
			"Lease.ValidUntil": func() bool { return time.Until(lease.ValidUntil()) > 0 },
			"Lease.Done":       func() bool { return !ended(lease.Done()) },
			"Context.Done":     func() bool { return !ended(ctx.Done()) },
			"Do, Err":          func() bool { return inner.Err() == nil },
			"Do, Done":         func() bool { return !ended(inner.Done()) },
		}
		_ = out.Encode(report{})
		seen := looks{Dead: map[string]int{}}
		var mu sync.Mutex // guards seen
		var all sync.WaitGroup
		for name, alive := range ways {
			all.Go(func() {
				for dead := 0; dead < 100; {
					before := time.Now()
					if !alive() {
						dead++
						continue
					}
					// Read later, so it can only be later: a renewal may have moved it meanwhile.
					if until := lease.ValidUntil(); before.After(until) {
						mu.Lock()
						seen.Alive = append(seen.Alive, fmt.Sprintf("%s: alive %v after its end", name, before.Sub(until)))
						mu.Unlock()
					}
				}
				mu.Lock()
				defer mu.Unlock()
				seen.Dead[name] = 100
			})
		}
		all.Wait()
		seen.Lost, seen.Until = errors.Is(lease.Err(), redlock.ErrLost), judge.At(lease.ValidUntil())
		return out.Encode(report{Looks: &seen})
	})
	if errors.Is(err, redlock.ErrLost) {
		return nil
	}
	return err
}

func ended(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// A process that was stopped for longer than its lease finds it ended at the first look, however it looks.
func TestLongLeaseOfAStoppedProcessIsDeadWhenItWakes(t *testing.T) {
	redlock.Long(t)
	const ttl, rounds = 120 * time.Millisecond, 40
	cluster := rt.Real(t, 5)
	within, sum := 0, 0
	for _, fixed := range []bool{true, false} {
		process, reports := spawn(t, orders{urls(cluster), ttl, fixed})
		next := func() (r report) {
			require.NoError(t, reports.Decode(&r))
			return r
		}
		for range rounds {
			require.Nil(t, next().Looks)
			if !fixed { // at any moment of a renewal
				time.Sleep(rand.N(ttl))
			}
			asked := judge.Now()
			pid := process.Pid
			require.NoError(t, unix.Kill(pid, unix.SIGSTOP))
			require.Eventually(t, func() bool {
				out, err := exec.Command("ps", "-o", "stat=", "-p", fmt.Sprint(pid)).Output()
				return err == nil && strings.HasPrefix(strings.TrimSpace(string(out)), "T")
			}, 20*time.Second, time.Millisecond)
			time.Sleep(2 * ttl)
			woken := judge.Now()
			require.NoError(t, unix.Kill(pid, unix.SIGCONT))
			r := next().Looks
			require.NotNil(t, r)
			require.Empty(t, r.Alive, "seen alive after its end, fixed: %v", fixed)
			require.True(t, r.Lost)
			require.Less(t, r.Until, woken, "a lease that was renewed after its end")
			require.Len(t, r.Dead, 7)
			for _, n := range r.Dead {
				sum += n
			}
			if asked < r.Until && r.Until < woken {
				within++ // its validity ended while it was stopped
			}
		}
		require.NoError(t, process.Kill())
	}
	t.Logf("%d of %d leases ended while their process was stopped; %d looks", within, 2*rounds, sum)
	require.GreaterOrEqual(t, within, rounds, "too few leases ended while their process was stopped")
	clean(t, cluster)
}
