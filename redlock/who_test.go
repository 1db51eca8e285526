package redlock_test

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

func labelled(label string) string {
	host, _ := os.Hostname()
	return fmt.Sprintf("%s (%s, pid %d)", label, host, os.Getpid())
}

// Seven minutes are longer than what a client tells lasts. Cost: 2 s, of heartbeats.
func TestInspectSaysWhoHasALockAndWhoWaits(t *testing.T) {
	for prefix, heldFor := range map[string]time.Duration{"": time.Second, "prod:": 7 * time.Minute} {
		faketime.Test(t, func(t *testing.T) {
			d := redlocktest.New(t, 3, redlock.Config{Label: "billing", Prefix: prefix})
			other := d.Open(redlock.Config{Label: "reports", Prefix: prefix})
			silent := d.Open(redlock.Config{Prefix: prefix})
			held := rt.Must(d.Client.Mutex("k").Lock(t.Context()))(t)
			time.Sleep(time.Millisecond) // it has the votes of all members: one that is free gives a waiter its vote
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			for _, c := range []*redlock.Client{other, silent} {
				go func() { _, _ = c.Mutex("k").Lock(ctx) }()
				time.Sleep(time.Millisecond) // one behind the other
			}
			time.Sleep(heldFor)
			for _, c := range []*redlock.Client{silent, other} {
				in := rt.Must(c.Inspect(t.Context(), "k"))(t)
				require.Len(t, in.Holders, 1)
				require.Equal(t, labelled("billing"), in.Holders[0].Who)
				for _, m := range in.Members {
					require.NoError(t, m.Err)
					require.Len(t, m.Queue, 2)
					require.Equal(t, labelled("billing"), m.Votes[0].Who)
					require.Equal(t, labelled("reports"), m.Queue[0].Who)
					require.Empty(t, m.Queue[1].Who, "it has told nothing")
				}
			}
			giveUp()
			require.NoError(t, held.Unlock(t.Context()))
		})
	}
}

func TestTryThatIsRefusedSaysWhoHasIt(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		d := redlocktest.New(t, 3, redlock.Config{Label: "billing"})
		other, silent := d.Open(redlock.Config{Label: "reports"}), d.Open()
		time.Sleep(time.Second) // the members are told in the background
		held := rt.Must(d.Client.Mutex("k").Lock(t.Context()))(t)
		permit := rt.Must(d.Client.Semaphore("s", 1).Acquire(t.Context()))(t)
		time.Sleep(time.Millisecond)
		d.Pause(2) // a majority says who has it
		began := time.Now()
		for _, try := range []func(c *redlock.Client) error{
			func(c *redlock.Client) error { _, err := c.Mutex("k").TryLock(t.Context()); return err },
			func(c *redlock.Client) error { _, err := c.RWMutex("k").TryRLock(t.Context()); return err },
			func(c *redlock.Client) error { _, err := c.Semaphore("s", 1).TryAcquire(t.Context()); return err },
		} {
			err := try(other)
			require.Equal(t, []string{labelled("billing")}, rt.As[*redlock.QuorumError](t, err).Who)
			require.ErrorIs(t, err, redlock.ErrHeld)
			require.True(t, strings.HasSuffix(err.Error(), ": held by "+labelled("billing")), err)
			err = try(silent)
			require.ErrorIs(t, err, redlock.ErrHeld)
			require.Empty(t, rt.As[*redlock.QuorumError](t, err).Who, "who tells nothing is told nothing")
		}
		require.Zero(t, time.Since(began))
		d.Resume(2)
		in := rt.Must(other.InspectSemaphore(t.Context(), "s"))(t)
		require.Equal(t, labelled("billing"), in.Holders[0].Who)
		require.Equal(t, labelled("billing"), in.Members[0].Votes[0].Who)
		require.NoError(t, permit.Unlock(t.Context()))
		require.NoError(t, held.Unlock(t.Context()))
		unlabelled := rt.Must(silent.Mutex("k").TryLock(t.Context()))(t)
		_, err := other.Mutex("k").TryLock(t.Context())
		require.ErrorIs(t, err, redlock.ErrHeld)
		require.NotContains(t, err.Error(), "held by")
		require.NoError(t, unlabelled.Unlock(t.Context()))
	})
}

// What a client told of itself is gone when it is closed, and soon after it was lost. A member that comes later is told.
func TestWhoIsToldAndForgotten(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		d := redlocktest.New(t, 3)
		c := d.Open(redlock.Config{Label: "billing"})
		take := func() {
			require.NoError(t, rt.Err(rt.Must(c.Mutex("k").Lock(t.Context()))(t).Handoff())) // the members name its owner when its client is gone
		}
		who := func() string {
			in := rt.Must(d.Client.Inspect(t.Context(), "k"))(t)
			require.Len(t, in.Holders, 1)
			return in.Holders[0].Who
		}
		time.Sleep(time.Second)
		take()
		require.Equal(t, labelled("billing"), who())
		d.Flush(0, 1)
		time.Sleep(5 * time.Minute)
		d.Cut(2) // only the others are asked
		take()
		require.Equal(t, labelled("billing"), who(), "they are told again")
		require.NoError(t, c.Close())
		require.Empty(t, who())
	})
}

// A member that lacks the script is told twice: the second time would be behind the deletion.
func TestWhatAClientToldIsGoneHoweverSoonItIsClosed(t *testing.T) {
	for steps := range 100 {
		faketime.Test(t, func(t *testing.T) {
			d := redlocktest.New(t, 3)
			c := d.Open(redlock.Config{Label: "billing"})
			for range steps {
				runtime.Gosched()
			}
			require.NoError(t, c.Close())
			noKeys(t, d)
		})
	}
}

func TestLabelThatCannotBeShownIsRefused(t *testing.T) {
	for label, problem := range map[string]string{strings.Repeat("x", 129): "at most 128", "a\nb": "printed", "\xff": "printed", "a\x1b[1m": "printed"} {
		_, err := redlock.Open(t.Context(), []string{"redis://127.0.0.1:1"}, redlock.Config{Label: label})
		rt.Says(t, err, redlock.ErrInput, problem)
	}
}
