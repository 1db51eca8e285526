package redlock

import "time"

// leaseHeap has leases by the moment when the keeper must look at them: the end of what is trusted, or
// the next renewal. Four children to a node, and the moments beside the leases: with thousands of them,
// the memory that is touched is what it costs.
type leaseHeap []dueLease

type dueLease struct {
	due time.Time
	l   *lease // whose pos is its index
}

const arity = 4

// put moves a lease to where due belongs, or adds it.
func (h *leaseHeap) put(l *lease, due time.Time) {
	if l.pos < 0 {
		l.pos = int32(len(*h))
		*h = append(*h, dueLease{})
	}
	h.sift(int(l.pos), dueLease{due, l})
}

// remove takes out what is at i.
func (h *leaseHeap) remove(i int) {
	old := *h
	old[i].l.pos = -1
	end := len(old) - 1
	last := old[end]
	old[end] = dueLease{}
	*h = old[:end]
	if i < end {
		h.sift(i, last)
	}
}

// sift puts e where it belongs, beginning at the free place i.
func (h leaseHeap) sift(i int, e dueLease) {
	for i > 0 {
		parent := (i - 1) / arity
		if !e.due.Before(h[parent].due) {
			break
		}
		h.set(i, h[parent])
		i = parent
	}
	for { // if it rose, everything below is later, and it stays
		least, due := i, e.due
		for j := arity*i + 1; j <= arity*(i+1) && j < len(h); j++ {
			if h[j].due.Before(due) {
				least, due = j, h[j].due
			}
		}
		if least == i {
			break
		}
		h.set(i, h[least])
		i = least
	}
	h.set(i, e)
}

func (h leaseHeap) set(i int, e dueLease) {
	h[i] = e
	e.l.pos = int32(i)
}
