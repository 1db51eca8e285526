// Package report makes tables, charts and one HTML page from the raw data of a run.
package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/suite"
)

// Report is a run, by cells.
type Report struct {
	Machines []suite.Machine
	Missing  []suite.Missing
	Cells    []*Cell
	Servers  []string
	Versions [][2]string // entry, version
	Others   Spread      // processors that strangers used
}

// Cell is all that was measured under the same conditions.
type Cell struct {
	suite.Cell
	Rows []*Row
}

// Row is one entry in one cell, over its repetitions.
type Row struct {
	Entry  string
	Floor  bool
	Failed string
	cell   *Cell
	reps   map[int]*suite.Slice
	report *Report
}

// Spread is a median with its range.
type Spread struct {
	Median, Min, Max float64
	N                int
}

// New sorts records. If a slice was measured twice, the later record counts.
func New(all []suite.Record) *Report {
	r := &Report{}
	cells := map[suite.Cell]*Cell{}
	versions := map[string]string{}
	var others []float64
	missing := map[string]suite.Missing{}
	present := map[string]bool{}
	for _, rec := range all {
		switch {
		case rec.Machine != nil:
			m := *rec.Machine
			m.Args, m.Load = "", ""
			if !slices.ContainsFunc(r.Machines, func(o suite.Machine) bool { o.Args, o.Load = "", ""; return o == m }) {
				r.Machines = append(r.Machines, *rec.Machine)
			}
		case rec.Missing != nil:
			missing[rec.Missing.Entry] = *rec.Missing
		case rec.Slice != nil:
			s := rec.Slice
			present[s.Entry] = true
			c := cells[s.Cell]
			if c == nil {
				c = &Cell{Cell: s.Cell}
				cells[s.Cell] = c
				r.Cells = append(r.Cells, c)
			}
			c.row(r, s).reps[s.Rep] = s
			if s.Version != "" {
				versions[s.Entry] = s.Version
			}
			if s.Servers != "" && !slices.Contains(r.Servers, s.Servers) {
				r.Servers = append(r.Servers, s.Servers)
			}
			if s.OtherCPU > 0 {
				others = append(others, s.OtherCPU)
			}
		}
	}
	r.Others = spread(others)
	rank := map[string]int{}
	for i, spec := range entry.All() {
		rank[spec.Name] = i + 1
		if m, ok := missing[spec.Name]; ok && !present[spec.Name] {
			r.Missing = append(r.Missing, m)
		}
		if v := versions[spec.Name]; v != "" {
			r.Versions = append(r.Versions, [2]string{spec.Name, v})
		}
	}
	for _, c := range r.Cells {
		slices.SortStableFunc(c.Rows, func(a, b *Row) int { return rank[a.Entry] - rank[b.Entry] })
		for _, row := range c.Rows {
			for rep, s := range row.reps {
				if s.Failed != "" {
					row.Failed = s.Failed
					delete(row.reps, rep)
				}
			}
		}
	}
	slices.SortStableFunc(r.Cells, func(a, b *Cell) int {
		if d := workload(a.Workload) - workload(b.Workload); d != 0 {
			return d
		}
		return 0
	})
	return r
}

func workload(w string) int { return slices.Index(suite.Workloads, w) }

func (c *Cell) row(r *Report, s *suite.Slice) *Row {
	for _, row := range c.Rows {
		if row.Entry == s.Entry {
			return row
		}
	}
	row := &Row{Entry: s.Entry, Floor: s.Floor, cell: c, reps: map[int]*suite.Slice{}, report: r}
	c.Rows = append(c.Rows, row)
	return row
}

func spread(v []float64) Spread {
	if len(v) == 0 {
		return Spread{}
	}
	slices.Sort(v)
	m := v[len(v)/2]
	if len(v)%2 == 0 {
		m = (m + v[len(v)/2-1]) / 2
	}
	return Spread{Median: m, Min: v[0], Max: v[len(v)-1], N: len(v)}
}

// Of returns the spread of a figure over the repetitions. It leaves out repetitions without the
// figure (NaN).
func (row *Row) Of(figure func(*suite.Slice) float64) Spread {
	var v []float64
	for _, s := range row.reps {
		if x := figure(s); !math.IsNaN(x) && !math.IsInf(x, 0) {
			v = append(v, x)
		}
	}
	return spread(v)
}

