package faults

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// way is what a killed member comes back with.
type way uint8

const (
	empty    way = iota // nothing
	appended            // its append-only file: everything
	saved               // an RDB snapshot some seconds old
	marked              // nothing but the marker of the former process: empty, but GuardOff believes it
)

func (w way) String() string {
	return [...]string{"empty", "with its AOF", "with an old RDB", "with a marker alone"}[w]
}

// order is that of the kills and restarts of two members.
type order uint8

const (
	oneByOne order = iota // the second is killed as soon as the first answers again
	inOrder               // both are dead at once, and the first killed comes back first
	reversed              // both are dead at once, and the first killed comes back last
)

// crash is one or two members that are killed and come back.
type crash struct {
	members []int // in the order of the kills
	ways    []way // of the members
	order   order
}

func (c crash) String() string {
	if len(c.members) == 1 {
		return fmt.Sprintf("%d dies and comes back %s", c.members[0], c.ways[0])
	}
	a := fmt.Sprintf("%d %s", c.members[0], c.ways[0])
	b := fmt.Sprintf("%d %s", c.members[1], c.ways[1])
	switch c.order {
	case oneByOne:
		return fmt.Sprintf("%d dies and comes back %s, then %d %s", c.members[0], c.ways[0], c.members[1], c.ways[1])
	case reversed:
		a, b = b, a
	}
	return fmt.Sprintf("%d and %d die, then come back %s, %s", c.members[0], c.members[1], a, b)
}

// everyCrash lists every crash of one of five members, and of two neighbours in the clients' list, in every
// order of the kills and of the restarts, each member coming back in each way: 15 and 270. Members are
// alike, so pairs that are no neighbours would add nothing but time.
func everyCrash() (one, two []crash) {
	ways := []way{empty, appended, saved}
	for a := range 5 {
		for _, x := range ways {
			one = append(one, crash{members: []int{a}, ways: []way{x}})
			for _, b := range []int{(a + 1) % 5, (a + 4) % 5} {
				for _, y := range ways {
					for _, o := range []order{oneByOne, inOrder, reversed} {
						two = append(two, crash{[]int{a, b}, []way{x, y}, o})
					}
				}
			}
		}
	}
	return one, two
}

// drawCrashes returns n of them in a random order, a fifth of one member; n < 0: all.
func drawCrashes(rng *rand.Rand, n int) []crash {
	one, two := everyCrash()
	shuffle := func(list []crash) {
		rng.Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
	}
	shuffle(one)
	shuffle(two)
	if n >= 0 {
		one, two = one[:n/5], two[:n-n/5]
	}
	all := slices.Concat(one, two)
	shuffle(all)
	return all
}

func TestEveryCrashIsThereOnce(t *testing.T) {
	one, two := everyCrash()
	require.Len(t, one, 5*3)
	require.Len(t, two, 5*2*3*3*3)
	seen := map[string]bool{}
	for _, c := range slices.Concat(one, two) {
		require.False(t, seen[c.String()], "%v", c)
		seen[c.String()] = true
	}
	require.Len(t, drawCrashes(rand.New(rand.NewPCG(1, 1)), -1), 285)
	require.Len(t, drawCrashes(rand.New(rand.NewPCG(1, 1)), 20), 20)
}

// list prints one per line.
func list[T fmt.Stringer](all []T) string {
	var b strings.Builder
	for i, x := range all {
		fmt.Fprintf(&b, "\n  %d. %v", i+1, x)
	}
	return b.String()
}
