// Command workers is a pool of workers that share a list of jobs: each job is done once, whoever
// comes first. In a service the workers are processes on many machines, with the same code.
//
//	eval "$(redlock nodes up)"      # members, and their addresses in REDLOCK_MEMBERS
//	go run ./examples/workers
//	go run ./examples/workers -redis redis://10.0.0.1,redis://10.0.0.2,redis://10.0.0.3
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

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

	store := &Store{done: make(map[string]int)}
	jobs := []string{"job:1", "job:2", "job:3", "job:4", "job:5", "job:6"}
	var workers sync.WaitGroup
	for n := range 3 {
		workers.Go(func() {
			if err := Work(ctx, client, store, n+1, jobs); err != nil {
				log.Print(err)
			}
		})
	}
	workers.Wait()
}

// Work goes over all jobs, each worker from another one on. If another worker has a job, it waits, and finds
// the job done.
func Work(ctx context.Context, client *redlock.Client, store *Store, worker int, jobs []string) error {
	for i := range jobs {
		job := jobs[(worker+i)%len(jobs)]
		err := client.Mutex(job).Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
			return store.Finish(ctx, job, worker, lease.Token()) // ctx ends with the lease
		})
		if err != nil {
			return err // no majority of the members, or ctx has ended
		}
	}
	return nil
}

// Store stands for your database. It keeps what is done, and who did it with which token.
type Store struct {
	mu   sync.Mutex
	done map[string]int // guarded by mu: how often
}

// Finish does a job, unless it is done.
func (s *Store) Finish(ctx context.Context, job string, worker int, token uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil || s.done[job] > 0 {
		return err
	}
	s.done[job]++
	fmt.Printf("worker %d did %s with token %d\n", worker, job, token)
	return nil
}
