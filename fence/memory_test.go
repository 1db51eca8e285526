package fence_test

import (
	"bytes"
	"context"
	"encoding/gob"
	"fmt"
	"math"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/fence"
	"github.com/redquorum/redquorum/fence/fencetest"
	"github.com/redquorum/redquorum/internal/faketime"
)

func TestMemoryIsAGuard(t *testing.T) {
	fencetest.Run(t, func(t *testing.T) fencetest.Fixture {
		current := new(fence.Memory)
		return fencetest.Fixture{
			Guard: current, Lacks: "data endings crash",
			Reopen: func() (fence.Guard, error) { // through an encoding, as a storage would
				var file bytes.Buffer
				if err := gob.NewEncoder(&file).Encode(current.Snapshot()); err != nil {
					return nil, err
				}
				var snapshot map[string]uint64
				if err := gob.NewDecoder(&file).Decode(&snapshot); err != nil {
					return nil, err
				}
				current = new(fence.Memory)
				current.Restore(snapshot)
				return current, nil
			},
		}
	})
}

func TestOneCheckOfTheSuiteRunsAlone(t *testing.T) {
	out, err := exec.Command(os.Args[0], "-test.v", "-test.run=TestMemoryIsAGuard/ZeroIsNoToken").CombinedOutput()
	require.NoError(t, err)
	require.Contains(t, string(out), "--- PASS: TestMemoryIsAGuard/ZeroIsNoToken")
}

func TestAdmitAcceptsTheGreatestTokenAndAbove(t *testing.T) {
	for _, tc := range []struct {
		highest, token uint64
		want           error
	}{
		{0, 0, fence.ErrNoToken},
		{5, 0, fence.ErrNoToken},
		{0, 1, nil},
		{5, 4, fence.ErrStale},
		{5, 5, nil},
		{5, 6, nil},
		{math.MaxUint64, math.MaxUint64 - 1, fence.ErrStale},
		{math.MaxUint64, math.MaxUint64, nil},
	} {
		assert.ErrorIs(t, fence.Admit("r", tc.highest, tc.token), tc.want, "%d after %d", tc.token, tc.highest)
	}
}

func TestStaleErrorSaysWhatOvertook(t *testing.T) {
	err := fence.Admit("invoice:42", 34, 33)
	var stale *fence.StaleError
	require.ErrorAs(t, err, &stale)
	assert.Equal(t, fence.StaleError{Resource: "invoice:42", Token: 33, Highest: 34}, *stale)
	assert.EqualError(t, err, `fence: stale token 33 for "invoice:42": 34 has been accepted`)
	assert.NotErrorIs(t, err, fence.ErrNoToken)
	assert.EqualError(t, fence.Admit("invoice:42", 34, 0), `fence: no token for "invoice:42"`)
}

func TestNobodyIsAcceptedWhileAWriteRuns(t *testing.T) {
	faketime.Test(t, func(t *testing.T) {
		var guard fence.Memory
		ctx := t.Context()
		finish, done := make(chan struct{}), make(chan string)
		var writing atomic.Bool
		report := func(what string, err error) {
			assert.NoError(t, err, what)
			done <- fmt.Sprintf("%s, writing %t", what, writing.Load())
		}
		go func() {
			report("Do 33", guard.Do(ctx, "r", 33, func() error {
				writing.Store(true)
				<-finish
				writing.Store(false)
				return nil
			}))
		}()
		synctest.Wait()
		require.True(t, writing.Load())
		go func() { report("Check 34", guard.Check(ctx, "r", 34)) }()
		go func() { report("Do 34", guard.Do(ctx, "r", 34, func() error { return nil })) }()
		synctest.Wait() // all three block: on finish, on the guard, on the guard
		select {
		case early := <-done:
			t.Error(early)
		default:
		}
		assert.NoError(t, guard.Check(ctx, "another", 1), "another resource waits")
		assert.ErrorIs(t, guard.Do(ctx, "r", 32, nil), fence.ErrStale, "a stale token need not wait")

		close(finish)
		assert.ElementsMatch(t, []string{"Do 33, writing false", "Check 34, writing false", "Do 34, writing false"},
			[]string{<-done, <-done, <-done})
	})
}