// Sum adds up a figure, because violations are never averaged.
func (row *Row) Sum(figure func(*suite.Slice) float64) (sum float64) {
	for _, s := range row.reps {
		sum += figure(s)
	}
	return sum
}

// To returns the ratio of a figure to that of another row, repetition by repetition.
func (row *Row) To(other *Row, figure func(*suite.Slice) float64) Spread {
	if other == nil {
		return Spread{}
	}
	var v []float64
	for rep, s := range row.reps {
		if o := other.reps[rep]; o != nil {
			if x := figure(s) / figure(o); !math.IsNaN(x) && !math.IsInf(x, 0) {
				v = append(v, x)
			}
		}
	}
	return spread(v)
}

// Row returns an entry of the cell, or nil.
func (c *Cell) Row(name string) *Row {
	if c == nil {
		return nil
	}
	for _, row := range c.Rows {
		if row.Entry == name {
			return row
		}
	}
	return nil
}

// Cell returns a cell, or nil.
func (r *Report) Cell(want suite.Cell) *Cell {
	for _, c := range r.Cells {
		if c.Cell == want {
			return c
		}
	}
	return nil
}

// The figures.
func throughput(s *suite.Slice) float64 { return s.Throughput }
func cpu(s *suite.Slice) float64        { return s.CPU }
func serverCPU(s *suite.Slice) float64  { return zeroUnknown(s.ServerCPU) }
func allocs(s *suite.Slice) float64     { return unknown(s.Allocs) }
func commands(s *suite.Slice) float64   { return unknown(s.Commands) }
func jain(s *suite.Slice) float64       { return s.Jain }
func waitRatio(s *suite.Slice) float64  { return zeroUnknown(s.WaitRatio) }
func waitMedian(s *suite.Slice) float64 { return zeroUnknown(s.WaitMedian) }
func selfShare(s *suite.Slice) float64  { return s.SelfShare * 100 }
func second(s *suite.Slice) float64     { return s.Second * 100 }
func overlaps(s *suite.Slice) float64   { return float64(s.Overlaps) }
func lost(s *suite.Slice) float64       { return float64(s.Lost) }
func left(s *suite.Slice) float64       { return float64(s.Left) }
func stay(s *suite.Slice) float64       { return float64(s.Stay) }
func errs(s *suite.Slice) float64       { return float64(s.Errors) }
func stuck(s *suite.Slice) float64      { return float64(s.Stuck) }
func openMS(s *suite.Slice) float64     { return float64(s.OpenMS) * 1e6 }
func renewals(s *suite.Slice) float64   { return s.Renewals }
func renewalCPU(s *suite.Slice) float64 { return zeroUnknown(s.RenewalCPU) }
func leaseBytes(s *suite.Slice) float64 { return s.LeaseBytes }
func waiterBytes(s *suite.Slice) float64 {
	return s.WaiterBytes
}
func goroutines(s *suite.Slice) float64 { return s.Goroutines }
func registered(s *suite.Slice) float64 { return unknown(float64(s.Registered)) }

func switches(s *suite.Slice) float64     { return zeroUnknown(s.Switches) }
func writes(s *suite.Slice) float64       { return zeroUnknown(s.Writes) }
func reads(s *suite.Slice) float64        { return zeroUnknown(s.Reads) }
func futexes(s *suite.Slice) float64      { return zeroUnknown(s.Futexes) }
func timers(s *suite.Slice) float64       { return s.Timers }
func instructions(s *suite.Slice) float64 { return zeroUnknown(s.Instructions) }
func missL1i(s *suite.Slice) float64      { return zeroUnknown(s.MissL1i) }
func missL1d(s *suite.Slice) float64      { return zeroUnknown(s.MissL1d) }
func missL2(s *suite.Slice) float64       { return zeroUnknown(s.MissL2) }

// goroutineRuns are the runs of goroutines whose first function begins so.
func goroutineRuns(s *suite.Slice, prefix string) float64 {
	if s.Runs == nil {
		return math.NaN()
	}
	n := 0.
	for name, runs := range s.Runs {
		if strings.HasPrefix(name, prefix) && name != "runtime" { // it collects garbage
			n += runs
		}
	}
	return n
}

