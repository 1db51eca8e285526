// Command mutants takes the guards of this repository out, one at a time, and lists the test that
// notices:
//
//	go run ./internal/mutants
//	go run ./internal/mutants -run quarantine
//	go run ./internal/mutants -part 2/6
//
// Run it in the root of the repository. A mutant is one small change to one function or script.
// list/README.md describes the files that list them. The command makes the change with `go build
// -overlay`, so it never touches the checkout. It removes temporary files even if it is
// interrupted.
//
// It builds the tests of each package once, with all changes: a changed body stands in an if beside
// the body that is there, and the environment chooses one (together.go). First it runs the tests that
// the mutants name without any change. These must pass. Then it runs each mutant's tests with the
// change. If they pass, it builds them with this change alone, and runs them again. It does the same
// for a change that is not inside a function. If they pass again, it runs all tests of the same
// package that are of the first ring (internal/rings).
//
// The whole list takes 20 minutes on two processors, most of them for mutants that hang or wait.
//
// It says of each mutant in which ring it was caught. With -list it runs nothing, and prints which
// tests should notice, and in which ring they are.
//
// The exit status is 1 if a mutant survives. It is 2 if something could not be tried. A change that
// does not apply or does not compile is a mistake in the list, and no success of a test.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ends, err := run(ctx)
	stop()
	switch {
	case err != nil:
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(2)
	case ends[untried] > 0:
		os.Exit(2)
	case ends[survived] > 0:
		os.Exit(1)
	}
}

// run counts the ends of the mutants.
func run(ctx context.Context) (ends map[string]int, _ error) {
	only := flag.String("run", "", "only the mutants whose name or place matches this regular `expression`")
	md := flag.Bool("md", false, "print the result as a table in Markdown; progress goes to standard error")
	jobs := flag.Int("j", 2, "mutants at the same time; up to four times as many that run for more than 10 s are not counted")
	limit := flag.Duration("timeout", 2*time.Minute, "tests that run so long with a mutant hang, and have caught it; five times that for all tests of a package")
	wide := flag.Bool("wide", true, "run all tests of the package that are of the first ring if the named ones pass")
	part := flag.String("part", "1/1", "only a part of the mutants: 2/6 is every sixth, from the second on")
	told := flag.Bool("list", false, "print the mutants with the tests that should notice, as a table in Markdown, and run nothing")
	flag.Parse()
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return nil, err
	}
	list, err := mutants()
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(list, func(m mutant) bool { return !pattern.MatchString(m.name) && !pattern.MatchString(m.in) })
	var nth, of int
	if n, err := fmt.Sscanf(*part, "%d/%d", &nth, &of); err != nil || n != 2 || nth < 1 || nth > of {
		return nil, fmt.Errorf("-part is 2/6 or the like, and not %q", *part)
	}
	i := -1
	list = slices.DeleteFunc(list, func(mutant) bool { i++; return i%of != nth-1 })
	if len(list) == 0 {
		return nil, fmt.Errorf("no mutant matches %q", *only)
	}
	if *told {
		var results []result
		for _, m := range list {
			results = append(results, result{change: change{mutant: m}, by: "`" + m.tests.run + "`", ring: m.tests.ring()})
		}
		table(os.Stdout, results)
		return nil, nil
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	b := &bench{root: root, jobs: max(*jobs, 1), limit: *limit, wide: *wide, out: os.Stdout}
	if *md {
		b.out = os.Stderr
	}
	began := time.Now()
	results, err := b.all(ctx, list)
	if err != nil {
		return nil, err
	}
	ends = make(map[string]int)
	for _, r := range results {
		ends[r.end]++
	}
	if *md {
		table(os.Stdout, results)
	}
	first := 0
	for _, r := range results {
		if r.ring == firstRing {
			first++
		}
	}
	fmt.Fprintf(b.out, "%d mutants: %d caught, %d of them in the first ring, %d survived, %d could not be tried; %v\n",
		len(results), ends[caught], first, ends[survived], ends[untried], time.Since(began).Round(time.Second))
	return ends, nil
}

// table prints the results for a document.
func table(out io.Writer, results []result) {
	fmt.Fprint(out, "| taken out | in | caught by | ring |\n|---|---|---|---|\n")
	for _, r := range results {
		escaped := strings.NewReplacer("|", "\\|", "\n", " ")
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", escaped.Replace(r.name), r.in, escaped.Replace(r.by), r.ring)
	}
}
