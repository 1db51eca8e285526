package suite

import (
	"fmt"
	"io"
	"os"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// NewProgress shows a bar on a terminal, and only notes in a pipe.
func NewProgress(w *os.File) Progress {
	if !term.IsTerminal(int(w.Fd())) {
		return quiet{w}
	}
	return &bar{w: w}
}

type quiet struct{ w io.Writer }

func (quiet) Plan(int)                          {}
func (quiet) Slice(Cell, string)                {}
func (q quiet) Note(format string, args ...any) { _, _ = fmt.Fprintf(q.w, format+"\n", args...) }

type bar struct {
	w   io.Writer
	bar *progressbar.ProgressBar
	n   int
}

func (b *bar) Plan(slices int) {
	b.bar = progressbar.NewOptions(slices, progressbar.OptionSetWriter(b.w), progressbar.OptionSetWidth(24), progressbar.OptionShowCount(),
		progressbar.OptionSetPredictTime(true), progressbar.OptionFullWidth(), progressbar.OptionClearOnFinish())
}

func (b *bar) Slice(cell Cell, entry string) {
	if b.n++; b.n > 1 {
		_ = b.bar.Add(1)
	}
	b.bar.Describe(fmt.Sprintf("%-46.46s %-22s", cell.String(), entry))
}

func (b *bar) Note(format string, args ...any) {
	if b.bar != nil {
		_ = b.bar.Clear()
	}
	_, _ = fmt.Fprintf(b.w, format+"\n", args...)
}
