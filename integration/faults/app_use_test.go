//go:build linux || darwin

package faults

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type appSample struct {
	after  time.Duration
	grants int
	used   [len(appUses)]float64
}

// appUses are columns of the CSV file: of the process that lives as long as the run, and of all members.
var appUses = [...]string{"rss_mib", "heap_mib", "goroutines", "connections", "keys"}

func asCSV(samples []appSample) string {
	var b strings.Builder
	fmt.Fprintf(&b, "seconds,grants,%s\n", strings.Join(appUses[:], ","))
	for _, x := range samples {
		fmt.Fprintf(&b, "%.1f,%d", x.after.Seconds(), x.grants)
		for _, n := range x.used {
			fmt.Fprintf(&b, ",%.1f", n)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// grown names what is more in the last third of a run than in the one before, by a third and five.
func grown(samples []appSample) (all []string) {
	third := len(samples) / 3
	if third < 100 { // chance has its hand in it
		return nil
	}
	for i, name := range appUses {
		var sums [2]float64
		for k, x := range samples[third : 3*third] {
			sums[k/third] += x.used[i] / float64(third)
		}
		if sums[1] > sums[0]*4/3+5 {
			all = append(all, fmt.Sprintf("%s: %.1f, then %.1f", name, sums[0], sums[1]))
		}
	}
	return all
}

func TestWhatGrowsInARunIsNamed(t *testing.T) {
	var samples []appSample
	for i := range 900 {
		samples = append(samples, appSample{time.Duration(i) * time.Second, 70 * i, [len(appUses)]float64{20, 8, 40, 60, float64(i)}})
	}
	require.Equal(t, []string{"keys: 449.5, then 749.5"}, grown(samples))
	require.Empty(t, grown(samples[:200]))
	require.Contains(t, asCSV(samples), "\n899.0,62930,20.0,8.0,40.0,60.0,899.0\n")
}
