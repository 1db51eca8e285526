package judge

import (
	"slices"
	"sync"
)

// Recorder gathers holds. Safe for concurrent use; the zero value is ready.
type Recorder struct {
	mu    sync.Mutex
	holds []Hold
}

// Add books holds that have ended.
func (r *Recorder) Add(all ...Hold) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holds = append(r.holds, all...)
}

// Len is the number of holds booked.
func (r *Recorder) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.holds)
}

// Holds returns a copy of all.
func (r *Recorder) Holds() []Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.holds)
}

// PerClient counts the holds of each of n clients.
func (r *Recorder) PerClient(n int) []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]int, n)
	for _, x := range r.holds {
		out[x.Client]++
	}
	return out
}
