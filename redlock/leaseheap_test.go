package redlock

import (
	"math/rand/v2"
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
