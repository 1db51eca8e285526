//go:build unix

// Package fenced measures what a fence costs: a claim, and a transaction that enters, beside the same
// transaction without a fence, on the same connection and in turns. Start at Main.
package fenced

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/bench/suite"
)

// Main is the subcommand fence.
func Main(args []string) error {
	f := flag.NewFlagSet("bench fence", flag.ContinueOnError)
	n := f.Int("ops", 2000, "operations of each kind, at each storage")
	only := f.String("only", "", "storages whose names have this text (default: all)")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 || *n < parts {
		return fmt.Errorf("usage: bench fence [-ops N] [-only TEXT], N is %d or more", parts)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return report(ctx, os.Stdout, *n, *only)
}

// report prints a table with a row for each storage.
func report(ctx context.Context, w io.Writer, n int, only string) error {
	m := suite.ThisMachine()
	_, _ = fmt.Fprintf(w, "%s, %d processors, %s, %s, load %s; %d operations of each kind; µs\n\n", m.Processor, m.CPUs, m.System, m.Go, m.Load, n)
	_, _ = fmt.Fprintln(w, "| storage | bare p50 · p99 | fenced p50 · p99 | ratio of p50 (of fifths) | round trips | claim p50 · p99 | first p50 · p99 |")
	_, _ = fmt.Fprintln(w, "|---|--:|--:|--:|--:|--:|--:|")
	found := false
	for _, kind := range storages {
		if !strings.Contains(strings.ToLower(kind.name), strings.ToLower(only)) {
			continue
		}
		found = true
		s, err := kind.open(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			_, _ = fmt.Fprintf(w, "| %s | %v | | | | | |\n", kind.name, err)
			continue
		}
		r, err := measure(ctx, s, n)
		s.close()
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
		_, _ = fmt.Fprintf(w, "| %s | %v | %v | %v | %v | %v | %v |\n", kind.name, r.bare, r.fenced, r.ratio(), r.trips, r.claim, r.first)
	}
	if !found {
		return errors.New("no storage of that name")
	}
	return nil
}

// parts are the parts of a run whose ratios show how much it varied.
const parts = 5

// times are durations in their order.
type times []time.Duration

func (t times) at(share float64) float64 {
	sorted := slices.Sorted(slices.Values(t))
	return float64(sorted[min(int(share*float64(len(sorted))), len(sorted)-1)]) / float64(time.Microsecond)
}

func (t times) String() string { return fmt.Sprintf("%.0f · %.0f", t.at(0.5), t.at(0.99)) }

// figures are those of one storage.
type figures struct {
	bare, fenced, claim, first times
	trips                      string // of a bare transaction, of one under a fence, of the first one of a holder
}

func (f figures) ratio() string {
	var all []float64
	for i := range parts {
		from, to := i*len(f.bare)/parts, (i+1)*len(f.bare)/parts
		all = append(all, f.fenced[from:to].at(0.5)/f.bare[from:to].at(0.5))
	}
	return fmt.Sprintf("%.2f (%.2f–%.2f)", f.fenced.at(0.5)/f.bare.at(0.5), slices.Min(all), slices.Max(all))
}

// measure does n operations of each kind, in turns, after some that count for nothing. Each round has a
// new holder, whose first transaction claims.
func measure(ctx context.Context, s *storage, n int) (f figures, err error) {
	counts := map[*times]int64{}
	timed := func(to *times, do func() error) {
		if err != nil {
			return
		}
		before := int64(0)
		if s.trips != nil {
			before = s.trips.n.Load()
		}
		begun := time.Now()
		err = do()
		*to = append(*to, time.Since(begun))
		if s.trips != nil {
			counts[to] += s.trips.n.Load() - before
		}
	}
	const warm = 50
	for i := range warm + n {
		if i == warm {
			f = figures{}
			clear(counts)
		}
		token := uint64(i + 1)
		timed(&f.first, func() error { return s.under(ctx, token) })
		bare := func() { timed(&f.bare, func() error { return s.bare(ctx) }) }
		fenced := func() { timed(&f.fenced, func() error { return s.under(ctx, token) }) }
		if i%2 == 0 {
			bare()
			fenced()
		} else {
			fenced()
			bare()
		}
		timed(&f.claim, func() error { return s.claim(ctx, token) })
		if err != nil {
			return f, err
		}
	}
	f.trips = "–"
	if s.trips != nil {
		of := func(t *times) string { return fmt.Sprintf("%.4g", float64(counts[t])/float64(n)) }
		f.trips = fmt.Sprintf("%s → %s, first %s", of(&f.bare), of(&f.fenced), of(&f.first))
	}
	return f, nil
}
