package fencetest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redquorum/redquorum/fence"
)

// The checks of a storage with data: claim, enter, write.

// claimWithoutWrite: a holder that has only claimed, and goes on to read, is safe from those before it.
func claimWithoutWrite(t testing.TB, f Fixture) {
	put(t, f, "r", 5, "five")
	accept(t, f.Guard, "r", 7)
	for _, token := range []uint64{5, 6} {
		err := f.Storage.Put(t.Context(), "r", token, "late", func() { t.Errorf("token %d entered after 7 had been claimed", token) })
		checkRefusal(t, err, fence.StaleError{Resource: "r", Token: token, Highest: 7})
	}
	want(t, f, "r", "five")
	if err := f.Storage.Put(t.Context(), "r", 0, "none", nil); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("Put with token 0 = %v, want ErrNoToken", err)
	}
	want(t, f, "r", "five")
	put(t, f, "r", 7, "seven")
	put(t, f, "s", 1, "other") // another resource knows nothing of it
}

// equalWrites: a holder writes more than once, and may write what is there. A storage that counts the rows
// that it has changed takes that for a refusal.
func equalWrites(t testing.TB, f Fixture) {
	for range 3 {
		put(t, f, "r", 5, "same")
		accept(t, f.Guard, "r", 5)
	}
	put(t, f, "r", 6, "same")
	put(t, f, "r", 6, "same")
	want(t, f, "r", "same")
}

// claimDuringWrite: what entered under 5 is over when the claim of 6 returns: the next read has it, or it
// never happens.
func claimDuringWrite(t testing.TB, f Fixture) {
	put(t, f, "r", 4, "before")
	entered, claimed := false, false
	err := f.Storage.Put(t.Context(), "r", 5, "five", func() {
		entered = true
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		claimed = f.Guard.Check(ctx, "r", 6) == nil
	})
	switch {
	case !entered && err != nil:
		t.Errorf("Put with the greatest token = %v", err)
	case claimed && err == nil:
		t.Errorf("a write under token 5 committed after token 6 had been claimed")
	}
	accept(t, f.Guard, "r", 6)
	if err == nil {
		want(t, f, "r", "five")
	} else {
		want(t, f, "r", "before")
	}
	put(t, f, "r", 6, "six")
	want(t, f, "r", "six")
}

// stream is how many writes an overtaken holder may have acknowledged while a claim waits. Eight that take 5 ms each are
// that many in 600 ms: a claim comes within one of them and 100 ms, and the rest is for a machine that is busy.
const stream = 1000

// claimAmongWrites: an overtaken holder that always has a transaction open does not keep the next one out.
func claimAmongWrites(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 33)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var accepted, refused atomic.Int64
	var wg sync.WaitGroup
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	for worker := range workers {
		wg.Go(func() {
			defer begin()
			for n := 0; accepted.Load() < 2*stream; n++ { // of a storage that refuses nobody
				pause := sync.OnceFunc(func() { time.Sleep(5 * time.Millisecond) })
				err := f.Storage.Put(t.Context(), "r", 33, fmt.Sprint(worker, n), pause)
				pause() // of a storage whose check and write are one step
				switch {
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
					return
				case err != nil:
					t.Errorf("Put with token 33 = %v", err)
					return
				}
				switch accepted.Add(1) {
				case workers:
					begin()
				case stream:
					cancel()
				}
			}
		})
	}
	<-begun
	before := accepted.Load()
	err := f.Guard.Check(ctx, "r", 34)
	during := accepted.Load() - before
	put(t, f, "r", 34, "next")
	wg.Wait()
	if err != nil || refused.Load() != workers {
		t.Errorf("Check of token 34 = %v, after %d writes of 33; then %d of %d writers were refused", err, during, refused.Load(), workers)
	}
	t.Logf("the claim came after %d writes of a smaller token", during)
	want(t, f, "r", "next")
}

// endedTransactions: if the storage has ended the transaction that entered, what its function did is not acknowledged.
// The next holder may have been there meanwhile.
func endedTransactions(t testing.TB, f Fixture) {
	for _, e := range f.Endings {
		put(t, f, e.Name, 5, "five")
		claimed := false
		err := e.Put(t.Context(), e.Name, 6, "six", func() {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			if claimed = f.Guard.Check(ctx, e.Name, 7) == nil; claimed {
				put(t, f, e.Name, 7, "seven")
			}
		})
		t.Logf("%s: claimed meanwhile %t; the function's is %v", e.Name, claimed, err)
		switch {
		case claimed && err == nil:
			t.Errorf("%s: a write under token 6 was acknowledged, and its transaction was over when 7 was claimed", e.Name)
		case claimed && !e.Stays:
			want(t, f, e.Name, "seven")
		case !claimed && err == nil:
			want(t, f, e.Name, "six")
		case !claimed && !e.Stays: // the claim may have had too little time
			want(t, f, e.Name, "five")
		}
		put(t, f, e.Name, 8, "eight")
		want(t, f, e.Name, "eight")
	}
}

// crashAfterClaim: the claim is durable when it returns, before anything is written under it.
func crashAfterClaim(t testing.TB, f Fixture) {
	accept(t, f.Guard, "s", 1<<53+1)
	accept(t, f.Guard, "r", 5)
	after := crash(t, f)
	refuse(t, after.Guard, "r", 4, 5)
	refuse(t, after.Guard, "s", 1<<53, 1<<53+1)
	accept(t, after.Guard, "r", 5)
	if after.Storage != nil {
		err := after.Storage.Put(t.Context(), "r", 4, "late", nil)
		checkRefusal(t, err, fence.StaleError{Resource: "r", Token: 4, Highest: 5})
	}
}

// crashDuringWrite: what was acknowledged is there, and what had entered is there wholly or not at all.
func crashDuringWrite(t testing.TB, f Fixture) {
	put(t, f, "r", 5, "five")
	after := f
	entered := false
	err := f.Storage.Put(t.Context(), "r", 6, "six", func() {
		entered = true
		after = crash(t, f)
	})
	if !entered {
		after = crash(t, f)
	}
	value, failed := after.Storage.Get(t.Context(), "r")
	switch {
	case failed != nil:
		t.Errorf("Get after a crash = %v", failed)
	case err == nil && value != "six":
		t.Errorf("Get after a crash = %q, want what was acknowledged: %q", value, "six")
	case err != nil && value != "five" && value != "six":
		t.Errorf("Get after a crash = %q, want a value that was written", value)
	}
	refuse(t, after.Guard, "r", 4, 6)
	put(t, after, "r", 7, "seven")
	want(t, after, "r", "seven")
}

func crash(t testing.TB, f Fixture) Fixture {
	t.Helper()
	after, err := f.Crash()
	if err != nil {
		t.Fatalf("Crash: %v", err)
	}
	return after
}

func put(t testing.TB, f Fixture, resource string, token uint64, value string) {
	t.Helper()
	if err := f.Storage.Put(t.Context(), resource, token, value, nil); err != nil {
		t.Errorf("Put(%q, %d, %q) = %v, want it accepted", resource, token, value, err)
	}
}

func want(t testing.TB, f Fixture, resource, value string) {
	t.Helper()
	if got, err := f.Storage.Get(t.Context(), resource); err != nil || got != value {
		t.Errorf("Get(%q) = %q, %v, want %q", resource, got, err, value)
	}
}
