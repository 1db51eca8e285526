package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/server"
	"github.com/redquorum/redquorum/bench/suite"
	"github.com/redquorum/redquorum/bench/work"
)

// target is something that redquorum has to reach, by the number of members (1, 3, 5).
type target struct {
	text  string
	cell  suite.Cell // without the members
	value func(*Row) Spread
	most  bool // the bound is an upper one
	bound map[int]float64
	show  func(float64) string
}

func each(x float64) map[int]float64 { return map[int]float64{1: x, 3: x, 5: x} }

func toRow(name string, figure func(*suite.Slice) float64) func(*Row) Spread {
	return func(row *Row) Spread { return row.To(row.cell.Row(name), figure) }
}

func own(figure func(*suite.Slice) float64) func(*Row) Spread {
	return func(row *Row) Spread { return row.Of(figure) }
}

var (
	cellW1   = suite.Cell{Workload: "W1", Callers: 1}
	cellW2   = suite.Cell{Workload: "W2", Callers: 64}
	cellW2b  = suite.Cell{Workload: "W2", Callers: 512}
	cellW3   = suite.Cell{Workload: "W3", Callers: 8, HoldUS: 1000, Random: true}
	cellW3a  = suite.Cell{Workload: "W3", Callers: 2}
	cellW3b  = suite.Cell{Workload: "W3", Callers: 64}
	cellW3c  = suite.Cell{Workload: "W3", Callers: 64, Clients: 8, HoldUS: 200}
	cellW3d  = suite.Cell{Workload: "W3d", Callers: 8, HoldUS: 1000, Random: true}
	cellW3f  = suite.Cell{Workload: "W3f", Callers: 8, HoldUS: 1000, Random: true}
	cellW3f0 = suite.Cell{Workload: "W3f", Callers: 8}
	cellW9   = suite.Cell{Workload: "W9", Callers: 64, Clients: 8, Reads: 95, HoldUS: 1000}
	cellW9w  = suite.Cell{Workload: "W9w", Callers: 64, Clients: 8, Reads: 100, Writers: 1, HoldUS: 1000}
	cellW9r  = suite.Cell{Workload: "W9r", Callers: 100, Clients: 100}
	cellW12  = suite.Cell{Workload: "W12", Callers: 64, Limit: 8, HoldUS: 1000}
	cellW13  = suite.Cell{Workload: "W13", Callers: 100, Count: 10_000}
	cellW14  = suite.Cell{Workload: "W14", Callers: 8, Ask: work.AskResign}
	cellW14c = suite.Cell{Workload: "W14", Callers: 8, Ask: work.AskCrash}
	cellW17  = suite.Cell{Workload: "W17", Callers: 1}
	cellW17b = suite.Cell{Workload: "W17", Callers: 64}
	cellW18  = suite.Cell{Workload: "W18", Callers: 64}
	cellW19  = suite.Cell{Workload: "W19", Count: 16}
	cellW20  = suite.Cell{Workload: "W20", Callers: 1, Clients: 1, Ask: work.AskAgain}
	cellW20b = suite.Cell{Workload: "W20", Callers: 1, Clients: 2, Ask: work.AskAgain}
	cellW16  = suite.Cell{Workload: "W16", Clients: 300, Count: 16_384, Fault: server.Forget}
	cellW6   = suite.Cell{Workload: "W6", Count: 10_000}
	cellW7   = suite.Cell{Workload: "W7", Count: 10_000}
)

