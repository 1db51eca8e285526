package main

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/redquorum/redquorum/examples/internal/members"
)

func TestOneReplicaRunsEachJob(t *testing.T) {
	client, closed, err := members.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closed()
	var mu sync.Mutex
	runs := make(map[time.Time]int)
	first := time.Now().Truncate(time.Second)
	var replicas sync.WaitGroup
	for range 3 {
		ticks := make(chan time.Time, 1)
		ticks <- first
		close(ticks)
		replicas.Go(func() {
			Replica(t.Context(), client, ticks, func(_ context.Context, at time.Time, _ uint64) {
				mu.Lock()
				defer mu.Unlock()
				runs[at]++
			})
		})
	}
	replicas.Wait()
	if len(runs) != 1 || runs[first] != 1 {
		t.Errorf("runs: %v", runs)
	}
}
