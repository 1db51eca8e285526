package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
)

// startMembers starts five Redis servers inside this process, so that the examples run anywhere.
func startMembers() (urls []string, stop func()) { return redistest.ServeEmbedded(5) }

// connect opens two clients as the example of the package does.
func connect() (one, other *redlock.Client, stop func()) {
	urls, stopMembers := startMembers()
	one, err := redlock.Open(context.Background(), urls, redlock.Config{FreshMembers: true})
	if err != nil {
		panic(err)
	}
	other, err = redlock.Open(context.Background(), urls, redlock.Config{FreshMembers: true})
	if err != nil {
		panic(err)
	}
	return one, other, func() { _, _ = one.Close(), other.Close(); stopMembers() }
}

// Connect once per process, take a lock, work, unlock.
func Example() {
	urls, stop := startMembers() // in a service: the addresses of 3 or 5 independent Redis masters
	defer stop()
	ctx := context.Background()

	client, err := redlock.Open(ctx, urls, redlock.Config{FreshMembers: true})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	lease, err := client.Mutex("invoice:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	// Work while lease.Context() lives, and give lease.Token() to whatever stores the result.
	fmt.Println("held:", lease.Key(), lease.Err() == nil, lease.Token() > 0)

	if err := lease.Unlock(ctx); err != nil {
		fmt.Println(err)
	}
	fmt.Println("over:", lease.Context().Err(), errors.Is(lease.Err(), redlock.ErrReleased))
	// Output:
	// held: invoice:42 true true
	// over: context canceled true
}

// TryLock does not wait. A lock that is somebody else's is ErrHeld, and no failure of the members is
// ever reported as that.
func ExampleMutex_TryLock() {
	ctx := context.Background()
	ours, theirs, stop := connect() // as in the example of the package
	defer stop()

	lease, err := theirs.Mutex("invoice:42").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = ours.Mutex("invoice:42").TryLock(ctx)
	fmt.Println("while they hold it:", errors.Is(err, redlock.ErrHeld))

	_ = lease.Unlock(ctx)
	lease, err = ours.Mutex("invoice:42").TryLock(ctx)
	fmt.Println("after they unlocked:", err)
	_ = lease.Unlock(ctx)
	// Output:
	// while they hold it: true
	// after they unlocked: <nil>
}

// Do takes the lock, runs a function, and unlocks, also if the function panics. The function's context
// ends with the lease.
func ExampleMutex_Do() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	err := client.Mutex("report:daily").Do(ctx, func(ctx context.Context, lease *redlock.Lease) error {
		fmt.Println("working on", lease.Key())
		return ctx.Err()
	})
	fmt.Println(err)
	// Output:
	// working on report:daily
	// <nil>
}

// A service reads its prices for each request, and somebody changes them now and then. The client keeps the lock of its
// readers, so that all requests but the first ask no member. A writer gets it at once.
func ExampleKeep() {
	ctx := context.Background()
	service, admin, stop := connect() // as in the example of the package
	defer stop()

	prices := service.RWMutex("prices", redlock.AutoRenew(10*time.Second), redlock.Keep(5*time.Second))
	for range 3 { // requests
		err := prices.RDo(ctx, func(context.Context, *redlock.Lease) error { return nil })
		fmt.Println("read:", err, "kept:", service.Stats()[redlock.KindRead].Kept)
	}
	err := admin.RWMutex("prices").Do(ctx, func(context.Context, *redlock.Lease) error { return nil })
	fmt.Println("written:", err, "kept:", service.Stats()[redlock.KindRead].Kept)
	// Output:
	// read: <nil> kept: 1
	// read: <nil> kept: 1
	// read: <nil> kept: 1
	// written: <nil> kept: 0
}

// A lock cannot stop a holder whose process was paused for longer than its lease. The token can: the
// storage refuses it once it has seen a later one.
func ExampleLease_Token() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	var guard fence.Memory // of the storage
	balance := 100
	write := func(token uint64, value int) error {
		return guard.Do(ctx, "account", token, func() error { balance = value; return nil })
	}

	paused, err := client.Mutex("account", redlock.TTL(500*time.Millisecond)).Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	<-paused.Done() // the holder is paused, and its lease runs out meanwhile

	next, err := client.Mutex("account").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("next holder writes:", write(next.Token(), 70))
	err = write(paused.Token(), 120)
	fmt.Println("paused holder wakes up and writes:", errors.Is(err, fence.ErrStale))
	fmt.Println("balance:", balance)
	_ = next.Unlock(ctx)
	// Output:
	// next holder writes: <nil>
	// paused holder wakes up and writes: true
	// balance: 70
}