var targets = []target{
	{"W1 p50, lock + unlock, to floor", cellW1, toRow("floor", at(total, p50)), true, map[int]float64{1: 1.05, 3: 1.15, 5: 1.2}, times},
	{"W2 throughput, 64 callers, of floor", cellW2, toRow("floor", throughput), false, map[int]float64{1: .65, 3: .7, 5: .68}, share},
	{"W2 throughput, 512 callers, of floor", cellW2b, toRow("floor", throughput), false, map[int]float64{1: .6, 3: .65, 5: .6}, share},
	{"W2 client CPU per operation, 64 callers, to floor", cellW2, toRow("floor", cpu), true, each(1.5), times},
	{"W2 client CPU per operation, 512 callers, to floor", cellW2b, toRow("floor", cpu), true, each(1.6), times},
	{"W18 client's L1i misses per lock + unlock, 64 callers", cellW18, own(missL1i), true, each(500), Number},
	{"W18 client's L1d misses", cellW18, own(missL1d), true, each(300), Number},
	{"W18 client's L2 misses", cellW18, own(missL2), true, each(120), Number},
	{"W17 keeper runs per lock + unlock, 1 caller", cellW17, own(keeperRuns), true, each(.01), fine},
	{"W17 keeper runs per lock + unlock, 64 callers", cellW17b, own(keeperRuns), true, each(.01), fine},
	{"W3d acquisitions/s, to floor-notify", cellW3d, toRow("floor-notify", throughput), false, map[int]float64{1: 1, 3: 1.3, 5: 1.6}, times},
	{"W3d acquisitions/s, of floor-standing", cellW3d, toRow("floor-standing", throughput), false, each(.93), share},
	{"W19 a member's instructions per lock + unlock, 16 in a call", cellW19, own(instructions), true, each(37_500), Number},
	{"W1 throughput, of floor-scripts", cellW1, toRow("floor-scripts", throughput), false, each(.85), share},
	{"W2 throughput, 64 callers, of floor-scripts", cellW2, toRow("floor-scripts", throughput), false, map[int]float64{1: 1.1, 3: 1.15, 5: 1.15}, share},
	{"W2 throughput, 512 callers, of floor-scripts", cellW2b, toRow("floor-scripts", throughput), false, map[int]float64{1: 1.1, 3: 1.15, 5: 1.15}, share},
	{"W1 allocations per lock + unlock", cellW1, own(allocs), true, each(8), Number},
	{"W2 allocations per lock + unlock", cellW2, own(allocs), true, each(8), Number},
	{"W3d commands per acquisition, 8 lockers", cellW3d, own(commands), true, map[int]float64{1: 2.2, 3: 6.6, 5: 11}, Number},
	{"W3 Jain", cellW3, own(jain), false, each(.99), func(x float64) string { return fmt.Sprintf("%.3f", x) }},
	{"W3d Jain", cellW3d, own(jain), false, each(.99), func(x float64) string { return fmt.Sprintf("%.3f", x) }},
	{"W3 2 callers of one client, acquisitions/s, to one caller of W20", cellW3a, toOneCaller, false, each(20), times},
	{"W3 64 callers of one client, acquisitions/s", cellW3b, own(throughput), false, each(300_000), Number},
	{"W3 64 callers of one client, commands per acquisition", cellW3b, own(commands), true, each(.05), fine},
	{"W3 64 callers of one client, allocations", cellW3b, own(allocs), true, each(4), Number},
	{"W3 8 clients of 8 callers, held 200 µs, Jain over clients", cellW3c, own(jain), false, each(.99), func(x float64) string { return fmt.Sprintf("%.3f", x) }},
	{"W3 longest wait to mean wait", cellW3, own(waitRatio), true, each(3), times},
	{"W3d longest wait to mean wait", cellW3d, own(waitRatio), true, each(3), times},
	{"W6 client CPU per renewal, to floor", cellW6, toRow("floor", renewalCPU), true, map[int]float64{1: 2, 5: 2}, times},
	{"W7 bytes per waiter", cellW7, own(waiterBytes), true, each(4096), Number},
	{"W7 goroutines per waiter", cellW7, own(goroutines), true, each(.01), Number},
	{"W7 registered waiters", cellW7, own(registered), true, each(1), Number},
	{"W3f acquisitions/s, of redquorum-mutex", cellW3f, toRow("redquorum-mutex", throughput), false, each(.8), share},
	{"W3f acquisitions/s, hold 0, of redquorum-mutex", cellW3f0, toRow("redquorum-mutex", throughput), false, each(.8), share},
	{"W9 operations/s, to redquorum-mutex", cellW9, toRow("redquorum-mutex", throughput), false, each(8), times},
	{"W9w write wait p99 beyond the longest read, in round trips", cellW9w, own(beyondRead), true, each(3), Number},
	{"W9r last of 100 readers in, p50", cellW9r, own(at(total, p50)), true, each(2e6), Duration},
	{"W9s write lock p50, to redquorum-mutex", solo(work.AskWrite), toRow("redquorum-mutex", at(total, p50)), true, each(1.15), times},
	{"W9s first read p50, to redquorum-mutex", solo(work.AskRead), toRow("redquorum-mutex", at(total, p50)), true, each(1.5), times},
	{"W9s further reads/s", solo(work.AskFurther), own(throughput), false, each(1e6), Number},
	{"W9s commands per further read", solo(work.AskFurther), own(commands), true, each(.001), Number},
	{"W20 with Keep, locks + unlocks a second", cellW20, kept(throughput), false, map[int]float64{3: 1e6}, Number},
	{"W20 with Keep, commands per lock + unlock", cellW20, kept(commands), true, each(.005), fine},
	{"W20 with Keep, allocations", cellW20, kept(allocs), true, each(2), Number},
	{"W20 2 clients in turns, with Keep, of those without", cellW20b, keptOf(throughput), false, each(.95), share},
	{"W11 2 permits, p50 to one lock", permits(2), toRow("redquorum-mutex", at(total, p50)), true, each(1.4), times},
	{"W11 16 permits, p50 to one lock", permits(16), toRow("redquorum-mutex", at(total, p50)), true, each(1.4), times},
	{"W11 1,000 permits, p50 to one lock", permits(1000), toRow("redquorum-mutex", at(total, p50)), true, each(1.4), times},
	{"W12 8 permits, acquisitions/s of 8 × one permit", cellW12, ofOnePermit, false, each(.8), share},
	{"W12 8 permits, commands per acquisition", cellW12, own(commands), true, map[int]float64{1: 4, 3: 12, 5: 20}, Number},
	{"W12 8 permits, Jain", cellW12, own(jain), false, each(.95), func(x float64) string { return fmt.Sprintf("%.3f", x) }},
	{"W12 8 permits, longest wait to median wait", cellW12, own(waitMedian), true, each(8), times},
	{"W13 last waiter in, p50 in round trips", cellW13, own(inTrips(at(total, p50))), true, each(2), Number},
	{"W13 commands per arrival", cellW13, own(commands), true, map[int]float64{1: 2, 3: 6, 5: 10}, Number},
	{"W14 resigned: next leader p50, in round trips", cellW14, own(inTrips(at(acquire, p50))), true, each(2), Number},
	{"W14 resigned: last observer after it, p50 in round trips", cellW14, own(inTrips(at(told, p50))), true, each(1), Number},
	{"W14 killed: longest without a leader, of the lease", cellW14c, own(ofLease), true, each(1), share},
	{"W14 killed: last observer after it, p50 in round trips", cellW14c, own(inTrips(at(told, p50))), true, each(1), Number},
	{"W16 failed tries", cellW16, failed, true, each(0), Number},
	{"W16 votes again, of the quarantine", cellW16, own(ofQuarantine), true, each(1.2), times},
	{"W10 2 names, p50 to one lock", set(2), toRow("redquorum-mutex", at(total, p50)), true, each(1.1), times},
	{"W10 4 names, p50 to one lock", set(4), toRow("redquorum-mutex", at(total, p50)), true, each(1.2), times},
	{"W10 16 names, p50 to one lock", set(16), toRow("redquorum-mutex", at(total, p50)), true, each(2), times},
	{"W10 2 names, commands to one by one", set(2), toRow("redquorum-each", commands), true, each(.6), times},
	{"W10 4 names, commands to one by one", set(4), toRow("redquorum-each", commands), true, each(.6), times},
	{"W10 16 names, commands to one by one", set(16), toRow("redquorum-each", commands), true, each(.6), times},
}

