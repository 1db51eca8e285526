package main

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

const modulePath = "github.com/redquorum/redquorum"

func newBench() *cobra.Command {
	dir := ""
	cmd := &cobra.Command{
		Use:   "bench [-- FLAGS...]",
		Short: "Run the quick benchmark suite of the source tree",
		Long: `bench runs the suite that compares this lock with others, on servers that it starts itself. It takes
about five minutes. The suite is a module of its own in the source tree, because it imports the
other locks. So bench needs the source tree and Go. It looks for the tree in the current directory
and above it, or in --dir. Flags after -- are flags of the suite.

Exit codes: 0; 1 if the suite failed; 69 if it, or Go, is not found.`,
		Example: `  git clone https://github.com/redquorum/redquorum && cd redquorum && redlock bench
  redlock bench -- -list
  redlock bench -- -workloads W1 -n 3`,
		Annotations: map[string]string{rawOutput: "all"},
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 && cmd.ArgsLenAtDash() != 0 {
				return errors.New("flags of the suite go after --")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			from := dir
			if from == "" {
				var err error
				if from, err = os.Getwd(); err != nil {
					return err
				}
			}
			suite := findSuite(from)
			if suite == "" {
				return &exitError{exitUnavailable, errors.New("no benchmark suite here: clone https://" + modulePath + " and run this inside it, or pass --dir")}
			}
			run := exec.CommandContext(cmd.Context(), "go", append([]string{"run", "."}, args...)...)
			run.Dir, run.Stdin, run.Stdout, run.Stderr = suite, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()
			run.Cancel = func() error { return run.Process.Signal(os.Interrupt) }
			err := run.Run()
			if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
				if cmd.Context().Err() != nil {
					return endedOr(cmd.Context(), err)
				}
				return &exitError{exit.ExitCode(), nil}
			}
			if errors.Is(err, exec.ErrNotFound) {
				return &exitError{exitUnavailable, errors.New("the suite is built when it runs, and Go is not installed")}
			}
			return err
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the source tree, or a directory in it (default: the current directory)")
	return cmd
}

// findSuite looks for the source tree around dir, and returns its suite.
func findSuite(dir string) string {
	dir, err := filepath.Abs(dir)
	for err == nil {
		suite := filepath.Join(dir, "bench")
		if moduleOf(dir) == modulePath && moduleOf(suite) == modulePath+"/bench" {
			return suite
		}
		up := filepath.Dir(dir)
		if up == dir {
			break
		}
		dir = up
	}
	return ""
}

// moduleOf reads the first line of a go.mod.
func moduleOf(dir string) string {
	f, err := os.Open(filepath.Join(dir, "go.mod"))
	if err != nil {
		return ""
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if name, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}
