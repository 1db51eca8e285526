package main

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/redlock/redlocktest"
)

// Members are away for longer than Lock waits for them by default, and then the service is told to end while a job runs.
func TestServiceGoesOnAfterAnOutageAndEndsInOrder(t *testing.T) {
	for takes, want := range map[time.Duration]int{9 * time.Second: 3, time.Minute: 2, 0: 2} { // of the last job, and how many are done
		synctest.Test(t, func(t *testing.T) {
			d, done := redlocktest.New(t, 3, redlock.Config{NoQuorumAfter: -1}), 0
			ctx, stop := context.WithCancel(t.Context())
			s := &Service{Client: d.Client, Workers: 1, Grace: 10 * time.Second, Done: func(string) { done++ }, Work: func(ctx context.Context, job string, _ uint64) error {
				if job != "last" {
					time.Sleep(time.Second)
					return nil
				}
				if stop(); takes == 0 {
					d.Cut() // no member hears the end
					return errors.New("it failed")
				}
				select {
				case <-time.After(takes):
				case <-ctx.Done():
				}
				return ctx.Err()
			}}
			jobs := make(chan string)
			go func() {
				d.Cut()
				time.AfterFunc(5*time.Second, func() { d.Heal() })
				for _, job := range []string{"first", "second", "last"} {
					jobs <- job
				}
			}()
			s.Run(ctx, jobs)
			if err := d.Client.Close(); err != nil || done != want || takes > 0 && len(d.Leftovers()) > 0 {
				t.Errorf("close: %v; %d jobs were done, want %d; left at the members: %v", err, done, want, d.Leftovers())
			}
		})
	}
}