const keeps = "redquorum-keep"

// kept is a figure of the same cell with redlock.Keep.
func kept(figure func(*suite.Slice) float64) func(*Row) Spread {
	return func(row *Row) Spread {
		if k := row.cell.Row(keeps); k != nil {
			return k.Of(figure)
		}
		return Spread{}
	}
}

// keptOf is the same as a ratio to what it is without.
func keptOf(figure func(*suite.Slice) float64) func(*Row) Spread {
	return func(row *Row) Spread {
		if k := row.cell.Row(keeps); k != nil {
			return k.To(row, figure)
		}
		return Spread{}
	}
}

// toOneCaller is the rate to that of one caller of one name, who finds nobody to pass the lock on to, nor to have it from.
func toOneCaller(row *Row) Spread {
	c := cellW20
	c.Members = row.cell.Members
	return row.To(row.report.Cell(c).Row(row.Entry), throughput)
}

// failed is of all repetitions together.
func failed(row *Row) Spread {
	n := row.Sum(errs)
	return Spread{n, n, n, 1}
}

func permits(limit int) suite.Cell {
	return suite.Cell{Workload: "W11", Callers: 1, Limit: limit}
}
func solo(ask string) suite.Cell { return suite.Cell{Workload: "W9s", Callers: 1, Ask: ask} }
func set(names int) suite.Cell   { return suite.Cell{Workload: "W10", Callers: 1, Names: names} }

