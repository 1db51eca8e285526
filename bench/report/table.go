package report

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/redquorum/redquorum/bench/suite"
	"github.com/redquorum/redquorum/bench/work"
)

// Table is what Markdown, HTML and the terminal show.
type Table struct {
	Title string
	Notes []string
	Head  []string
	Rows  [][]Field
}

// Field is one figure.
type Field struct {
	Text  string
	Range string // of the repetitions
	Bad   bool   // a violation or a leak: red
	Good  bool
	Ours  bool
	Floor bool
}

// Number writes a figure with three digits or so.
func Number(x float64) string {
	switch a := math.Abs(x); {
	case math.IsNaN(x):
		return "–"
	case a >= 1e6:
		return fmt.Sprintf("%.2f M", x/1e6)
	case a >= 1e5:
		return fmt.Sprintf("%.0f k", x/1e3)
	case a >= 1e4:
		return fmt.Sprintf("%.1f k", x/1e3)
	case a >= 100 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

func fine(x float64) string { return fmt.Sprintf("%.4f", x) }

// Duration writes a time given in ns.
func Duration(ns float64) string {
	switch d := time.Duration(ns); {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", ns/1e9)
	case d >= 10*time.Millisecond:
		return fmt.Sprintf("%.0f ms", ns/1e6)
	case d >= time.Millisecond:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	case d >= 100*time.Microsecond:
		return fmt.Sprintf("%.0f µs", ns/1e3)
	}
	return fmt.Sprintf("%.1f µs", ns/1e3)
}

func percent(x float64) string {
	if math.Abs(x) < 10 && x != math.Trunc(x) {
		return fmt.Sprintf("%.1f %%", x)
	}
	return fmt.Sprintf("%.0f %%", x)
}

func share(x float64) string { return percent(100 * x) }
func times(x float64) string { return fmt.Sprintf("%.2f×", x) }

func field(s Spread, format func(float64) string) Field {
	if s.N == 0 {
		return Field{Text: "–"}
	}
	f := Field{Text: format(s.Median)}
	if s.N > 1 {
		if low, high := format(s.Min), format(s.Max); low != f.Text || high != f.Text {
			f.Range = low + " … " + high
		}
	}
	return f
}

// bad is a count that has to be 0; all repetitions together.
func bad(sum float64) Field { return Field{Text: Number(sum), Bad: sum != 0} }

// trouble is what went wrong without breaking a promise.
func trouble(row *Row) Field {
	var b []string
	if n := row.Sum(errs); n > 0 {
		b = append(b, Number(n)+" errors")
	}
	if n := row.Sum(stuck); n > 0 {
		b = append(b, Number(n)+" callers stuck")
	}
	return Field{Text: strings.Join(b, ", ")}
}

type column struct {
	head string
	of   func(*Row) Field
}

func plain(head string, figure func(*suite.Slice) float64, format func(float64) string) column {
	return column{head, func(row *Row) Field { return field(row.Of(figure), format) }}
}

func ratio(head, to string, figure func(*suite.Slice) float64, format func(float64) string) column {
	return column{head, func(row *Row) Field { return field(row.To(row.cell.Row(to), figure), format) }}
}

func never(head string, figure func(*suite.Slice) float64) column {
	return column{head, func(row *Row) Field { return bad(row.Sum(figure)) }}
}

// leaks are the keys that were left, and how many of them were still there a second later.
func leaks() column {
	return column{"keys left", func(row *Row) Field {
		f := bad(row.Sum(left))
		if f.Bad && row.Sum(stay) < row.Sum(left) {
			f.Text += fmt.Sprintf(" (1 s later: %s)", Number(row.Sum(stay)))
		}
		return f
	}}
}

func troubles() column { return column{"trouble", trouble} }

func (c *Cell) columns() []column {
	switch c.Workload {
	case "W1", "W2", "W8":
		cols := []column{
			plain("ops/s", throughput, Number),
			ratio("of floor", "floor", throughput, share),
			ratio("of floor-scripts", "floor-scripts", throughput, share),
			plain("p50", at(total, p50), Duration),
			ratio("p50 to floor", "floor", at(total, p50), times),
			plain("p99", at(total, p99), Duration),
			plain("p99.9", at(total, p999), Duration),
			plain("max", at(total, top), Duration),
			plain("client CPU s/10k", cpu, Number),
			ratio("CPU to floor", "floor", cpu, times),
			plain("server CPU µs/op", serverCPU, Number),
			plain("allocs/op", allocs, Number),
			plain("commands/op", commands, Number),
		}
		if c.Workload == "W8" {
			cols = append(cols, plain("second rounds", second, percent))
		}
		return append(cols, leaks(), troubles())
	case "W3", "W3d", "W3p", "W3f":
		cols := []column{plain("acquisitions/s", throughput, Number)}
		switch c.Workload {
		case "W3":
			cols = append(cols, ratio("of floor", "floor", throughput, share))
		case "W3f":
			cols = append(cols, ratio("of redquorum-mutex", "redquorum-mutex", throughput, share))
		default:
			cols = append(cols, ratio("to floor-notify", "floor-notify", throughput, times), ratio("of floor-standing", "floor-standing", throughput, share))
		}
		return append(cols,
			plain("hand-off p50", at(handoff, p50), Duration),
			plain("hand-off p99", at(handoff, p99), Duration),
			plain("wait p50", at(acquire, p50), Duration),
			plain("wait p99", at(acquire, p99), Duration),
			plain("wait p99.9", at(acquire, p999), Duration),
			plain("longest / mean wait", waitRatio, Number),
			plain("Jain", jain, func(x float64) string { return fmt.Sprintf("%.3f", x) }),
			plain("to oneself", selfShare, percent),
			plain("commands/acq", commands, Number),
			plain("client CPU s/10k", cpu, Number),
			plain("allocs/acq", allocs, Number),
			never("overlaps", overlaps), never("lost updates", lost), leaks(), troubles())
	case "burst":
		return []column{
			plain("acquisitions/s", throughput, Number),
			ratio("to floor-notify", "floor-notify", throughput, times),
			plain("served p50", at(acquire, p50), Duration),
			plain("served p99", at(acquire, p99), Duration),
			plain("last served", at(acquire, top), Duration),
			plain("hand-off p50", at(handoff, p50), Duration),
			plain("commands/acq", commands, Number),
			plain("client CPU s/10k", cpu, Number),
			never("overlaps", overlaps), never("lost updates", lost), leaks(), troubles(),
		}
	case "W9", "W9w":
		return []column{
			plain("ops/s", throughput, Number),
			ratio("to redquorum-mutex", "redquorum-mutex", throughput, times),
			plain("read wait p50", at(readWait, p50), Duration),
			plain("read wait p99", at(readWait, p99), Duration),
			plain("write wait p50", at(writeWait, p50), Duration),
			plain("write wait p99", at(writeWait, p99), Duration),
			plain("longest write wait", at(writeWait, top), Duration),
			plain("longest read hold", longestRead, Duration),
			plain("round trip p50", at(roundTrip, p50), Duration),
			plain("write p99 beyond the hold, in round trips", beyondRead, Number),
			plain("commands/op", commands, Number),
			plain("client CPU s/10k", cpu, Number),
			plain("allocs/op", allocs, Number),
			never("overlaps", overlaps), never("lost updates", lost), leaks(), troubles(),
		}
	case "W9r":
		return []column{
			plain("reader in, p50", at(acquire, p50), Duration),
			plain("last reader in, p50", at(total, p50), Duration),
			plain("last reader in, max", at(total, top), Duration),
			plain("commands/reader", commands, Number),
			never("overlaps", overlaps), never("lost updates", lost), leaks(), troubles(),
		}
	case "W12":
		return []column{
			plain("acquisitions/s", throughput, Number),
			{"of one permit × permits", func(row *Row) Field { return field(ofOnePermit(row), share) }},
			plain("wait p50", at(acquire, p50), Duration),
			plain("wait p99", at(acquire, p99), Duration),
			plain("wait p99.9", at(acquire, p999), Duration),
			plain("longest / median wait", waitMedian, Number),
			plain("Jain", jain, func(x float64) string { return fmt.Sprintf("%.3f", x) }),
			plain("commands/acq", commands, Number),
			plain("client CPU s/10k", cpu, Number),
			plain("server CPU µs/acq", serverCPU, Number),
			plain("allocs/acq", allocs, Number),
			never("overlaps", overlaps), leaks(), troubles(),
		}
	case "W13":
		return []column{
			plain("waiter in, p50", at(acquire, p50), Duration),
			plain("last waiter in, p50", at(total, p50), Duration),
			plain("last waiter in, max", at(total, top), Duration),
			plain("round trip p50", at(roundTrip, p50), Duration),
			plain("last waiter in, in round trips", inTrips(at(total, p50)), Number),
			plain("arrivals/s", throughput, Number),
			plain("arrival p50", at(release, p50), Duration),
			plain("commands/arrival", commands, Number),
			plain("client CPU s/10k", cpu, Number),
			plain("server CPU µs/arrival", serverCPU, Number),
			never("opened early", overlaps), leaks(), troubles(),
		}
	case "W14":
		cols := []column{
			plain("next leader p50", at(acquire, p50), Duration),
			plain("next leader max", at(acquire, top), Duration),
		}
		if c.Ask == work.AskCrash {
			cols = append(cols, plain("max, of the lease", ofLease, share))
		} else {
			cols = append(cols, plain("next leader p50, in round trips", inTrips(at(acquire, p50)), Number))
		}
		return append(cols,
			plain("last observer after it, p50", at(told, p50), Duration),
			plain("last observer after it, max", at(told, top), Duration),
			plain("round trip p50", at(roundTrip, p50), Duration),
			plain("the same p50 in round trips", inTrips(at(told, p50)), Number),
			plain("commands/change", commands, Number),
			never("overlaps", overlaps), leaks(), troubles())
	case "W9s", "W10", "W11":
		cols := []column{
			plain("ops/s", throughput, Number),
			plain("p50", at(total, p50), Duration),
			ratio("p50 to redquorum-mutex", "redquorum-mutex", at(total, p50), times),
			plain("p99", at(total, p99), Duration),
			plain("max", at(total, top), Duration),
			plain("client CPU s/10k", cpu, Number),
			plain("server CPU µs/op", serverCPU, Number),
			plain("allocs/op", allocs, Number),
			plain("commands/op", commands, Number),
		}
		if c.Workload == "W10" {
			cols = append(cols, ratio("commands to one by one", "redquorum-each", commands, times))
		}
		return append(cols, leaks(), troubles())
	case "W20":
		return []column{
			plain("ops/s", throughput, Number),
			ratio("of floor-mutex", "floor-mutex", throughput, share),
			ratio("to redquorum", "redquorum", throughput, times),
			plain("p50", at(total, p50), Duration),
			plain("p99", at(total, p99), Duration),
			plain("max", at(total, top), Duration),
			plain("client CPU s/10k", cpu, Number),
			plain("server CPU µs/op", serverCPU, Number),
			plain("allocs/op", allocs, Number),
			plain("commands/op", commands, fine), leaks(), troubles(),
		}
	case "W4", "W5":
		cols := []column{
			plain("ops/s", throughput, Number),
			ratio("of floor", "floor", throughput, share),
			plain("p50", at(total, p50), Duration),
			plain("p99", at(total, p99), Duration),
			plain("p99.9", at(total, p999), Duration),
			plain("max", at(total, top), Duration),
		}
		if c.Phase != suite.Healthy {
			cols = append(cols,
				column{"of own healthy", func(row *Row) Field { return field(row.To(row.healthy(), throughput), share) }},
				column{"p99 to own healthy", func(row *Row) Field { return field(row.To(row.healthy(), at(total, p99)), times) }})
		}
		if c.Phase == suite.Start {
			cols = append(cols, plain("start took", openMS, Duration))
		}
		return append(cols, plain("client CPU s/10k", cpu, Number), plain("allocs/op", allocs, Number), leaks(), troubles())
	case "W16":
		return []column{
			plain("tries", ops, Number),
			never("failed", errs),
			plain("longest try", at(total, top), Duration),
			plain("votes again after", back, Duration),
			plain("of the quarantine", ofQuarantine, times),
			plain("last client knows", backAll, Duration),
			plain("bytes in", func(s *suite.Slice) float64 { return zeroUnknown(float64(s.In)) }, bytes),
			plain("bytes out", func(s *suite.Slice) float64 { return zeroUnknown(float64(s.Out)) }, bytes),
			plain("calls above 5 ms", func(s *suite.Slice) float64 { return float64(s.Slow) }, Number),
			never("sessions lost", func(s *suite.Slice) float64 { return float64(s.Sessions) }), leaks(), troubles(),
		}
	case "W17":
		return []column{
			plain("goroutine runs", allRuns, Number),
			{"of these", eachRuns},
			plain("keeper runs", keeperRuns, fine),
			plain("futexes", futexes, Number),
			plain("context switches", switches, Number),
			plain("writes", writes, Number),
			plain("reads", reads, Number),
			plain("allocs", allocs, Number),
			plain("ops/s", throughput, Number), leaks(), troubles(),
		}
	case "W19":
		return []column{plain("instructions", instructions, Number)}
	case "W18":
		return []column{
			plain("instructions", instructions, Number),
			plain("L1i misses", missL1i, Number),
			plain("L1d misses", missL1d, Number),
			plain("L2 misses", missL2, Number),
			plain("timer changes", timers, Number),
		}
	case "W6":
		return []column{
			plain("renewals/s", renewals, Number),
			{"renewed by", func(row *Row) Field {
				for _, s := range row.reps {
					return Field{Text: map[string]string{"own": "itself", "suite": "a goroutine per lease"}[s.Renewer]}
				}
				return Field{}
			}},
			plain("client CPU µs/renewal", renewalCPU, Number),
			ratio("to floor", "floor", renewalCPU, times),
			leaks(), troubles(),
		}
	case "W7":
		return []column{
			plain("B/lease", leaseBytes, Number),
			plain("B/waiter", waiterBytes, Number),
			plain("goroutines/waiter", goroutines, Number),
			plain("registered waiters", registered, Number),
			never("overtook the holder", overlaps), leaks(), troubles(),
		}
	}
	return nil
}

// Table lists what was measured in a cell.
func (c *Cell) Table() Table {
	t := Table{Title: c.Title(), Head: []string{"entry"}}
	cols := c.columns()
	for _, col := range cols {
		t.Head = append(t.Head, col.head)
	}
	for _, row := range c.Rows {
		text := row.Entry
		if c.Counts() {
			text = strings.TrimPrefix(row.cell.Cell.String(), c.Workload+" ") + ": " + row.Entry
		}
		fields := []Field{{Text: text, Ours: row.Entry == "redquorum", Floor: row.Floor}}
		if len(row.reps) == 0 {
			t.Notes = append(t.Notes, text+" cannot run: "+row.Failed)
			for range cols {
				fields = append(fields, Field{Text: "–"})
			}
			t.Rows = append(t.Rows, fields)
			continue
		}
		for _, col := range cols {
			fields = append(fields, col.of(row))
		}
		t.Rows = append(t.Rows, fields)
		if texts := samples(row); texts != "" {
			t.Notes = append(t.Notes, row.Entry+": "+texts)
		}
	}
	// Columns that say nothing are left out.
	for i := len(t.Head) - 1; i > 0; i-- {
		empty := true
		for _, row := range t.Rows {
			empty = empty && (row[i].Text == "–" || row[i].Text == "")
		}
		if empty {
			t.Head = append(t.Head[:i:i], t.Head[i+1:]...)
			for j, row := range t.Rows {
				t.Rows[j] = append(row[:i:i], row[i+1:]...)
			}
		}
	}
	return t
}

func samples(row *Row) string {
	seen := map[string]bool{}
	var all []string
	for rep := range 64 {
		if s := row.reps[rep]; s != nil {
			for _, text := range append(slices.Clone(s.Samples), s.Slowest) {
				if len(text) > 160 {
					text = text[:160] + "…"
				}
				if text != "" && !seen[text] && len(all) < 3 {
					seen[text] = true
					all = append(all, text)
				}
			}
		}
	}
	return strings.Join(all, " | ")
}
