// Command leader has candidates of which one leads. The first leader stops after a while, and another
// candidate takes its place at once. If a leader crashes, that takes until its lease has ended: 10 s.
//
//	eval "$(redlock nodes up)"      # members, and their addresses in REDLOCK_MEMBERS
//	go run ./examples/leader
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/redlock"
)

func main() {
	redis := flag.String("redis", os.Getenv("REDLOCK_MEMBERS"), "URLs of independent Redis masters, as redis://a,redis://b,redis://c")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := redlock.Open(ctx, strings.Split(*redis, ","))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var candidates sync.WaitGroup
	for _, address := range []string{"10.0.0.7:8080", "10.0.0.8:8080"} {
		mine, leave := context.WithCancel(ctx)
		defer leave()
		candidates.Go(func() {
			err := Candidate(mine, client, address, func(ctx context.Context, term uint64) {
				fmt.Printf("%s leads, term %d\n", address, term)
				select {
				case <-ctx.Done(): // the lease was lost, or the program ends
				case <-time.After(2 * time.Second):
					leave() // this candidate is shut down, and the other one leads
				}
			})
			if err != nil {
				log.Print(err)
			}
		})
	}
	candidates.Wait()
}

// Candidate campaigns until ctx ends, and calls lead each time it leads. The term goes to the storages that
// lead writes to.
func Candidate(ctx context.Context, client *redlock.Client, address string, lead func(ctx context.Context, term uint64)) error {
	err := client.Election("scheduler").Run(ctx, []byte(address), func(ctx context.Context, lease *redlock.Lease) error {
		lead(ctx, lease.Token())
		return nil
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
