package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/redquorum/redquorum/bench/suite"
)

// curve is one entry while something grows.
type curve struct {
	scale, entry string
	rows         []*Row // by what grows
}

// aspect is a figure of a curve.
type aspect struct {
	head   string
	figure func(*suite.Slice) float64
	show   func(float64) string
}

func micro(x float64) string { return Number(x) + " µs" }

// bytes writes a size.
func bytes(x float64) string {
	switch {
	case x >= 1e9:
		return fmt.Sprintf("%.2f GB", x/1e9)
	case x >= 1e6:
		return fmt.Sprintf("%.1f MB", x/1e6)
	}
	return fmt.Sprintf("%.0f kB", x/1e3)
}

// waited is the time of an operation: of the lock alone where callers contend.
func waited(s *suite.Slice) *suite.Times {
	if s.Contended {
		return s.Acquire
	}
	return s.Total
}

var aspects = []aspect{
	{"locks/s", throughput, Number},
	{"p50", at(waited, p50), Duration},
	{"p99", at(waited, p99), Duration},
	{"client CPU per lock", func(s *suite.Slice) float64 { return zeroUnknown(s.CPU * 100) }, micro},
	{"servers' CPU per lock", serverCPU, micro},
	{"client memory", func(s *suite.Slice) float64 { return zeroUnknown(float64(s.ClientBytes)) }, bytes},
	{"memory of a member", func(s *suite.Slice) float64 { return zeroUnknown(float64(s.MemberBytes)) }, bytes},
	{"goroutines", func(s *suite.Slice) float64 { return zeroUnknown(float64(s.Routines)) }, Number},
}

func (r *Report) curves() (out []*curve) {
	at := map[[2]string]*curve{}
	for _, c := range r.Cells {
		if c.Scale == "" {
			continue
		}
		for _, row := range c.Rows {
			k := [2]string{c.Scale, row.Entry}
			if at[k] == nil {
				at[k] = &curve{scale: c.Scale, entry: row.Entry}
				out = append(out, at[k])
			}
			at[k].rows = append(at[k].rows, row)
		}
	}
	for _, c := range out {
		slices.SortStableFunc(c.rows, func(a, b *Row) int { return a.cell.X() - b.cell.X() })
	}
	slices.SortStableFunc(out, func(a, b *curve) int {
		return slices.Index(suite.Scales, a.scale) - slices.Index(suite.Scales, b.scale)
	})
	return out
}

// exponent is the slope of a figure in a picture with logarithmic axes: 1 if it grows as x does, 0 if it
// stays. It is NaN with fewer than two points.
func (c *curve) exponent(figure func(*suite.Slice) float64) float64 {
	var n, sx, sy, sxx, sxy float64
	for _, row := range c.rows {
		s := row.Of(figure)
		if s.N == 0 || s.Median <= 0 {
			continue
		}
		x, y := math.Log(float64(row.cell.X())), math.Log(s.Median)
		n, sx, sy, sxx, sxy = n+1, sx+x, sy+y, sxx+x*x, sxy+x*y
	}
	if d := n*sxx - sx*sx; n >= 2 && d > 0 {
		return (n*sxy - sx*sy) / d
	}
	return math.NaN()
}

// table lists the points of a curve, and below them the exponents.
func (c *curve) table() Table {
	t := Table{Title: fmt.Sprintf("W15 %s: %s", c.scale, c.entry), Head: []string{c.scale}}
	last := []Field{{Text: "exponent"}}
	for _, a := range aspects {
		t.Head = append(t.Head, a.head)
		e := c.exponent(a.figure)
		if math.IsNaN(e) {
			last = append(last, Field{Text: "–"})
		} else {
			last = append(last, Field{Text: fmt.Sprintf("%.2f", e)})
		}
	}
	t.Head = append(t.Head, "trouble")
	for _, row := range c.rows {
		fields := []Field{{Text: fmt.Sprint(row.cell.X()), Ours: c.entry == "redquorum"}}
		for _, a := range aspects {
			fields = append(fields, field(row.Of(a.figure), a.show))
		}
		what := trouble(row)
		if row.Failed != "" && len(row.reps) == 0 {
			what.Text = "cannot run"
			t.Notes = append(t.Notes, fmt.Sprintf("%d: %s", row.cell.X(), row.Failed))
		}
		t.Rows = append(t.Rows, append(fields, what))
		if texts := samples(row); texts != "" {
			t.Notes = append(t.Notes, fmt.Sprintf("%d: %s", row.cell.X(), texts))
		}
	}
	t.Rows = append(t.Rows, append(last, Field{}))
	return t
}

// chart shows what a user feels of a curve.
func (c *curve) chart() *Chart {
	chart := &Chart{File: "w15-" + strings.ReplaceAll(c.scale, " ", "-"), Title: "W15 " + c.scale,
		Sub: "redquorum, and how its figures grow: the exponent of " + c.scale}
	for _, a := range aspects[:4] {
		title := a.head
		if e := c.exponent(a.figure); !math.IsNaN(e) {
			title += fmt.Sprintf(", exponent %.2f", e)
		}
		p := Panel{Title: title}
		for _, row := range c.rows {
			s := row.Of(a.figure)
			b := Bar{Entry: fmt.Sprint(row.cell.X()), Spread: s, Kind: "ours", Text: "–"}
			if s.N > 0 {
				b.Text = a.show(s.Median)
			}
			p.Bars = append(p.Bars, b)
		}
		chart.Panels = append(chart.Panels, p)
	}
	return chart
}

// tables are those of a workload.
func (r *Report) tables(workload string) (out []Table) {
	if workload == "W15" {
		for _, c := range r.curves() {
			out = append(out, c.table())
		}
		return out
	}
	one := &Cell{Cell: suite.Cell{Workload: workload}} // of all that is counted
	for _, c := range r.Cells {
		if c.Workload == workload && c.Counts() {
			one.Rows = append(one.Rows, c.Rows...)
		} else if c.Workload == workload {
			out = append(out, c.Table())
		}
	}
	if len(one.Rows) > 0 {
		out = append(out, one.Table())
	}
	return out
}