// Targets compares redquorum with what it must reach. It leaves out rows that were not measured. What it does on servers
// that are new has no target.
func (r *Report) Targets() Table {
	t := Table{Title: "What redquorum has to reach", Head: []string{"medians, each slot used once before", "N = 1", "N = 3", "N = 5", "on new servers"}}
	line := func(text string, of func(n int) (Spread, float64, bool), fresh string, most bool, show func(float64) string) {
		fields, any := []Field{{Text: text}}, false
		for _, n := range []int{1, 3, 5} {
			s, bound, wanted := of(n)
			if s.N == 0 {
				fields = append(fields, Field{Text: "–"})
				continue
			}
			any = true
			f := field(s, show)
			if wanted {
				sign := "≥"
				if most {
					sign = "≤"
				}
				f.Good = s.Median <= bound == most || show(s.Median) == show(bound) // a reader compares what is shown
				f.Bad = !f.Good
				f.Text += fmt.Sprintf(" (%s %s)", sign, show(bound))
			}
			fields = append(fields, f)
		}
		if any {
			t.Rows = append(t.Rows, append(fields, Field{Text: fresh}))
		}
	}
	for _, goal := range targets {
		value := func(entry string, n int) (s Spread, bound float64, wanted bool) {
			cell := goal.cell
			cell.Members = n
			bound, wanted = goal.bound[n]
			if row := r.Cell(cell).Row(entry); row != nil {
				s = goal.value(row)
			}
			return s, bound, wanted
		}
		var fresh []string
		for _, n := range []int{1, 3, 5} {
			if s, _, _ := value("redquorum-new", n); s.N > 0 {
				fresh = append(fresh, goal.show(s.Median))
			}
		}
		line(goal.text, func(n int) (Spread, float64, bool) { return value("redquorum", n) },
			cmp.Or(strings.Join(fresh, " · "), "–"), goal.most, goal.show)
	}
	t.Rows = append(t.Rows, r.peers()...)
	faults := func(text, phase string, figure func(*suite.Slice) float64, most bool, bound float64, show func(float64) string) {
		for _, c := range r.Cells {
			if c.Phase != phase {
				continue
			}
			row := c.Row("redquorum")
			if row == nil || row.healthy() == nil {
				continue
			}
			load := fmt.Sprintf("%d callers", c.Callers)
			if c.Rate > 0 {
				load = fmt.Sprintf("%d arrivals/s", c.Rate)
			}
			line(fmt.Sprintf("%s one %s, %s: %s", c.Workload, c.Fault, load, text), func(n int) (Spread, float64, bool) {
				if n != c.Members {
					return Spread{}, 0, false
				}
				return row.To(row.healthy(), figure), bound, true
			}, "–", most, show)
		}
	}
	faults("throughput of own healthy", suite.After, throughput, false, .9, share)
	faults("p99 to own healthy", suite.After, at(total, p99), true, 1.3, times)
	faults("started with it, throughput of own healthy", suite.Start, throughput, false, .9, share)
	if !slices.ContainsFunc(t.Rows, func(row []Field) bool { return row[4].Text != "–" }) { // nothing was measured there
		t.Head = t.Head[:4]
		for i, row := range t.Rows {
			t.Rows[i] = row[:4]
		}
	}
	return t
}

