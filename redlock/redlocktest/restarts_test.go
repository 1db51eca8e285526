package redlocktest_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// The table "When only short-lived programs come" in docs/restarts.md, cell by cell: processes that live for half a second
// each, and nobody else. Each of them wants the lock at once.
func TestShortLivedProcessesAloneHealADeployment(t *testing.T) {
	for kind, members := range map[string][]int{"a minority": {1}, "a majority": {0, 2}, "all": {0, 1, 2}} {
		for data, restart := range map[string]func(d *redlocktest.Deployment){
			"with data":    func(d *redlocktest.Deployment) { d.Restart(members...) },
			"without data": func(d *redlocktest.Deployment) { d.Forget(members...) },
		} {
			for _, alone := range []time.Duration{time.Second, time.Minute, 24 * time.Hour} {
				t.Run(fmt.Sprintf("%s restarted %s, and nobody came for %v", kind, data, alone), inFake(func(t *testing.T, d *redlocktest.Deployment) {
					d.Crash(d.Client)
					require.NoError(t, d.Client.Close()) // it would dial for a day
					time.Sleep(time.Minute)              // the first deployment is over
					restart(d)
					started := time.Now()
					time.Sleep(alone)
					locked, whole := healed(t, d)
					safe := alone + 30*time.Second // a MaxTTL
					if len(members) == 1 {
						require.Equal(t, alone, locked.Sub(started))
					} else {
						require.WithinDuration(t, started.Add(safe), locked, 500*time.Millisecond, "the first process after that has the lock")
					}
					require.WithinDuration(t, started.Add(safe), whole, 1100*time.Millisecond)
				}))
			}
		}
	}
}

// healed has processes come until all members vote, and returns when the first had the lock, and when that was.
func healed(t *testing.T, d *redlocktest.Deployment) (locked, whole time.Time) {
	for began := time.Now(); whole.IsZero(); {
		require.Less(t, time.Since(began), 2*time.Minute, "they never do")
		c := d.Open()
		l, err := c.Mutex("nightly").TryLock(t.Context())
		if err == nil {
			if locked.IsZero() {
				locked = time.Now()
			}
			require.NoError(t, l.Unlock(t.Context()))
		}
		time.Sleep(500 * time.Millisecond)
		if !slices.ContainsFunc(c.Members(), func(m redlock.MemberInfo) bool { return m.State != redlock.MemberVoting }) {
			whole = time.Now()
		}
		require.NoError(t, c.Close())
	}
	return locked, whole
}
