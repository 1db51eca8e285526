// Command mutants takes the guards of this repository out, one at a time, and lists the test that notices:
//
//	go run ./internal/mutants
//	go run ./internal/mutants -run quarantine
//
// A mutant (list.go, and the files beside it) is one small change to one file, a Go source or a script.
// The change is made with `go test -overlay`, or by the linker, so the checkout is never touched; temporary
// files go with the process, also when it is interrupted. First the tests that the mutants name run without any change,
// and must pass. Then each mutant's own tests run with the change, and where they pass, all fast tests of
// the same packages.
//
// The exit status is 1 if a mutant survives, 2 if something could not be tried: a change that does not
// apply or does not compile is a mistake in the list, and no success of a test.
//
// Reading what the tests say is in outcome.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

func run(ctx context.Context, args []string, out, errs io.Writer) int {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	flags.SetOutput(errs)
	only := flags.String("run", "", "only the mutants whose name or file matches this regular `expression`")
	list := flags.Bool("list", false, "print the mutants, and run nothing")
	md := flags.Bool("md", false, "print the result as a table in Markdown; progress goes to standard error")
	jobs := flags.Int("j", 2, "mutants at the same time")
	limit := flags.Duration("timeout", 2*time.Minute, "tests that run so long with a mutant hang, and have caught it; five times that for all tests of a package")
	wide := flags.Bool("wide", true, "run all fast tests of the packages where the named ones pass")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	fail := func(err error) int {
		fmt.Fprintln(errs, "mutants:", err)
		return 2
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return fail(err)
	}
	root, err := findRoot()
	if err != nil {
		return fail(err)
	}
	var chosen []mutant
	for _, m := range mutants() {
		if pattern.MatchString(m.name) || pattern.MatchString(m.file) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fail(fmt.Errorf("no mutant matches %q", *only))
	}
	if *list {
		w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		for _, m := range chosen {
			fmt.Fprintf(w, "%s\t%s\n", m.file, m.name)
		}
		_ = w.Flush()
		return 0
	}
	progress := out
	if *md {
		progress = errs
	}
	b := &bench{root: root, jobs: max(*jobs, 1), limit: *limit, wide: *wide, out: progress}
	began := time.Now()
	results, err := b.all(ctx, chosen)
	if err != nil {
		return fail(err)
	}
	var caught, survived, untried int
	for _, r := range results {
		switch {
		case r.err != nil:
			untried++
		case r.by == "":
			survived++
		default:
			caught++
		}
	}
	if *md {
		table(out, results)
	}
	fmt.Fprintf(progress, "%d mutants: %d caught, %d survived, %d could not be tried; %v\n",
		len(results), caught, survived, untried, time.Since(began).Round(time.Second))
	switch {
	case untried > 0:
		return 2
	case survived > 0:
		return 1
	}
	return 0
}

// table prints the results for a document.
func table(out io.Writer, results []result) {
	cell := func(s string) string { return strings.ReplaceAll(s, "|", "\\|") }
	fmt.Fprintln(out, "| taken out | file | caught by |")
	fmt.Fprintln(out, "|---|---|---|")
	for _, r := range results {
		by := "`" + r.by + "`"
		switch {
		case r.err != nil:
			by = "could not be tried: " + r.err.Error()
		case r.by == "":
			by = "**survived**"
		case r.hung:
			by += " (hung)"
		}
		fmt.Fprintf(out, "| %s | %s | %s |\n", cell(r.name), r.file, cell(by))
	}
}
