// Package claims is what guards have in common: those in tables on whatever driver, and those that wait.
package claims

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"
)

// Known remembers what was claimed here, so that Tx claims before it begins and not after an entry in
// vain. It is a hint: the entry decides. It forgets any, if there are many.
type Known struct {
	mu sync.Mutex
	of map[string]uint64 // guarded by mu
}

const most = 1024

// Has reports whether the token, or a greater one, was claimed here.
func (k *Known) Has(resource string, token uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.of[resource] >= token
}

// Add remembers a claim.
func (k *Known) Add(resource string, token uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.of == nil {
		k.of = map[string]uint64{}
	}
	if _, known := k.of[resource]; !known && len(k.of) >= most {
		for any := range k.of {
			delete(k.of, any)
			break
		}
	}
	k.of[resource] = max(k.of[resource], token)
}

// Repeat calls f until it returns what the server does not want repeated. Pauses are random, up to
// 1 ms at first, and up to pause later.
func Repeat(ctx context.Context, pause time.Duration, again func(error) bool, f func() error) error {
	for longest := time.Millisecond; ; longest = min(2*longest, pause) {
		err := f()
		if err == nil || !again(err) {
			return err
		}
		if ended := Sleep(ctx, rand.N(longest)); ended != nil {
			return errors.Join(ended, err)
		}
	}
}

// Sleep fails if ctx ends before the time is over.
func Sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
