package report

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redquorum/redquorum/bench/suite"
	"github.com/redquorum/redquorum/internal/redistest/rt"
)

func slice(c suite.Cell, entry string, rep int, ops float64) suite.Record {
	return suite.Record{Slice: &suite.Slice{Cell: c, Entry: entry, Rep: rep, Floor: strings.HasPrefix(entry, "floor"), Throughput: ops, Commands: 6, Jain: .9896,
		Total: &suite.Times{Count: 10, P50: int64(1e9 / ops), P99: int64(2e9 / ops), Max: int64(3e9 / ops)}}}
}

func run() []suite.Record {
	w1, w3d := suite.Cell{Workload: "W1", Members: 3, Callers: 1}, suite.Cell{Workload: "W3d", Members: 3, Callers: 8, HoldUS: 1000, Random: true}
	all := []suite.Record{
		{Machine: &suite.Machine{System: "Linux", CPUs: 2, Reps: 3}},
		{Missing: &suite.Missing{Entry: "etcd", Why: "no etcd", Install: "apt-get install etcd-server"}},
	}
	// The machine is ten times as slow in the second repetition: the ratio is that of the same one.
	for rep, speed := range []float64{1, .1, 2} {
		all = append(all, slice(w1, "floor", rep, 1000*speed), slice(w1, "redquorum", rep, 800*speed), slice(w1, "setnx-expire", rep, 900*speed))
	}
	for rep := range int64(3) {
		back := slice(cellW16, "redquorum", int(rep), 300)
		back.Slice.Cell.Members, back.Slice.Errors = 3, rep%2
		all = append(all, back)
	}
	broken := slice(w3d, "setnx-expire", 0, 100)
	broken.Slice.Overlaps, broken.Slice.Left, broken.Slice.Stay = 1, 7, 2
	return append(all, broken, slice(w3d, "setnx-expire", 1, 100), slice(w3d, "redquorum", 0, 100))
}

func TestRatiosAreToTheFloorOfTheSameRepetition(t *testing.T) {
	c := New(run()).Cells[0]
	s := c.Row("redquorum").To(c.Row("floor"), throughput)
	require.InDelta(t, .8, s.Median, 1e-9)
	require.InDelta(t, .8, s.Min, 1e-9)
	require.InDelta(t, .8, s.Max, 1e-9)
	require.Equal(t, 3, s.N)
	require.InDelta(t, 800, c.Row("redquorum").Of(throughput).Median, 1e-9)
}

func TestViolationsAreAddedUp(t *testing.T) {
	r := New(run())
	require.Equal(t, []string{"setnx-expire: 1 overlaps, 0 lost updates, 7 keys left after 150 ms, 2 after another second (W3d N=3 callers=8 hold=0–1ms)"}, r.Violations())
	table := r.Cells[1].Table()
	var red []string
	for _, row := range table.Rows {
		for i, f := range row {
			if f.Bad {
				red = append(red, row[0].Text+" "+table.Head[i]+" "+f.Text)
			}
		}
	}
	require.Equal(t, []string{"setnx-expire overlaps 1", "setnx-expire keys left 7 (1 s later: 2)"}, red)
	require.Contains(t, r.Markdown(), "🟥")
	require.Contains(t, r.Summary(), "PROMISES BROKEN")
}

func TestMissedTargetsAreRed(t *testing.T) {
	require.Contains(t, New(run()).Summary(), "! out of goal, 4 of 7: W1 p50, lock + unlock, to floor (N = 3); ")
	for _, row := range New(run()).Targets().Rows {
		if strings.HasPrefix(row[0].Text, "W1 p50") {
			require.Equal(t, Field{Text: "1.25× (≤ 1.15×)", Bad: true}, row[2])
			require.Equal(t, "–", row[1].Text)
		}
		if strings.HasPrefix(row[0].Text, "W16 failed") { // once in three repetitions
			require.Equal(t, Field{Text: "1 (≤ 0)", Bad: true}, row[2])
		}
		if strings.HasPrefix(row[0].Text, "W3d Jain") { // less, by what is not shown
			require.Equal(t, Field{Text: "0.990 (≥ 0.990)", Good: true}, row[2])
		}
	}
}

// A curve has the slope of its points, in logarithms, whatever their order.
func TestCurvesHaveExponents(t *testing.T) {
	var all []suite.Record
	for _, x := range []int{100, 1, 10} {
		c := suite.Cell{Workload: "W15", Members: 3, Callers: x, Scale: suite.ScaleCallers}
		all = append(all, slice(c, "redquorum", 0, 1000*math.Sqrt(float64(x))))
	}
	r := New(all)
	tables := r.tables("W15")
	require.Len(t, tables, 1)
	var firsts []string
	for _, row := range tables[0].Rows {
		firsts = append(firsts, row[0].Text)
	}
	require.Equal(t, []string{"1", "10", "100", "exponent"}, firsts)
	require.Equal(t, "0.50", tables[0].Rows[3][1].Text, "locks/s")
	require.Equal(t, "-0.50", tables[0].Rows[3][2].Text, "p50")
	require.Len(t, r.Charts(), 1)
	require.Contains(t, r.Charts()[0].SVG(), "exponent 0.50")
	require.Contains(t, r.Markdown(), "W15 callers: redquorum")
}

func TestTheBestPeerIsNamed(t *testing.T) {
	w2 := suite.Cell{Workload: "W2", Members: 5, Callers: 64}
	all := append(run(), slice(w2, "floor", 0, 9000), slice(w2, "redquorum", 0, 1000), slice(w2, "redquorum-new", 0, 2000),
		slice(w2, "redsync-rueidis", 0, 500), slice(w2, "redsync-goredis", 0, 100))
	found := map[string][]Field{}
	for _, row := range New(all).Targets().Rows {
		if name, ok := strings.CutSuffix(row[0].Text, ", to the best peer"); ok {
			found[name] = row[1:]
		}
	}
	none := Field{Text: "–"}
	require.Equal(t, map[string][]Field{
		"W1 callers=1, p50":                    {none, {Text: "1.13× setnx-expire", Bad: true}, none, none},
		"W2 callers=64, per second":            {none, none, {Text: "2.00× redsync-rueidis", Good: true}, none},
		"W3d callers=8 hold=0–1ms, per second": {none, {Text: "1.00× setnx-expire", Bad: true}, none, none},
	}, found)
}

func TestThePageNeedsNothingElse(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, New(run()).Write(dir))
	page := rt.Must(os.ReadFile(filepath.Join(dir, "report.html")))(t)
	require.Contains(t, string(page), "apt-get install etcd-server")
	outside := regexp.MustCompile(`(?i)(src|href)\s*=\s*["']?(https?:)?//|@import|url\(`)
	require.Empty(t, outside.FindString(string(page)))
	pictures := rt.Must(filepath.Glob(filepath.Join(dir, "*.svg")))(t)
	require.Len(t, pictures, 2)
	for _, name := range pictures {
		text := rt.Must(os.ReadFile(name))(t)
		require.Empty(t, outside.FindString(string(text)))
		require.Contains(t, string(text), "redquorum")
	}
}
