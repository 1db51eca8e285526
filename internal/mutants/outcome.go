package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
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
	var died string              // the test that ran when the process died
	lines := bufio.NewReader(in) // a line may be longer than a Scanner takes
	for {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF) && len(line) == 0:
			return o, nil
		case err != nil && !errors.Is(err, io.EOF):
			return o, err
		}
		var e event
		if !bytes.HasPrefix(line, []byte("{")) || json.Unmarshal(line, &e) != nil {
			o.output.Write(line)
			continue
		}
		switch e.Action {
		case "build-output":
			o.output.WriteString(e.Output)
		case "build-fail":
			o.unbuilt = true
		case "output":
			o.output.WriteString(e.Output)
			leaked = leaked || strings.HasPrefix(e.Output, "goleak: ")
			switch {
			case e.Test == "" || died != "":
			case strings.HasPrefix(e.Output, "panic: test timed out after"):
				o.failed, o.hung = e.Test, true
				return o, nil
			case strings.HasPrefix(e.Output, "panic: ") || strings.HasPrefix(e.Output, "fatal error: "):
				died = e.Test
			}
		case "skip":
			if e.Test != "" {
				o.skipped = append(o.skipped, e.Test)
			}
		case "pass":
			if e.Test != "" {
				o.ran++
			} else {
				o.ended = true
			}
		case "fail":
			switch {
			case e.Test != "":
				o.failed = e.Test
				return o, nil
			case e.FailedBuild != "":
				o.unbuilt = true
			case died != "":
				o.failed = died
				return o, nil
			case leaked && !o.unbuilt:
				o.failed = leaks
				return o, nil
			}
		}
	}
}
