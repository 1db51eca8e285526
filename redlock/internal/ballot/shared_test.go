package ballot

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/quorum"
)

// newSharedDesk is newDesk for a lock that is shared with Redisson.
func newSharedDesk(n int) *desk {
	d := newDesk(n)
	d.shared = &shared{pauses: make([]pause, n)}
	return d
}

// Our own release is told in their channel too; it is not their word that the lock is free.
func TestMessageOfOurOwnMakingIsNotTheirs(t *testing.T) {
	d := newSharedDesk(3)
	hears := func(i int, what ...Overheard) (quorum.Set, bool) {
		for _, w := range what {
			d.Overhears(i, w)
		}
		return d.shared.ask()
	}
	to, freed := hears(1, Freed)
	require.Equal(t, quorum.Set(1<<1), to)
	require.True(t, freed)
	to, _ = hears(1, Turn, Freed)
	require.Zero(t, to, "it is their turn")
	to, freed = hears(1, Freed)
	require.Equal(t, quorum.Set(1<<1), to, "they had it")
	require.True(t, freed)
	d.Overhears(2, Turn)
	to, freed = hears(0, Freed)
	require.Equal(t, quorum.Set(1<<0), to, "each member has a channel of its own")
	require.True(t, freed)
	to, freed = hears(2, Confirmed)
	require.Equal(t, quorum.Set(1<<2), to)
	require.False(t, freed, "a subscription says nothing of the lock")
	to, _ = hears(2)
	require.Zero(t, to, "once")
}

// Redisson's waiters do not announce themselves: one may wait for a vote that a yield gave back, with all
// the others in its hand.
func TestVoteThatAYieldKeptIsOfferedToThemAgain(t *testing.T) {
	d := newSharedDesk(3)
	for i := range 3 {
		d.wait(i, 0)
	}
	d.reply(0, 7, 0, 1, 0.5, "-")
	d.reply(1, -9000, 0, 1, 0.5, "-")
	d.reply(2, -9000, 0, 1, 0.5, "-")
	d.beat = d.at(1000)
	now, token := 1.0, int64(7)
	var yields []float64
	for now < 400 {
		switch s := d.Next(d.at(now), d.states); s.Do {
		case Yield:
			require.Equal(t, []Offer{{0, token}}, s.Offers)
			yields = append(yields, now)
			token++
			d.YieldAnswered(0, Answer{
				Outcome: member.Answered, N: token, Server: micros(now), Sent: d.at(now), At: d.at(now),
				From: d.states[0], Now: d.states[0],
			})
		case Sleep:
			next := float64(s.Wake.Sub(d.start)) / float64(time.Millisecond)
			require.Greater(t, next, now, "no spinning")
			now = next
		default:
			t.Fatalf("deed %d at %v", s.Do, now)
		}
	}
	var pauses []int
	for i := range yields[1:] {
		pauses = append(pauses, int(yields[i+1]-yields[i])/10*10)
	}
	require.Equal(t, []int{10, 20, 40, 80, 160}, pauses)
}
