package demo

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// palette paints for a terminal; the false one does not.
type palette bool

func (p palette) paint(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p palette) bold(s string) string  { return p.paint("1", s) }
func (p palette) dim(s string) string   { return p.paint("2", s) }
func (p palette) red(s string) string   { return p.paint("31;1", s) }
func (p palette) green(s string) string { return p.paint("32", s) }

// show draws a run while it lasts. Its goroutine ends with end.
type show struct {
	options Options
	kind    string
	board   *board
	stop    chan struct{}
	done    chan struct{}
}

const (
	redraw = 100 * time.Millisecond // live
	follow = 50 * time.Millisecond  // how soon an event is printed where there is no terminal
	status = time.Second            // between status lines there
)

func newShow(o Options, m *members, b *board) *show {
	s := &show{options: o, kind: m.kind, board: b, stop: make(chan struct{}), done: make(chan struct{})}
	switch {
	case o.Progress.To == nil:
		close(s.done)
	case o.Progress.Live:
		go s.live()
	default:
		go s.lines()
	}
	return s
}

func (s *show) end() {
	close(s.stop)
	<-s.done
}

// lines prints events as they come and a status line a second.
func (s *show) lines() {
	defer close(s.done)
	w := s.options.Progress.To
	_, _ = fmt.Fprintf(w, "%s\n%s\n", heading(s.options), s.kind)
	tick := time.NewTicker(follow)
	defer tick.Stop()
	told, next, before := 0, status, snapshot{}
	for last := false; ; {
		now := s.board.snapshot()
		for _, e := range now.events[told:] {
			_, _ = fmt.Fprintln(w, eventLine(e))
		}
		told = len(now.events)
		if now.at >= next && !last {
			_, _ = fmt.Fprintln(w, statusLine(now, before))
			next, before = now.at.Truncate(status)+status, now
		}
		if last {
			return
		}
		select {
		case <-tick.C:
		case <-s.stop:
			last = true
		}
	}
}

// live draws in place, ten times a second.
func (s *show) live() {
	defer close(s.done)
	w := s.options.Progress.To
	_, _ = io.WriteString(w, "\x1b[?25l") // hide the cursor
	defer func() { _, _ = io.WriteString(w, "\x1b[?25h") }()
	tick := time.NewTicker(redraw)
	defer tick.Stop()
	drawn := 0
	var history []snapshot // of the last second, for the rate
	for last := false; ; {
		now := s.board.snapshot()
		if history = append(history, now); len(history) > int(status/redraw)+1 {
			history = history[1:]
		}
		width, height := s.options.Progress.Size()
		f := frame{options: s.options, kind: s.kind, now: now, before: history[0], last: last, palette: palette(s.options.Progress.Color)}
		lines := f.lines(height - 1)
		var b strings.Builder
		if drawn > 0 {
			fmt.Fprintf(&b, "\x1b[%dF", drawn)
		}
		for _, line := range lines {
			b.WriteString(fit(line, width) + "\x1b[K\n")
		}
		b.WriteString("\x1b[J") // what is left of a longer frame
		_, _ = io.WriteString(w, b.String())
		drawn = len(lines)
		if last {
			return
		}
		select {
		case <-tick.C:
		case <-s.stop:
			last = true
		}
	}
}

func heading(o Options) string {
	return fmt.Sprintf("%d workers, each with a client of its own, contend for locks of three kinds for %v", o.Workers, o.Duration)
}

func eventLine(e event) string { return fmt.Sprintf("%6.2f s  %s", e.at.Seconds(), e.text) }

func statusLine(now, before snapshot) string {
	return fmt.Sprintf("%6.2f s  . members %d/%d, %d acquired (%.0f/s), hand-off p50 %s, %d overlaps",
		now.at.Seconds(), now.upForAll(), len(now.up), now.grants, rate(now.grants-before.grants, now.at-before.at),
		millis(now.handoff50), now.overlaps)
}

// upForAll counts the members that every worker has a connection to.
func (s snapshot) upForAll() int {
	n := 0
	for _, up := range s.up {
		if up == len(s.workers) {
			n++
		}
	}
	return n
}

// frame is one picture of the live display.
type frame struct {
	options Options
	kind    string
	now     snapshot
	before  snapshot // up to a second older
	last    bool
	palette
}