// A lease can move to another process, which goes on with the same token. What travels is a secret:
// whoever has it can release the lock.
func ExampleClient_Adopt() {
	ctx := context.Background()
	first, second, stop := connect() // as in the example of the package
	defer stop()

	lease, err := first.Mutex("migration").Lock(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	handoff, err := lease.Handoff()
	if err != nil {
		fmt.Println(err)
		return
	}
	secret := handoff.Secret() // one printable word, for a pipe or a queue
	fmt.Println("first:", errors.Is(lease.Err(), redlock.ErrHandedOff))

	received, err := redlock.ParseHandoff(secret)
	if err != nil {
		fmt.Println(err)
		return
	}
	adopted, err := second.Adopt(ctx, received)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("second:", adopted.Key(), adopted.Token() == lease.Token())
	fmt.Println(adopted.Unlock(ctx))
	// Output:
	// first: true
	// second: migration true
	// <nil>
}

// Several locks, all or none. Everybody takes them in one order, whatever order they are written in, so
// two transfers in opposite directions do not wait for each other.
func ExampleClient_Multi() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	err := client.Multi([]string{"account:2", "account:1"}).Do(ctx, func(ctx context.Context, leases *redlock.Leases) error {
		// Give leases.Token("account:1") to whatever stores that account.
		for _, lease := range leases.All() {
			fmt.Println("held:", lease.Key(), lease.Token() > 0)
		}
		_, err := client.Mutex("account:1").TryLock(ctx)
		fmt.Println("held by us:", errors.Is(err, redlock.ErrHeld))
		return nil
	})
	fmt.Println(err)
	// Output:
	// held: account:1 true
	// held: account:2 true
	// held by us: true
	// <nil>
}

// One process of several leads. The others are told who it is, and lead when it resigns or crashes.
func ExampleClient_Election() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	observing, cancel := context.WithCancel(ctx)
	told, done := make(chan struct{}), make(chan struct{})
	go func() { // as any other process would
		defer close(done)
		for leader := range client.Election("scheduler").Observe(observing) {
			if !leader.None {
				fmt.Printf("%s leads\n", leader.Value)
				close(told)
			}
		}
	}()

	finished := errors.New("all is done")
	err := client.Election("scheduler").Run(ctx, []byte("10.0.0.7:8080"), func(ctx context.Context, lease *redlock.Lease) error {
		<-told
		return finished // a service works until ctx ends, and gives lease.Token() to its storages
	})
	fmt.Println(err)
	cancel()
	<-done
	// Output:
	// 10.0.0.7:8080 leads
	// all is done
}

// Three workers import a part each, and the report begins when all of them are done. A worker that
// runs again after a crash names the same part, which counts once.
func ExampleClient_Latch() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	for _, part := range []string{"part-1", "part-2", "part-2", "part-3"} {
		go func() {
			if err := client.Latch("import", 3).Arrive(ctx, part); err != nil {
				fmt.Println(err)
			}
		}()
	}
	if err := client.Latch("import", 3).Await(ctx); err != nil {
		fmt.Println(err)
		return
	}
	n, err := client.Latch("import", 3).Remaining(ctx)
	fmt.Println("all parts are there:", n, err)
	// Output:
	// all parts are there: 0 <nil>
}

// Two parties go from phase to phase together.
func ExampleClient_Barrier() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	other := make(chan error)
	go func() {
		barrier := client.Barrier("phase", 2, "worker-2")
		for range 2 {
			if _, err := barrier.Wait(ctx); err != nil {
				other <- err
				return
			}
		}
		other <- nil
	}()
	barrier := client.Barrier("phase", 2, "worker-1")
	before := uint64(0)
	for range 2 {
		round, err := barrier.Wait(ctx)
		fmt.Println("together behind a later round:", round > before, err)
		before = round
	}
	fmt.Println(<-other)
	// Output:
	// together behind a later round: true <nil>
	// together behind a later round: true <nil>
	// <nil>
}

// At most two of these run at the same time, and each has a number that the other does not have.
func ExampleSemaphore_Do() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	downloads := client.Semaphore("downloads", 2)
	err := downloads.Do(ctx, func(ctx context.Context, first *redlock.Lease) error {
		return downloads.Do(ctx, func(ctx context.Context, second *redlock.Lease) error {
			fmt.Println("numbers:", first.Slot()+second.Slot() == 1)
			_, err := downloads.TryAcquire(ctx)
			fmt.Println("a third one:", errors.Is(err, redlock.ErrHeld))
			return nil
		})
	})
	fmt.Println(err)
	// Output:
	// numbers: true
	// a third one: true
	// <nil>
}

// A limit that is set while permits are held bites as they are given back.
func ExampleSemaphore_SetLimit() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	workers := client.Semaphore("workers", 8)
	lease, err := client.Semaphore("workers", 8, redlock.Permits(2)).Acquire(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("slots:", len(lease.Slots()))
	if err := workers.SetLimit(ctx, 2); err != nil {
		fmt.Println(err)
		return
	}
	_, err = workers.TryAcquire(ctx)
	fmt.Println("above the limit:", errors.Is(err, redlock.ErrHeld), "and what is held stays:", lease.Err() == nil)
	_ = lease.Unlock(ctx)
	lease, err = workers.TryAcquire(ctx)
	fmt.Println("below it:", err, lease.Slot() < 2)
	_ = lease.Unlock(ctx)
	// Output:
	// slots: 2
	// above the limit: true and what is held stays: true
	// below it: <nil> true
}

// Three calls in any two seconds, over all clients: a permit that nobody gives back is free again
// when its TTL is over.
func ExampleSemaphore_rateLimiter() {
	ctx := context.Background()
	client, _, stop := connect() // as in the example of the package
	defer stop()

	calls := client.Semaphore("api:calls", 3, redlock.TTL(2*time.Second))
	allowed := func() bool {
		_, err := calls.TryAcquire(ctx) // no Unlock
		return err == nil
	}
	fmt.Println(allowed(), allowed(), allowed(), allowed())
	for !allowed() {
		time.Sleep(10 * time.Millisecond)
	}
	fmt.Println("the window has moved on")
	// Output:
	// true true true false
	// the window has moved on
}
