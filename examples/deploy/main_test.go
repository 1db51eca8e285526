package main

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/redquorum/redquorum/examples/internal/members"
	"github.com/redquorum/redquorum/redlock"
)

// The token of both processes is the same, so nobody had the lock between them.
func TestTheNextProcessTakesTheLeaseOver(t *testing.T) {
	urls, stop, err := members.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	file := filepath.Join(t.TempDir(), "handoff")
	var tokens []uint64
	for range 2 {
		client, err := members.Connect(t.Context(), urls)
		if err != nil {
			t.Fatal(err)
		}
		ctx, terminate := context.WithCancel(t.Context())
		err = Serve(ctx, client, file, func(ctx context.Context, lease *redlock.Lease) {
			tokens = append(tokens, lease.Token())
			terminate()
			<-ctx.Done()
		})
		terminate()
		if err != nil {
			t.Fatal(err)
		}
		_ = client.Close()
	}
	if len(tokens) != 2 || tokens[0] != tokens[1] {
		t.Errorf("tokens %v", tokens)
	}
}
