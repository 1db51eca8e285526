package fencetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redquorum/redquorum/fence"
)

const (
	workers = 8   // callers at a time
	rounds  = 200 // calls of each
)

// call is one call of a history. begin and end are drawn from one counter, so that end of one < begin of
// another means that the one had returned before the other was made.
type call struct {
	begin, end uint64
	token      uint64
	err        error
}

// history makes calls from several goroutines and returns them all, when all goroutines have ended. The
// tokens of all rise with the number of calls made so far, so that no caller runs ahead and is then the
// only one to be accepted.
func history(do func(worker int, token uint64) error) []call {
	var tick atomic.Uint64
	all := make([][]call, workers) // each worker writes its own
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(worker), 1))
			for range rounds {
				c := call{begin: tick.Add(1)}
				c.token = 1 + c.begin/(2*workers) + rng.Uint64N(2*workers)
				c.err = do(worker, c.token)
				c.end = tick.Add(1)
				all[worker] = append(all[worker], c)
			}
		})
	}
	wg.Wait()
	var calls []call
	for _, one := range all {
		calls = append(calls, one...)
	}
	return calls
}

// checkHistory finds an accepted call that began after a greater token had been accepted, and a refusal
// that no greater token explains.
func checkHistory(t testing.TB, resource string, calls []call) {
	t.Helper()
	byEnd := make([]call, 0, len(calls)) // accepted ones
	var greatest uint64
	offered := make(map[uint64]uint64) // token: the first moment it was offered
	for _, c := range calls {
		if begin, ok := offered[c.token]; !ok || c.begin < begin {
			offered[c.token] = c.begin
		}
		if c.err == nil {
			byEnd = append(byEnd, c)
			greatest = max(greatest, c.token)
		}
	}
	sort.Slice(byEnd, func(i, j int) bool { return byEnd[i].end < byEnd[j].end })
	accepted := func(before uint64) (token uint64) { // the greatest accepted that had returned by then
		for _, c := range byEnd {
			if c.end > before {
				break
			}
			token = max(token, c.token)
		}
		return token
	}
	for _, c := range calls {
		if c.err == nil {
			if earlier := accepted(c.begin); earlier > c.token {
				t.Errorf("%q: token %d accepted after %d had been", resource, c.token, earlier)
			}
			continue
		}
		var stale *fence.StaleError
		if !errors.As(c.err, &stale) {
			t.Errorf("%q: token %d: %v, want it accepted or a *fence.StaleError", resource, c.token, c.err)
			continue
		}
		begin, ok := offered[stale.Highest]
		if stale.Token != c.token || stale.Resource != resource || stale.Highest <= c.token || stale.Highest > greatest || !ok || begin > c.end {
			t.Errorf("%q: token %d refused by %+v, which no accepted call explains", resource, c.token, *stale)
		}
	}
	if len(byEnd) == 0 {
		t.Errorf("%q: none of %d calls was accepted", resource, len(calls))
	}
}

func concurrentChecks(t testing.TB, f Fixture) {
	calls := history(func(_ int, token uint64) error { return f.Guard.Check(t.Context(), "r", token) })
	checkHistory(t, "r", calls)
}

func concurrentResources(t testing.TB, f Fixture) {
	// Every resource has one caller, whose tokens rise: with nobody else there, all must be accepted.
	next := make([]uint64, workers)
	for _, c := range history(func(worker int, _ uint64) error {
		next[worker] += uint64(1 + worker)
		return f.Guard.Check(t.Context(), fmt.Sprint("resource ", worker), next[worker])
	}) {
		if c.err != nil {
			t.Errorf("a rising token was refused: %v", c.err)
		}
	}
}

func concurrentWrites(t testing.TB, f Fixture) {
	guard := f.Guard.(fence.AtomicGuard)
	var (
		written  []uint64      // nothing but the guard keeps writes apart: the race detector watches it
		checked  atomic.Uint64 // greatest token that a Check has accepted and returned
		overtook atomic.Uint64
	)
	calls := history(func(worker int, token uint64) error {
		if worker%2 == 1 {
			err := guard.Check(t.Context(), "r", token)
			for seen := checked.Load(); err == nil && token > seen && !checked.CompareAndSwap(seen, token); {
				seen = checked.Load()
			}
			return err
		}
		return guard.Do(t.Context(), "r", token, func() error {
			for range 10 { // give the others every chance
				runtime.Gosched()
			}
			written = append(written, token)
			if seen := checked.Load(); seen > token {
				overtook.Store(seen)
			}
			return nil
		})
	})
	checkHistory(t, "r", calls)
	for i := 1; i < len(written); i++ {
		if written[i] < written[i-1] {
			t.Errorf("token %d wrote after %d", written[i], written[i-1])
		}
	}
	if token := overtook.Load(); token != 0 {
		t.Errorf("token %d was accepted by Check while a smaller one was still writing", token)
	}
}
