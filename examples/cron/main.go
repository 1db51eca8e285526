// Command cron is a replica of a service in which a job is due every few seconds: of all replicas, one
// runs it each time. The clocks of the machines may differ by less than the time for which the lock is
// held.
//
//	eval "$(redlock nodes up)"    # members, and their addresses in REDLOCK_MEMBERS
//	go run ./examples/cron        # three replicas in one process
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
	every := flag.Duration("every", 2*time.Second, "how often the job is due")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := redlock.Open(ctx, strings.Split(*redis, ","))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	var replicas sync.WaitGroup
	for n := range 3 {
		replicas.Go(func() {
			ticks := make(chan time.Time)
			go due(ctx, *every, ticks)
			Replica(ctx, client, ticks, func(_ context.Context, at time.Time, token uint64) {
				fmt.Printf("replica %d runs the job of %s with token %d\n", n+1, at.Format(time.TimeOnly), token)
			})
		})
	}
	replicas.Wait()
}

// due sends the times at which the job is due, by this machine's clock, until ctx ends: then it closes ticks.
func due(ctx context.Context, every time.Duration, ticks chan<- time.Time) {
	defer close(ticks)
	for {
		next := time.Now().Truncate(every).Add(every)
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return
		case ticks <- next:
		}
	}
}

// Replica tries to run the job each time it is due, until ticks is closed.
func Replica(ctx context.Context, client *redlock.Client, ticks <-chan time.Time, job func(context.Context, time.Time, uint64)) {
	for at := range ticks {
		// The time is a part of the name, so that a late run does not keep the next one away. The lease has a
		// fixed length and is not released: it ends by itself, when no clock shows this time any more. Lock
		// waits for a while: of several TryLock at the same moment, none may get a majority.
		name := "nightly@" + at.UTC().Format(time.RFC3339)
		waiting, cancel := context.WithTimeout(ctx, 5*time.Second)
		lease, err := client.Mutex(name, redlock.TTL(30*time.Second)).Lock(waiting)
		cancel()
		switch {
		case errors.Is(err, redlock.ErrHeld): // another replica runs it, or has run it
		case err != nil:
			log.Printf("%s: %v", name, err)
		default:
			job(lease.Context(), at, lease.Token()) // it stops when the context ends
		}
	}
}
