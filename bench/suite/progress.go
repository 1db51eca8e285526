package suite

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// NewProgress shows on a terminal what is measured, in one line, and only notes in a pipe.
func NewProgress(w *os.File) Progress { return &progress{w: w, shows: term.IsTerminal(int(w.Fd()))} }

type progress struct {
	w      *os.File
	shows  bool
	all, n int
}

func (p *progress) Plan(slices int) { p.all = slices }

func (p *progress) Slice(cell Cell, entry string) {
	p.n++
	if p.shows {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K%d of %d  %.50s  %s", p.n, p.all, cell, entry)
	}
}

func (p *progress) Note(format string, args ...any) {
	if p.shows {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
	_, _ = fmt.Fprintf(p.w, format+"\n", args...)
}
