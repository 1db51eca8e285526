// Package judge hears what the holders of locks believed, and finds what must never be: two holders
// at once that are not both readers, and tokens that do not rise. It has no clock and asks nobody.
//
// Readers may hold beside readers, and the order of their tokens means nothing among them. A writer
// holds beside nobody. Its token is greater than that of everybody before it, and less than that of
// everybody after it, and nobody else has it. Each slot of a semaphore is a key of its own.
//
// Check judges a history that is over. A Stream judges one while it goes on.
package judge

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// At returns the reading of Now at time t, which must come from time.Now in this process.
func At(t time.Time) int64 { return Now() + int64(time.Until(t)) }

// Hold is one grant of a lock, as its holder believed in it. Times are nanoseconds on one clock: that
// of Now if the holders are processes of one machine.
type Hold struct {
	Client int    `json:"client"`
	Key    string `json:"key"`
	Token  uint64 `json:"token"`
	From   int64  `json:"from"` // return of Lock
	To     int64  `json:"to"`   // call of Unlock, or the end of validity if that came first

	Asked  int64  `json:"asked,omitempty"`  // call of Lock; no rule looks at it
	Owner  string `json:"owner,omitempty"`  // a lease that was handed off keeps its owner and token; "": it was not
	Who    string `json:"who,omitempty"`    // for the reader of a finding
	Shared bool   `json:"shared,omitempty"` // a reader's
}

func (h Hold) String() string {
	who := cmp.Or(h.Who, fmt.Sprint("client ", h.Client))
	if h.Shared {
		who += " as a reader"
	}
	return fmt.Sprintf("%s: %s, owner %q, token %d, from %d to %d (%v)",
		h.Key, who, h.Owner, h.Token, h.From, h.To, time.Duration(h.To-h.From))
}

// believed says that the holder believed in it for a time. Otherwise its validity had ended before the
// holder looked, others may have held the lock since, and all that must be is that its token is its own.
func (h *Hold) believed() bool { return h.To > h.From }

// same says that two holds are of one lease.
func (h *Hold) same(x *Hold) bool { return h.Owner != "" && h.Owner == x.Owner }

// Verdict is what a judge found. The zero value means that it found nothing.
type Verdict struct {
	Overlaps    []string // two holders believed in the same key at once
	Regressions []string // a later hold with no greater token, or a token given out twice
}

// Clean reports whether nothing was found.
func (v Verdict) Clean() bool { return len(v.Overlaps)+len(v.Regressions) == 0 }

func (v Verdict) String() string {
	s := fmt.Sprintf("%d overlaps, %d token regressions", len(v.Overlaps), len(v.Regressions))
	for _, list := range [][]string{v.Overlaps, v.Regressions} {
		for _, x := range list[:min(len(list), 5)] {
			s += "\n  " + x
		}
	}
	return s
}

// Check judges holds that have ended, in any order.
func Check(all []Hold) (v Verdict) {
	type event struct {
		at   int64
		ends int // 1: the hold ends
		i    int
	}
	events := make([]event, 0, 2*len(all))
	for i, h := range all {
		events = append(events, event{h.From, 0, i}, event{max(h.From, h.To), 1, i})
	}
	slices.SortFunc(events, func(x, y event) int {
		return cmp.Or(cmp.Compare(x.at, y.at), cmp.Compare(x.ends, y.ends), cmp.Compare(x.i, y.i))
	})
	s := Stream{tokens: true}
	for _, e := range events {
		h, id := all[e.i], strconv.Itoa(e.i)
		if e.ends == 0 {
			s.Begin(h.Key, id, h.From)
			continue
		}
		overlaps, regressions := s.End(id, h)
		v.Overlaps, v.Regressions = append(v.Overlaps, overlaps...), append(v.Regressions, regressions...)
	}
	return v
}

// Stream judges holds as they end. It forgets those that no later one can lie beside, so its memory does
// not grow with the length of a run. The zero value is ready. A Stream is not safe for concurrent use.
type Stream struct {
	// Keep is for how long a hold that is over is kept. It is 0 if each hold is told by Begin when it
	// begins. A process that was stopped tells of what it believed when it runs again.
	Keep time.Duration

	// Excused reports that two holders may believe at once, because one of them was forced out.
	// nil: never.
	Excused func(x, y Hold) bool

	tokens bool // keep those of holds that are forgotten
	lines  map[string]*line
}

// line is what is kept of one key.
type line struct {
	open map[string]int64 // begun and not ended: where from
	past []Hold
	// Of those forgotten, the one with the greatest token: of all, and of writers.
	top, topWriter Hold
	tokens         map[uint64]Hold
}

func (s *Stream) line(key string) *line {
	if s.lines == nil {
		s.lines = map[string]*line{}
	}
	if s.lines[key] == nil {
		s.lines[key] = &line{open: map[string]int64{}}
		if s.tokens {
			s.lines[key].tokens = map[uint64]Hold{}
		}
	}
	return s.lines[key]
}

// Begin says that a hold has begun, so that Stream keeps what it may overlap with. id is the
// caller's.
func (s *Stream) Begin(key, id string, from int64) { s.line(key).open[id] = from }

// End judges a hold that has ended against all others of its key.
func (s *Stream) End(id string, h Hold) (overlaps, regressions []string) {
	l := s.line(h.Key)
	delete(l.open, id)
	if h.Token == 0 {
		regressions = append(regressions, fmt.Sprintf("no token: %v", h))
	}
	for i := range l.past {
		x := &l.past[i]
		switch {
		case x.Shared && h.Shared:
		case x.Token == h.Token && !x.same(&h):
			regressions = append(regressions, twice(*x, h))
		case !h.believed() || !x.believed():
		case x.From < h.To && h.From < x.To:
			if s.Excused != nil && s.Excused(*x, h) {
				break
			}
			overlaps = append(overlaps, fmt.Sprintf("%v, and %v", x, h))
			if x.From != h.From && !x.same(&h) && (x.From < h.From) != (x.Token < h.Token) {
				regressions = append(regressions, fmt.Sprintf("%v, and %v", x, h))
			}
		case !x.same(&h) && (x.To <= h.From) != (x.Token < h.Token):
			regressions = append(regressions, fmt.Sprintf("%v, and %v", x, h))
		}
	}
	if x, there := l.tokens[h.Token]; there && !x.same(&h) && !(x.Shared && h.Shared) {
		regressions = append(regressions, twice(x, h))
	}
	top := l.top
	if h.Shared {
		top = l.topWriter
	}
	if h.believed() && top.Token >= h.Token && !top.same(&h) && top.To <= h.From && top.believed() {
		regressions = append(regressions, fmt.Sprintf("%v, and later %v", top, h))
	}
	l.past = append(l.past, h)
	if len(l.past)%64 == 0 {
		l.forget(h.To - int64(s.Keep))
	}
	return overlaps, regressions
}

func twice(x, h Hold) string { return fmt.Sprintf("token given out twice: %v, and %v", x, h) }

// Kept returns the number of holds in memory.
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
	l.past = slices.DeleteFunc(l.past, func(x Hold) bool {
		if max(x.From, x.To) >= before {
			return false
		}
		if x.believed() && x.Token > l.top.Token {
			l.top = x
		}
		if x.believed() && !x.Shared && x.Token > l.topWriter.Token {
			l.topWriter = x
		}
		if l.tokens != nil {
			l.tokens[x.Token] = x
		}
		return true
	})
}
