// Command redlock shows and serves quorum locks on Redis from a terminal.
//
// main.go has the exit codes and the root command; each further file is one command, and what a
// command does lives in a package of its own below internal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
)

// Exit codes, from the range of sysexits(3) where it has one, so that a script can tell them apart.
const (
	exitFailed      = 1   // something that must hold did not
	exitUsage       = 64  // flags or arguments that cannot work
	exitUnavailable = 69  // the members could not be reached or started
	exitInterrupted = 130 // Ctrl-C
)

// exitError is an error that decides the exit code.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run executes one command line and returns the exit code. Every error is one sentence on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return execute(ctx, newRoot(demo.Run), args, stdout, stderr)
}

// execute runs root, which tests make with a demo of their own.
func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	_, _ = fmt.Fprintf(stderr, "redlock: %s\n", strings.TrimPrefix(err.Error(), "redlock: "))
	if e := (*exitError)(nil); errors.As(err, &e) {
		return e.code
	}
	_, _ = fmt.Fprintln(stderr, "Run \"redlock help\" for usage.")
	return exitUsage // what cobra itself reports: unknown commands, flags and arguments
}

func newRoot(runDemo demoFunc) *cobra.Command {
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Distributed locks on a majority of Redis masters",
		Long: `redlock takes locks on a majority of independent Redis masters, with fencing tokens.

The lock itself is a Go library: see the package redlock in this module.`,
		Example: `  redlock demo                     ten seconds on five embedded members, nothing to install
  redlock demo --redis             the same on redis-server processes that it starts
  redlock demo --json              the result as one line of JSON
  redlock version`,
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDemo(runDemo), newVersion())
	return root
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version of this program",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(cmd.OutOrStdout(), version())
			return err
		},
	}
}

// version is what the Go toolchain recorded when it built the program.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "redlock (unknown version)"
	}
	text := "redlock " + info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			text += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return text + " " + info.GoVersion
}
