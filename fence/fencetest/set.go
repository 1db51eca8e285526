package fencetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/fence"
)

// Use is how the holders of Set use their tokens.
type Use string

// Guarded is right. The others are controls, which lose additions.
const (
	Guarded   Use = "guarded"    // claim, read, think, write under the token
	WriteOnly Use = "write-only" // read, think, write under the token
	Unguarded Use = "unguarded"  // read, think, write
)

// SetResult counts what became of additions.
type SetResult struct {
	Accepted int // writes that the storage has acknowledged
	Refused  int // claims and writes that it refused, because a later holder had been there
	Lost     int // elements of acknowledged writes that are not in the set at the end
}

func (r SetResult) String() string {
	return fmt.Sprintf("%d additions accepted, %d lost, %d refused", r.Accepted, r.Lost, r.Refused)
}

// Set plays eight holders of a lock that excludes nobody, until the storage has acknowledged at
// least accepted additions. Each holder waits for up to 20 ms, takes the next token, reads a set,
// thinks for up to 5 ms, and writes the set with one more element. It is the lock workload of Jepsen's analysis of etcd
// 3.4.3, with the worst lock there is. Any error but a refusal fails the test. Set needs
// Fixture.Storage, and ends with the context of t.
func Set(t testing.TB, f Fixture, use Use, accepted int) SetResult {
	t.Helper()
	const resource = "set"
	var (
		tokens atomic.Uint64
		mu     sync.Mutex
		result SetResult
		acked  = map[string]bool{}
		wg     sync.WaitGroup
	)
	var enough atomic.Bool // a holder that has begun ends, so that no addition is in doubt
	for worker := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 2))
			for !enough.Load() {
				if err := pass(t.Context(), rng, 20*time.Millisecond); err != nil { // as one whose lock is another's
					return
				}
				token := tokens.Add(1)
				element, err := addition(t.Context(), f, use, resource, token, rng)
				mu.Lock()
				switch {
				case err == nil:
					result.Accepted++
					acked[element] = true
				case errors.Is(err, fence.ErrStale) && use != Unguarded:
					result.Refused++
				default:
					t.Errorf("%s addition with token %d: %v", use, token, err)
					enough.Store(true)
				}
				if result.Accepted >= accepted {
					enough.Store(true)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	there := map[string]bool{}
	value, err := f.Storage.Get(t.Context(), resource)
	if err != nil {
		t.Fatalf("Get of the set at the end: %v", err)
	}
	for element := range strings.FieldsSeq(value) {
		there[element] = true
	}
	for element := range acked {
		if !there[element] {
			result.Lost++
		}
	}
	return result
}

// addition is one holder: its element is its token.
func addition(ctx context.Context, f Fixture, use Use, resource string, token uint64, rng *rand.Rand) (element string, err error) {
	if use == Guarded {
		if err := f.Guard.Check(ctx, resource, token); err != nil {
			return "", err
		}
	}
	value, err := f.Storage.Get(ctx, resource)
	if err != nil {
		return "", err
	}
	if err := pass(ctx, rng, 5*time.Millisecond); err != nil {
		return "", err
	}
	element = strconv.FormatUint(token, 36)
	value = strings.TrimPrefix(value+" "+element, " ")
	if use == Unguarded {
		return element, f.Storage.Overwrite(ctx, resource, value)
	}
	return element, f.Storage.Put(ctx, resource, token, value, nil)
}

// pass lets a time pass: a random one, up to longest.
func pass(ctx context.Context, rng *rand.Rand, longest time.Duration) error {
	t := time.NewTimer(time.Duration(rng.Int64N(int64(longest))))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// RunSet plays Set with each Use, on storages made by newFixture. The guarded set must lose none of
// at least accepted additions, and refuse some. So must one for each of the Endings but those that
// stay, in which every third holder meets it. Each control must lose some of 200, or the test fails:
// then the workload shows nothing.
func RunSet(t *testing.T, newFixture func(t *testing.T) Fixture, accepted int) {
	for use, n := range map[Use]int{Guarded: accepted, WriteOnly: min(accepted, 200), Unguarded: min(accepted, 200)} {
		t.Run(string(use), func(t *testing.T) {
			f := newFixture(t)
			checkSet(t, use, Set(t, f, use, n))
			if use != Guarded {
				return
			}
			for _, e := range f.Endings {
				if e.Stays {
					continue
				}
				f := newFixture(t)
				f.Storage = interrupted{f.Storage, e.Name, f.Endings}
				checkSet(t, use, Set(t, f, use, min(accepted, 30)))
			}
		})
	}
}

// interrupted is a storage that ends the transaction of every third token. Nobody is told that its write was accepted.
type interrupted struct {
	Storage
	name    string
	endings []Ending // of this storage
}

func (s interrupted) Put(ctx context.Context, resource string, token uint64, value string, entered func()) error {
	for _, e := range s.endings {
		if e.Name == s.name && token%3 == 0 {
			if err := e.Put(ctx, resource, token, value, func() {}); err != nil {
				return errors.Join(err, fence.ErrStale)
			}
			return nil
		}
	}
	return s.Storage.Put(ctx, resource, token, value, entered)
}

func checkSet(t testing.TB, use Use, result SetResult) {
	t.Helper()
	t.Logf("%s: %v", use, result)
	switch {
	case use == Guarded && result.Lost > 0:
		t.Errorf("the guarded set lost acknowledged additions: %v", result)
	case use == Guarded && result.Refused == 0:
		t.Errorf("no holder was overtaken, so this shows nothing: %v", result)
	case use != Guarded && result.Lost == 0:
		t.Errorf("the %s control lost nothing, so the guarded set shows nothing: %v", use, result)
	}
}