func allRuns(s *suite.Slice) float64    { return goroutineRuns(s, "") }
func keeperRuns(s *suite.Slice) float64 { return goroutineRuns(s, "keeper.run") }

// eachRuns names the goroutines that run most.
func eachRuns(row *Row) Field {
	var b []string
	for _, s := range row.reps {
		names := slices.SortedFunc(maps.Keys(s.Runs), func(x, y string) int { return cmp.Compare(s.Runs[y], s.Runs[x]) })
		for _, name := range names {
			if s.Runs[name] >= .005 && name != "runtime" {
				b = append(b, fmt.Sprintf("%s %.2f", name, s.Runs[name]))
			}
		}
	}
	return Field{Text: strings.Join(b, ", ")}
}

func unknown(x float64) float64 {
	if x < 0 {
		return math.NaN()
	}
	return x
}

func zeroUnknown(x float64) float64 {
	if x == 0 {
		return math.NaN()
	}
	return x
}

func at(of func(*suite.Slice) *suite.Times, figure func(*suite.Times) int64) func(*suite.Slice) float64 {
	return func(s *suite.Slice) float64 {
		if t := of(s); t != nil {
			return float64(figure(t))
		}
		return math.NaN()
	}
}

func total(s *suite.Slice) *suite.Times   { return s.Total }
func total50(s *suite.Slice) float64      { return at(total, p50)(s) }
func acquire(s *suite.Slice) *suite.Times { return s.Acquire }
func handoff(s *suite.Slice) *suite.Times { return s.Handoff }

func release(s *suite.Slice) *suite.Times { return s.Release }
func told(s *suite.Slice) *suite.Times    { return s.Told }

func readWait(s *suite.Slice) *suite.Times  { return s.Reading }
func writeWait(s *suite.Slice) *suite.Times { return s.Writing }
func roundTrip(s *suite.Slice) *suite.Times { return s.RoundTrip }
func longestRead(s *suite.Slice) float64    { return zeroUnknown(float64(s.LongestRead)) }

// beyondRead is the part of the 99th percentile of writers' waits that goes beyond the longest hold
// of a reader, in round trips.
func beyondRead(s *suite.Slice) float64 {
	return (at(writeWait, p99)(s) - longestRead(s)) / at(roundTrip, p50)(s)
}

// inTrips is a time in round trips.
func inTrips(figure func(*suite.Slice) float64) func(*suite.Slice) float64 {
	return func(s *suite.Slice) float64 { return figure(s) / at(roundTrip, p50)(s) }
}

// ofLease is the longest time without a leader, of the lease.
func ofLease(s *suite.Slice) float64 { return at(acquire, top)(s) / float64(suite.CrashLease) }

func ops(s *suite.Slice) float64     { return float64(s.Ops) }
func back(s *suite.Slice) float64    { return zeroUnknown(float64(s.Back)) }
func backAll(s *suite.Slice) float64 { return zeroUnknown(float64(s.BackAll)) }

// ofQuarantine is the time until a member that came back votes, of its quarantine.
func ofQuarantine(s *suite.Slice) float64 { return back(s) / float64(suite.Quarantine) }

// ofOnePermit is the rate of a semaphore to that of one permit, times the permits.
func ofOnePermit(row *Row) Spread {
	c := row.cell.Cell
	limit := float64(c.Limit)
	c.Limit = 1
	s := row.To(row.report.Cell(c).Row(row.Entry), throughput)
	s.Median, s.Min, s.Max = s.Median/limit, s.Min/limit, s.Max/limit
	return s
}

func p50(t *suite.Times) int64  { return t.P50 }
func p99(t *suite.Times) int64  { return t.P99 }
func p999(t *suite.Times) int64 { return t.P999 }
func top(t *suite.Times) int64  { return t.Max }

// healthy is the same row before the fault.
func (row *Row) healthy() *Row {
	c := row.cell.Cell
	c.Phase = suite.Healthy
	return row.report.Cell(c).Row(row.Entry)
}
