package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/stretchr/testify/assert"

	"github.com/redquorum/redquorum/cmd/redlock/internal/demo"
)

// Every command says what it does, and every command line in its help and in the documents is one that the
// parser takes.
func TestHelpIsTrue(t *testing.T) {
	t.Parallel()
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		if strings.HasPrefix(cmd.CommandPath(), "redlock completion") || cmd.Name() == "help" {
			return // cobra's own
		}
		assert.False(t, cmd.Short == "" || cmd.Example == "" && cmd.Name() != "version",
			"%s: no description or no example", cmd.CommandPath())
		for _, text := range []string{cmd.Example, cmd.Long} {
			checkLines(t, cmd.CommandPath(), text)
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot(demo.Run))
	seen := 0
	for name, text := range documents(t) {
		seen += checkLines(t, name, text)
		for _, block := range fenced.FindAllString(text, -1) {
			seen += checkLines(t, name, oneEachLine(block))
		}
	}
	assert.True(t, seen >= 25, "only %d command lines were found in the documents", seen)
}

var (
	fenced = regexp.MustCompile("(?ms)^```\\w*\n.*?^```")
	start  = regexp.MustCompile(`(?m)^(?:\$ )?|(?:;|&&|\|\|?|&|\() `)
)

// oneEachLine makes of shell text what checkLines knows: each command at the beginning of an indented line.
func oneEachLine(shell string) string { return start.ReplaceAllString(shell, "\n    ") }

func TestCommandLinesOfDocumentsAreFound(t *testing.T) {
	t.Parallel()
	const shell = "```\n$ redlock ls; redlock watch k | tail -1\nredlock inspect k   # comment\neval \"$(redlock nodes up)\" && redlock run k -- redlock\n```"
	assert.Equal(t, 5, checkLines(t, "test", oneEachLine(fenced.FindString(shell))))
}

var (
	called  = regexp.MustCompile(`(?m)(?:^  +|^    |["(` + "`" + `])redlock ([a-z]+(?: [^\n"` + "`" + `)#&|;>]*)?)`)
	comment = regexp.MustCompile(`   +.*$`)
	flagged = regexp.MustCompile(`--?[a-zA-Z][a-z-]*`)
)

// checkLines looks at everything in text that reads like a call of this program with a command of its, and
// counts it.
func checkLines(t *testing.T, where, text string) (n int) {
	t.Helper()
	for _, m := range called.FindAllStringSubmatch(text, -1) {
		n++
		line := comment.ReplaceAllString(m[1], "")
		ours, _, _ := strings.Cut(line, " -- ")
		words := strings.Fields(ours)
		root := newRoot(demo.Run)
		root.InitDefaultHelpCmd()
		cmd, rest, err := root.Find(words)
		unknown := err == nil && cmd.HasSubCommands() && len(rest) > 0 && !strings.HasPrefix(rest[0], "-")
		if err != nil || cmd == root || unknown {
			t.Errorf("%s: %q is no command", where, m[0])
			continue
		}
		for _, flag := range flagged.FindAllString(strings.Join(words, " "), -1) {
			name := strings.TrimLeft(flag, "-")
			known := cmd.Flags().Lookup(name) != nil || cmd.InheritedFlags().Lookup(name) != nil || name == "help"
			if strings.Count(flag, "-") == 1 || len(name) == 1 {
				known = known || cmd.Flags().ShorthandLookup(name[:1]) != nil
			}
			assert.False(t, !known && strings.Contains(" "+ours+" ", " "+flag),
				"%s: %q: %s has no flag %s", where, ours, cmd.CommandPath(), flag)
		}
	}
	return n
}
