package main

import (
	"context"
	"testing"

	"github.com/redquorum/redquorum/examples/internal/members"
)

func TestAnotherCandidateLeadsWhenOneLeaves(t *testing.T) {
	client, closed, err := members.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer closed()
	type term struct {
		address string
		number  uint64
	}
	terms, ended := make(chan term), make(chan error, 2)
	leave := make(map[string]context.CancelFunc)
	for _, address := range []string{"a", "b"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave[address] = cancel
		go func() {
			ended <- Candidate(ctx, client, address, func(ctx context.Context, number uint64) {
				terms <- term{address, number}
				<-ctx.Done()
			})
		}()
	}
	first := <-terms
	leave[first.address]()
	second := <-terms
	if second.address == first.address || second.number <= first.number {
		t.Errorf("%v led, and then %v", first, second)
	}
	leave[second.address]()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}
