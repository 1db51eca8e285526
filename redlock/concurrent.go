package redlock

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redquorum/redquorum/clock"
)

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default: // nil, or already signalled
	}
}

// sooner is the one of two moments that comes first.
func sooner(x, y time.Time) time.Time {
	if clock.Until(y, x) < 0 {
		return y
	}
	return x
}

// each calls do for 0 to n-1 at once, and returns when all have returned.
func each(n int, do func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { do(i) })
	}
	wg.Wait()
}

// table is a map for any goroutine.
type table[K comparable, V any] struct {
	mu sync.Mutex // a leaf
	m  map[K]V
}

func (t *table[K, V]) get(k K) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.m[k]
}

func (t *table[K, V]) put(k K, v V) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.m == nil {
		t.m = make(map[K]V)
	}
	t.m[k] = v
}

// take removes what it returns.
func (t *table[K, V]) take(k K) V {
	t.mu.Lock()
	defer t.mu.Unlock()
	v := t.m[k]
	delete(t.m, k)
	return v
}

// values are all that there are at one moment.
func (t *table[K, V]) values() []V {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Collect(maps.Values(t.m))
}

// inflight counts what Close waits for: attempts until nothing of them is left to be submitted, and calls that may have to be
// followed by another.
type inflight struct {
	n    atomic.Int64  // with aliveEnded added when no more may enter
	none chan struct{} // capacity 1: there are none, and no more may enter
}

const aliveEnded = 1 << 62

// enter reports whether there may be one more. Each that may is followed by leave.
func (a *inflight) enter() bool {
	if a.n.Add(1) > aliveEnded {
		a.leave()
		return false
	}
	return true
}

func (a *inflight) leave() {
	if a.n.Add(-1) == aliveEnded {
		signal(a.none)
	}
}

func (a *inflight) end() {
	if a.n.Add(aliveEnded) == aliveEnded {
		signal(a.none)
	}
}

const (
	closeWithin = 2 * time.Second
	// calls that have begun end within so long, or what they have is released under them.
	callsWithin = closeWithin / 2
	// members cut their connections then, which takes no longer unless the user's code blocks the reader of one.
	cutWithin = closeWithin / 8
	// calls of Logger and Tracer have returned then, unless one blocks.
	hushWithin = closeWithin / 16
)
