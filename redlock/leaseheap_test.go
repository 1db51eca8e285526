package redlock

import (
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestLeaseHeapGivesTheSoonestFirst(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	base := time.Now()
	var h leaseHeap
	in := map[*Lease]time.Time{}
	leases := make([]*Lease, 300)
	for i := range leases {
		leases[i] = &Lease{pos: -1}
	}
	for range 20000 {
		l := leases[rng.IntN(len(leases))]
		if l.pos >= 0 && rng.IntN(3) == 0 {
			h.remove(l.pos)
			delete(in, l)
			require.Equal(t, -1, l.pos)
		} else {
			in[l] = base.Add(time.Duration(rng.IntN(1000)))
			h.put(l, in[l])
		}
		require.Len(t, h, len(in))
		for i, e := range h {
			if e.l.pos != i || !e.due.Equal(in[e.l]) || e.due.Before(h[(max(i, 1)-1)/arity].due) {
				t.Fatalf("at %d: %v", i, h)
			}
		}
	}
}

// Renewals that are not due yet go out with those that are, but not so many that their names fill a member's queue.
func TestRenewalsThatAreNotDueAreBoundedInBytes(t *testing.T) {
	for _, tc := range []struct {
		name string
		key  int // bytes
		want int // leases
	}{
		{"short names", 8, atOnce},
		{"long names", 8 << 10, bytesAtOnce >> 13},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var k keeper
			now := time.Now()
			for i := range 2 * atOnce {
				l := &Lease{pos: -1, key: strings.Repeat("k", tc.key), ttl: 9 * time.Second, until: now.Add(6 * time.Second), renewAt: now.Add(time.Duration(i) * time.Microsecond)}
				k.leases.put(l, l.renewAt)
			}
			require.Empty(t, k.takeDue(now))
			require.Len(t, k.queue, tc.want)
		})
	}
}
