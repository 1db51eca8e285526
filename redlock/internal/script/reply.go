package script

import (
	"time"

	"github.com/redquorum/redquorum/member"
	"github.com/redquorum/redquorum/redlock/internal/permit"
)

// Answer is what a member replies to most calls about one lock.
type Answer struct {
	N      int64  // as the header of each script says
	Server int64  // the member's time, µs; 0: not told
	Next   string // the first waiter in line; "": none, or not told
	Place  int64  // the owner's ticket at the member; 0: none, or not told

	// Lives is the lifetime of the owner's entry, if the line is so long that it is longer than was asked for; else 0.
	Lives time.Duration

	// Of a semaphore. If the owner has permits, N is the token of the first.
	Permits permit.List // all that the owner has at the member; nil: none, or not told
	Limit   int64       // the stored limit, if it is greater than the one that the client knew; else 0
}

// ReadAnswer decodes the shapes of reply: a number; {number, time}; and that with what Answer.line reads. Permits may
// stand for the number. If the reply has another shape, ok is false.
func ReadAnswer(r *member.Reply) (a Answer, ok bool) {
	e := r
	if r.Kind == '*' && len(r.Elems) >= 2 {
		a.line(r.Elems[2:])
		e, a.Server = &r.Elems[0], r.Elems[1].Int
	}
	switch e.Kind {
	case ':':
		a.N, ok = e.Int, true
	case '$':
		if a.Permits, ok = permit.Parse(string(e.Str)); ok {
			a.N = a.Permits[0].Token
		}
	}
	if !ok {
		return Answer{}, false
	}
	return a, true
}
