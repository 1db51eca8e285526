package history

import (
	"fmt"
	"slices"
	"time"
)

// Belief is a tenure as Stream takes it: of one owner, in one process.
type Belief struct {
	Key      string
	Owner    string // tells leases apart: a lease that was handed off keeps its owner and token
	Who      string // for the reader of a finding
	Token    uint64
	Shared   bool // a reader's: others of that name may be held beside it, if they are shared, too
	From, To int64
}

func (b Belief) String() string {
	as := ""
	if b.Shared {
		as = " as a reader"
	}
	return fmt.Sprintf("%s: %s%s, owner %s, token %d, from %d to %d (%v)",
		b.Key, b.Who, as, b.Owner, b.Token, b.From, b.To, time.Duration(b.To-b.From))
}

// streamKeep is for how long a belief that is over is kept: a process that was stopped tells of what it
// believed when it runs again.
const streamKeep = int64(time.Minute)

// Stream judges beliefs as they come in, in any order. It forgets beliefs that no later one can
// overlap, so its memory does not grow with the length of a run. The zero value is ready. A Stream
// is not safe for concurrent use.
//
// Readers may lie beside readers, and the order of their tokens means nothing among them. A writer
// lies beside nobody. Its token is greater than that of everybody before it, and less than that of
// everybody after it, and nobody else has it.
type Stream struct {
	// Excused reports that two holders may believe at once, because one of them was forced out.
	// nil: never.
	Excused func(x, y Belief) bool

	lines map[string]*line
}

// line is what is kept of one key.
type line struct {
	open map[string]int64 // begun and not ended: where from
	past []Belief
	// Of those forgotten, the one with the greatest token: of all, and of writers.
	top, topWriter Belief
}

func (s *Stream) line(key string) *line {
	if s.lines == nil {
		s.lines = map[string]*line{}
	}
	if s.lines[key] == nil {
		s.lines[key] = &line{open: map[string]int64{}}
	}
	return s.lines[key]
}

// Begin says that a belief has begun, so that Stream keeps what it may overlap with. id is the
// caller's.
func (s *Stream) Begin(key, id string, from int64) { s.line(key).open[id] = from }

// End judges a finished belief against all others of its key.
func (s *Stream) End(id string, b Belief) (overlaps, regressions []string) {
	l := s.line(b.Key)
	delete(l.open, id)
	believed := b.To > b.From // or its validity had ended before its holder looked
	for _, x := range l.past {
		switch {
		case x.Shared && b.Shared:
		case x.Token == b.Token && x.Owner != b.Owner:
			regressions = append(regressions, fmt.Sprintf("token given out twice: %v, and %v", x, b))
		case !believed || x.To <= x.From:
		case x.From < b.To && b.From < x.To:
			if s.Excused == nil || !s.Excused(x, b) {
				overlaps = append(overlaps, fmt.Sprintf("%v, and %v", x, b))
			}
		case x.Owner != b.Owner && (x.To <= b.From) != (x.Token < b.Token):
			regressions = append(regressions, fmt.Sprintf("%v, and %v", x, b))
		}
	}
	top := l.top
	if b.Shared {
		top = l.topWriter
	}
	if believed && top.Token >= b.Token && top.Owner != b.Owner && top.To <= b.From {
		regressions = append(regressions, fmt.Sprintf("%v, and later %v", top, b))
	}
	l.past = append(l.past, b)
	if len(l.past)%64 == 0 {
		l.forget(b.To - streamKeep)
	}
	return overlaps, regressions
}

// Kept returns the number of beliefs in memory.
func (s *Stream) Kept() (n int) {
	for _, l := range s.lines {
		n += len(l.past) + len(l.open)
	}
	return n
}

func (l *line) forget(before int64) {
	for _, from := range l.open {
		before = min(before, from)
	}
	l.past = slices.DeleteFunc(l.past, func(x Belief) bool {
		if x.To >= before {
			return false
		}
		if x.To > x.From && x.Token > l.top.Token {
			l.top = x
		}
		if x.To > x.From && !x.Shared && x.Token > l.topWriter.Token {
			l.topWriter = x
		}
		return true
	})
}
