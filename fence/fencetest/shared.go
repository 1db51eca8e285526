package fencetest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/redquorum/redquorum/fence"
)

// The checks of a fence.SharedGuard: what tokens of readers do to those of writers, and to each
// other.

// readerAfterWriter: the late write of an earlier writer is refused as soon as one reader was there.
func readerAfterWriter(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 5)
	acceptReader(t, f.Guard, "r", 7)
	refuse(t, f.Guard, "r", 5, 7)
	refuse(t, f.Guard, "r", 6, 7)
	accept(t, f.Guard, "r", 8) // the next writer
	acceptReader(t, f.Guard, "s", 1<<53+1)
	refuse(t, f.Guard, "s", 1<<53, 1<<53+1)
	acceptReader(t, f.Guard, "s", math.MaxInt64)
	accept(t, f.Guard, "other", 1)
}

// writerAfterReader: a reader that has slept is told that a writer has been there since.
func writerAfterReader(t testing.TB, f Fixture) {
	acceptReader(t, f.Guard, "r", 5)
	accept(t, f.Guard, "r", 6)
	refuseReader(t, f.Guard, "r", 5, 6)
	acceptReader(t, f.Guard, "r", 7)
	refuseReader(t, f.Guard, "r", 5, 6)
	acceptReader(t, f.Guard, "r", 6) // a lease that was a writer's, and was downgraded
	if guard, atomic := f.Guard.(fence.AtomicGuard); atomic {
		if err := guard.Do(t.Context(), "r", 9, func() error { return nil }); err != nil {
			t.Errorf("Do = %v", err)
		}
		refuseReader(t, f.Guard, "r", 8, 9)
	}
}

// readersTogether: readers of one phase may have different tokens, and come in any order.
func readersTogether(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 5)
	for _, token := range []uint64{9, 7, 9, 6, 8} {
		acceptReader(t, f.Guard, "r", token)
	}
	refuse(t, f.Guard, "r", 8, 9) // writers are judged by the greatest of any
	refuseReader(t, f.Guard, "r", 4, 5)
}

// refusedReader: neither a refused reader nor a token of 0 leaves anything.
func refusedReader(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 10)
	for token := uint64(1); token < 10; token++ {
		refuseReader(t, f.Guard, "r", token, 10)
	}
	if err := shared(f.Guard).CheckShared(t.Context(), "r", 0); !errors.Is(err, fence.ErrNoToken) {
		t.Errorf("CheckShared with token 0 = %v, want ErrNoToken", err)
	}
	accept(t, f.Guard, "r", 10)
	acceptReader(t, f.Guard, "r", 10)
	accept(t, f.Guard, "r", 10)
}

// readDuringWrite: a reader that is accepted in the middle of an earlier writer's write would read
// what that write then changes.
func readDuringWrite(t testing.TB, f Fixture) {
	err := f.Guard.(fence.AtomicGuard).Do(t.Context(), "r", 5, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if err := shared(f.Guard).CheckShared(ctx, "r", 6); err == nil {
			t.Errorf("CheckShared accepted token %d while token %d was still writing", 6, 5)
		}
		return nil
	})
	if err != nil {
		t.Errorf("Do = %v", err)
	}
	acceptReader(t, f.Guard, "r", 6)
}

// restartWithReaders: a reader between the two numbers may be refused, and nobody else.
func restartWithReaders(t testing.TB, f Fixture) {
	accept(t, f.Guard, "r", 5)
	acceptReader(t, f.Guard, "r", 7)
	guard, err := f.Reopen()
	if err != nil {
		t.Fatalf("Reopen: %v", err)
	}
	refuse(t, guard, "r", 6, 7)
	if err := shared(guard).CheckShared(t.Context(), "r", 4); !errors.Is(err, fence.ErrStale) {
		t.Errorf("CheckShared with token 4 after a writer's 5 = %v, want ErrStale", err)
	}
	acceptReader(t, guard, "r", 7)
	accept(t, guard, "r", 8)
}

func shared(guard fence.Guard) fence.SharedGuard { return guard.(fence.SharedGuard) }

func acceptReader(t testing.TB, guard fence.Guard, resource string, token uint64) {
	t.Helper()
	if err := shared(guard).CheckShared(t.Context(), resource, token); err != nil {
		t.Errorf("CheckShared(%q, %d) = %v, want it accepted", resource, token, err)
	}
}

func refuseReader(t testing.TB, guard fence.Guard, resource string, token, highest uint64) {
	t.Helper()
	checkRefusal(t, shared(guard).CheckShared(t.Context(), resource, token), fence.StaleError{Resource: resource, Token: token, Highest: highest})
}
