package report

import (
	"fmt"
	"html"
	"math"
	"strings"

	"github.com/redquorum/redquorum/bench/suite"
)

// Chart is bars per entry, in one panel per number of members.
type Chart struct {
	File   string // name without .svg
	Title  string
	Sub    string // unit and direction
	Panels []Panel
}

// Panel is one set of bars.
type Panel struct {
	Title string
	Bars  []Bar
}

// Bar is one entry; Min and Max are its range.
type Bar struct {
	Entry string
	Spread
	Text string
	Kind string // floor, ours, peer
	Bad  bool   // a violation or a leak in this cell
}

// measure is what a chart of a workload shows.
type measure struct {
	figure func(*Row) Spread
	show   func(float64) string
	unit   string
	floors bool
}

func measureOf(c suite.Cell) (m measure, ok bool) {
	of := func(figure func(*suite.Slice) float64) func(*Row) Spread {
		return func(row *Row) Spread { return row.Of(figure) }
	}
	switch c.Workload {
	case "W1":
		return measure{of(at(total, p50)), Duration, "p50 of lock + unlock; less is better", true}, true
	case "W2":
		return measure{of(throughput), Number, "locks and unlocks per second; more is better", true}, true
	case "W3", "W3d", "W3p", "W3f":
		return measure{of(throughput), Number, "acquisitions per second; more is better", true}, true
	case "burst":
		return measure{of(at(acquire, top)), Duration, "until the last of them was served; less is better", true}, true
	case "W4", "W5":
		if c.Phase != suite.After {
			return m, false
		}
		if c.Rate > 0 {
			return measure{of(at(total, p99)), Duration, "p99 counted from the arrival, from the fault on; less is better", true}, true
		}
		return measure{func(row *Row) Spread { return row.To(row.healthy(), throughput) }, share, "throughput from the fault on, of the same client's before it; more is better", true}, true
	case "W9":
		return measure{of(throughput), Number, "reads and writes per second; more is better", true}, true
	case "W9w":
		return measure{of(at(writeWait, p99)), Duration, "p99 of the writer's wait; less is better", true}, true
	case "W9r":
		return measure{of(at(total, p50)), Duration, "from the writer's release to the last reader; less is better", true}, true
	case "W9s", "W10":
		return measure{of(at(total, p50)), Duration, "p50 of lock + unlock; less is better", true}, true
	case "W11":
		return measure{of(at(total, p50)), Duration, "p50 of acquire + release; less is better", true}, true
	case "W12":
		return measure{of(throughput), Number, "acquisitions per second; more is better", true}, true
	case "W13":
		return measure{of(at(total, p50)), Duration, "from the start of the last arrival to the last waiter; less is better", true}, true
	case "W14":
		return measure{of(at(acquire, p50)), Duration, "p50 of the time without a leader; less is better", true}, true
	case "W6":
		return measure{of(renewalCPU), func(x float64) string { return Number(x) + " µs" }, "client CPU per renewal; less is better", true}, true
	case "W7":
		return measure{of(waiterBytes), func(x float64) string { return Number(x) + " B" }, "memory per waiter, less its goroutine; less is better", true}, true
	}
	return m, false
}

// Charts makes one chart per workload and load; numbers of members are its panels.
func (r *Report) Charts() (out []*Chart) {
	byKey := map[suite.Cell]*Chart{}
	for _, c := range r.Cells {
		m, ok := measureOf(c.Cell)
		if !ok {
			continue
		}
		k := c.Cell
		k.Members = 0
		chart := byKey[k]
		if chart == nil {
			title := c.Title()
			if parts := strings.Split(title, " · "); len(parts) > 1 && c.Workload != "W4" && c.Workload != "W5" {
				title = strings.Join(append(parts[:1:1], parts[2:]...), " · ")
			}
			chart = &Chart{File: fileName(k), Title: title, Sub: m.unit}
			byKey[k] = chart
			out = append(out, chart)
		}
		p := Panel{Title: fmt.Sprintf("N = %d", c.Members)}
		for _, row := range c.Rows {
			s := m.figure(row)
			b := Bar{Entry: row.Entry, Spread: s, Kind: "peer", Bad: row.Sum(overlaps)+row.Sum(lost)+row.Sum(left) > 0, Text: "–"}
			if s.N > 0 {
				b.Text = m.show(s.Median)
			}
			if row.Failed != "" && len(row.reps) == 0 {
				b.Text = "cannot run"
			}
			switch {
			case row.Entry == "redquorum":
				b.Kind = "ours"
			case row.Floor:
				b.Kind = "floor"
			}
			p.Bars = append(p.Bars, b)
		}
		chart.Panels = append(chart.Panels, p)
	}
	for _, c := range r.curves() {
		if c.entry == "redquorum" {
			out = append(out, c.chart())
		}
	}
	return out
}

