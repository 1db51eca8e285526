package redlock_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/faketime"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Whoever searches logs for a lock finds it under its name, and not under its name in quotes. A long one is cut.
func TestLogsHaveTheNameOfALockAsItIs(t *testing.T) {
	var out rt.Text
	withOne(t, 3, func(t *testing.T, d *redlocktest.Deployment, p *caller) {
		long := strings.Repeat("n", 1000)
		for _, name := range []string{"invoice:42", long} {
			lost := rt.Must(p.Mutex(name, redlock.TTL(time.Second)).Lock(t.Context()))(t)
			<-lost.Done()
			synctest.Wait()
			require.NoError(t, rt.Err(p.Mutex(name).Lock(t.Context())))
			require.NoError(t, rt.Err(p.ForceUnlock(t.Context(), name)))
		}
		said := make(map[string]int)
		for line := range strings.Lines(out.String()) {
			var entry struct{ Msg, Key string }
			require.NoError(t, json.Unmarshal([]byte(line), &entry))
			said[entry.Msg+" "+entry.Key]++
		}
		cut := strings.Repeat("n", 64) + "… (1000 bytes)"
		for _, want := range []string{"lease lost invoice:42", "lock forced open invoice:42", "lease lost " + cut, "lock forced open " + cut} {
			require.Equal(t, 1, said["redlock: "+want], "%s: %v", want, said)
		}
	}, redlock.WithLogger(slog.New(slog.NewJSONHandler(&out, nil))))
}

// A person looks, thinks, and says yes. Whoever got the lock meanwhile keeps it.
func TestForceUnlockOfTheHolderThatWasSeenLeavesTheNextOneAlone(t *testing.T) {
	redlock.Bubble(t, 3, func(t *testing.T, cluster *redistest.Cluster) {
		a, b, c := redlock.JoinAll(t, cluster), redlock.JoinAll(t, cluster), redlock.JoinAll(t, cluster)
		first := a.Hold(t, "k")
		seen := inspect(t, c, "k")
		require.NotContains(t, fmt.Sprintf("%+v %#v", seen, seen), redlock.OwnerOf(first))
		freed, err := c.ForceUnlockSeen(t.Context(), seen)
		require.NoError(t, err)
		require.Equal(t, 3, freed)

		second := b.Hold(t, "k")
		freed = rt.Must(c.ForceUnlockSeen(t.Context(), seen))(t)
		require.Zero(t, freed, "seen was another")
		require.Equal(t, 3, votesAt(cluster, second))

		// A request that is on its way for long, and executed at the end of it, is as harmless.
		seen = inspect(t, c, "k")
		c.Slow(time.Second, time.Second, time.Second)
		time.AfterFunc(100*time.Millisecond, func() { _ = second.Unlock(t.Context()) })
		freed, err = c.ForceUnlockSeen(t.Context(), seen)
		require.ErrorIs(t, err, redlock.ErrNoQuorum, "nobody answers in time")
		require.Zero(t, freed)
		third := a.Hold(t, "k")
		time.Sleep(2 * time.Second)
		require.NoError(t, third.Err())
		require.Equal(t, 3, votesAt(cluster, third))
		require.NoError(t, third.Unlock(t.Context()))
		require.ErrorIs(t, rt.Err(c.ForceUnlockSeen(t.Context(), nil)), redlock.ErrInput)
	})
}

func TestForceUnlockOfVotesThatWereSeen(t *testing.T) {
	withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, a, c *caller) {
		held := a.Hold(t, "k", redlock.TTL(20*time.Second))
		d.Evict("k", 0)
		c.Away(1)
		time.Sleep(time.Millisecond)
		seen := inspect(t, c, "k")
		require.Empty(t, seen.Holders)
		freed := rt.Must(c.ForceUnlockSeen(t.Context(), seen))(t)
		require.Equal(t, 1, freed)
		require.Equal(t, 1, votesSeen(t, a, held))
		empty := inspect(t, c, "nobody's")
		freed = rt.Must(c.ForceUnlockSeen(t.Context(), empty))(t)
		require.Zero(t, freed)
	})
}

// A member that answers the holder's renewal early is not given the lease back before a later one refuses.
func TestForceIsFinalWhateverTheHoldersRenewalsDo(t *testing.T) {
	for _, seen := range []bool{false, true} {
		withTwo(t, 3, func(t *testing.T, d *redlocktest.Deployment, h, p *caller) {
			l := h.Hold(t, "k", redlock.AutoRenew(9*time.Second))
			h.Slow(time.Millisecond, 20*time.Millisecond, time.Millisecond)
			look := inspect(t, p, "k")
			p.Away(2)
			synctest.Wait()
			if seen {
				require.Equal(t, 2, rt.Must(p.ForceUnlockSeen(t.Context(), look))(t))
			} else {
				require.True(t, rt.Must(p.ForceUnlock(t.Context(), "k"))(t))
			}
			forced := time.Now()
			<-l.Done()
			require.LessOrEqual(t, time.Since(forced), 3*time.Second+50*time.Millisecond, "at its next renewal")
			require.ErrorIs(t, l.Err(), redlock.ErrLost)
			next := p.Hold(t, "k", redlock.AutoRenew(3*time.Second))
			time.Sleep(time.Minute)
			require.NoError(t, next.Err())
		})
	}
}

// taught loads every script at every server: none is repaired at its first call.
func taught(t testing.TB, cluster *redistest.Cluster) {
	t.Helper()
	for _, s := range cluster.Servers {
		for _, source := range redlock.Scripts() {
			redlock.Admin(t, s, "SCRIPT", "LOAD", source)
		}
	}
}

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
