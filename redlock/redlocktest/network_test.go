package redlocktest_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

func TestNetworkDelaysEachWayOfOneClientAtTheMembersThatItNames(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		near := d.Open()
		require.NoError(t, rt.Must(near.Mutex("k").Lock(t.Context()))(t).Unlock(t.Context())) // else the first token takes a second round
		synctest.Wait()
		d.Network(d.Client, redlocktest.Network{Request: 30 * time.Millisecond, Reply: 10 * time.Millisecond}, 0, 1)
		sent := time.Now()
		locking := rt.Begin(func() (*redlock.Lease, error) { return d.Client.Mutex("k").Lock(t.Context()) })
		time.Sleep(29 * time.Millisecond)
		held := func() int { return len(rt.Must(near.Inspect(t.Context(), "k"))(t).Holders) }
		require.Zero(t, held(), "the requests are under way, but for that to member 2")
		time.Sleep(time.Millisecond)
		synctest.Wait()
		require.Equal(t, 1, held())
		l := locking.Get(t)
		require.Equal(t, 40*time.Millisecond, time.Since(sent), "and a majority has answered")

		d.Delay(d.Client, 7*time.Millisecond) // of each way: 3.5 ms
		sent = time.Now()
		require.NoError(t, l.Unlock(t.Context()))
		require.Equal(t, 7*time.Millisecond, time.Since(sent))
		d.Delay(d.Client, 0)
		sent = time.Now()
		require.NoError(t, hold(t, d).Unlock(t.Context()))
		require.Zero(t, time.Since(sent), "the delay before is no more")
	})
}

// What is lost on the way is not executed, and what is lost on the way back is: nobody knows which of the two it was.
func TestNetworkLosesOneWayWithoutAWord(t *testing.T) {
	for name, tc := range map[string]struct {
		n        redlocktest.Network
		executed bool
	}{
		"requests": {redlocktest.Network{LoseRequests: true}, false},
		"replies":  {redlocktest.Network{LoseReplies: true}, true},
		"both":     {redlocktest.Network{LoseRequests: true, LoseReplies: true}, false},
	} {
		t.Run(name, inFake(func(t *testing.T, d *redlocktest.Deployment) {
			other := d.Open()
			d.Network(d.Client, tc.n, 0, 1)
			tried := rt.Go(func() error { return rt.Err(d.Client.Mutex("k").TryLock(t.Context())) })
			synctest.Wait()
			seen := rt.Must(other.Inspect(t.Context(), "k"))(t)
			require.Equal(t, tc.executed, len(seen.Holders) == 1, "%+v", seen.Holders)
			require.ErrorIs(t, <-tried, redlock.ErrNoQuorum)
			for _, m := range d.Client.Members()[:2] {
				require.Equal(t, redlock.MemberVoting, m.State, "it is silent, not down")
			}
			d.AwaitState(redlock.MemberDown, 0, 1) // by StallTimeout
		}))
	}
}

func TestNetworkThatLosesPushesLeavesAWaiterToItsHeartbeats(t *testing.T) {
	for lost, at := range map[bool]time.Duration{false: 0, true: time.Second} {
		fake(t, func(t *testing.T, d *redlocktest.Deployment) {
			other := d.Open()
			d.Network(other, redlocktest.Network{LosePushes: lost})
			l := hold(t, d)
			granted := rt.Begin(func() (*redlock.Lease, error) { return other.Mutex("k").Lock(t.Context()) })
			time.Sleep(10 * time.Millisecond)
			freed := time.Now()
			require.NoError(t, l.Unlock(t.Context()))
			granted.Get(t)
			require.InDelta(t, at, granted.At.Sub(freed), float64(100*time.Millisecond))
		})
	}
}

func TestNetworkThatIsWholeAgainIsConnectedAgain(t *testing.T) {
	for name, mend := range map[string]func(d *redlocktest.Deployment){
		"Heal":    func(d *redlocktest.Deployment) { d.Heal() },
		"Network": func(d *redlocktest.Deployment) { d.Network(d.Client, redlocktest.Network{}) },
		"Delay":   func(d *redlocktest.Deployment) { d.Delay(d.Client, 0) },
	} {
		for broken, n := range map[string]redlocktest.Network{
			"lost": {LoseRequests: true, LoseReplies: true}, "cut": {Cut: true},
		} {
			t.Run(broken+", "+name, inFake(func(t *testing.T, d *redlocktest.Deployment) {
				d.Network(d.Client, n)
				require.ErrorIs(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
				require.NoError(t, d.Open().Close(), "others do not notice")
				began := time.Now()
				mend(d)
				ctx := rt.Within(t, time.Second)
				l := rt.Must(d.Client.Mutex("k").Lock(ctx))(t)
				require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
				require.NoError(t, l.Unlock(t.Context()))
			}))
		}
	}
}

func TestCrashReleasesNothingAndIsForGood(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		other := d.Open()
		l := hold(t, d, redlock.AutoRenew(9*time.Second))
		time.Sleep(time.Second)
		d.Crash(d.Client)
		crashed := time.Now()
		d.Heal()
		ctx := rt.Within(t, time.Minute)
		next := rt.Must(other.Mutex("k").Lock(ctx))(t)
		require.Greater(t, time.Since(crashed), 7*time.Second, "its TTL ends, and nobody has renewed it")
		require.LessOrEqual(t, time.Since(crashed), 9*time.Second+time.Second)
		require.ErrorIs(t, l.Err(), redlock.ErrLost, "the code that used it has heard in time")
		for _, m := range d.Client.Members() {
			require.Equal(t, redlock.MemberDown, m.State)
		}
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(time.Minute)
		require.ErrorIs(t, rt.Err(d.Client.Mutex("k").TryLock(t.Context())), redlock.ErrNoQuorum)
	})
}

func TestLeftoversAreTheKeysThatALockLeaves(t *testing.T) {
	fake(t, func(t *testing.T, d *redlocktest.Deployment) {
		require.Empty(t, d.Leftovers())
		l := hold(t, d)
		synctest.Wait()
		require.Equal(t, []string{"0/env:k", "1/env:k", "2/env:k"}, d.Leftovers())
		require.NoError(t, l.Unlock(t.Context()))
		synctest.Wait()
		require.Empty(t, d.Leftovers())
		hold(t, d, redlock.TTL(5*time.Second))
		synctest.Wait()
		d.Cut()
		require.Len(t, d.Leftovers(), 3, "no network stands between")
		time.Sleep(5 * time.Second)
		require.Empty(t, d.Leftovers())
	}, redlock.Config{Prefix: "env:"})
}
