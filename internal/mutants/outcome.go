package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// outcome is what one run of `go test -json` said, up to its first failure.
type outcome struct {
	ran     int      // tests that passed
	skipped []string // names
	failed  string   // the first that failed; "" if none did
	hung    bool     // by running into the time limit
	unbuilt bool     // nothing could be built; output has the compiler's words
	ended   bool     // the package was said to have passed
	output  strings.Builder
}

// leaks is who failed where a package fails after its tests: TestMain looks for goroutines left behind.
const leaks = "TestMain (goroutines left behind)"

// event is one line of `go test -json`; see `go doc cmd/test2json`.
type event struct{ Action, Test, Output, FailedBuild string }

// read reads events until the first failure, or the end. A subtest is named rather than its parent. A
// test that the process died in is a failure of that test.
func read(in io.Reader) (o outcome, _ error) {
	var leaked bool
	var died string // the test that ran when the process died
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 1<<30)
	for o.failed == "" && lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			fmt.Fprintln(&o.output, lines.Text())
			continue
		}
		o.output.WriteString(e.Output)
		switch {
		case e.Action == "build-fail" || e.FailedBuild != "":
			o.unbuilt = true
		case e.Action == "skip" && e.Test != "":
			o.skipped = append(o.skipped, e.Test)
		case e.Action == "pass" && e.Test != "":
			o.ran++
		case strings.HasPrefix(e.Output, "testing: warning: no tests to run"): // nor any of the subtests that were asked for
			o.ran = 0
		case e.Action == "pass":
			o.ended = true
		case e.Action == "fail" && e.Test != "":
			o.failed = e.Test
		case e.Action == "fail" && died != "":
			o.failed = died
		case e.Action == "fail" && leaked && !o.unbuilt:
			o.failed = leaks
		case strings.HasPrefix(e.Output, "goleak: "):
			leaked = true
		case e.Test == "" || died != "":
		case strings.HasPrefix(e.Output, "panic: test timed out after"):
			o.failed, o.hung = e.Test, true
		case strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: "):
			died = e.Test
		}
	}
	return o, lines.Err()
}