func TestEndedContextIsRefusedBeforeAnythingElse(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var guard fence.Memory
	assert.ErrorIs(t, guard.Check(ctx, "r", 1), context.Canceled)
	assert.ErrorIs(t, guard.CheckShared(ctx, "r", 1), context.Canceled)
	assert.ErrorIs(t, guard.Do(ctx, "r", 1, func() error { t.Error("the write ran"); return nil }), context.Canceled)
	assert.Zero(t, guard.Highest("r"))
}

func TestPanickingWriteFreesTheResourceAndKeepsItsToken(t *testing.T) {
	var guard fence.Memory
	assert.PanicsWithValue(t, "disk on fire", func() {
		_ = guard.Do(t.Context(), "r", 5, func() error { panic("disk on fire") })
	})
	assert.ErrorIs(t, guard.Check(t.Context(), "r", 4), fence.ErrStale)
	assert.NoError(t, guard.Check(t.Context(), "r", 5))
}

func TestSnapshotTakenDuringAWriteHasItsToken(t *testing.T) {
	var guard fence.Memory
	require.NoError(t, guard.Do(t.Context(), "r", 7, func() error {
		assert.Equal(t, map[string]uint64{"r": 7}, guard.Snapshot())
		return nil
	}))
}

func TestRestoreOnlyRaises(t *testing.T) {
	var guard fence.Memory
	assert.Equal(t, map[string]uint64{}, guard.Snapshot())
	require.NoError(t, guard.Check(t.Context(), "low", 3))
	require.NoError(t, guard.Check(t.Context(), "high", 9))
	guard.Restore(map[string]uint64{"low": 5, "high": 5, "new": 5, "none": 0})
	assert.Equal(t, map[string]uint64{"low": 5, "high": 9, "new": 5}, guard.Snapshot())

	snapshot := guard.Snapshot()
	snapshot["low"] = 1
	assert.Equal(t, uint64(5), guard.Highest("low"), "the snapshot is not a copy")
}

// A token of a snapshot may be a writer's, also in a guard that has accepted readers before: so readers
// below it are refused.
func TestRestoreTakesTokensForThoseOfWriters(t *testing.T) {
	var guard fence.Memory
	require.NoError(t, guard.Check(t.Context(), "r", 5))
	require.NoError(t, guard.CheckShared(t.Context(), "r", 7))
	guard.Restore(map[string]uint64{"r": 9})
	assert.Equal(t, &fence.StaleError{Resource: "r", Token: 8, Highest: 9}, guard.CheckShared(t.Context(), "r", 8))
	require.NoError(t, guard.CheckShared(t.Context(), "r", 9))

	guard.Restore(map[string]uint64{"r": 4})
	require.NoError(t, guard.CheckShared(t.Context(), "r", 10))
	assert.ErrorIs(t, guard.CheckShared(t.Context(), "r", 8), fence.ErrStale, "an older snapshot lowers nothing")
}

func TestCheckDoesNotAllocate(t *testing.T) {
	var guard fence.Memory
	ctx := t.Context()
	assert.Zero(t, testing.AllocsPerRun(100, func() { _ = guard.Check(ctx, "r", 1) }))
}

// Readers are judged by the tokens of writers alone, and writers by those of readers, too. What that means for a guard is
// in TestMemoryIsAGuard.
func TestTokensOfReadersLieBetweenThoseOfWriters(t *testing.T) {
	for _, tc := range []struct {
		written, token uint64
		want           error
	}{{0, 0, fence.ErrNoToken}, {5, 0, fence.ErrNoToken}, {0, 1, nil}, {5, 4, fence.ErrStale}, {5, 5, nil}, {5, 6, nil}} {
		assert.ErrorIs(t, fence.AdmitShared("r", tc.written, tc.token), tc.want, "%d after a writer's %d", tc.token, tc.written)
	}
	var m fence.Memory
	require.NoError(t, m.Check(t.Context(), "r", 10))
	require.NoError(t, m.CheckShared(t.Context(), "r", 12))
	require.EqualValues(t, 12, m.Highest("r"))
}
