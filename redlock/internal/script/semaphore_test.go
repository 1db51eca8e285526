package script

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A client asks first for the slot that it gave back last. If it waits, the slot depends on the owner: each slot has
// about as many waiters, also in the place of votes that are given up.
func TestWaitersAreSpreadOverTheSlots(t *testing.T) {
	const limit, owners = 8, 800
	once := Semaphore("k").Asking(&Asked{Want: 3, Once: true, Limit: limit, N: 1})
	always := Semaphore("k").Asking(&Asked{Want: 3, Limit: limit, N: 1})
	of := map[int]int{}
	for i := range owners {
		owner := OwnerOf("client", uint64(i))
		acquire, _ := words(t, once.Acquire(nil, owner, time.Second).Cmd)
		require.Equal(t, "3", acquire[len(acquire)-4], "an acquire: the slot that was given back last")
		wait, _ := words(t, once.Wait(nil, owner, time.Second, time.Second, 0).Cmd)
		var slot int
		_, err := fmt.Sscan(wait[len(wait)-4], &slot)
		require.NoError(t, err)
		of[slot]++
		back, _ := words(t, once.Claim(nil, owner, nil, nil, time.Second, time.Second).Cmd)
		require.Equal(t, fmt.Sprint("-", slot), back[len(back)-6], "whoever gives up a vote goes back to its lane")
		wait, _ = words(t, always.Wait(nil, owner, time.Second, time.Second, 0).Cmd)
		require.Equal(t, "3", wait[len(wait)-4])
	}
	require.Len(t, of, limit)
	for slot, n := range of {
		require.InDelta(t, owners/limit, n, owners/limit/2, "waiters for slot %d", slot)
	}
}
