package suite

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// ThisMachineCPUs is the number of processors.
var ThisMachineCPUs = runtime.NumCPU()

const buckets = 16384

// prime uses every token counter of redquorum until fewer than one acquisition in 100 takes a second
// round, with locks like any other. Counters on new servers begin at different values and come into step
// by use; W8 measures that by itself.
func prime(ctx context.Context, members []string) error {
	for range 8 {
		second, err := useCounters(ctx, members)
		if err != nil || second < buckets/100 {
			return err
		}
	}
	return nil
}

type secondRounds struct{ n atomic.Int64 }

func (*secondRounds) AcquireStart(ctx context.Context, _ redlock.AcquireStart) context.Context {
	return ctx
}

func (s *secondRounds) AcquireEnd(_ context.Context, e redlock.AcquireEnd) {
	if e.SecondRound {
		s.n.Add(1)
	}
}

// useCounters takes a lock of every bucket once.
func useCounters(ctx context.Context, members []string) (second int64, _ error) {
	var rounds secondRounds
	var urls []string
	for _, m := range members {
		urls = append(urls, "redis://"+m)
	}
	client, err := redlock.Open(ctx, urls, redlock.WithFreshMembers(), redlock.WithTracer(&rounds))
	if err != nil {
		return 0, err
	}
	defer func() { _ = client.Close() }()
	names := make(chan string)
	errs := make(chan error, 64)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for name := range names {
				lease, err := client.Mutex(name).Lock(ctx)
				if err == nil {
					err = lease.Unlock(ctx)
				}
				if err != nil {
					errs <- err
					cancel()
					return
				}
			}
		})
	}
	var used [buckets]bool
	left := buckets
	for i := 0; left > 0 && ctx.Err() == nil; i++ {
		name := "prime:" + strconv.Itoa(i)
		if b := slot.Of(name); !used[b] {
			used[b] = true
			left--
			select {
			case names <- name:
			case <-ctx.Done():
			}
		}
	}
	close(names)
	wg.Wait()
	select {
	case err := <-errs:
		return 0, fmt.Errorf("using the counters: %w", err)
	default:
		return rounds.n.Load(), nil
	}
}
