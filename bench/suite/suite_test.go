package suite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/work"
)

func TestJain(t *testing.T) {
	require.InDelta(t, 1, Jain([]int64{7, 7, 7}), 1e-9)
	require.InDelta(t, 0.25, Jain([]int64{9, 0, 0, 0}), 1e-9)
	require.Zero(t, Jain([]int64{0, 0}))
}

// A run that was cut short in the middle of a line goes on behind the last whole one.
func TestFileGoesOnAfterACut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "raw.jsonl")
	f, have, err := OpenFile(path)
	require.NoError(t, err)
	require.Empty(t, have)
	require.NoError(t, f.Write(Record{Slice: &Slice{Cell: Cell{Workload: "W1", Members: 3}, Entry: "floor", Ops: 1}}))
	require.NoError(t, f.Close())
	whole, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(path, append(whole, `{"slice":{"ent`...), 0o600))

	f, have, err = OpenFile(path)
	require.NoError(t, err)
	require.Len(t, have, 1)
	require.NoError(t, f.Write(Record{Slice: &Slice{Entry: "floor", Ops: 2}}))
	require.NoError(t, f.Close())
	all, err := Read(path)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.EqualValues(t, 2, all[1].Slice.Ops)
}

// Rounds that the file has in full are skipped; one that was begun is done again, for its floor.
func TestTodo(t *testing.T) {
	floor, err := entry.Find("floor")
	require.NoError(t, err)
	ours, err := entry.Find("redquorum")
	require.NoError(t, err)
	cell := Cell{Workload: "W1", Members: 3, Callers: 1}
	r := &runner{Config: Config{Entries: []*entry.Spec{floor, ours}}, missing: map[string]bool{}, done: map[string]bool{
		key(cell, 0, "floor"): true, key(cell, 0, "redquorum"): true, key(cell, 1, "floor"): true}}
	require.Empty(t, r.todo(cell, 0))
	require.Len(t, r.todo(cell, 1), 2)
	require.Len(t, r.todo(cell, 2), 2)
}

func TestOrderMovesOn(t *testing.T) {
	require.Equal(t, []int{1, 2, 3}, order([]int{1, 2, 3}, 0))
	require.Equal(t, []int{2, 3, 1}, order([]int{1, 2, 3}, 1))
	require.Equal(t, []int{1, 2, 3}, order([]int{1, 2, 3}, 3))
}

// No two cells have the same key, and every planned cell has a title.
func TestPlan(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Plan(Scope{Full: true, Members: []int{1, 3, 5}, Faults: true}) {
		require.False(t, seen[c.String()], c.String())
		seen[c.String()] = true
		require.NotEqual(t, c.String(), c.Title())
	}
	require.Len(t, Plan(Scope{Members: []int{1}}), 3)
	require.Empty(t, Plan(Scope{Members: []int{1}, Workloads: []string{"W4"}, Faults: true}), "one member cannot lose one")
}

func TestHistogramKeepsWhatAChildSaw(t *testing.T) {
	h := work.NewHistogram()
	for i := range int64(1000) {
		require.NoError(t, h.RecordValue((i+1)*1000))
	}
	got := times(histogram(work.Pairs(h)))
	require.EqualValues(t, 1000, got.Count)
	require.InEpsilon(t, 500_000, got.P50, 0.002)
	require.InEpsilon(t, 990_000, got.P99, 0.002)
	require.InEpsilon(t, 1_000_000, got.Max, 0.002)
}
