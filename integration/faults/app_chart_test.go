//go:build linux || darwin

package faults

import (
	"encoding/csv"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// appSample is what was in use at a moment of a run.
type appSample struct {
	after       time.Duration
	grants      int
	rss, heap   uint64 // of the process that lives as long as the run
	goroutines  int64
	connections int // of all members
	keys        int
}

// appSeries are the columns of the CSV file, and the panels of the chart.
var appSeries = []struct {
	name, title string
	of          func(x, before appSample) float64
}{
	{"grants_per_s", "grants a second", func(x, before appSample) float64 {
		return float64(x.grants-before.grants) / max(0.001, (x.after-before.after).Seconds())
	}},
	{"rss_mib", "resident memory of one process, MiB", func(x, _ appSample) float64 { return float64(x.rss) / (1 << 20) }},
	{"heap_mib", "its heap, MiB", func(x, _ appSample) float64 { return float64(x.heap) / (1 << 20) }},
	{"goroutines", "its goroutines", func(x, _ appSample) float64 { return float64(x.goroutines) }},
	{"connections", "connections at all members", func(x, _ appSample) float64 { return float64(x.connections) }},
	{"keys", "keys at all members", func(x, _ appSample) float64 { return float64(x.keys) }},
}

// writeCSV writes the samples of a run.
func writeCSV(path string, samples []appSample) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	w := csv.NewWriter(f)
	head := []string{"seconds", "grants"}
	for _, s := range appSeries {
		head = append(head, s.name)
	}
	_ = w.Write(head)
	before := appSample{}
	for _, x := range samples {
		row := []string{fmt.Sprintf("%.1f", x.after.Seconds()), fmt.Sprint(x.grants)}
		for _, s := range appSeries {
			row = append(row, fmt.Sprintf("%.1f", s.of(x, before)))
		}
		_ = w.Write(row)
		before = x
	}
	w.Flush()
	return w.Error()
}

// chart draws the samples as one SVG, a panel for each series. Of many samples, each point is the mean of
// neighbours, and a paler band goes from the least of them to the greatest.
func chart(title string, samples []appSample) string {
	const width, height, left, gap, top = 760, 90, 60, 44, 40
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="12">`+"\n",
		width+left+20, top+len(appSeries)*(height+gap))
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#fff"/>`+
		`<text x="8" y="20" font-size="15">%s</text>`+"\n", title)
	const points = 240
	per := max(1, (len(samples)+points-1)/points)
	for i, s := range appSeries {
		y0 := float64(top + i*(height+gap) + 18)
		type point struct{ at, low, mean, high float64 }
		var line []point
		most := 1.0
		for k := 0; k < len(samples); k += per {
			part := samples[k:min(k+per, len(samples))]
			p := point{at: part[len(part)-1].after.Seconds(), low: -1}
			for n, x := range part {
				before := appSample{}
				if k+n > 0 {
					before = samples[k+n-1]
				}
				v := s.of(x, before)
				if p.low < 0 || v < p.low {
					p.low = v
				}
				p.high, p.mean = max(p.high, v), p.mean+v/float64(len(part))
			}
			most = max(most, p.high)
			line = append(line, p)
		}
		if len(line) == 0 {
			continue
		}
		end := max(1, line[len(line)-1].at)
		x := func(at float64) float64 { return left + at/end*width }
		y := func(v float64) float64 { return y0 + height - v/most*height }
		fmt.Fprintf(&b, `<text x="%d" y="%.0f">%s</text>`+"\n", left, y0-5, s.title)
		for _, v := range []float64{0, most} {
			fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`+
				`<text x="%d" y="%.1f" text-anchor="end">%.4g</text>`+"\n",
				left, left+width, y(v), y(v), left-6, y(v)+4, v)
		}
		var band, mean strings.Builder
		for _, p := range line {
			fmt.Fprintf(&band, "%.1f,%.1f ", x(p.at), y(p.high))
			fmt.Fprintf(&mean, "%.1f,%.1f ", x(p.at), y(p.mean))
		}
		for k := len(line) - 1; k >= 0; k-- {
			fmt.Fprintf(&band, "%.1f,%.1f ", x(line[k].at), y(line[k].low))
		}
		fmt.Fprintf(&b, `<polygon points="%s" fill="#cfe2f3"/>`+
			`<polyline points="%s" fill="none" stroke="#1f5f99" stroke-width="1.3"/>`+"\n",
			strings.TrimSpace(band.String()), strings.TrimSpace(mean.String()))
		if i == len(appSeries)-1 {
			for k := range 5 {
				at := end * float64(k) / 4
				fmt.Fprintf(&b, `<text x="%.0f" y="%.0f" text-anchor="middle">%v</text>`+"\n",
					x(at), y0+height+16, time.Duration(at*1e9).Round(time.Second))
			}
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func TestChartShowsEverySeriesOfARun(t *testing.T) {
	var samples []appSample
	for i := range 1000 {
		samples = append(samples, appSample{
			after: time.Duration(i) * time.Second, grants: 70 * i, rss: 20 << 20, heap: 8 << 20,
			goroutines: 40, connections: 60, keys: 12,
		})
	}
	text := chart("a run", samples)
	for _, s := range appSeries {
		require.Contains(t, text, s.title)
	}
	require.Equal(t, len(appSeries), strings.Count(text, "<polyline"))
	path := t.TempDir() + "/a.csv"
	require.NoError(t, writeCSV(path, samples))
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, len(samples)+1, strings.Count(string(written), "\n"))
	require.Contains(t, string(written), "999.0,69930,70.0,20.0,8.0,40.0,60.0,12.0")
}
