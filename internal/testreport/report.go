package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
)

// event is one line of `go test -json`; see `go doc cmd/test2json`.
type event struct {
	Action      string
	Package     string
	ImportPath  string // instead of Package in the events of a build
	Test        string
	Output      string
	Elapsed     float64 // seconds
	FailedBuild string  // of a package: what could not be built
}

// report is what is known so far.
type report struct {
	out     io.Writer
	logs    bool            // show what passed tests logged, too
	servers []*server       // as they came; nil if they are not counted
	open    map[string]*pkg // without a result yet
	order   []string        // names of open packages as they came
	passed  int
	failed  []string // names, each with its package
	skipped []skip
}

type pkg struct {
	tests  map[string]*test // without a result yet, or failed
	order  []string         // names in tests as they came
	output strings.Builder  // of no test
	ran    int              // tests with a result, or without one at the end
	failed int
	skips  int
}

type test struct {
	output      strings.Builder
	failed      bool
	hasSubtests bool
	failedBelow bool // a subtest failed, and is counted instead
}

type skip struct{ name, reason string }

// server is what is counted of the packages whose names begin with its.
type server struct {
	name                    string
	passed, failed, skipped int
	seconds                 float64
}

// run reads events until the end of in. It returns whether everything passed; err is about reading alone.
func run(in io.Reader, out io.Writer, logs, servers bool) (ok bool, err error) {
	r := &report{out: out, logs: logs, open: make(map[string]*pkg)}
	if servers {
		r.servers = []*server{}
	}
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadBytes('\n') // a line may be longer than a Scanner takes
		if len(line) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			return r.finish(), nil
		}
		if err != nil {
			r.finish()
			return false, err
		}
	}
}

func (r *report) line(line []byte) {
	var e event
	if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil {
		r.printf("%s\n", bytes.TrimRight(line, "\n")) // go's own words: show them
		return
	}
	switch {
	case e.Action == "build-output":
		r.printf("%s", e.Output)
	case e.Package == "": // build-fail, which the package repeats as FailedBuild
	case e.Test != "":
		r.testEvent(r.pkg(e.Package), e)
	default:
		r.packageEvent(r.pkg(e.Package), e)
	}
}

func (r *report) pkg(name string) *pkg {
	p := r.open[name]
	if p == nil {
		p = &pkg{tests: make(map[string]*test)}
		r.open[name] = p
		r.order = append(r.order, name)
		r.server(name)
	}
	return p
}

// server is the one of a package; a count that nobody reads where servers are not counted.
func (r *report) server(pkg string) *server {
	name, _, _ := strings.Cut(pkg, "/")
	for _, s := range r.servers {
		if s.name == name {
			return s
		}
	}
	s := &server{name: name}
	if r.servers != nil {
		r.servers = append(r.servers, s)
	}
	return s
}

func (r *report) testEvent(p *pkg, e event) {
	t := p.tests[e.Test]
	if t == nil {
		t = new(test)
		p.tests[e.Test] = t
		p.order = append(p.order, e.Test)
		if parent := p.parent(e.Test); parent != nil {
			parent.hasSubtests = true
		}
	}
	switch e.Action {
	case "output":
		t.output.WriteString(e.Output)
	case "pass":
		if !t.hasSubtests {
			r.passed++
			r.server(e.Package).passed++
			p.ran++
		}
		if r.logs {
			r.printOutput(t)
		}
		p.drop(e.Test)
	case "skip":
		r.skipped = append(r.skipped, skip{e.Package + "." + e.Test, reason(t.output.String())})
		r.server(e.Package).skipped++
		p.ran++
		p.skips++
		p.drop(e.Test)
	case "fail":
		r.failTest(p, e.Package, e.Test)
	}
}

// failTest counts a failed test, unless the failure is that of a subtest, and keeps its output until the
// package ends.
func (r *report) failTest(p *pkg, pkgName, name string) {
	t := p.tests[name]
	t.failed = true
	if parent := p.parent(name); parent != nil {
		parent.failedBelow = true
	}
	if !t.failedBelow {
		r.failed = append(r.failed, pkgName+"."+name)
		r.server(pkgName).failed++
		p.ran++
		p.failed++
	}
}

// parent returns the test of which name is a subtest, nil if there is none. Names of subtests may have
// slashes of their own, so the longest test name that fits is it. A parent has no result before its
// subtests, so it is still there.
func (p *pkg) parent(name string) *test {
	for {
		slash := strings.LastIndexByte(name, '/')
		if slash < 0 {
			return nil
		}
		name = name[:slash]
		if t := p.tests[name]; t != nil {
			return t
		}
	}
}

func (p *pkg) drop(name string) {
	delete(p.tests, name)
	p.order = slices.DeleteFunc(p.order, func(other string) bool { return other == name })
}

