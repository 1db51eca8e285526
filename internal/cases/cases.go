// Package cases reads files of test cases, in which an event and the answer to it are one line:
//
//	# What the case proves.
//	case a name
//	row 1 first            => yes
//	row 2 second           => no
//	an event with $1       => $>     # a comment
//
// A case with rows is one case for each, with the words of the row in place of $1, $2, …, and what stands behind "=>" in
// place of $>. A word with blanks stands in quotes.
package cases

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Case is a name, and the lines until the next one.
type Case struct {
	Name  string
	Lines []Line
}

// Line is an event and the answer that is wanted.
type Line struct {
	Where       string
	Words, Want []string
	Asked       bool // there is a =>
}

func (l Line) String() string { return l.Where + ": " + strings.Join(l.Words, " ") }

// Read reads the files that match a pattern. No two cases have one name.
func Read(t testing.TB, pattern string) (all []Case) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	names := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, c := range parse(file, string(text)) {
			require.False(t, names[c.Name], "two cases have the name %q", c.Name)
			names[c.Name] = true
			all = append(all, c)
		}
	}
	require.NotEmpty(t, all)
	return all
}

func parse(file, text string) (all []Case) {
	var rows []Line
	var open Case
	end := func() {
		if len(rows) == 0 && open.Name != "" {
			all = append(all, open)
		}
		for _, row := range rows {
			c := Case{Name: open.Name + ": " + strings.Join(row.Words, " ")}
			for _, l := range open.Lines {
				c.Lines = append(c.Lines, Line{l.Where, row.fill(l.Words), row.fill(l.Want), l.Asked})
			}
			all = append(all, c)
		}
		rows, open = nil, Case{}
	}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line, _, _ = strings.Cut(line, "#")
		event, want, asked := strings.Cut(line, "=>")
		l := Line{fmt.Sprintf("%s:%d", file, n), fields(event), fields(want), asked}
		switch {
		case len(l.Words) == 0:
		case l.Words[0] == "case":
			end()
			open.Name = strings.Join(l.Words[1:], " ")
		case l.Words[0] == "row":
			l.Words = l.Words[1:]
			rows = append(rows, l)
		default:
			open.Lines = append(open.Lines, l)
		}
	}
	end()
	return all
}

// fields are the words of a line.
func fields(line string) (out []string) {
	for i, part := range strings.Split(line, `"`) {
		if i%2 == 1 {
			out = append(out, part)
		} else {
			out = append(out, strings.Fields(part)...)
		}
	}
	return out
}

// fill puts the words of a row in their places. A place for which it has none is dropped.
func (row Line) fill(words []string) (out []string) {
	for _, w := range words {
		i, err := strconv.Atoi(strings.TrimPrefix(w, "$"))
		switch {
		case w == "$>":
			out = append(out, row.Want...)
		case err != nil || w[0] != '$':
			for k, value := range row.Words {
				w = strings.ReplaceAll(w, "$"+strconv.Itoa(k+1), value)
			}
			out = append(out, w)
		case i <= len(row.Words):
			out = append(out, row.Words[i-1])
		}
	}
	return out
}

// Repeat plays a block from the line "repeat" to the line "end", for as long as again says so of the round. It returns the
// index of the end.
func Repeat(lines []Line, i int, again func(round int) bool, play func(block []Line)) int {
	end := i
	for lines[end].Words[0] != "end" {
		end++
	}
	for round := 0; again(round); round++ {
		play(lines[i+1 : end])
	}
	return end
}
