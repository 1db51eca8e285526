// Command redlock shows and serves quorum locks on Redis from a terminal.
//
// main.go has the exit codes and the root command. Each further file is one command. What a command
// does lives in a package of its own below internal.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redquorum/redquorum/cmd/redlock/internal/child"
	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
	"github.com/redquorum/redquorum/cmd/redlock/internal/settings"
)

func main() { os.Exit(run(context.Background(), os.Args[1:], os.Stdout, os.Stderr)) }

// run executes one command line and returns the exit code. Every error is one sentence on stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return execute(ctx, newRoot(demo.Run), args, stdout, stderr)
}

// ownSignals marks a command that handles signals itself.
const ownSignals = "own-signals"

// flagHint marks a command with what to say of a flag that it does not know.
const flagHint = "flag-hint"

// execute runs root, which tests make with a demo of their own.
func execute(ctx context.Context, root *cobra.Command, args []string, stdout, stderr io.Writer) int {
	stop := func() {}
	defer func() { stop() }()
	root.PersistentPreRun = func(cmd *cobra.Command, _ []string) {
		escape(cmd, stdout, stderr)
		if cmd.Annotations[forEval] != "" {
			child.BrokenPipesAreErrors() // what cannot be printed is given back
		}
		if cmd.Annotations[ownSignals] == "" {
			ctx, stop = interruptible(ctx)
			cmd.SetContext(ctx)
		}
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	stderr = escaping{stderr}
	if err == nil {
		return 0
	}
	code, usage := codeOf(ctx, err), (*misuse)(nil)
	if errors.As(err, &usage) {
		code = exitUsage
	}
	if evaluated(cmd, usage != nil) {
		_, _ = fmt.Fprintf(stdout, "(exit %d)\n", code)
	}
	if e := (*exitError)(nil); errors.As(err, &e) && e.err == nil {
		return code
	}
	_, _ = fmt.Fprintf(stderr, "redlock: %s%s\n", strings.TrimPrefix(err.Error(), "redlock: "), withheld(code))
	if usage != nil {
		_, _ = fmt.Fprintf(stderr, "Run \"%s\" for usage.\n", strings.Replace(strings.TrimSuffix(cmd.CommandPath(), " help"), "redlock", "redlock help", 1))
	}
	return code
}

// forEval marks a command whose output is for eval.
const forEval = "for-eval"

// evaluated reports whether a failure of cmd is to have its exit code under eval as well. Eval of nothing succeeds, and a
// script that forgets to look at the command substitution would go on without the lock. A command that does not exist
// may be a misspelt one of these.
func evaluated(cmd *cobra.Command, misused bool) bool {
	if cmd.Annotations[forEval] != "" {
		return cmd.Flag("format").Value.String() != "json"
	}
	return misused && cmd == cmd.Root()
}

// misuse is what cobra itself reports: unknown commands, flags, and wrong numbers of arguments.
type misuse struct{ error }

func (e *misuse) Unwrap() error { return e.error }

// oneKey is for commands that take one key and nothing else.
func oneKey(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return fmt.Errorf("no key: usage: %s %s", cmd.Parent().CommandPath(), cmd.Use)
	case len(args) > 1:
		return fmt.Errorf("%q is too much, because %s takes one key: usage: %s %s", args[1], cmd.Name(), cmd.Parent().CommandPath(), cmd.Use)
	}
	return nil
}

// badValue says what is wrong with the value of a flag. The words of package strconv are none of a user.
func badValue(e *pflag.InvalidValueError) error {
	var number *strconv.NumError
	switch _, wrong := settings.Duration(e.GetValue()); {
	case e.GetFlag().Value.Type() == "duration" && wrong != nil:
		return fmt.Errorf("--%s: %q %w", e.GetFlag().Name, e.GetValue(), wrong)
	case errors.As(e, &number):
		return fmt.Errorf("--%s: %q is no whole number that fits", e.GetFlag().Name, e.GetValue())
	}
	return e
}

// mark has every error of cobra's known as one, and the values of flags completed, below cmd too.
func mark(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) && cmd.Annotations[flagHint] != "" {
			err = fmt.Errorf("%w (%s)", err, cmd.Annotations[flagHint])
		}
		if value := (*pflag.InvalidValueError)(nil); errors.As(err, &value) {
			err = badValue(value)
		}
		return &misuse{err}
	})
	for name, words := range choices {
		if cmd.Flags().Lookup(name) != nil {
			_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
		}
	}
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &misuse{err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		mark(sub)
	}
}

func newRoot(runDemo demoFunc) *cobra.Command {
	root := &cobra.Command{
		Use:   "redlock",
		Short: "Distributed locks on a majority of Redis masters",
		Long: `redlock takes locks on a majority of independent Redis masters, with fencing tokens.

The lock itself is a Go library: see the package redlock in this module.

Exit codes: 0 done; 1 no, or a promise did not hold; 64 usage; 65 the key is not a lock; 69 no
quorum; 70 internal error; 75 not obtained in time; 77 the members refuse the user; 78 configuration
or TLS; 79 lost, or no longer held; 130 and 143 interrupted. "run" and "lead" pass on the exit
code of their command: see there.`,
		Example: `  redlock demo                                     a lock at work, nothing to install
  eval "$(redlock nodes up)"                       three local members, and REDLOCK_MEMBERS
  redlock run nightly --wait 0 -- ./nightly.sh     run a command while holding a lock
  redlock doctor                                   is this set of members fit to lock?`,
		Args:          noCommand,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,

		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.AddCommand(newDemo(runDemo), newRun(), newHold(), newAcquire(), newExtend(), newRelease(),
		newLatch(), newSemaphore(), newLead(), newLeader(), newInspect(), newLs(), newWatch(), newToken(), newDoctor(), newInit(), newNodes(), newBench(), newVersion())
	root.Flags().Bool("version", false, "print the version of this program") // cobra's own takes -v, which is --verbose elsewhere
	root.SetVersionTemplate("{{.Version}}\n")
	root.InitDefaultCompletionCmd()
	root.InitDefaultHelpCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "completion": // so that its arguments are looked at: it has none but the shells
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		case "help":
			cmd.Args = helpTopic
		}
	}
	mark(root)
	return root
}

// noCommand refuses a word that is no command, and says which may be meant.
func noCommand(root *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if near := root.SuggestionsFor(args[0]); len(near) > 0 {
		meant = " (did you mean " + strings.Join(near, " or ") + "?)"
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], root.CommandPath(), meant)
}

// helpTopic accepts the words that name a command.
func helpTopic(cmd *cobra.Command, args []string) error {
	topic, rest, err := cmd.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("unknown command %q for %q", rest[0], topic.CommandPath())
	}
	return err
}

// choices are the flags of which only some words are values.
var choices = map[string][]string{"format": {"env", "json"}, "restart-guard": {"quarantine", "strict", "off"}}

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
