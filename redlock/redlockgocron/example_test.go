package redlockgocron_test

import (
	"context"
	"fmt"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlockgocron"
)

// Every process of a fleet has this scheduler, and one of them runs each job.
func Example() {
	urls, stop := redistest.ServeEmbedded(3) // in a service: those of 3 or 5 independent Redis masters
	defer stop()
	client, err := redlock.Open(context.Background(), urls, redlock.Config{FreshMembers: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	locker := redlockgocron.NewLocker(client, redlockgocron.Prefix("jobs:"), redlockgocron.AtLeast(10*time.Second))
	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(locker))
	if err != nil {
		fmt.Println(err)
		return
	}
	done := make(chan struct{})
	job, err := scheduler.NewJob(gocron.CronJob("0 3 * * *", false), gocron.NewTask(func() {
		lease := locker.Lease("nightly") // give lease.Token() to the storage, and stop when lease.Context() ends
		fmt.Println("running under the lock", lease.Key())
		close(done)
	}), gocron.WithName("nightly"))
	if err != nil {
		fmt.Println(err)
		return
	}
	scheduler.Start()
	if err := job.RunNow(); err != nil { // it is not 3 o'clock
		fmt.Println(err)
	}
	<-done
	fmt.Println(scheduler.Shutdown())
	// Output:
	// running under the lock jobs:nightly
	// <nil>
}
