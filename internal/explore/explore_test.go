//go:build !race

package explore_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/explore"
)

// jugs hold up to 3 and 5 litres. A step fills one, empties one, or pours one into the other.
type jugs struct{ three, five int8 }

type pour string

func (p pour) String() string { return string(p) }

var pours = []pour{"fill3", "fill5", "empty3", "empty5", "3to5", "5to3"}

type kitchen struct{}

func (kitchen) Do(j jugs, a pour) jugs {
	n := min(j.three, 5-j.five)
	if a == "5to3" {
		n = -min(j.five, 3-j.three)
	}
	return map[pour]jugs{
		"fill3": {3, j.five}, "fill5": {j.three, 5}, "empty3": {0, j.five}, "empty5": {j.three, 0},
		"3to5": {j.three - n, j.five + n}, "5to3": {j.three - n, j.five + n},
	}[a]
}

func (k kitchen) Enabled(j jugs) []pour {
	return slices.DeleteFunc(slices.Clone(pours), func(a pour) bool { return k.Do(j, a) == j })
}

func pouring() *explore.World[jugs, pour] {
	return &explore.World[jugs, pour]{
		Key: explore.Value[jugs],
		Next: func(j jugs, yield func(pour, jugs, string) bool) {
			for _, a := range (kitchen{}).Enabled(j) {
				yield(a, kitchen{}.Do(j, a), "")
			}
		},
	}
}

// All states of the jugs have one of the two empty or full: 4 + 4 + 6 + 6, less the corners that count twice.
func TestEqualStatesAreVisitedOnce(t *testing.T) {
	w := pouring()
	asked := map[jugs]int{}
	w.Wrong = func(j jugs) string { asked[j]++; return "" }
	f := w.Explore(jugs{})
	require.Equal(t, 16, f.States)
	require.True(t, f.All)
	require.Len(t, asked, 16)
	for j, n := range asked {
		require.Equal(t, 1, n, j)
	}

	known := 0
	next := w.Next
	w.Next = func(j jugs, yield func(pour, jugs, string) bool) {
		next(j, func(a pour, v jugs, wrong string) bool {
			was := yield(a, v, wrong)
			if was {
				known++
			}
			return was
		})
	}
	w.Key = func(j jugs) explore.Key { return explore.Bytes([]byte{byte(j.three)}) } // the other does not matter
	f = w.Explore(jugs{})
	require.Equal(t, 2, f.States, "0 and 3")
	require.Equal(t, 4, known, "what changes only the other leads nowhere new")
}

func TestScheduleToWhatIsWrongIsTheShortest(t *testing.T) {
	w := pouring()
	w.Wrong = func(j jugs) string { return map[bool]string{true: "four litres"}[j.five == 4] }
	f := w.Explore(jugs{})
	require.Equal(t, "four litres", f.Wrong)
	require.Equal(t, "fill5 5to3 empty3 5to3 fill5 5to3", explore.Spell(f.Schedule))
	require.Equal(t, len(f.Schedule), f.Depth)
	require.False(t, f.All)
	require.Contains(t, f.String(), " 6. 5to3")

	again := explore.Parse([]string{"fill5", "empty3", "5to3", "empty3", "5to3", "fill5", "5to3"}, func(w string) pour { return pour(w) })
	require.Equal(t, jugs{3, 4}, explore.Play(kitchen{}, jugs{}, again), "what is not possible is left out")
	said := 0
	end, text := explore.Tell(kitchen{}, jugs{}, again[:3], func() []string { said++; return []string{"poured", fmt.Sprint(" ", said)} })
	require.Equal(t, jugs{3, 2}, end)
	require.Equal(t, " 1. poured\n   1\n 2. (empty3 is not possible)\n 3. poured\n   2", text)
}

// What a step breaks is found although its state was visited.
func TestStepThatIsWrongIsFoundWhereverItLeads(t *testing.T) {
	w := pouring()
	next := w.Next
	w.Next = func(j jugs, yield func(pour, jugs, string) bool) {
		next(j, func(a pour, v jugs, _ string) bool {
			return yield(a, v, map[bool]string{true: "spilt"}[a == "empty5" && j.three == 3])
		})
	}
	f := w.Explore(jugs{})
	require.Equal(t, "spilt", f.Wrong)
	require.Equal(t, []pour{"fill3", "fill5", "empty5"}, f.Schedule)
}

func TestSearchEndsAtItsLimit(t *testing.T) {
	w := pouring()
	w.Limit = 7
	f := w.Explore(jugs{})
	require.Equal(t, 7, f.States)
	require.False(t, f.All)
	require.Empty(t, f.Wrong)
}

func TestEndMustBeReachableFromEveryState(t *testing.T) {
	const end, trap = 12, 20
	stairs := func(open bool) *explore.World[int, explore.Step] {
		return &explore.World[int, explore.Step]{
			Key:  explore.Value[int],
			Over: func(n int) bool { return n == end },
			Next: func(n int, yield func(explore.Step, int, string) bool) {
				if n < end {
					yield(explore.Say("down from %d by %d", n, n/2), n-n/2, "")
					yield(explore.Say("up from %d", n), n+1, "")
				}
				if n == 3 && open {
					yield(explore.Say("a leap"), trap, "")
				}
			},
		}
	}
	f := stairs(false).Explore(0)
	require.Empty(t, f.Wrong)
	require.Equal(t, end+1, f.States)
	f = stairs(true).Explore(0)
	require.Equal(t, explore.Stuck, f.Wrong)
	require.Equal(t, "[up from 0 up from 1 up from 2 a leap]", fmt.Sprint(f.Schedule))
}
