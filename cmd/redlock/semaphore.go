package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redquorum/redquorum/redlock"
)

// mostSlots is the greatest limit of a semaphore, and mostPermits the most that one lease has.
const (
	mostSlots   = 4096
	mostPermits = 64
)

// within takes the value of a flag: a number from 1 to most.
func within(n *int, most int) func(string) error {
	return func(v string) (err error) {
		if *n, err = strconv.Atoi(v); err != nil || *n < 1 || *n > most {
			return fmt.Errorf("must be between 1 and %d", most)
		}
		return nil
	}
}

// semaphore returns an error unless the flags about a semaphore fit together.
func (w *waiting) semaphore() error {
	switch {
	case w.limit == 0 && w.seats == 0:
		return nil
	case w.limit == 0:
		return usage("--permits needs --limit: how many slots the semaphore has")
	case w.seats > w.limit:
		return usage("--permits is %d, more than the --limit of %d", w.seats, w.limit)
	case w.fair || w.shared || w.elect != nil:
		return usage("--limit excludes --fair, --shared and --elect: a semaphore is another kind of lock")
	}
	return nil
}

// permits is the semaphore that the flags name.
func (w *waiting) permits(c *connection, key string, more ...redlock.LockOption) locker {
	return permits{c.Semaphore(key, w.limit, append(more, redlock.Permits(max(1, w.seats)))...)}
}

// permits takes slots of a semaphore.
type permits struct{ s *redlock.Semaphore }

func (p permits) Lock(ctx context.Context) (*redlock.Lease, error)    { return p.s.Acquire(ctx) }
func (p permits) TryLock(ctx context.Context) (*redlock.Lease, error) { return p.s.TryAcquire(ctx) }

// slotJSON is one slot for scripts.
type slotJSON struct {
	Slot  int    `json:"slot"`
	Token uint64 `json:"token"`
}

func slotsToJSON(slots []redlock.Slot) (out []slotJSON) {
	for _, s := range slots {
		out = append(out, slotJSON{s.Number, s.Token})
	}
	return out
}

// tokenLines are the token as NAME=value, and the slot that it is of. Several slots have a token
// each.
func tokenLines(token uint64, slots []slotJSON) []string {
	switch len(slots) {
	case 0:
		return []string{fmt.Sprintf("REDLOCK_TOKEN=%d", token)}
	case 1:
		return []string{
			fmt.Sprintf("REDLOCK_TOKEN=%d", token), fmt.Sprintf("REDLOCK_SLOT=%d", slots[0].Slot),
		}
	}
	out := []string{fmt.Sprintf("REDLOCK_SLOTS=%d", len(slots))}
	for i, s := range slots {
		out = append(out,
			fmt.Sprintf("REDLOCK_SLOT_%d=%d", i+1, s.Slot), fmt.Sprintf("REDLOCK_TOKEN_%d=%d", i+1, s.Token))
	}
	return out
}