func fileName(c suite.Cell) string {
	var b strings.Builder
	for _, r := range strings.ToLower(c.String()) {
		switch {
		case r >= 'a' && r <= 'z' || r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	return strings.Trim(strings.ReplaceAll(b.String(), "-n-0", ""), "-")
}

// style follows the reader's choice of light or dark, in a page and as a picture of its own.
const style = `.rq{font:12px system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif;fill:#1c2430}
.rq .t{font-size:14px;font-weight:600}.rq .s{fill:#64707d;font-size:11.5px}.rq .n{font-size:11.5px}.rq .p{font-weight:600;fill:#64707d}
.rq .floor{fill:#b4bcc6}.rq .peer{fill:#7aa2d6}.rq .ours{fill:#e0662f}.rq .g{stroke:#dfe4ea;stroke-width:1}.rq .w{stroke:#3a4656;stroke-width:1.2}.rq .me{font-weight:600}
.rq .bad{fill:#c81e1e;font-weight:600}
@media (prefers-color-scheme:dark){.rq{fill:#e4e8ee}.rq .s,.rq .p{fill:#98a4b3}.rq .floor{fill:#596472}.rq .peer{fill:#4d7fc0}.rq .ours{fill:#f07a42}.rq .g{stroke:#2d3742}.rq .w{stroke:#cfd6df}.rq .bad{fill:#ff6b6b}}`

const (
	labelWidth = 168
	panelWidth = 268
	rowHeight  = 22
	headHeight = 66
)

// SVG draws the chart. It is complete in itself.
func (c *Chart) SVG() string {
	var names []string
	seen := map[string]bool{}
	for _, p := range c.Panels {
		for _, b := range p.Bars {
			if !seen[b.Entry] {
				seen[b.Entry] = true
				names = append(names, b.Entry)
			}
		}
	}
	names = inOrder(names)
	width := labelWidth + panelWidth*max(len(c.Panels), 2) + 8
	height := headHeight + rowHeight*len(names) + 12
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	p(`<svg xmlns="http://www.w3.org/2000/svg" class="rq" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`, width, height, width, height, html.EscapeString(c.Title))
	p(`<style>%s</style>`, style)
	p(`<text class="t" x="4" y="18">%s</text><text class="s" x="4" y="36">%s</text>`, html.EscapeString(c.Title), html.EscapeString(c.Sub))
	for i, name := range names {
		class := "n"
		if name == "redquorum" {
			class = "n me"
		}
		p(`<text class="%s" x="%d" y="%d" text-anchor="end">%s</text>`, class, labelWidth-8, headHeight+i*rowHeight+15, html.EscapeString(name))
	}
	for i, panel := range c.Panels {
		x := labelWidth + i*panelWidth
		c.panel(p, panel, names, x)
	}
	p(`</svg>`)
	return b.String()
}

func (c *Chart) panel(p func(string, ...any), panel Panel, names []string, x int) {
	room := float64(panelWidth - 76) // the rest is for the figure
	var longest float64
	for _, b := range panel.Bars {
		longest = math.Max(longest, b.Max)
	}
	if longest <= 0 {
		longest = 1
	}
	p(`<text class="p" x="%d" y="%d">%s</text>`, x, headHeight-8, html.EscapeString(panel.Title))
	p(`<line class="g" x1="%d" y1="%d" x2="%d" y2="%d"/>`, x, headHeight-2, x, headHeight+rowHeight*len(names))
	for i, name := range names {
		y := headHeight + i*rowHeight
		for _, b := range panel.Bars {
			if b.Entry != name {
				continue
			}
			length := math.Max(room*b.Median/longest, 0)
			if b.N > 0 {
				p(`<rect class="%s" x="%d" y="%d" width="%.1f" height="%d" rx="2"/>`, b.Kind, x, y+3, math.Max(length, 1), rowHeight-7)
				if b.N > 1 {
					low, high := float64(x)+room*b.Min/longest, float64(x)+room*b.Max/longest
					mid := y + 3 + (rowHeight-7)/2
					p(`<line class="w" x1="%.1f" y1="%d" x2="%.1f" y2="%d"/>`, low, mid, high, mid)
				}
			}
			end := float64(x) + math.Max(length, room*math.Max(b.Max, 0)/longest) + 5
			class := "n"
			text := b.Text
			if b.Bad {
				class, text = "n bad", text+" !"
			} else if b.Kind == "ours" {
				class = "n me"
			}
			p(`<text class="%s" x="%.1f" y="%d">%s</text>`, class, end, y+15, html.EscapeString(text))
		}
	}
}
