// Command deploy is a service that only one process may run, and that a new version takes over without a
// moment in which it is nobody's. The old process hands its lease off when it gets SIGTERM, and the new one
// adopts it. The token stays the same. The file is secret: whoever reads it can take the lock.
//
//	eval "$(redlock nodes up)"      # members, and their addresses in REDLOCK_MEMBERS
//	go run ./examples/deploy &      # the old version: SIGTERM ends it
//	go run ./examples/deploy        # the new one goes on
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/redquorum/redquorum/redlock"
)

func main() {
	redis := flag.String("redis", os.Getenv("REDLOCK_MEMBERS"), "URLs of independent Redis masters, as redis://a,redis://b,redis://c")
	file := flag.String("handoff", "deploy.handoff", "the file through which a process hands the lease to the next one")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	client, err := redlock.Open(ctx, strings.Split(*redis, ","))
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	err = Serve(ctx, client, *file, func(ctx context.Context, lease *redlock.Lease) {
		fmt.Printf("serving with token %d\n", lease.Token())
		<-ctx.Done()
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		log.Print(err)
	}
}

// Serve takes the lease over from the process before, or waits for the lock. It serves until ctx ends, and
// hands the lease off then. If the lease is lost, it says so.
func Serve(ctx context.Context, client *redlock.Client, file string, serve func(context.Context, *redlock.Lease)) error {
	lease, err := takeOver(ctx, client, file)
	if err != nil {
		return err
	}
	serving, stop := context.WithCancel(lease.Context())
	defer context.AfterFunc(ctx, stop)()
	defer stop()
	serve(serving, lease)
	if err := lease.Err(); err != nil {
		return err // lost: another process may serve by now
	}
	handoff, err := lease.Handoff() // from here on nobody renews it: the next process has its TTL to come
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(handoff.Secret()), 0o600)
}

// takeOver gets the lease that was handed off through the file, or else waits for the lock.
func takeOver(ctx context.Context, client *redlock.Client, file string) (*redlock.Lease, error) {
	// A file of its own for each reader: two new processes must not adopt one lease.
	mine := fmt.Sprintf("%s.%d", file, os.Getpid())
	err := os.Rename(file, mine)
	if errors.Is(err, fs.ErrNotExist) {
		return client.Mutex("service").Lock(ctx)
	}
	if err != nil {
		return nil, err
	}
	secret, err := os.ReadFile(mine)
	if err = errors.Join(err, os.Remove(mine)); err != nil {
		return nil, err
	}
	handoff, err := redlock.ParseHandoff(string(secret))
	if err != nil {
		return nil, err
	}
	lease, err := client.Adopt(ctx, handoff)
	if errors.Is(err, redlock.ErrNotHeld) { // it came too late
		return client.Mutex("service").Lock(ctx)
	}
	return lease, err
}