// lines draws the frame in at most height lines: the oldest events give way first.
func (f frame) lines(height int) []string {
	out := []string{
		f.bold(heading(f.options)),
		f.kind,
		f.bar(),
		"",
		f.membersLine(),
		f.holderLine(),
	}
	out = append(out, f.workerLines()...)
	out = append(out, "", f.countersLine(), f.pageLine(), "")
	events := f.now.events
	if room := max(height-len(out), 0); len(events) > room {
		events = events[len(events)-room:]
	}
	for _, e := range events {
		line := eventLine(e)
		if strings.HasPrefix(e.text, "VIOLATION") {
			line = f.red(line)
		}
		out = append(out, line)
	}
	return out[:min(len(out), max(height, 1))]
}

func (f frame) bar() string {
	const width = 40
	share := min(1, f.now.at.Seconds()/f.options.Duration.Seconds())
	full := int(share * width)
	text := fmt.Sprintf("%s%s  %.1f of %.0f s", f.green(strings.Repeat("█", full)), f.dim(strings.Repeat("░", width-full)),
		f.now.at.Seconds(), f.options.Duration.Seconds())
	if f.last {
		text += ", finished"
	} else if share == 1 {
		text += ", the last act goes on"
	}
	return text
}

func (f frame) membersLine() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-10s", "members")
	for i, up := range f.now.up {
		switch up {
		case len(f.now.workers):
			fmt.Fprintf(&b, "%s  ", f.green(fmt.Sprintf("%d up", i+1)))
		case 0:
			fmt.Fprintf(&b, "%s  ", f.red(fmt.Sprintf("%d DOWN", i+1)))
		default:
			fmt.Fprintf(&b, "%s  ", f.red(fmt.Sprintf("%d up for %d/%d", i+1, up, len(f.now.workers))))
		}
	}
	return b.String() + f.dim(fmt.Sprintf("(%d of %d decide)", f.now.need(), len(f.now.up)))
}

func (f frame) holderLine() string {
	s := f.now
	switch {
	case s.holder < 0:
		return fmt.Sprintf("%-10s%s", "holder", f.dim("nobody, the lock changes hands"))
	case s.trusted <= 0:
		return fmt.Sprintf("%-10sworker %d, token %d, %s", "holder", s.holder+1, s.token, f.red("lease ended"))
	}
	return fmt.Sprintf("%-10sworker %d, token %d, trusted for %.2f s more, %d votes", "holder", s.holder+1, s.token, s.trusted.Seconds(), s.votes)
}

// workerLines shows up to eight workers.
func (f frame) workerLines() []string {
	var out []string
	for i, w := range f.now.workers {
		if i == 8 {
			out = append(out, fmt.Sprintf("          and %d more", len(f.now.workers)-i))
			break
		}
		doing := w.doing.String()
		switch w.doing {
		case stalls:
			doing = f.red(doing)
		case writes:
			doing = f.bold(doing)
		default:
			doing = f.dim(doing)
		}
		out = append(out, fmt.Sprintf("%-10s%6d acquisitions  %s", fmt.Sprintf("worker %d", i+1), w.grants, doing))
	}
	return out
}

func (f frame) countersLine() string {
	overlaps := fmt.Sprintf("%d overlaps", f.now.overlaps)
	if f.now.overlaps > 0 {
		overlaps = f.red(overlaps)
	}
	return fmt.Sprintf("%s acquisitions, %.0f a second, hand-off p50 %s, p99 %s, %s",
		f.bold(fmt.Sprint(f.now.grants)), rate(f.now.grants-f.before.grants, f.now.at-f.before.at),
		millis(f.now.handoff50), millis(f.now.handoff99), overlaps)
}

func (f frame) pageLine() string {
	beside := fmt.Sprintf("%d beside a writer", f.now.beside)
	if f.now.beside > 0 {
		beside = f.red(beside)
	}
	return fmt.Sprintf("%s reads of the page, up to %d at once, %d rewrites, %s", f.bold(fmt.Sprint(f.now.reads)), f.now.atOnce, f.now.rewrites, beside)
}

// fit cuts a line to the width of the terminal, so that it takes one row. Escape sequences take no room.
func fit(line string, width int) string {
	var b strings.Builder
	n, escape, colored := 0, false, false
	for _, r := range line {
		switch {
		case escape:
			escape = r != 'm'
		case r == '\x1b':
			escape, colored = true, true
		case n == width:
			continue
		default:
			n++
		}
		b.WriteRune(r)
	}
	if colored {
		b.WriteString("\x1b[0m")
	}
	return b.String()
}
