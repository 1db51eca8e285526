//go:build race

package redlock_test

import "testing"

// Two seeds of each sort of scene, for what the race detector sees. Cost: 4 s, as it is slow.
func TestFewSeedsRace(t *testing.T) {
	for name, change := range map[string]func(uint64, *scene){"mutexes": ofMutexes, "sets": ofSets, "kinds": ofKinds, "semaphores": ofSemaphores} {
		t.Run(name, func(t *testing.T) { playSeeds(t, 0, 2, change) })
	}
}
