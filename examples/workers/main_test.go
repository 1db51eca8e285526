package main

import (
	"sync"
	"testing"

	"github.com/redquorum/redquorum/examples/internal/members"
)

func TestEachJobIsDoneOnce(t *testing.T) {
	client, closed, err := members.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closed()
	store, jobs := &Store{done: make(map[string]int)}, []string{"job:1", "job:2", "job:3", "job:4"}
	var workers sync.WaitGroup
	for n := range 4 {
		workers.Go(func() {
			if err := Work(t.Context(), client, store, n, jobs); err != nil {
				t.Error(err)
			}
		})
	}
	workers.Wait()
	for _, job := range jobs {
		if store.done[job] != 1 {
			t.Errorf("%s was done %d times", job, store.done[job])
		}
	}
}
