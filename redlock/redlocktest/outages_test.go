package redlocktest_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Each line of the README's table of outages is one here. Its figures are measured from the outage on: until the holder's
// context ends, until a Lock fails, until the next holder has the lock.
func TestOutagesAreAsTheReadmeSays(t *testing.T) {
	readme := string(rt.Must(os.ReadFile(filepath.Join("..", "..", "README.md")))(t))
	type members = *redlocktest.Deployment
	lost := redlocktest.Network{LoseRequests: true, LoseReplies: true}
	mutex := func(c *redlock.Client) (*redlock.Lease, error) { return c.Mutex("k").Lock(context.Background()) }
	leader := func(c *redlock.Client) (*redlock.Lease, error) {
		return c.Election("k").Campaign(context.Background(), nil)
	}
	crashes := []func(d members){func(d members) { d.Crash(d.Client) }, func(d members) { d.Network(d.Client, lost) }}
	for _, row := range []struct {
		line string
		take func(c *redlock.Client) (*redlock.Lease, error)
		free error // of a TryLock of another name meanwhile
		ways []func(d members)
	}{
		{"one member dies, hangs, restarts or is emptied | goes on%.0[1]s | is had at once | is had when it is unlocked", mutex, nil,
			[]func(d members){func(d members) { d.Cut(0) }, func(d members) { d.Pause(0) }, func(d members) { d.Restart(0) }, func(d members) { d.Flush(0) }}},
		{"two or three cannot be reached, but live on | ends after %[1]s | `ErrNoQuorum`: from `TryLock` within 0.2 s, from `Lock` after %[3]s, from later ones after 0.2 s | is had when they are back", mutex, redlock.ErrNoQuorum,
			[]func(d members){func(d members) { d.Cut(0, 1) }, func(d members) { d.Cut() }, func(d members) { d.Pause(0, 1) }}},
		{"two or three die and restart, or are emptied | ends after %[2]s | `ErrQuarantined` from `TryLock` when they are back; `Lock` waits | is had %[5]s after they are back", mutex, redlock.ErrQuarantined,
			[]func(d members){func(d members) { d.Restart() }, func(d members) { d.Forget(0, 1) }, func(d members) { d.Flush() }}},
		{"the holder is cut off, dies, or is paused | ends after %[1]s; of a paused one, when it wakes up | is had at once | is had after %[4]s", mutex, nil, crashes},
		{"a leader is cut off, dies, or is paused | ends after %[1]s; of a paused one, when it wakes up | is had at once | another leads after %[4]s", leader, nil, crashes},
	} {
		var ended, failed, next []time.Duration
		for i := range 2 * len(row.ways) { // right after a renewal, and before the next one
			fake(t, func(t *testing.T, d *redlocktest.Deployment) {
				lease, other, got := rt.Must(row.take(d.Client))(t), d.Open(), make(chan struct{})
				time.Sleep(time.Duration(i%2) * (time.Until(lease.ValidUntil())/3 - 100*time.Millisecond))
				began := time.Now()
				go func() {
					defer close(got)
					waited, err := row.take(other)
					if err != nil {
						failed = append(failed, time.Since(began))
					}
					for err != nil {
						waited, err = row.take(other)
					}
					next = append(next, time.Since(began))
					assert.NoError(t, waited.Unlock(t.Context()))
				}()
				row.ways[i/2](d)
				time.Sleep(time.Second)
				free, err := other.Mutex("free").TryLock(t.Context())
				require.ErrorIs(t, err, row.free)
				_ = free.Unlock(t.Context())
				select {
				case <-lease.Done():
					ended = append(ended, time.Since(began))
				case <-time.After(31 * time.Second):
					require.NoError(t, lease.Unlock(t.Context()))
				}
				d.Heal()
				d.Resume()
				<-got
			})
		}
		line := "| " + fmt.Sprintf(row.line, span(ended), span(append(ended, 0)), span(failed), span(next), span(append(next, 31*time.Second))) + " |" // 31: a look may come a PingInterval later
		t.Log(line)
		assert.True(t, strings.Contains(readme, "\n"+line+"\n"), "README.md has another line")
	}
}

func span(took []time.Duration) string {
	if len(took) == 0 {
		return "never"
	}
	least, most := slices.Min(took).Round(time.Second).Seconds(), slices.Max(took).Round(time.Second).Seconds()
	return map[bool]string{true: fmt.Sprint(most, " s"), false: fmt.Sprint(least, " to ", most, " s")}[least == most]
}
