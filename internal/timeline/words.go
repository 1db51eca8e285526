package timeline

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// long says how long something took, in a unit that suits it.
func long(d time.Duration) string {
	switch {
	case d < time.Millisecond:
		return strconv.FormatFloat(float64(d.Microseconds())/1e3, 'f', 2, 64) + " ms"
	case d < 10*time.Millisecond:
		return strconv.FormatFloat(float64(d)/1e6, 'f', 1, 64) + " ms"
	case d < time.Second:
		return strconv.FormatInt(d.Round(time.Millisecond).Milliseconds(), 10) + " ms"
	case d < 2*time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'f', 2, 64) + " s"
	}
	if d = d.Round(time.Second); d < 2*time.Hour {
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	}
	return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
}

// clock tells instants: since the beginning, or of the day.
type clock struct{ start time.Time }

// at tells an instant, to the millisecond.
func (c clock) at(d time.Duration) string { return c.to(d, time.Millisecond) }

// to tells an instant as finely as steps of that length need it.
func (c clock) to(d, step time.Duration) string {
	decimals := 0
	for unit := time.Second; unit > step && unit > time.Microsecond; unit /= 10 {
		decimals++
	}
	if !c.start.IsZero() {
		layout := "15:04:05"
		if step >= time.Minute {
			layout = "15:04"
		} else if decimals > 0 {
			layout += "." + strings.Repeat("0", decimals)
		}
		return c.start.Add(d).Format(layout)
	}
	if step >= 10*time.Second {
		d = d.Round(time.Second)
		return fmt.Sprintf("%d:%02d min", d/time.Minute, d%time.Minute/time.Second)
	}
	return strconv.FormatFloat(d.Seconds(), 'f', decimals, 64) + " s"
}

// count is a number with its noun.
func count(n int, noun string) string {
	switch {
	case n == 1:
	case strings.HasSuffix(noun, "y"):
		noun = strings.TrimSuffix(noun, "y") + "ies"
	default:
		noun += "s"
	}
	return grouped(n) + " " + noun
}

// grouped is a number with a comma before each group of three digits.
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// list joins parts to the end of a sentence.
func list(parts []string) string {
	if n := len(parts); n > 1 {
		return strings.Join(parts[:n-1], ", ") + " and " + parts[n-1]
	}
	return strings.Join(parts, "")
}
