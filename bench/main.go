// Command bench compares distributed locks. It runs the same workloads over redquorum and other
// locks, on real servers, side by side in one run. README.md says how, and what the figures mean.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redquorum/redquorum/bench/entry"
	"github.com/redquorum/redquorum/bench/fenced"
	"github.com/redquorum/redquorum/bench/report"
	"github.com/redquorum/redquorum/bench/suite"
	"github.com/redquorum/redquorum/bench/work"
)

func main() {
	var err error
	switch {
	case len(os.Args) > 1 && os.Args[1] == "child":
		err = work.Main()
	case len(os.Args) > 1 && os.Args[1] == "report":
		err = reportOnly(os.Args[2:])
	case len(os.Args) > 1 && os.Args[1] == "fence":
		err = fenced.Main(os.Args[2:])
	case len(os.Args) == 2 && os.Args[1] == "instructions":
		err = entry.Instructions(context.Background(), os.Stdout)
	default:
		err = run(os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func list(s string) (out []string) {
	for _, f := range strings.Split(s, ",") {
		if f = strings.TrimSpace(f); f != "" {
			out = append(out, f)
		}
	}
	return out
}

// short are the entries of a run that is not full: the floors, this library, and the peer that comes closest.
const short = "floor,floor-mutex,floor-notify,floor-standing,redquorum,redquorum-keep,redquorum-new,redsync-rueidis"

func run(args []string) error {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	full := f.Bool("full", false, "all workloads, for hours; can be stopped and started again")
	workloads := f.String("workloads", "", "of "+strings.Join(suite.Workloads, ", ")+" (default: all with -full, otherwise "+strings.Join(suite.Short, ",")+")")
	entries := f.String("entries", "", "names, see -list; redquorum* for a prefix; * for all (default: * with -full, otherwise "+short+")")
	members := f.String("n", "1,3,5", "numbers of members")
	own := f.String("members", "", "servers that run already, host:port,...; they should be new, and will get keys")
	slice := f.Duration("duration", 0, "of a slice; contended slices take twice as long (default 150ms, 2s with -full)")
	warm := f.Duration("warm", 200*time.Millisecond, "warm-up of a client, a third of it before each further slice")
	reps := f.Int("reps", 0, "repetitions, interleaved (default 3, 5 with -full)")
	lease := f.Duration("lease", 9*time.Second, "of every lock")
	out := f.String("out", "", "folder of the results (default bench-results/TIME; with -full bench-results/full)")
	profiles := f.String("cpuprofile", "", "folder for a processor profile of each cell and entry, for go tool pprof")
	show := f.Bool("list", false, "list the entries and end")
	f.Usage = func() {
		_, _ = fmt.Fprintln(f.Output(), "usage: bench [flags]            run and report\n       bench report [-out DIR] FILE...   report on raw data\n       bench fence [flags]               what a fence costs at a storage")
		f.PrintDefaults()
	}
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	if *show {
		for _, s := range entry.All() {
			fmt.Printf("%-22s %s\n", s.Name, s.Note)
		}
		return nil
	}
	if *full {
		*slice, *reps, *entries = cmp.Or(*slice, 2*time.Second), cmp.Or(*reps, 5), cmp.Or(*entries, "*")
	}
	*slice, *reps, *entries = cmp.Or(*slice, 150*time.Millisecond), cmp.Or(*reps, 3), cmp.Or(*entries, short)
	if *out == "" {
		*out = filepath.Join("bench-results", "full")
		if !*full {
			*out = filepath.Join("bench-results", time.Now().Format("20060102-150405"))
		}
	}
	specs, err := choose(list(*entries))
	if err != nil {
		return err
	}
	scope := suite.Scope{Full: *full, Workloads: list(*workloads), Faults: *own == ""}
	for _, w := range scope.Workloads {
		if !slices.ContainsFunc(suite.Workloads, func(x string) bool { return strings.EqualFold(x, w) }) {
			return fmt.Errorf("no workload %q; there are %s", w, strings.Join(suite.Workloads, ", "))
		}
	}
	for _, n := range list(*members) {
		i, err := strconv.Atoi(n)
		if err != nil || i < 1 || i > 31 {
			return fmt.Errorf("-n %s: want numbers from 1 to 31", n)
		}
		if *own == "" || i <= len(list(*own)) {
			scope.Members = append(scope.Members, i)
		}
	}
	if len(scope.Members) == 0 {
		return errors.New("-n is empty, or more than -members has")
	}
	cells := suite.Plan(scope)
	if len(cells) == 0 {
		return errors.New("nothing to do: W4, W5 and W16 need the suite's own servers, three at least")
	}
	if err := os.MkdirAll(*out, 0o755); err != nil {
		return err
	}
	if *profiles != "" {
		if err := os.MkdirAll(*profiles, 0o755); err != nil {
			return err
		}
	}
	file, have, err := suite.OpenFile(filepath.Join(*out, "raw.jsonl"))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	machine := suite.ThisMachine()
	machine.Args, machine.SliceMS, machine.Reps = strings.Join(args, " "), int(slice.Milliseconds()), *reps
	if err := file.Write(suite.Record{Machine: machine}); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	show2 := suite.NewProgress(os.Stderr)
	config := suite.Config{Cells: cells, Entries: specs, Reps: *reps, Slice: *slice, Warm: *warm, Lease: *lease, Own: list(*own), Out: file, Have: have, Show: show2, Profiles: *profiles}
	runErr := suite.Run(ctx, config)
	if errors.Is(runErr, context.Canceled) {
		runErr = fmt.Errorf("interrupted; the same command with -out %s goes on", *out)
	}
	return errors.Join(runErr, write(*out, filepath.Join(*out, "raw.jsonl")))
}

// choose finds entries by name; a name with a * at its end is a prefix.
func choose(names []string) (out []*entry.Spec, _ error) {
	for _, s := range entry.All() {
		for _, n := range names {
			prefix, star := strings.CutSuffix(n, "*")
			if s.Name == n || star && strings.HasPrefix(s.Name, prefix) {
				out = append(out, s)
				break
			}
		}
	}
	for _, n := range names {
		if !strings.HasSuffix(n, "*") {
			if _, err := entry.Find(n); err != nil {
				return nil, err
			}
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no entry matches %s", strings.Join(names, ", "))
	}
	return out, nil
}

func reportOnly(args []string) error {
	f := flag.NewFlagSet("bench report", flag.ContinueOnError)
	out := f.String("out", "", "folder of the report (default: that of the first file)")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() == 0 {
		return errors.New("report on which raw.jsonl?")
	}
	if *out == "" {
		*out = filepath.Dir(f.Arg(0))
	}
	return write(*out, f.Args()...)
}

func write(out string, files ...string) error {
	var all []suite.Record
	for _, name := range files {
		have, err := suite.Read(name)
		if err != nil {
			return err
		}
		all = append(all, have...)
	}
	r := report.New(all)
	if err := r.Write(out); err != nil {
		return err
	}
	fmt.Print(r.Summary())
	fmt.Printf("\nreport: %s\n", filepath.Join(out, "report.html"))
	return nil
}
