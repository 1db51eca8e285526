package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
)

// Every command says what it does, and every command line in its help and in README.md is one that the
// parser takes.
func TestHelpIsTrue(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if strings.HasPrefix(cmd.CommandPath(), "redlock completion") || cmd.Name() == "help" {
			return // cobra's own
		}
		if cmd.Short == "" || cmd.Example == "" && cmd.Name() != "version" {
			t.Errorf("%s: no description or no example", cmd.CommandPath())
		}
		for _, text := range []string{cmd.Example, cmd.Long} {
			checkLines(t, cmd.CommandPath(), text)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(demo.Run))
	checkLines(t, "README.md", readme(t))
}

var (
	called  = regexp.MustCompile(`(?m)(?:^  +|^    |["(` + "`" + `])redlock ([a-z]+(?: [^\n"` + "`" + `)#&|;>]*)?)`)
	comment = regexp.MustCompile(`   +.*$`)
	flagged = regexp.MustCompile(`--?[a-zA-Z][a-z-]*`)
)

// checkLines looks at everything in text that reads like a call of this program with a command of its.
func checkLines(t *testing.T, where, text string) {
	t.Helper()
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		line := comment.ReplaceAllString(m[1], "")
		ours, _, _ := strings.Cut(line, " -- ")
		words := strings.Fields(ours)
		root := newRoot(demo.Run)
		root.InitDefaultHelpCmd()
		cmd, _, err := root.Find(words)
		if err != nil || cmd == root {
			t.Errorf("%s: %q is no command", where, m[0])
			continue
		}
		for _, flag := range flagged.FindAllString(strings.Join(words, " "), -1) {
			name := strings.TrimLeft(flag, "-")
			known := cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil || name == "help"
			if strings.Count(flag, "-") == 1 || len(name) == 1 {
				known = known || cmd.Flags().ShorthandLookup(name[:1]) != nil
			}
			if !known && strings.Contains(" "+ours+" ", " "+flag) {
				t.Errorf("%s: %q: %s has no flag %s", where, ours, cmd.CommandPath(), flag)
			}
		}
	}
}
