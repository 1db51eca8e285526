package redlock_test

import (
	"errors"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest/rt"
	"github.com/redquorum/redquorum/redlock"
)

// On real servers a lock that is freed goes to both that wait for it, one after the other, with tokens that rise. Everybody
// waits in line before it is freed, so each is woken by a push.
func TestFreedLockGoesToBothThatWaitOneAtATime(t *testing.T) {
	t.Parallel()
	cluster := rt.Real(t, 3)
	all := [3]*redlock.Client{}
	for i := range all {
		all[i] = redlock.OpenAll(t, cluster, patient)
	}
	settle(t, 3, all[:]...)
	for round := range 10 {
		key := "k" + strconv.Itoa(round)
		held := locked(t, all[0], key)
		unlocked := make(chan error, 1)
		go func() {
			err := inLine(t.Context(), cluster.Servers, key, 2)
			unlocked <- errors.Join(err, held.Unlock(t.Context()))
		}()
		var inside, last atomic.Uint64
		last.Store(held.Token())
		together(t, 2, func(i int) error {
			l, err := all[1+i].Mutex(key).Lock(ending(t))
			if err != nil {
				return err
			}
			if inside.Add(1) != 1 || l.Token() <= last.Swap(l.Token()) {
				t.Errorf("round %d: two inside, or a token of %d that does not rise", round, l.Token())
			}
			inside.Add(^uint64(0))
			return l.Unlock(t.Context())
		})
		require.NoError(t, <-unlocked)
	}
	clean(t, cluster)
}
