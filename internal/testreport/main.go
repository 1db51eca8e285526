// Command testreport reads the output of `go test -json` from its standard input and prints what a
// person wants to know of it:
//
//	go test -json ./... | go run ./internal/testreport
//
// With -v it also prints what tests that passed have logged, as each of them ends. With -servers, for what
// `go run ./internal/servers -test` prints, it counts for each server, too: the part of a package's name before the
// first slash. A server on which no test ran has failed.
//
// Packages are reported as they end, failures in full. At the end come the names of all failed tests,
// every test that did not run with its reason, so that nothing is skipped silently, and one line
//
//	N passed, N failed, N skipped
//
// A test with subtests is counted by its subtests. The exit status is 1 if anything failed, if a test or
// a package has no result, or if no test ran at all. What go itself prints on standard error, and its exit
// status, are not seen here: set pipefail in the shell.
//
// Reading is in report.go.
package main

import (
	"flag"
	"fmt"
	"os"
)

func main() {
	logs := flag.Bool("v", false, "print what passed tests have logged, too")
	servers := flag.Bool("servers", false, "count for each server, too")
	flag.Parse()
	ok, err := run(os.Stdin, os.Stdout, *logs, *servers)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}
