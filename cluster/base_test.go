package cluster_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/internal/redistest"
	"github.com/redquorum/redquorum/redlock"
	"github.com/redquorum/redquorum/slot"
)

// secondRounds counts acquisitions, and those whose token took a second round.
type secondRounds struct{ all, second atomic.Int64 }

func (s *secondRounds) AcquireStart(ctx context.Context, _ redlock.AcquireStart) context.Context {
	return ctx
}

func (s *secondRounds) AcquireEnd(_ context.Context, e redlock.AcquireEnd) {
	if e.Err == nil {
		s.all.Add(1)
		if e.SecondRound {
			s.second.Add(1)
		}
	}
}

// New clusters have one base in all slots, so the first locks of a slot draw one token at all members.
func TestLongFirstUseOfASlotOfNewClustersTakesNoSecondRound(t *testing.T) {
	long(t)
	t.Parallel()
	var clusters []*redistest.Sharded
	var urls []string
	for _, masters := range []int{2, 1, 1} {
		s := start(t, redistest.ShardedConfig{Masters: masters})
		clusters, urls = append(clusters, s), append(urls, urlOf(s))
	}
	var rounds secondRounds
	c := openAll(t, urls, redlock.WithTracer(&rounds))
	name := func(slotOf int) string { return "first:{" + slot.TagOf(uint16(slotOf)) + "}" }
	take := func(from, to int) error {
		for i := from; i < to; i++ {
			lease, err := c.Mutex(name(i)).Lock(ending(t))
			if err == nil {
				err = lease.Unlock(t.Context())
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name(i), err)
			}
		}
		return nil
	}
	// A cluster votes as soon as one of its masters does.
	becomes(t, "all vote", func() bool {
		for _, s := range clusters {
			for _, r := range s.Servers {
				if keys, err := r.Do(t.Context(), "KEYS", "redquorum:boot:*"); err != nil || len(keys.([]any)) == 0 {
					return false
				}
			}
		}
		for _, m := range c.Members() {
			if m.State != redlock.MemberVoting || m.Silent.Slots > 0 {
				return false
			}
		}
		return true
	})
	require.NoError(t, take(0, 200))
	require.NoError(t, take(slot.Count-200, slot.Count))
	alone, second := rounds.all.Load(), rounds.second.Load()
	t.Logf("%d of %d", second, alone)
	require.EqualValues(t, 400, alone)
	require.Less(t, second, alone/100)
}
