package redlock_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

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

func TestForceUnlockServesTheNextWaiterAndEndsTheHolderAtItsNextRenewal(t *testing.T) {
	deployed(t, 5, func(t *testing.T, d *redlocktest.Deployment) {
		a, b, c := another(t, d), another(t, d), another(t, d)
		held := a.Lock(t, "k", redlock.AutoRenew(9*time.Second))
		got := b.LockLater(t.Context(), "k")
		time.Sleep(time.Second)
		at := time.Now()
		forced := rt.Must(c.ForceUnlock(t.Context(), "k"))(t)
		require.True(t, forced)
		next := got.Get(t)
		require.Less(t, time.Since(at), 100*time.Millisecond)
		require.Greater(t, next.Token(), held.Token())
		<-held.Done()
		require.LessOrEqual(t, time.Since(at), 3*time.Second, "a third of its TTL")
		require.ErrorIs(t, held.Err(), redlock.ErrLost)
		require.NoError(t, next.Err(), "the loser's release does not touch it")
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(30 * time.Second) // the longest lease that there may have been
		noKeysAtRest(t, d)
		forced = rt.Must(c.ForceUnlock(t.Context(), "k"))(t)
		require.False(t, forced, "nobody held it")
	})
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