// peers compares redquorum with the best of the other libraries, in every cell of W1, W2 and W3d.
func (r *Report) peers() (rows [][]Field) {
	at := map[suite.Cell]int{} // the row of a cell, whatever its number of members
	for _, c := range r.Cells {
		column := slices.Index([]int{1, 3, 5}, c.Members) + 1
		figure, most, unit := throughput, false, ", per second"
		switch c.Workload {
		case "W1":
			figure, most, unit = total50, true, ", p50"
		case "W2", "W3d":
		default:
			continue
		}
		ours := c.Row("redquorum")
		best := c.bestPeer(figure, most)
		if ours == nil || best == nil || column == 0 {
			continue
		}
		k := c.Cell
		k.Members = 0
		i, known := at[k]
		if !known {
			i = len(rows)
			at[k] = i
			rows = append(rows, []Field{{Text: strings.ReplaceAll(k.String(), " N=0", "") + unit + ", to the best peer"}, {Text: "–"}, {Text: "–"}, {Text: "–"}, {Text: "–"}})
		}
		s := ours.To(best, figure)
		if s.N == 0 {
			continue
		}
		f := field(s, times)
		f.Good = s.Median < 1 == most && s.Median != 1
		f.Bad = !f.Good
		f.Text += " " + best.Entry
		rows[i][column] = f
	}
	return rows
}

// bestPeer is the library with the best median of those that wait for their releases, floors and this library's own rows
// apart.
func (c *Cell) bestPeer(figure func(*suite.Slice) float64, least bool) (best *Row) {
	var record float64
	for _, row := range c.Rows {
		if spec, err := entry.Find(row.Entry); row.Floor || strings.HasPrefix(row.Entry, "redquorum") || err == nil && spec.Leaves != "" {
			continue
		}
		if s := row.Of(figure); s.N > 0 && (best == nil || s.Median < record == least && s.Median != record) {
			best, record = row, s.Median
		}
	}
	return best
}

// Violations lists every entry that broke a promise or left keys. Overlaps and lost updates come
// first.
func (r *Report) Violations() (out []string) {
	type sum struct {
		overlaps, lost, left, stay float64
		cells                      []string
	}
	sums := map[string]*sum{}
	var names []string
	for _, c := range r.Cells {
		for _, row := range c.Rows {
			o, l, k := row.Sum(overlaps), row.Sum(lost), row.Sum(left)
			if o+l+k == 0 {
				continue
			}
			s := sums[row.Entry]
			if s == nil {
				s = &sum{}
				sums[row.Entry], names = s, append(names, row.Entry)
			}
			s.overlaps, s.lost, s.left, s.stay = s.overlaps+o, s.lost+l, s.left+k, s.stay+row.Sum(stay)
			s.cells = append(s.cells, c.Cell.String())
		}
	}
	names = inOrder(names)
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(sums[b].overlaps+sums[b].lost, sums[a].overlaps+sums[a].lost)
	})
	for _, name := range names {
		s := sums[name]
		where := strings.Join(s.cells[:min(3, len(s.cells))], "; ")
		if more := len(s.cells) - 3; more > 0 {
			where += fmt.Sprintf("; and %d more", more)
		}
		out = append(out, fmt.Sprintf("%s: %s overlaps, %s lost updates, %s keys left after 150 ms, %s after another second (%s)", name, Number(s.overlaps), Number(s.lost), Number(s.left), Number(s.stay), where))
	}
	return out
}
