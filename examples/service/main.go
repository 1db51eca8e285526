// Command service is one replica of a service whose workers take jobs from a queue that all replicas read. Each job is
// done by one worker at a time. It goes on after members were away, and ends in good order when it is told to.
// docs/service.md explains it.
//
//	eval "$(redlock nodes up)"      # members, and their addresses in REDLOCK_MEMBERS
//	go run ./examples/service       # until Ctrl-C
//	go run ./examples/service -wan -redis redis://a.example.com,redis://b.example.com,redis://c.example.com
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"log/slog"
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
	wan := flag.Bool("wan", false, "the members are far away from here, or from one another")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()

	config := redlock.LAN()
	if *wan {
		config = redlock.WAN()
	}
	config.Logger, config.Label = slog.Default(), "service"
	config.NoQuorumAfter = -1 // a worker waits for members as it waits for the lock
	client, err := redlock.Open(ctx, strings.Split(*redis, ","), config)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()

	jobs := make(chan string)
	go func() { // stands for your queue
		for n := 1; ; n++ {
			jobs <- fmt.Sprint("job:", n)
			time.Sleep(200 * time.Millisecond)
		}
	}()
	s := &Service{Client: client, Workers: 3, Grace: 10 * time.Second, Work: work, Done: func(string) {}}
	s.Run(ctx, jobs)
}

// work does a job until ctx ends. Each write shows the token to its storage, which refuses one that is too late.
func work(ctx context.Context, job string, token uint64) error {
	select {
	case <-time.After(time.Second):
		fmt.Printf("%s is done with token %d\n", job, token)
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Service does jobs, each under its lock.
type Service struct {
	Client  *redlock.Client // of the process: one for all workers
	Workers int
	Grace   time.Duration // for jobs that run when the service is told to end
	Work    func(ctx context.Context, job string, token uint64) error
	Done    func(job string) // tells your queue, which delivers once more what is not done
}

// Run does jobs until ctx ends. It returns when those that were running then have ended, or have been told to.
func (s *Service) Run(ctx context.Context, jobs <-chan string) {
	var workers sync.WaitGroup
	for range s.Workers {
		workers.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case job := <-jobs:
					s.Do(ctx, job)
				}
			}
		})
	}
	<-ctx.Done()
	// Close ends the contexts of all leases, and frees the locks.
	late := time.AfterFunc(s.Grace, func() { _ = s.Client.Close() })
	defer late.Stop()
	workers.Wait()
}

// Do does a job. The wait for its lock ends with ctx, and the work with the lease.
func (s *Service) Do(ctx context.Context, job string) {
	var failed error // of the job: what Do returns speaks of the lock, too
	err := s.Client.Mutex(job).Do(ctx, func(_ context.Context, lease *redlock.Lease) error {
		failed = s.Work(lease.Context(), job, lease.Token())
		return failed
	})
	switch {
	case err == nil:
		s.Done(job)
	case !errors.Is(err, redlock.ErrRan): // the service ends, or the job has a name that cannot be locked
		slog.Warn("the job did not run", "job", job, "err", err)
	case failed != nil || errors.Is(err, redlock.ErrLost): // or another did it as well while its last part was written
		slog.Error("the job is not done", "job", job, "err", err)
	default: // ErrInDoubt: the job is done, and the client goes on with the release
		slog.Info("the lock of the job is free later", "job", job, "err", err)
		s.Done(job)
	}
}
