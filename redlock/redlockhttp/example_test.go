package redlockhttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlockhttp"
)

// A load balancer asks each process, and sends requests to the one that answers 200.
func Example() {
	urls, stop := redistest.ServeEmbedded(3) // in a service: those of 3 or 5 independent Redis masters
	defer stop()
	ctx := context.Background()
	client, err := redlock.Open(ctx, urls, redlock.Config{FreshMembers: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	election := client.Election("scheduler")
	health := redlockhttp.New(election, "scheduler")
	server := httptest.NewServer(health)
	defer server.Close()

	finished := errors.New("finished")
	err = election.Run(ctx, []byte("10.0.0.7:8080"), health.Leading(func(ctx context.Context, lease *redlock.Lease) error {
		answer, err := http.Get(server.URL)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		fmt.Println("while this process leads:", answer.StatusCode)
		return finished
	}))
	fmt.Println(err)
	answer, err := http.Get(server.URL)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer answer.Body.Close()
	fmt.Println("afterwards:", answer.StatusCode)
	// Output:
	// while this process leads: 200
	// finished
	// afterwards: 503
}