func (r *report) packageEvent(p *pkg, e event) {
	r.server(e.Package).seconds += e.Elapsed
	switch e.Action {
	case "output":
		p.output.WriteString(e.Output)
	case "pass":
		r.closePackage(p, e.Package)
		if p.failed > 0 {
			r.packageLine("FAIL", e, p, "")
		} else if p.ran == 0 {
			r.packageLine("-", e, p, "  no tests to run")
		} else {
			r.packageLine("ok", e, p, "")
		}
	case "skip":
		r.closePackage(p, e.Package)
		r.packageLine("-", e, p, "  no test files")
	case "fail":
		r.closePackage(p, e.Package)
		why := ""
		if p.failed == 0 { // the build, TestMain, or an exit in the middle
			r.failed = append(r.failed, e.Package)
			r.server(e.Package).failed++
			if why = "  failed outside its tests"; e.FailedBuild != "" {
				why = "  did not build"
			}
		}
		r.printFailures(p, e.Package)
		r.packageLine("FAIL", e, p, why)
	}
}

// closePackage ends a package: tests without a result did not finish, and that is a failure.
func (r *report) closePackage(p *pkg, name string) {
	delete(r.open, name)
	r.order = slices.DeleteFunc(r.order, func(other string) bool { return other == name })
	for i := len(p.order) - 1; i >= 0; i-- { // subtests stand behind their parents
		if t := p.tests[p.order[i]]; !t.failed {
			fmt.Fprintln(&t.output, "--- NO RESULT: the test did not finish")
			r.failTest(p, name, p.order[i])
		}
	}
}

func (r *report) printFailures(p *pkg, name string) {
	for _, testName := range p.order { // failed ones: the others are gone
		t := p.tests[testName]
		r.printf("\n=== %s.%s\n", name, testName)
		r.printOutput(t)
	}
	var rest []string
	for line := range strings.Lines(p.output.String()) {
		if line != "FAIL\n" && line != "PASS\n" && !strings.HasPrefix(line, "FAIL\t"+name) {
			rest = append(rest, line)
		}
	}
	if len(rest) > 0 {
		r.printf("\n=== %s, outside its tests\n%s", name, strings.Join(rest, ""))
	}
	if len(rest) > 0 || len(p.order) > 0 {
		r.printf("\n")
	}
}

func (r *report) printOutput(t *test) {
	for line := range strings.Lines(t.output.String()) {
		if !strings.HasPrefix(line, "=== ") {
			r.printf("%s", line)
		}
	}
}

func (r *report) packageLine(word string, e event, p *pkg, note string) {
	r.printf("%-4s  %s", word, e.Package)
	if p.ran > 0 {
		r.printf("  %.1fs  %s", e.Elapsed, count(p.ran, "test"))
	}
	if p.failed > 0 {
		r.printf(", %d failed", p.failed)
	}
	if p.skips > 0 {
		r.printf(", %d skipped", p.skips)
	}
	r.printf("%s\n", note)
}

// finish prints the summary and returns whether all is well.
func (r *report) finish() bool {
	for _, name := range slices.Clone(r.order) { // go test itself was stopped
		p := r.open[name]
		before := len(r.failed)
		r.closePackage(p, name)
		if len(r.failed) == before {
			r.failed = append(r.failed, name)
			r.server(name).failed++
		}
		r.printFailures(p, name)
		r.printf("FAIL  %s  no result\n", name)
	}
	for _, s := range r.servers {
		if s.passed+s.failed == 0 {
			r.failed = append(r.failed, s.name+": no test ran")
		}
	}
	if len(r.failed) > 0 {
		r.printf("\nfailed:\n")
		for _, name := range r.failed {
			r.printf("  %s\n", name)
		}
	}
	if len(r.skipped) > 0 {
		r.printf("\ndid not run:\n")
		for _, s := range r.skipped {
			r.printf("  %s: %s\n", s.name, s.reason)
		}
	}
	ran := r.passed + len(r.failed)
	if ran == 0 {
		r.printf("\nno test ran\n")
	}
	if len(r.servers) > 0 {
		r.printf("\n")
	}
	for _, s := range r.servers {
		r.printf("%-12s  %4d passed  %3d failed  %3d skipped  %5.0fs\n", s.name, s.passed, s.failed, s.skipped, s.seconds)
	}
	r.printf("\n%d passed, %d failed, %d skipped\n", r.passed, len(r.failed), len(r.skipped))
	return ran > 0 && len(r.failed) == 0
}

func (r *report) printf(format string, args ...any) {
	fmt.Fprintf(r.out, format, args...) // an error means that nobody reads it
}

// location is what t.Log puts before a message.
var location = regexp.MustCompile(`^[^\s:]+\.go:\d+: `)

// reason returns what a skipped test logged, on one line.
func reason(output string) string {
	var parts []string
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "=== ") {
			continue
		}
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "--- SKIP: ") {
			continue
		}
		message := location.ReplaceAllString(line, "")
		if message == line && len(parts) > 0 { // goes on from the line before
			parts[len(parts)-1] += " " + line
		} else {
			parts = append(parts, message)
		}
	}
	if len(parts) == 0 {
		return "no reason given"
	}
	return strings.Join(parts, "; ")
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
