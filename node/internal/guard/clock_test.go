package guard

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// apart returns base moved by mono on the monotonic and by wall on the wall clock, as after a suspend, or after
// somebody set the clock. No function of package time makes such a value: the second word of time.Time is changed.
func apart(t *testing.T, base time.Time, mono, wall time.Duration) time.Time {
	t.Helper()
	moved := base.Add(wall)
	*(*int64)(unsafe.Add(unsafe.Pointer(&moved), 8)) += int64(mono - wall)
	require.Equal(t, mono, moved.Sub(base), "monotonic reading")
	return moved
}

func TestQuarantineDoesNotEndByTheWallClock(t *testing.T) {
	base := time.Now()
	resting := Standing{}.reads(marker{id: "run 1", state: neverForgot, left: 30 * time.Second, arrived: base})
	over := resting.reads(marker{id: "run 1", state: neverForgot, arrived: base.Add(time.Second)}) // by the member's word
	for _, tc := range []struct {
		name  string
		a     Standing
		now   time.Time
		votes bool
	}{
		{"both clocks, before the end", over, base.Add(29 * time.Second), false},
		{"both clocks, at the end", over, base.Add(30 * time.Second), true},
		{"the wall clock was set forward", over, apart(t, base, time.Second, time.Hour), false},
		{"the wall clock was set back", over, apart(t, base, 30*time.Second, -time.Hour), true},
		{"the end by our count, and the member has not said so", resting, base.Add(time.Hour), false},
	} {
		tc.a.admitted = true
		require.Equal(t, tc.votes, tc.a.mayVote(tc.now), tc.name)
	}
}

// A server whose clock is set forward drops the key of the quarantine, and tells everybody that nothing is left.
func TestLaterLookNeverShortensAQuarantine(t *testing.T) {
	base := time.Now()
	at := func(after, left time.Duration) marker {
		return marker{id: "run 1", state: neverForgot, q: 30 * time.Second, left: left, arrived: base.Add(after)}
	}
	a := Standing{}.reads(at(0, 30*time.Second))
	require.Equal(t, base.Add(30*time.Second), a.votesFrom)
	for _, m := range []marker{at(time.Second, 5*time.Second), at(2*time.Second, 0), at(3*time.Second, 27*time.Second)} {
		a = a.reads(m)
		require.Equal(t, base.Add(30*time.Second), a.votesFrom)
		require.Equal(t, m, a.marker)
	}
	// The answers are late by up to 200 ms: all that is added is the longest of these times.
	for i := range 100 {
		late := time.Duration(i*37%200) * time.Millisecond
		a = a.reads(at(4*time.Second+late, 26*time.Second))
		require.LessOrEqual(t, a.votesFrom.Sub(base), 30*time.Second+200*time.Millisecond)
	}
	a = a.reads(at(5*time.Second, time.Minute))
	require.Equal(t, base.Add(65*time.Second), a.votesFrom, "q was raised")
	a = a.reads(at(70*time.Second, 0))
	require.Equal(t, base.Add(65*time.Second), a.votesFrom, "looks at a member that votes change nothing")
}

// Another client restores a member whose clock was set forward. Who has counted the quarantine goes on counting.
func TestMemberThatOthersRestoredEarlyWaitsForOurOwnCount(t *testing.T) {
	h := admitted(t, marker{id: "run 1", state: forgot, left: time.Minute, arrived: time.Now()})
	from := h.Now().Standing.votesFrom
	h.seat.take(marker{id: "run 1", state: whole, arrived: time.Now()})
	require.False(t, h.Now().State.Votes)
	require.Equal(t, from, h.Now().State.Quarantine)
	h.seat.take(marker{id: "run 1", state: whole, arrived: time.Now().Add(time.Hour)})
	require.Equal(t, from, h.Now().State.Quarantine)
}

func TestAnySourceTellsOfTheLongestLease(t *testing.T) {
	require.Equal(t, time.Second, longestOf(time.Second, nil))
	require.Equal(t, 30*time.Second, longestOf(time.Second, []source{{q: time.Second}, {q: 30 * time.Second}, {q: 2 * time.Second}}))
	require.Equal(t, time.Minute, longestOf(time.Minute, []source{{q: time.Second}}), "or what the client knows itself")
}
