//go:build !race

package redlock_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Seeds run without the race detector, which is ten times as slow and shuffles the scheduler; fake_seeds_race_test.go plays
// a few with it.

// TestSeeds plays seeds of mutexes. Cost: 2 s, of forty seeds.
func TestSeeds(t *testing.T) {
	if sum := someSeeds(t, 40, ofMutexes); sum.seeds >= 40 && !t.Failed() {
		sum.enough(t)
	}
}

func TestSeedsOfSets(t *testing.T) { someSeeds(t, 20, ofSets) }

// TestSeedsOfKinds plays seeds in which each call is of any kind. A write lease may be downgraded.
func TestSeedsOfKinds(t *testing.T) {
	sum := someSeeds(t, 12, ofKinds)
	t.Logf("leases by way of asking, of sets and of downgrades %v", sum.ways)
	if sum.seeds >= 40 && !t.Failed() {
		for way, n := range sum.ways {
			require.Greater(t, n, sum.seeds/2, wayNames[way])
		}
	}
}

// TestSeedsOfSemaphores plays seeds in which each call is for slots of a semaphore. Cost: 3 s, of twenty seeds.
func TestSeedsOfSemaphores(t *testing.T) { someSeeds(t, 20, ofSemaphores) }

// someSeeds plays n seeds, or those that are asked for.
func someSeeds(t *testing.T, n uint64, change func(seed uint64, sc *scene)) seedTally {
	t.Helper()
	first, n := seedRange(t, n)
	return playSeeds(t, first, n, change)
}

// seedRange is which seeds to play.
func seedRange(t *testing.T, n uint64) (first, count uint64) {
	t.Helper()
	number := func(name string) (v uint64, set bool) {
		text := os.Getenv(name)
		if text == "" {
			return 0, false
		}
		v, err := strconv.ParseUint(text, 10, 32)
		require.NoError(t, err, name)
		return v, true
	}
	first, one := number("REDQUORUM_SEED")
	count, many := number("REDQUORUM_SEEDS")
	switch {
	case many:
	case one:
		count = 1
	default:
		count = n
	}
	return first, count
}

// The same seed twice is the same history, event by event, to the nanosecond: of 40 seeds, 37.
func TestSeedsReplayExactly(t *testing.T) {
	same, n := 0, uint64(8)
	for seed := range n {
		a, b := playScene(t, drawScene(seed)), playScene(t, drawScene(seed))
		if a.book.hash() == b.book.hash() {
			same++
		} else {
			t.Logf("seed %d differs: %s", seed, firstDifference(a.book.history(), b.book.history()))
		}
	}
	t.Logf("%d of %d seeds had the same history twice", same, n)
	require.GreaterOrEqual(t, same, int(n)/4, "a busy machine runs some goroutines in another order")
}

func firstDifference(a, b string) string {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Sprintf("event %d of %d: %q, then %q", i, len(x), x[i], y[i])
		}
	}
	return fmt.Sprintf("%d events, then %d", len(x), len(y))
}

// The checks can fail: the same play with something taken out that the promises rest on.
func TestSeedsFindWhatIsBroken(t *testing.T) {
	for _, tc := range []struct {
		name     string
		sabotage func(*scene)
		want     string
	}{
		{"members whose clocks run three times as fast", func(sc *scene) { sc.kind, sc.rate = sceneCalm, 3 }, "granted while"},
		{"members that forget, without the restart guard", func(sc *scene) { sc.kind, sc.guard, sc.unguarded = sceneForgetAny, true, true }, "granted while"},
		{"members that forget their counters", func(sc *scene) { sc.kind, sc.lowered = sceneCalm, true }, "granted after"},
		{"a storage that does not look at tokens", func(sc *scene) { sc.kind, sc.rate, sc.unfenced = sceneCalm, 3, true }, "lost update"},
		{"a waiter that is never served", func(sc *scene) { sc.kind, sc.squatter = sceneCalm, true }, "after the faults"},
		{"a key that stays", func(sc *scene) { sc.kind, sc.litter = sceneCalm, true }, "left behind"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for seed := uint64(0); seed < 10; seed++ {
				sc := drawScene(seed)
				sc.members, sc.clients = 3, 6
				tc.sabotage(&sc)
				if strings.Contains(strings.Join(playScene(t, sc).wrong(), "\n"), tc.want) {
					return
				}
			}
			t.Errorf("ten seeds and no %q", tc.want)
		})
	}
}
